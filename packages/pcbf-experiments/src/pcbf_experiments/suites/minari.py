"""Minari datasets of vectors and their simulators, as they are; what Adroit's share with them is in functions."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from pcbf_experiments.data.checks import Check, episode_lengths, fraction, largest_action, told
from pcbf_experiments.data.download import DatasetError, Source, missing
from pcbf_experiments.data.local import LocalSettings
from pcbf_experiments.data.registry import array_faults, entries
from pcbf_experiments.data.rows import DatasetInfo, Rows, clip_actions, summarise
from pcbf_experiments.simulators import SimulatorSpec, SuccessTiming, make_simulator
from pcbf_experiments.suites.base import Suite
from pcbf_records.canonical import readable_json
from pcbf_records.files import EXPANSION, SMALL, sha256, write_text
from pcbf_records.sheets import Task

RECEIPT = "pcbf.json"
MAX_EPISODES = 10**6  # of a file that is what it says


class Minari(Suite):
    """Any Minari dataset of vectors, judged in the simulator that the task names by `info["success"]`."""

    name: ClassVar[str] = "minari"
    num_final_evaluations: ClassVar[int] = 3

    def check(self, task: Task) -> None:
        if not task.simulator:
            raise ValueError(
                f"`simulator=''` of {task.name}: a task of the suite 'minari' needs the Gymnasium id of its simulator."
            )

    def load_rows(self, task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
        """The rows of a Minari dataset; `terminal` where an episode terminated."""
        receipt = check_dataset(task, data_dir)
        episodes = read_episodes(task, data_dir)
        parts = [
            episode_rows(episode, np.asarray(episode.rewards, np.float64), np.asarray(episode.terminations, bool))
            for episode in episodes
        ]
        rows = joined(parts)
        return rows, summarise(task.dataset, rows, receipt["source"], receipt["files"], details(receipt, episodes))

    def reward_bounds(self, info: DatasetInfo) -> tuple[float, float]:
        return info.reward_range

    def fetch(self, task: Task, data_dir: Path, sources: Sequence[Source]) -> list[dict[str, Any]]:
        return [fetch(task, data_dir, sources)]

    def make_local(
        self, task: Task, data_dir: Path, settings: LocalSettings, *, num_workers: int, overwrite: bool, progress: bool
    ) -> list[Path]:
        raise DatasetError(
            f"{task.name} brings its own simulator, for which there is no generator; make its dataset with Minari, as "
            "docs/adding-a-task.md shows, or fetch it."
        )

    def shapes(self, task: Task) -> tuple[tuple[int, ...], int]:
        """What the simulator says."""
        env = make_simulator(self.simulator(task))
        try:
            shapes = env.observation_space.shape, env.action_space.shape
        finally:
            env.close()
        return tuple(shapes[0] or ()), int(np.prod(shapes[1] or ()))

    def checks(self, task: Task, rows: Rows, info: DatasetInfo, data_dir: Path | None) -> list[Check]:
        reward = rows.reward[rows.transition_rows()]
        return [
            *recorded_checks(rows, info),
            told("reward range", f"[{reward.min():.4g}, {reward.max():.4g}]"),
            fraction("transitions that end the return", float((rows.terminal[rows.transition_rows()] > 0).mean())),
        ]

    def simulator(
        self, task: Task, *, episode_limit: int | None = None, success_timing: SuccessTiming = "pre", **options: Any
    ) -> SimulatorSpec:
        """The simulator that the task names; it says itself when it counts a success."""
        limit = episode_limit or task.episode_limit
        return SimulatorSpec(task.simulator, episode_limit=limit, options=tuple(options.items()))

    def score(self, task: Task, episode_return: float, success: float) -> float:
        """100 for success at the last step, 0 otherwise."""
        return 100.0 * success

    def views(self, task: Task, env: gymnasium.Env) -> list[np.ndarray]:
        return [start_view(env)]


def start_view(env: gymnasium.Env) -> np.ndarray:
    """The first state of an episode."""
    env.reset(seed=0)
    return np.asarray(env.render())


def recorded_checks(rows: Rows, info: DatasetInfo) -> list[Check]:
    """What holds for every Minari dataset: episodes of any length, and the return ends only with an episode."""
    index = rows.transition_rows()
    inside = int(((rows.terminal[index] > 0) & ~rows.is_last[index + 1]).sum())
    return [
        largest_action(float(info.details.get("largest_action", np.nan)), is_judged=False),
        episode_lengths(rows.episode_lengths, is_even=False),
        Check("terminal only closes episodes", f"{inside} inside", "0 inside", inside == 0),
    ]


def details(receipt: dict[str, Any], episodes: Sequence[Any]) -> dict[str, Any]:
    """What the info of a Minari dataset says besides: how it was made here, if it was, and its largest action."""
    largest = max(float(np.abs(episode.actions).max()) for episode in episodes)
    return {"local": receipt.get("local"), "largest_action": largest}


@contextmanager
def minari_folder(data_dir: Path) -> Iterator[Path]:
    """Minari's dataset folder set to `data_dir`/minari inside the block."""
    folder = (data_dir / "minari").resolve()
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before


