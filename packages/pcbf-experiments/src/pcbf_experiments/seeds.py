"""Several seeds of one learner, trained on the same data in a few seconds: what exact control and calibration share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_core.agent import Learner
from pcbf_core.config import Count, Range, tidy
from pcbf_core.dataset import Dataset
from pcbf_core.learner import LearnerState
from pcbf_core.training import first_divergence, init_many, train_chunk

NUM_CALLS = 20  # compiled calls of a training


@dataclass(frozen=True)
class SeedSettings:
    """How seeds are trained.

    Attributes:
      num_seeds, first_seed: learners, and the seed of the first; the others follow.
      num_steps, batch_size: gradient steps, and transitions per step.
    """

    num_seeds: Count = 10
    first_seed: Annotated[int, Range(at_least=0)] = 0
    num_steps: Count = 2000
    batch_size: Count = 64

    def __post_init__(self) -> None:
        tidy(self)

    @property
    def seeds(self) -> np.ndarray:
        return self.first_seed + np.arange(self.num_seeds)


def made_by(method: str, settings: SeedSettings, default: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What made the record of a method: its settings and the versions that decide its bits."""
    return {
        "method": method,
        "settings": dataclasses.asdict(settings),
        "default": dict(default),
        "own": dict(own),
        "jax": jax.__version__,
        "platform": jax.default_backend(),
    }


def seed_keys(settings: SeedSettings) -> Array:
    """One key per seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(settings.seeds))


def train_seeds(
    learner: Learner, data: Dataset, settings: SeedSettings, report: Callable[[int], None] = lambda step: None
) -> LearnerState:
    """The states of all seeds after training; `report` hears how many steps they have made together."""
    keys = seed_keys(settings)
    states, chunk = init_many(learner, keys), max(settings.num_steps // NUM_CALLS, 1)
    sizes: dict[str, Any] = {"num_steps": chunk, "batch_size": settings.batch_size}
    for start in range(0, settings.num_steps, chunk):
        count = min(chunk, settings.num_steps - start)
        states, metrics = train_chunk(learner, states, data, keys, start, **sizes, count=count, across="map")
        if lost := first_divergence(metrics):
            index, (step, reason) = next(iter(lost.items()))
            raise FloatingPointError(f"seed {settings.seeds[index]} diverged at step {start + step}: {reason}.")
        report(settings.num_seeds * (start + count))
    return states
