"""Minari data. Adroit: with the rewards and stops of D4RL, and D4RL-normalised scores; other sets as they are."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pcbf_baselines.datasets.download import DatasetError, Source, sha256
from pcbf_baselines.datasets.rows import DatasetInfo, Rows, clip_actions, summarise
from pcbf_baselines.datasets.tasks import Task
from pcbf_baselines.wrappers import EnvironmentSpec, corrected_reward, hand_distance, is_dropped
from pcbf_core.files import atomic_write

REFERENCE_RETURNS = {
    "pen": (96.262799, 3076.8331017826877),
    "door": (-56.512833, 2880.5693087298737),
    "hammer": (-274.856578, 12794.134825156867),
    "relocate": (-6.425911, 4233.877797728884),
}
REACHING = ("door", "hammer", "relocate")  # have a distance term
RECEIPT = "pcbf.json"
EARLY_STEPS = 8  # steps of an episode in which only the hand moves


def hand_of(task: Task) -> str:
    return task.name.split("-")[0]


def normalised_score(hand: str, episode_return: float) -> float:
    """100 · (return - random) / (expert - random) with D4RL's reference returns."""
    low, high = REFERENCE_RETURNS[hand]
    return 100.0 * (episode_return - low) / (high - low)


def environment_spec(task: Task, *, episode_limit: int | None = None) -> EnvironmentSpec:
    """The simulator of an Adroit task: D4RL's horizon, stop and reward."""
    hand = hand_of(task)
    return EnvironmentSpec(task.environment, hand=hand, episode_limit=episode_limit or task.episode_limit)


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


def load_rows(task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
    """The rows of a Minari dataset; `terminal` where an episode terminated.

    Adroit gets D4RL's rewards, which data made here has already, and its pen episodes end where the pen falls: what
    was recorded after that is left out.
    """
    receipt = check_dataset(task, data_dir)
    hand = hand_of(task) if task.kind == "adroit" else ""
    episodes = _episodes(task, data_dir)
    is_paid = hand in REACHING and receipt["source"] != "local" and distance_slope(hand, episodes) > 0
    rows = _join([_episode_rows(hand, episode, is_paid) for episode in episodes])
    largest = max(float(np.abs(episode.actions).max()) for episode in episodes)
    details: dict[str, Any] = {"local": receipt.get("local"), "largest_action": largest}
    if hand:
        left_out = sum(len(episode.actions) for episode in episodes) - rows.num_transitions
        details |= {"distance_sign_corrected": is_paid, "steps_after_drop_left_out": left_out}
    return rows, summarise(task.dataset, rows, receipt["source"], receipt["files"], details)


def _episodes(task: Task, data_dir: Path) -> list[Any]:
    with minari_folder(data_dir), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari

        try:
            episodes = list(minari.load_dataset(task.dataset).iterate_episodes())
        except (OSError, KeyError, ValueError) as error:
            folder = dataset_folder(task, data_dir)
            raise DatasetError(f"{folder} cannot be read as a Minari dataset ({error}). {_remedy(folder)}") from error
    if not episodes:
        raise DatasetError(f"{dataset_folder(task, data_dir)} holds no episode; fetch or make it again.")
    return episodes


def distance_slope(hand: str, episodes: Sequence[Any]) -> float:
    """Least-squares slope of the reward in the palm's distance over the first steps of each episode.

    About -0.1 in D4RL; +0.1 in data made with a release of gymnasium-robotics that has the sign
    wrong. Only the hand moves in those steps, so the other terms stay put.
    """
    distances, rewards = [], []
    for episode in episodes:
        distance = hand_distance(hand, np.asarray(episode.observations)[1 : EARLY_STEPS + 1])
        reward = np.asarray(episode.rewards)[:EARLY_STEPS]
        distances.append(distance - distance.mean())
        rewards.append(reward - reward.mean())
    x, y = np.concatenate(distances), np.concatenate(rewards)
    return float((x @ y) / max(x @ x, 1e-12))


def _episode_rows(hand: str, episode: Any, is_paid: bool) -> dict[str, np.ndarray]:
    """Arrays of one episode up to its first terminal step, padded by a closing row."""
    observation = np.asarray(episode.observations)
    reward = np.asarray(episode.rewards, np.float64)
    terminal = np.asarray(episode.terminations, bool)
    if hand == "pen":
        terminal = terminal | is_dropped(observation[1:])
    if is_paid:
        reward = corrected_reward(hand, reward, observation[1:])
    length = int(terminal.argmax()) + 1 if terminal.any() else len(terminal)
    observation, reward, terminal = observation[: length + 1], reward[:length], terminal[:length]
    action = clip_actions(np.asarray(episode.actions)[:length])
    return {
        "observation": observation.astype(np.float32),
        "action": np.concatenate([action, np.zeros_like(action[:1])]),
        "reward": np.append(reward, 0).astype(np.float32),
        "terminal": np.append(terminal, False).astype(np.float32),
        "is_last": np.arange(len(observation)) == len(observation) - 1,
    }


def _join(parts: Sequence[dict[str, np.ndarray]]) -> Rows:
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
    with atomic_write(folder / RECEIPT) as stream:
        stream.write(json.dumps(receipt, indent=1, sort_keys=True) + "\n")
    return receipt


def check_dataset(task: Task, data_dir: Path) -> dict[str, Any]:
    """The receipt of a Minari dataset after checking its files; one that has none gets one."""
    folder = dataset_folder(task, data_dir)
    if not (folder / "data").is_dir():
        raise DatasetError(
            f"{folder} is missing; `pcbf-data fetch {task.name}` downloads it, "
            f"`pcbf-data make-local {task.name}` generates it."
        )
    try:
        receipt = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        mark = _adopted_mark(folder)
        return write_receipt(task, data_dir, "local" if mark else "found", **({"local": mark} if mark else {}))
    except json.JSONDecodeError as error:
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


def _adopted_mark(folder: Path) -> dict[str, Any] | None:
    """The mark of a dataset that was found without a receipt; one that cannot be read raises."""
    import h5py

    try:
        for file in sorted((folder / "data").glob("*.hdf5")):
            with h5py.File(file, "r"):
                pass  # opening compares its length with what its header says
        return _mark(folder)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder} is truncated or corrupt ({error}). {_remedy(folder)}") from error


def _mark(folder: Path) -> dict[str, Any] | None:
    """How a generated dataset was made, as its metadata says; None for one that was not generated here."""
    metadata = json.loads((folder / "data" / "metadata.json").read_text(encoding="utf-8"))
    mark = metadata.get("pcbf_local")
    return json.loads(mark) if isinstance(mark, str) else mark


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
            return check_dataset(task, data_dir)
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
    return write_receipt(task, data_dir, "official")