def read_episodes(task: Task, data_dir: Path) -> list[Any]:
    """The episodes of the task's dataset, as Minari gives them."""
    with minari_folder(data_dir), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari

        folder = dataset_folder(task, data_dir)
        try:
            for file in sorted((folder / "data").glob("*.hdf5")):
                check_hdf5(file)
            episodes = list(minari.load_dataset(task.dataset).iterate_episodes())
        except Exception as error:  # Minari raises what its readers raise
            raise DatasetError(f"{folder} cannot be read as a Minari dataset ({error}). {_remedy(folder)}") from error
    if not episodes:
        raise DatasetError(f"{dataset_folder(task, data_dir)} holds no episode; fetch or make it again.")
    return episodes


def episode_rows(episode: Any, reward: np.ndarray, terminal: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of one episode up to its first terminal step, padded by a closing row."""
    length = int(terminal.argmax()) + 1 if terminal.any() else len(terminal)
    observation, reward, terminal = np.asarray(episode.observations)[: length + 1], reward[:length], terminal[:length]
    action = clip_actions(np.asarray(episode.actions)[:length])
    return {
        "observation": observation.astype(np.float32),
        "action": np.concatenate([action, np.zeros_like(action[:1])]),
        "reward": np.append(reward, 0).astype(np.float32),
        "terminal": np.append(terminal, False).astype(np.float32),
        "is_last": np.arange(len(observation)) == len(observation) - 1,
    }


def joined(parts: Sequence[dict[str, np.ndarray]]) -> Rows:
    return Rows(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, has_last_action=False)


def dataset_folder(task: Task, data_dir: Path) -> Path:
    return data_dir / "minari" / task.dataset


def write_receipt(task: Task, data_dir: Path, source: str, **details: Any) -> dict[str, Any]:
    """Record size-independent identity of the dataset's files beside them."""
    folder = dataset_folder(task, data_dir)
    files = sorted(file for file in (folder / "data").iterdir() if file.is_file())
    receipt = {
        "dataset": task.dataset,
        "source": source,
        "files": {file.name: sha256(file) for file in files},
        **details,
    }
    write_text(folder / RECEIPT, readable_json(receipt))
    return receipt


def check_dataset(task: Task, data_dir: Path) -> dict[str, Any]:
    """The receipt of a Minari dataset after checking its files; one that has none gets one."""
    folder = dataset_folder(task, data_dir)
    if not (folder / "data").is_dir():
        raise missing(folder, task, data_dir)
    try:
        receipt = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
        if not {"files", "source"} <= set(receipt) or not isinstance(receipt["files"], dict):
            raise ValueError("it is no receipt")
    except FileNotFoundError:
        mark = _adopted_mark(folder)
        return write_receipt(task, data_dir, "local" if mark else "found", **({"local": mark} if mark else {}))
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{folder / RECEIPT} cannot be read ({error}). {_remedy(folder)}") from error
    for name, recorded in receipt["files"].items():
        file = folder / "data" / name
        if not file.is_file() or sha256(file) != recorded:
            raise DatasetError(
                f"{file} is not the file that was recorded (truncated, changed or missing). {_remedy(folder)}"
            )
    return receipt


def _remedy(folder: Path) -> str:
    return f"Move {folder} away or delete it, then fetch or make it again."


def check_hdf5(file: Path) -> None:
    """Raise a `ValueError` if an HDF5 file refers to others, or would unpack to absurdly much."""
    import h5py

    limit, total = max(SMALL, EXPANSION * file.stat().st_size), 0
    with h5py.File(file, "r") as opened:
        groups: list[Any] = [opened]
        while groups:
            group = groups.pop()
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"{group.name}/{name} is a link to elsewhere")
                item = group[name]
                if isinstance(item, h5py.Group):
                    groups.append(item)
                    continue
                if item.external or item.is_virtual:
                    raise ValueError(f"{item.name} lies in another file")
                total += item.nbytes
                if total > limit or len(groups) > MAX_EPISODES:
                    raise ValueError(f"it would unpack to more than {limit} bytes")


