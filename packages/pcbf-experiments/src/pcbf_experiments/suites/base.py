"""What a suite must provide: rows of data, a simulator, a score, and what is said and shown of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from pcbf_experiments.data.checks import Check
from pcbf_experiments.data.download import Source
from pcbf_experiments.data.local import LocalSettings
from pcbf_experiments.data.rows import DatasetInfo, Rows
from pcbf_experiments.simulators import SimulatorSpec, SuccessTiming
from pcbf_records.sheets import Task


class Suite(ABC):
    """A family of tasks that share the form of their data, their simulators and their score."""

    name: ClassVar[str]
    """How tasks call it."""

    num_final_evaluations: ClassVar[int]
    """How many of the last evaluations the reported score averages."""

    @abstractmethod
    def check(self, task: Task) -> None:
        """Raise if a task cannot belong to the suite."""

    # data

    @abstractmethod
    def load_rows(self, task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
        """Checked rows of the task's dataset on the host, and what a record says of them."""

    @abstractmethod
    def reward_bounds(self, info: DatasetInfo) -> tuple[float, float]:
        """Lowest and highest reward that the task can give."""

    @abstractmethod
    def fetch(self, task: Task, data_dir: Path, sources: Sequence[Source]) -> list[dict[str, Any]]:
        """Receipts of the dataset's files, downloaded or copied unless they are there."""

    @abstractmethod
    def make_local(
        self, task: Task, data_dir: Path, settings: LocalSettings, *, num_workers: int, overwrite: bool, progress: bool
    ) -> list[Path]:
        """The files written for a dataset generated here."""

    @abstractmethod
    def shapes(self, task: Task) -> tuple[tuple[int, ...], int]:
        """Shape of one observation and number of action coordinates, as they should be."""

    @abstractmethod
    def checks(self, task: Task, rows: Rows, info: DatasetInfo, data_dir: Path | None) -> list[Check]:
        """What to ask of this suite's data besides what is asked of all; without `data_dir` only of rows in memory."""

    # simulator

    @abstractmethod
    def simulator(
        self, task: Task, *, episode_limit: int | None = None, success_timing: SuccessTiming = "pre", **options: Any
    ) -> SimulatorSpec:
        """The simulator in which the task is judged; `options` are further arguments of it."""

    @abstractmethod
    def score(self, task: Task, episode_return: float, success: float) -> float:
        """The score of an episode in the task's unit."""

    @abstractmethod
    def views(self, task: Task, env: gymnasium.Env) -> list[np.ndarray]:
        """Pictures (height, width, 3) that show the task: its start, and its goal where there is one."""
