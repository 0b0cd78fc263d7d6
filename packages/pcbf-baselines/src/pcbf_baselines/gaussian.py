"""A normal return law: the plain alternative to critics that learn its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.losses import gaussian_bellman_loss
from pcbf_baselines.values import EnsembleConfig, q_role
from pcbf_core.config import Positive
from pcbf_core.learner import LearnerState, ReturnCritic
from pcbf_core.noise import noise_at_levels
from pcbf_core.roles import Role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class GaussianCriticConfig(EnsembleConfig):
    """Settings of the normal critic; `value_aggregation` says how members agree on mean and deviation.

    Attributes:
      least_deviation: what the deviation does not go below, in units of the learner's returns.
    """

    least_deviation: Positive = 0.01


@final
@dataclass(frozen=True)
class GaussianCritic(ReturnCritic):
    """N(μ(s, a), σ(s, a)²), with σ = least deviation + softplus of the network's second output."""

    config: GaussianCriticConfig
    spec: TaskSpec

    @property
    def role(self) -> Role:
        return q_role(self.spec, self.config, 2)

    def init_params(self, key: Array) -> PyTree:
        return self.role.init(key, self.spec)

    def members(self, params: PyTree, observation: Array, action: Array) -> tuple[Array, Array]:
        """Mean and deviation of every member, (members, *batch) each."""
        mean, spread = jnp.moveaxis(self.role.at(params, observation)(action), -1, 0)
        return mean, self.config.least_deviation + jax.nn.softplus(spread)

    def moments(self, params: PyTree, observation: Array, action: Array) -> tuple[Array, Array]:
        """Mean and deviation on which the members agree, (*batch,) each."""
        mean, deviation = self.members(params, observation, action)
        return self.config.aggregate(mean), self.config.aggregate(deviation)

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Mean of `gaussian_bellman_loss` over members and batch; no draws, no coefficients."""
        next_mean, next_deviation = self.moments(target_params, batch.next_observation, batch.successor_action)
        continuation = self.config.discount * (1 - batch.terminal)
        target = batch.reward + continuation * next_mean, continuation * next_deviation
        mean, deviation = self.members(params, batch.observation, batch.action)
        loss = jnp.mean(gaussian_bellman_loss(mean, deviation, *target))
        return loss, {"critic_loss": loss}

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles μ + σ Φ⁻¹(level), (*batch, levels)."""
        mean, deviation = self.moments(state.params["critic"], observation, action)
        return mean[..., None] + deviation[..., None] * noise_at_levels(jnp.asarray(levels))
