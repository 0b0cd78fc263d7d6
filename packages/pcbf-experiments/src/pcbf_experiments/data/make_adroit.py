"""Adroit datasets generated here from given policy weights, in Minari's format, marked as local."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from pcbf_experiments.data.download import DatasetError
from pcbf_experiments.data.local import Episode, EpisodeJob, LocalSettings, collect, mark
from pcbf_experiments.simulators import make_simulator
from pcbf_experiments.suites import suite_of
from pcbf_experiments.suites.adroit import REFERENCE_RETURNS, hand_of, simulator_id
from pcbf_experiments.suites.minari import check_dataset, dataset_folder, minari_folder, write_receipt
from pcbf_records.files import atomic_write, open_npz
from pcbf_records.sheets import Task

POLICIES_VARIABLE = "PCBF_ADROIT_POLICIES"


def find_policies(folder: Path | None = None) -> Path:
    """Folder of Adroit policy weights: the one given, or that of PCBF_ADROIT_POLICIES."""
    for place in (folder, os.environ.get(POLICIES_VARIABLE)):
        if place and Path(place).is_dir():
            return Path(place)
    raise DatasetError(
        f"no policy weights; pass --policies FOLDER or set {POLICIES_VARIABLE} to a folder with pen.npz, door.npz, "
        "hammer.npz and relocate.npz (arrays w0 b0 w1 b1 w2 b2 in_shift in_scale out_shift out_scale log_std)."
    )


@cache
def load_policy(file: Path) -> dict[str, np.ndarray]:
    with open_npz(file) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}


def policy_mean(weights: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """Mean action of a two-layer tanh policy with input and output scaling."""
    hidden = (observation - weights["in_shift"]) / (weights["in_scale"] + 1e-8)
    for layer in ("0", "1"):
        hidden = np.tanh(weights[f"w{layer}"] @ hidden + weights[f"b{layer}"])
    return (weights["w2"] @ hidden + weights["b2"]) * weights["out_scale"] + weights["out_shift"]


def _adroit_episode(job: EpisodeJob) -> Episode:
    hand = hand_of(job.task)
    assert job.settings.policies is not None
    weights = load_policy(job.settings.policies / f"{hand}.npz")
    is_worse = "cloned" in job.task.name and job.number % 2 == 1
    deviation = 0.5 if is_worse else np.exp(weights["log_std"])
    env = _adroit_simulator(job.task, job.settings.episode_length)
    seed = job.seed()
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    record: dict[str, list[Any]] = {"observations": [observation]}
    is_over = False
    while not is_over:
        action = policy_mean(weights, observation) + deviation * rng.standard_normal(len(weights["log_std"]))
        action = np.clip(action, -1, 1).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        is_over = terminated or truncated
        row = dict(
            observations=observation, actions=action, rewards=reward, terminations=terminated, truncations=truncated
        )
        for name, value in row.items():
            record.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in record.items()}


@lru_cache(maxsize=1)
def _adroit_simulator(task: Task, episode_length: int) -> gymnasium.Env:
    limit = min(episode_length, task.episode_limit)
    return make_simulator(suite_of(task).simulator(task, episode_limit=limit))


def behaviour(task: Task) -> str:
    """Who acts in the generated episodes of a task, in words."""
    if "cloned" in task.name:
        return "proxy for cloned: every other episode from the given policy with its noise, the rest with noise 0.5"
    return "given policy with its own noise"


def make_adroit(
    task: Task,
    data_dir: Path,
    settings: LocalSettings,
    *,
    num_workers: int = 1,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """The folder of a Minari dataset made from policy weights; it takes its place only once it is complete."""
    settings = replace(settings, policies=find_policies(settings.policies))
    folder = dataset_folder(task, data_dir)
    if folder.exists():
        if not overwrite:
            raise DatasetError(f"{folder} exists; pass --overwrite to replace local data, or another --data-dir.")
        if check_dataset(task, data_dir)["source"] != "local":
            raise DatasetError(f"{folder} was not generated here and is not replaced; move it away first.")
    jobs = [EpisodeJob(task, settings, 0, number) for number in range(settings.num_episodes)]
    episodes = list(collect(_adroit_episode, jobs, num_workers, task.dataset, progress))
    said = mark(task, settings, behaviour(task), policies=[f"{hand_of(task)}.npz"])
    unfinished = data_dir / f".minari-{os.getpid()}"
    try:
        _write_minari(task, unfinished, episodes, said)
        folder.parent.mkdir(parents=True, exist_ok=True)
        namespace = task.dataset.split("/")[0]  # Minari wants its note about it
        _copy_namespace(unfinished / "minari" / namespace, data_dir / "minari" / namespace)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(unfinished / "minari" / task.dataset, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    write_receipt(task, data_dir, "local", local=said)
    return folder


def _copy_namespace(made: Path, wanted: Path) -> None:
    wanted.mkdir(parents=True, exist_ok=True)
    for note in made.glob("*.json"):
        if not (wanted / note.name).exists():
            with atomic_write(wanted / note.name, "wb") as copy:  # a job of another dataset may read it meanwhile
                copy.write(note.read_bytes())


def _write_minari(task: Task, data_dir: Path, episodes: Sequence[Episode], said: dict[str, Any]) -> None:
    from minari.data_collector import EpisodeBuffer

    with minari_folder(data_dir) as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari

        root.mkdir(parents=True)
        low, high = REFERENCE_RETURNS[hand_of(task)]
        env = _adroit_simulator(task, task.episode_limit)
        dataset = minari.create_dataset_from_buffers(
            task.dataset,
            [EpisodeBuffer(id=number, **_buffer(episode)) for number, episode in enumerate(episodes)],
            env=simulator_id(task),
            observation_space=env.observation_space,
            action_space=env.action_space,
            ref_min_score=low,
            ref_max_score=high,
            description=f"Generated locally; {said['behaviour']}.",
            algorithm_name="local",
            author="local",
            author_email="none",
            code_permalink="none",
            data_format="hdf5",
        )
        dataset.storage.update_metadata({"pcbf_local": json.dumps(said, sort_keys=True)})


def _buffer(episode: Episode) -> dict[str, Any]:
    """The episode as Minari's lists."""
    arrays = ("observations", "actions")
    return {name: list(array) if name in arrays else array.tolist() for name, array in episode.items()}
