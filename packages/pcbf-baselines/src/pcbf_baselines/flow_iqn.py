"""FlowIQN's critic: a return flow trained on noises and Bellman samples that are sorted within equal (s, a)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.config import Count
from pcbf_core.flow_critic import FlowCritic, FlowCriticConfig
from pcbf_core.noise import noise_at_levels
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class SortedFlowCriticConfig(FlowCriticConfig):
    """Settings of the critic with sorted coupling.

    Attributes:
      group_size: rows of a batch, one behind the other, that share (s, a): see `MarkovRewardProcess.sample`.
    """

    group_size: Count = 8


@final
@dataclass(frozen=True)
class SortedFlowCritic(FlowCritic):
    """Return flow whose noises and Bellman samples are paired in order of size (FlowIQN, arXiv 2605.08515).

    Where (s, a) has one successor this is the pairing by shared noise, since R + γ̃ ψ(x_0) increases in x_0. Where it
    has several, the pairing of their whole mixture is monotone, and the target's variance falls with the group's size.
    """

    config: SortedFlowCriticConfig
    spec: TaskSpec

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """|v(t, (1-t) x_(i) + t G_(i)) - (G_(i) - x_(i))|², x_(i) and G_(i) = (R + γ̃X')_(i) sorted in each group."""
        config = self.config
        size = config.group_size
        if batch.reward.shape[0] % size:
            raise ValueError(f"a batch of {batch.reward.shape[0]} rows has no groups of `group_size={size}`.")
        noise_key, successor_key, time_key = jax.random.split(key, 3)
        noise, successor_noise = (self.group_noise(k, batch.reward.shape[0]) for k in (noise_key, successor_key))
        _, flow_time = self.draw(time_key, batch)
        aggregation = config.successor_aggregation
        target_params = jax.lax.stop_gradient(target_params)
        successor = self.flow_at(target_params, batch.next_observation, batch.successor_action, aggregation=aggregation)
        continuation = config.discount * (1 - batch.terminal[:, None])
        bellman = sorted_in_groups(batch.reward[:, None] + continuation * successor.returns(successor_noise), size)
        point, target = (1 - flow_time) * noise + flow_time * bellman, bellman - noise
        current = self.flow_at(params, batch.observation, batch.action, aggregation=aggregation, for_gradient=True)
        loss = jnp.mean((current.member_velocities(flow_time, point) - target) ** 2)
        return loss, {"critic_loss": loss}

    def group_noise(self, key: Array, batch_size: int) -> Array:
        """Noises (batch, 1) that each group spreads evenly, in increasing order."""
        size = self.config.group_size
        shift = jax.random.uniform(key, (batch_size // size, 1))
        return noise_at_levels((jnp.arange(size) + shift) / size).reshape(batch_size, 1)


def sorted_in_groups(values: Array, size: int) -> Array:
    """Values (batch, 1) in increasing order within each `size` rows."""
    return jnp.sort(values.reshape(-1, size), axis=1).reshape(values.shape)
