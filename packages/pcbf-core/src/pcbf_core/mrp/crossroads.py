"""Crossroads: a fork to a good or a bad road of normal rewards; on the bad one a rare large loss ends the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.laws import NormalMixtureLaw, normal_mixture


@dataclass(frozen=True)
class Crossroads(MarkovRewardProcess):
    """State 0 forks: states 1, 2, 3 are the good road (rewards about 2), 4, 5, 6 the bad one (about -2).

    A road ends behind its last state; on the bad one a step is with probability `loss_probability` a loss of about -10
    that ends it at once. The law at the fork has two modes and a heavy left tail; all are mixtures of normal laws.
    """

    name: ClassVar[str] = "crossroads"
    title: ClassVar[str] = "Crossroads"
    num_states: int = 8  # the last one is over
    live_states: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    absorbing_states: tuple[int, ...] = (7,)
    evaluation_states: tuple[int, ...] = (0, 1, 4)
    discount: float = 0.9
    reward_std: float = 0.5
    good_probability: float = 0.6
    loss_probability: float = 0.1
    loss: float = -10.0

    def step(self, key: Array, state: Array) -> tuple[Array, Array, Array]:
        level_key, noise_key = jax.random.split(key)
        level = jax.random.uniform(level_key, state.shape)
        at_fork, on_bad = state == 0, state >= 4
        is_lost = on_bad & (level < self.loss_probability)
        mean = jnp.where(is_lost, self.loss, jnp.where(at_fork, 0.0, jnp.where(on_bad, -2.0, 2.0)))
        reward = mean + self.reward_std * jax.random.normal(noise_key, state.shape)
        is_over = is_lost | (state == 3) | (state == 6)
        forked = jnp.where(level < self.good_probability, 1, 4)
        next_state = jnp.where(is_over, 7, jnp.where(at_fork, forked, state + 1))
        return reward, next_state, is_over.astype(jnp.float32)

    def return_law(self, state: int) -> NormalMixtureLaw:
        if state not in self.live_states:
            raise ValueError(f"`state={state}` is over; the return law is known for {self.live_states}.")
        return normal_mixture((weight, mean, variance**0.5) for weight, mean, variance in self._parts(state))

    def ways(self, state: int) -> list[tuple[float, float, int]]:
        """Probability, mean reward and next state of every way that leaves a live state."""
        if state == 0:
            return [(self.good_probability, 0.0, 1), (1 - self.good_probability, 0.0, 4)]
        over = self.absorbing_states[0]
        following = over if state in (3, 6) else state + 1
        if state < 4:
            return [(1.0, 2.0, following)]
        return [(self.loss_probability, self.loss, over), (1 - self.loss_probability, -2.0, following)]

    def _parts(self, state: int) -> list[tuple[float, float, float]]:
        """Weight, mean and variance of every sequence of ways from `state`."""
        if state in self.absorbing_states:
            return [(1.0, 0.0, 0.0)]
        return [
            (probability * weight, reward + self.discount * mean, self.reward_std**2 + self.discount**2 * variance)
            for probability, reward, successor in self.ways(state)
            for weight, mean, variance in self._parts(successor)
        ]
