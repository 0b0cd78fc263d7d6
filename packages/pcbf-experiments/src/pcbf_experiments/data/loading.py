"""Datasets of all tasks: found, checked, and brought into the form the trainer samples from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcbf_baselines.datasets import adroit, ogbench
from pcbf_baselines.datasets.download import DatasetError
from pcbf_baselines.datasets.pixels import NUM_FRAMES, FrameDataset, HostFrames, frame_index
from pcbf_baselines.datasets.rows import DatasetInfo, Rows
from pcbf_baselines.datasets.tasks import EXTRA_TASKS, PAPER_TASKS, TASKS, Task, find_task, register_task
from pcbf_core.agent import BatchSource
from pcbf_core.training import Dataset
from pcbf_core.types import TaskSpec, Transition

__all__ = [
    "EXTRA_TASKS",
    "PAPER_TASKS",
    "TASKS",
    "DatasetError",
    "DatasetInfo",
    "LoadedTask",
    "Scaling",
    "Task",
    "find_task",
    "load",
    "load_rows",
    "load_task",
    "register_task",
]

DATA_DIR = Path("data/raw")
Source = BatchSource | HostFrames


@dataclass(frozen=True)
class Scaling:
    """What was done to the data before learning, and must be done to observations before acting.

    Attributes:
      observation_mean, observation_std: statistics of the data, or None for observations as they are.
      reward_scale: factor on every reward.
    """

    observation_mean: np.ndarray | None = None
    observation_std: np.ndarray | None = None
    reward_scale: float = 1.0

    def observations(self, observation: Any) -> Any:
        """Observations as the learner sees them."""
        if self.observation_mean is None or self.observation_std is None:
            return observation
        return (observation - self.observation_mean) / self.observation_std


@dataclass(frozen=True)
class LoadedTask:
    """A task ready for training."""

    source: Source
    spec: TaskSpec
    info: DatasetInfo
    scaling: Scaling


def load(
    task: str, *, data_dir: Path = DATA_DIR, discount: float | None = None, next_actions: bool | None = None
) -> tuple[Source, TaskSpec, DatasetInfo]:
    """Source of batches, task spec and dataset info of `task`, with observations and rewards as they are."""
    loaded = load_task(task, data_dir=data_dir, discount=discount, next_actions=next_actions)
    return loaded.source, loaded.spec, loaded.info


def load_rows(task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
    """Checked rows of the task's dataset on the host."""
    if task.is_minari:
        return adroit.load_rows(task, data_dir)
    return ogbench.load_rows(task, data_dir)


def load_task(
    name: str,
    *,
    data_dir: Path = DATA_DIR,
    discount: float | None = None,
    next_actions: bool | None = None,
    standardise: bool = False,
    reward_scale: float = 1.0,
    return_width: float | None = None,
    memory_budget: float | None = None,
) -> LoadedTask:
    """The task `name` ready for training.

    Args:
      discount: γ of the return range; the paper's if None.
      next_actions: also give the recorded successor action a', leaving out transitions that have none;
        None gives it where that leaves out nothing.
      standardise: observations to zero mean and unit deviation (not for images).
      reward_scale: factor on every reward.
      return_width: choose that factor so that the return range has this width.
      memory_budget: bytes of images to put on the device; larger sets stream from host memory. None: no limit.
    """
    task = find_task(name)
    rows, info = load_rows(task, Path(data_dir))
    return prepare(
        task,
        rows,
        info,
        discount=task.discount if discount is None else discount,
        next_actions=next_actions,
        standardise=standardise,
        reward_scale=reward_scale,
        return_width=return_width,
        memory_budget=memory_budget,
    )


def prepare(
    task: Task,
    rows: Rows,
    info: DatasetInfo,
    *,
    discount: float,
    next_actions: bool | None = None,
    standardise: bool = False,
    reward_scale: float = 1.0,
    return_width: float | None = None,
    memory_budget: float | None = None,
) -> LoadedTask:
    """`load_task` for rows that are already in memory."""
    low, high = return_range(task, info, discount)
    if return_width is not None:
        if reward_scale != 1.0:
            raise ValueError(
                f"`reward_scale={reward_scale}` and `return_width={return_width}` both set one factor; pass one."
            )
        reward_scale = return_width / (high - low)
    if not reward_scale > 0:
        raise ValueError(f"`reward_scale={reward_scale}` must be positive.")
    scaling = Scaling(reward_scale=reward_scale)
    if standardise:
        scaling = replace(scaling, **_statistics(task, rows))
    if next_actions is None:
        next_actions = rows.has_last_action
    index = rows.transition_rows(next_actions=next_actions)
    is_visual = task.kind == "pixel"
    transitions = rows.transitions(index, next_actions=next_actions, images=is_visual)
    transitions = _scaled(transitions, scaling)
    shape = rows.observation.shape[1:]
    source: Source
    if is_visual:
        shape = (*shape[:-1], shape[-1] * NUM_FRAMES)
        source = _frame_source(rows, transitions, memory_budget)
    else:
        source = Dataset(jax.device_put(transitions))
    spec = TaskSpec(
        observation_shape=tuple(shape),
        action_dim=rows.action.shape[-1],
        return_range=(low * reward_scale, high * reward_scale),
    )
    return LoadedTask(source, spec, info, scaling)


def return_range(task: Task, info: DatasetInfo, discount: float) -> tuple[float, float]:
    """Bounds r_min / (1 - γ), r_max / (1 - γ) of the return.

    Rewards on OGBench end at 0, the success that a small dataset may not contain.
    """
    if not 0 <= discount < 1:
        raise ValueError(f"`discount={discount}` leaves the return range unbounded; pass 0 <= discount < 1.")
    low, high = info.reward_range
    if not task.is_minari:
        low, high = min(low, -1.0), 0.0
    if not low < high:
        raise ValueError(f"every reward of {info.name} is {low}; a return range needs two different ones.")
    return low / (1 - discount), high / (1 - discount)


def _statistics(task: Task, rows: Rows) -> dict[str, np.ndarray]:
    if task.kind == "pixel":
        raise ValueError(f"`standardise=True` is for state observations; {task.name} has images, which encoders scale.")
    mean = rows.observation.mean(axis=0, dtype=np.float64)
    std = rows.observation.std(axis=0, dtype=np.float64)
    return {
        "observation_mean": mean.astype(np.float32),
        "observation_std": np.where(std < 1e-3, 1.0, std).astype(np.float32),
    }


def _scaled(transitions: Transition, scaling: Scaling) -> Transition:
    return transitions.replace(
        observation=scaling.observations(transitions.observation),
        next_observation=scaling.observations(transitions.next_observation),
        reward=(transitions.reward * scaling.reward_scale).astype(np.float32),
    )


def _frame_source(rows: Rows, transitions: Transition, memory_budget: float | None) -> Source:
    index, first_rows = frame_index(rows.is_last)
    if len(index) != len(transitions.reward):
        kept = rows.transition_rows(next_actions=True)
        first_rows = first_rows[np.isin(index, kept)]
        index = kept
    frames = FrameDataset(rows.observation, index, first_rows, transitions)  # type: ignore[arg-type]
    if memory_budget is not None and rows.observation.nbytes > memory_budget:
        return HostFrames(frames)
    return jax.device_put(frames)