def _adopted_mark(folder: Path) -> dict[str, Any] | None:
    """The mark of a dataset that was found without a receipt; one that cannot be read raises."""
    try:
        for file in sorted((folder / "data").glob("*.hdf5")):
            check_hdf5(file)  # opening compares its length with what its header says
        return _mark(folder)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{folder} is truncated or corrupt ({error}). {_remedy(folder)}") from error


def _mark(folder: Path) -> dict[str, Any] | None:
    """How a generated dataset was made, as its metadata says; None for one that was not generated here."""
    metadata = json.loads((folder / "data" / "metadata.json").read_text(encoding="utf-8"))
    mark = metadata.get("pcbf_local")
    return json.loads(mark) if isinstance(mark, str) else mark


def _official(task: Task, data_dir: Path, receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt of a dataset that was just fetched; one that is not what the registry says is put aside."""
    folder, entry = dataset_folder(task, data_dir), entries().get(f"minari/{task.dataset}")
    if entry is None or receipt["source"] == "local":
        return receipt
    faults = list(array_faults(entry, _first_arrays(folder)))
    if not faults:
        return receipt
    aside = folder.with_name(f"{folder.name}.refused")
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(folder, aside)
    raise DatasetError(f"{task.dataset} is not the official dataset: {'; '.join(faults)}; it is kept as {aside}.")


def _first_arrays(folder: Path) -> dict[str, dict[str, Any]]:
    """Types and shapes of the arrays of a dataset's first episode, with the steps of all episodes as their length."""
    import h5py

    metadata = json.loads((folder / "data" / "metadata.json").read_text(encoding="utf-8"))
    with h5py.File(folder / "data" / "main_data.hdf5", "r") as file:
        episode: Any = file["episode_0"]
        found = {name: item for name, item in episode.items() if isinstance(item, h5py.Dataset)}
        return {
            name: {"dtype": str(item.dtype), "shape": [metadata.get("total_steps"), *item.shape[1:]]}
            for name, item in found.items()
        }


def fetch(task: Task, data_dir: Path, sources: Sequence[Source]) -> dict[str, Any]:
    """The receipt of the task's dataset, copied from a folder of yours or downloaded by Minari unless it is there."""
    folder = dataset_folder(task, data_dir)
    if folder.exists():
        return check_dataset(task, data_dir)
    for source in sources:
        original = Path(source.place).expanduser() / task.dataset
        if "://" not in source.place and (original / "data").is_dir():
            unfinished = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(original, unfinished)
            os.replace(unfinished, folder)
            return _official(task, data_dir, check_dataset(task, data_dir))
    with minari_folder(data_dir) as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari

        root.mkdir(parents=True, exist_ok=True)
        try:
            minari.download_dataset(task.dataset)
        except Exception as error:  # Minari raises what its hosts raise
            raise DatasetError(
                f"Minari could not download {task.dataset} ({type(error).__name__}: {error}). Set MINARI_REMOTE to "
                "another host, pass --source FOLDER (a Minari folder that holds it), or use `pcbf-data make-local`."
            ) from error
    return _official(task, data_dir, write_receipt(task, data_dir, "official"))
