"""From a dataset on disk to what the trainer samples from: batches on the device, the task's spec, the scaling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np

from pcbf_core.agent import BatchSource
from pcbf_core.dataset import Dataset
from pcbf_core.types import TaskSpec, Transition
from pcbf_experiments.data.pixels import NUM_FRAMES, FrameDataset, HostFrames, frame_index
from pcbf_experiments.data.rows import DatasetInfo, Rows
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
from pcbf_records.layout import RAW_DATA
from pcbf_records.sheets import Task

DATA_DIR = Path(RAW_DATA)
Source = BatchSource | HostFrames


@dataclass(frozen=True)
class LoadedTask:
    """A task ready for training."""

    source: Source
    spec: TaskSpec
    info: DatasetInfo
    scaling: Scaling


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
    rows, info = suite_of(task).load_rows(task, Path(data_dir))
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
    transitions = rows.transitions(index, next_actions=next_actions, images=task.is_pixel)
    transitions = _scaled(transitions, scaling)
    shape = rows.observation.shape[1:]
    source: Source
    if task.is_pixel:
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
    """Bounds r_min / (1 - γ), r_max / (1 - γ) of the return."""
    if not 0 <= discount < 1:
        raise ValueError(f"`discount={discount}` leaves the return range unbounded; pass 0 <= discount < 1.")
    low, high = suite_of(task).reward_bounds(info)
    if not low < high:
        raise ValueError(f"every reward of {info.name} is {low}; a return range needs two different ones.")
    return low / (1 - discount), high / (1 - discount)


def _statistics(task: Task, rows: Rows) -> dict[str, np.ndarray]:
    if task.is_pixel:
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
