"""OGBench: data through its own loader and its own rewards; nothing is downloaded or unpickled behind your back."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from pcbf_experiments.data.checks import MAX_LOOKED_AT, Check, episode_lengths, fraction, largest_action
from pcbf_experiments.data.download import DatasetError, Source, check_file, describe, fetch, missing
from pcbf_experiments.data.local import LocalSettings
from pcbf_experiments.data.pixels import NUM_FRAMES
from pcbf_experiments.data.rows import DatasetInfo, Rows, clip_actions, summarise
from pcbf_experiments.simulators import (
    FrameStack,
    SimulatorSpec,
    SuccessTiming,
    make_simulator,
    own_generator,
    render_without_screen,
)
from pcbf_experiments.suites.base import Suite
from pcbf_records.files import atomic_write, check_npz, open_npz
from pcbf_records.sheets import Task

# (observation dimensions, action dimensions) of the official files, by the beginning of the task's name
STATE_SHAPES = {
    "cube-single": (28, 5),
    "cube-double": (37, 5),
    "cube-triple": (46, 5),
    "scene": (40, 5),
    "puzzle-4x4": (83, 5),
    "pointmaze": (2, 2),
    "antmaze": (29, 8),
}
LOWEST_REWARD = {"cube-single": -1, "cube-double": -2, "cube-triple": -3, "scene": -5, "puzzle-4x4": -16, "maze": -1}


class OGBench(Suite):
    """Goal-reaching tasks of OGBench as single tasks: reward 0 at success and negative before, score 100 or 0."""

    name: ClassVar[str] = "ogbench"
    num_final_evaluations: ClassVar[int] = 3

    def check(self, task: Task) -> None:
        if task.simulator:
            raise ValueError(
                f"`simulator={task.simulator!r}` of {task.name}: OGBench knows its simulators; leave it out, or name "
                "the suite 'minari'."
            )

    def load_rows(self, task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
        """The rows of an OGBench dataset with rewards and masks of `task` by the official relabelling.

        `terminal = 1 - masks`: the return ends at success. The end of a recording is `is_last`.
        """
        train, validation = dataset_files(task, data_dir)
        receipts = [_checked(file, task) for file in (train, validation)]
        arrays = _labelled(task, train, receipts[0]["sha256"])
        details = {"local": receipts[0].get("local"), "largest_action": float(np.abs(arrays["actions"]).max())}
        rows = Rows(
            observation=arrays["observations"],
            action=clip_actions(arrays["actions"]),
            reward=arrays["rewards"],
            terminal=(1.0 - arrays["masks"]).astype(np.float32),
            is_last=arrays["valids"] == 0,
            has_last_action=True,
        )
        sources = {receipt["source"] for receipt in receipts}
        source = "local" if "local" in sources else receipts[0]["source"]
        files = {receipt["file"]: receipt["sha256"] for receipt in receipts}
        return rows, summarise(task.dataset, rows, source, files, details)

    def reward_bounds(self, info: DatasetInfo) -> tuple[float, float]:
        """Up to 0, the success that a small dataset may not contain."""
        return min(info.reward_range[0], -1.0), 0.0

    def fetch(self, task: Task, data_dir: Path, sources: Sequence[Source]) -> list[dict[str, Any]]:
        return [fetch(file, sources) for file in dataset_files(task, data_dir)]

    def make_local(
        self, task: Task, data_dir: Path, settings: LocalSettings, *, num_workers: int, overwrite: bool, progress: bool
    ) -> list[Path]:
        from pcbf_experiments.data.make_ogbench import make_ogbench

        files = dataset_files(task, data_dir)
        return make_ogbench(task, files, settings, num_workers=num_workers, overwrite=overwrite, progress=progress)

    def shapes(self, task: Task) -> tuple[tuple[int, ...], int]:
        name = task.name.removeprefix("visual-")
        dims, actions = next(shape for prefix, shape in STATE_SHAPES.items() if name.startswith(prefix))
        return (64, 64, 3) if task.is_pixel else (dims,), actions

    def checks(self, task: Task, rows: Rows, info: DatasetInfo, data_dir: Path | None) -> list[Check]:
        index = rows.transition_rows()
        reward, terminal = rows.reward[index], rows.terminal[index]
        lowest = next(value for part, value in LOWEST_REWARD.items() if part in task.name)
        checks = [
            largest_action(float(info.details.get("largest_action", np.nan)), is_judged=True),
            episode_lengths(rows.episode_lengths, is_even=True),
            *([_image_check(rows)] if task.is_pixel else []),
            Check(
                "reward range",
                f"[{reward.min():g}, {reward.max():g}]",
                f"integers in [{lowest}, 0]",
                bool((reward >= lowest).all() and (reward <= 0).all() and (reward == np.round(reward)).all()),
            ),
            Check(
                "terminal exactly at success",
                f"{int(((reward == 0) != (terminal == 1)).sum())} differ",
                "0 differ",
                bool(((reward == 0) == (terminal == 1)).all()),
            ),
            fraction("transitions at success", float(terminal.mean())),
        ]
        return checks if data_dir is None else [*checks, _validation_check(*dataset_files(task, data_dir))]

    def simulator(
        self, task: Task, *, episode_limit: int | None = None, success_timing: SuccessTiming = "pre", **options: Any
    ) -> SimulatorSpec:
        """The simulator of the single task.

        `success_timing="pre"` judges the state the action is taken in, as the rewards of the data do; "post" judges the
        state it leads to, as the release the paper used (ogbench 1.1) did.
        """
        return SimulatorSpec(
            simulator_id(task),
            registered_by="ogbench",
            wrappers=(partial(FrameStack, num_frames=NUM_FRAMES),) if task.is_pixel else (),
            episode_limit=episode_limit or task.episode_limit,
            options=(("success_timing", success_timing), *options.items()),
        )

    def score(self, task: Task, episode_return: float, success: float) -> float:
        """100 for success at the last step, 0 otherwise."""
        return 100.0 * success

    def views(self, task: Task, env: gymnasium.Env) -> list[np.ndarray]:
        """Start and goal; images as the agent sees them."""
        observation, info = env.reset(seed=0, options={"render_goal": True})
        if task.is_pixel:
            return [observation, info["goal"]]
        return [np.asarray(env.render()), info["goal_rendered"]]


def simulator_id(task: Task) -> str:
    """Gymnasium id of the single task: its name without the type of its data."""
    words = task.name.split("-")
    words.remove(task.dataset.split("-")[-2])
    return "-".join(words)


def dataset_files(task: Task, data_dir: Path) -> tuple[Path, Path]:
    """The training and the validation file of the task's dataset."""
    folder = data_dir / "ogbench"
    return folder / f"{task.dataset}.npz", folder / f"{task.dataset}-val.npz"


