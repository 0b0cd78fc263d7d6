"""Normal rewards: one state, R ~ N(1, 1) for ever; the return is normal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.laws import NormalLaw


@dataclass(frozen=True)
class NormalRewards(MarkovRewardProcess):
    """G ~ N(μ/(1-γ), σ²/(1-γ²)): rewards without atoms, a law without bounds."""

    name: ClassVar[str] = "normal"
    title: ClassVar[str] = "Normal rewards"
    num_states: int = 1
    live_states: tuple[int, ...] = (0,)
    evaluation_states: tuple[int, ...] = (0,)
    discount: float = 0.8
    reward_mean: float = 1.0
    reward_std: float = 1.0

    def step(self, key: Array, state: Array) -> tuple[Array, Array, Array]:
        reward = self.reward_mean + self.reward_std * jax.random.normal(key, state.shape)
        return reward, state, jnp.zeros(state.shape)

    def return_law(self, state: int) -> NormalLaw:
        return NormalLaw(self.reward_mean / (1 - self.discount), self.reward_std / (1 - self.discount**2) ** 0.5)
