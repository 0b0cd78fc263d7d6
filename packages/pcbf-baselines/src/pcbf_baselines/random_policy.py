"""The random policy: uniform actions, nothing learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import jax
from jax import Array

from pcbf_core.learner import LearnerState
from pcbf_core.types import Metrics, TaskSpec, Transition


@final
@dataclass(frozen=True)
class RandomPolicyConfig:
    """The random policy has no settings."""


@final
@dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions in [-1, 1]."""

    config: RandomPolicyConfig
    spec: TaskSpec

    def init(self, key: Array) -> LearnerState:
        return LearnerState(params={}, target_params={}, opt_state=())

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """The state as it was."""
        return state, {}

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        batch = observation.shape[: observation.ndim - len(self.spec.observation_shape)]
        return jax.random.uniform(key, (*batch, self.spec.action_dim), minval=-1.0, maxval=1.0)