def _checked(file: Path, task: Task) -> dict[str, Any]:
    """The receipt of a file that is whole and holds what the rewards are computed from, row by row."""
    if not file.exists():
        raise missing(file, task, file.parent.parent)
    receipt = check_file(file)
    try:
        with file.open("rb") as stream:
            check_npz(stream)
        arrays = describe(file)
    except ValueError as error:
        raise DatasetError(f"{file} cannot be read ({error}). Move it away, then fetch or make it again.") from error
    has_buttons = any(name in task.dataset for name in ("scene", "puzzle"))
    wanted = ["observations", "actions", "terminals", "qpos", *(["button_states"] if has_buttons else [])]
    rows = {name: arrays[name]["shape"][0] for name in wanted if name in arrays and arrays[name]["shape"]}
    if set(rows) != set(wanted) or len(set(rows.values())) != 1 or not rows["actions"]:
        found = ", ".join(f"{name} {entry['shape']}" for name, entry in arrays.items())
        raise DatasetError(
            f"{file} is no OGBench file of {task.dataset}: it needs {', '.join(wanted)} with one row per step, and has "
            f"{found or 'no array'}. Move it away, then fetch or make it again."
        )
    return receipt


def _labelled(task: Task, train: Path, digest: str) -> dict[str, np.ndarray]:
    """Rows by the official loader with rewards and masks of `task`.

    These need a simulator, which takes seconds to build. They are kept beside the data, under a name that depends on
    everything they are made from, and taken from there the next time.
    """
    made_from = hashlib.sha256(f"{digest} {importlib.metadata.version('ogbench')}".encode()).hexdigest()
    labels = train.parent / "labels" / f"{task.name}-{made_from[:16]}.npz"
    render_without_screen()
    with contextlib.suppress(FileNotFoundError), open_npz(labels) as kept:
        from ogbench.utils import load_dataset

        dtype: Any = np.uint8 if task.is_pixel else np.float32
        return load_dataset(str(train), ob_dtype=dtype, compact_dataset=True) | dict(kept)
    arrays = _official_loader(task, train)
    with contextlib.suppress(OSError), atomic_write(labels, mode="wb") as file:
        np.savez(file, rewards=arrays["rewards"], masks=arrays["masks"])
    return arrays


def _official_loader(task: Task, train: Path) -> dict[str, np.ndarray]:
    """Rows from `ogbench.make_env_and_datasets`; the state simulator gives the goal, so images need no renderer."""
    with warnings.catch_warnings(), own_generator(None):
        warnings.simplefilter("ignore")
        import ogbench

        env = make_simulator(SimulatorSpec(simulator_id(task).removeprefix("visual-"), registered_by="ogbench"))
        try:
            loaded: Any = ogbench.make_env_and_datasets(
                task.name,
                dataset_path=str(train),
                compact_dataset=True,
                dataset_only=True,
                cur_env=env.unwrapped,
            )
        finally:
            env.close()
    return loaded[0]


# --- checks ---------------------------------------------------------------------------------------------------------


def _validation_check(train: Path, validation: Path) -> Check:
    """Whether the validation file holds the same arrays as the training file, whatever their number of rows."""
    left, right = (
        {name: (entry["dtype"], *entry["shape"][1:]) for name, entry in describe(file).items() if entry["shape"]}
        for file in (train, validation)
    )
    different = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    return Check("arrays of the validation file", ", ".join(different) or "the same", "the same", not different)


def _image_check(rows: Rows) -> Check:
    """A renderer that fails leaves frames of one colour."""
    looked_at = rows.observation[:: max(len(rows.observation) // MAX_LOOKED_AT, 1)]
    flat = looked_at.reshape(len(looked_at), -1, looked_at.shape[-1])
    blank = int((flat.min(axis=1) == flat.max(axis=1)).all(axis=-1).sum())
    return Check("blank images", f"{blank} of {len(flat)} looked at", "0", blank == 0)
