"""What all generators of local data share: how much to make, one episode per job, several processes, the mark.

Episode e of a split is made from the seed (seed, split, e) alone, so the number of processes does not change a byte.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pcbf_core.config import check_range
from pcbf_records.sheets import Task

Episode = dict[str, np.ndarray]


@dataclass(frozen=True)
class LocalSettings:
    """How much to generate, and from what.

    Attributes:
      num_episodes, num_validation_episodes: episodes of the training and the validation file.
      episode_length: transitions per episode (1000 in the official files; Adroit episodes end by themselves).
      seed: of everything random.
      state_file: for image datasets, a state file to render instead of new episodes.
      policies: folder of Adroit policy weights `<hand>.npz`.
    """

    num_episodes: int = 100
    num_validation_episodes: int = 10
    episode_length: int = 1000
    seed: int = 0
    state_file: Path | None = None
    policies: Path | None = None

    def __post_init__(self) -> None:
        for name in ("num_episodes", "num_validation_episodes", "episode_length"):
            check_range(name, getattr(self, name), at_least=1)
        check_range("seed", self.seed, at_least=0)


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to make; plain values, so that a worker process can be told."""

    task: Task
    settings: LocalSettings
    split: int  # 0 training, 1 validation
    number: int

    def seed(self, attempt: int = 0) -> int:
        entropy = (self.settings.seed, self.split, self.number, attempt)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def mark(task: Task, settings: LocalSettings, behaviour: str, split: int = 0, **more: Any) -> dict[str, Any]:
    """What a generated file says of itself: who acted, how much there is, and `more`."""
    import mujoco

    values = {name: value for name, value in asdict(settings).items() if name not in ("state_file", "policies")}
    return {
        "source": "local",
        "dataset": task.dataset,
        "behaviour": behaviour,
        "split": ("training", "validation")[split],
        **values,
        **more,
        "mujoco": mujoco.__version__,
    }


def collect(
    make: Callable[[EpisodeJob], Episode], jobs: Sequence[EpisodeJob], num_workers: int, name: str, progress: bool
) -> Iterator[Episode]:
    """Episodes in the order of `jobs`, made by several processes if asked."""
    with tqdm(total=len(jobs), unit="episode", desc=name, disable=not progress) as bar:
        if num_workers <= 1:
            for job in jobs:
                yield make(job)
                bar.update()
            return
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(num_workers, len(jobs))) as pool:
            for episode in pool.imap(make, jobs):
                yield episode
                bar.update()
