"""Solitaire Dice: roll until a one ends the game; every other roll pays 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.laws import DiscreteLaw, reward_count_law


@dataclass(frozen=True)
class SolitaireDice(MarkovRewardProcess):
    """One live state; P(G = (1-γ^k)/(1-γ)) = (1/6)(5/6)^k for k = 0, 1, …"""

    name: ClassVar[str] = "solitaire"
    title: ClassVar[str] = "Solitaire Dice"
    num_states: int = 2  # playing, over
    live_states: tuple[int, ...] = (0,)
    absorbing_states: tuple[int, ...] = (1,)
    evaluation_states: tuple[int, ...] = (0,)
    discount: float = 0.9
    stop_probability: float = 1 / 6
    max_rolls: int = 400  # the mass beyond sits on the last atom

    def step(self, key: Array, state: Array) -> tuple[Array, Array, Array]:
        over = jax.random.bernoulli(key, self.stop_probability, state.shape).astype(jnp.float32)
        return 1 - over, over.astype(jnp.int32), over

    def return_law(self, state: int) -> DiscreteLaw:
        rolls = np.arange(self.max_rolls + 1)
        probabilities = self.stop_probability * (1 - self.stop_probability) ** rolls.astype(np.float64)
        return reward_count_law(probabilities, discount=self.discount)
