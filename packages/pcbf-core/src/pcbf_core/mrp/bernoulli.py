"""Bernoulli: one state, coin-flip rewards for ever; at γ = 1/2 the return is uniform on [0, 2]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.laws import UniformLaw


@dataclass(frozen=True)
class Bernoulli(MarkovRewardProcess):
    """Rewards 0 or 1 with probability 1/2; the return's binary digits are the rewards."""

    name: ClassVar[str] = "bernoulli"
    title: ClassVar[str] = "Bernoulli"
    num_states: int = 1
    live_states: tuple[int, ...] = (0,)
    evaluation_states: tuple[int, ...] = (0,)
    discount: float = 0.5

    def step(self, key: Array, state: Array) -> tuple[Array, Array, Array]:
        return jax.random.bernoulli(key, 0.5, state.shape).astype(jnp.float32), state, jnp.zeros(state.shape)

    def return_law(self, state: int) -> UniformLaw:
        return UniformLaw(0.0, 2.0)
