"""OGBench data through its own loader and its own rewards; nothing is downloaded or unpickled behind your back."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pcbf_baselines.datasets.download import DatasetError, check_file
from pcbf_baselines.datasets.rows import DatasetInfo, Rows, clip_actions, summarise
from pcbf_baselines.datasets.tasks import Task
from pcbf_baselines.wrappers import EnvironmentSpec, make_environment, own_generator
from pcbf_core.files import atomic_write

SuccessTiming = Literal["pre", "post"]


def dataset_files(task: Task, data_dir: Path) -> tuple[Path, Path]:
    """The training and the validation file of the task's dataset."""
    folder = data_dir / "ogbench"
    return folder / f"{task.dataset}.npz", folder / f"{task.dataset}-val.npz"


def environment_spec(
    task: Task,
    *,
    success_timing: SuccessTiming = "pre",
    episode_limit: int | None = None,
    num_frames: int = 0,
) -> EnvironmentSpec:
    """The simulator of an OGBench task, or of one that brings its own and judges its success itself.

    `success_timing="pre"` judges the state the action is taken in, as the rewards of the data do;
    "post" judges the state it leads to, as the release the paper used (ogbench 1.1) did.
    """
    return EnvironmentSpec(
        environment=task.environment,
        episode_limit=episode_limit or task.episode_limit,
        num_frames=num_frames,
        options=() if task.is_minari else (("success_timing", success_timing),),
    )


def load_rows(task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
    """The rows of an OGBench dataset with rewards and masks of `task` by the official relabelling.

    `terminal = 1 - masks`: the return ends at success. The end of a recording is `is_last`.
    """
    train, validation = dataset_files(task, data_dir)
    receipts = [_checked(file, task) for file in (train, validation)]
    arrays = _labelled(task, train, receipts[0]["sha256"])
    details = {"local": receipts[0].get("local"), "largest_action": float(np.abs(arrays["actions"]).max())}
    is_last = arrays["valids"] == 0
    rows = Rows(
        observation=arrays["observations"],
        action=clip_actions(arrays["actions"]),
        reward=arrays["rewards"],
        terminal=(1.0 - arrays["masks"]).astype(np.float32),
        is_last=is_last,
        has_last_action=True,
    )
    sources = {receipt["source"] for receipt in receipts}
    source = "local" if "local" in sources else receipts[0]["source"]
    files = {receipt["file"]: receipt["sha256"] for receipt in receipts}
    return rows, summarise(task.dataset, rows, source, files, details)


def _checked(file: Path, task: Task) -> dict[str, Any]:
    """The receipt of a file that is whole and holds what the rewards are computed from, row by row."""
    if not file.exists():
        raise DatasetError(
            f"{file} is missing; `pcbf-data fetch {task.name}` downloads it, "
            f"`pcbf-data make-local {task.name}` generates it."
        )
    receipt = check_file(file)
    arrays = receipt["arrays"]
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
    with contextlib.suppress(FileNotFoundError), np.load(labels) as kept:
        from ogbench.utils import load_dataset

        dtype: Any = np.uint8 if task.environment.startswith("visual-") else np.float32
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

        spec = EnvironmentSpec(environment=task.environment.removeprefix("visual-"))
        env = make_environment(spec)
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
