"""Discrete Monte Carlo chain: a nearest-neighbour walk in a landscape with several wells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.laws import DiscreteLaw, reward_count_law
from pcbf_core.types import Values


@dataclass(frozen=True)
class MonteCarloChain(MarkovRewardProcess):
    """States 0..n-1 with both ends absorbing; reward 1 per step that does not end the walk.

    From state i the raw probabilities are p(i±1) / (p(i) + p(i±1)) to the sides and what they leave
    to stay. That rest is negative for some i; as in the released code it is then 0 and the row is
    divided by its sum (the paper's "∝").
    """

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Discrete Monte Carlo chain"
    num_states: int = 20
    discount: float = 0.95
    max_steps: int = 4000  # walks that last longer count as endless

    live_states: tuple[int, ...] = field(init=False)
    absorbing_states: tuple[int, ...] = field(init=False)
    evaluation_states: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.num_states < 3:
            raise ValueError(f"`num_states={self.num_states}` leaves no state between the ends; pass at least 3.")
        live = tuple(range(1, self.num_states - 1))
        object.__setattr__(self, "live_states", live)
        object.__setattr__(self, "absorbing_states", (0, self.num_states - 1))
        object.__setattr__(self, "evaluation_states", tuple(s for s in (1, 5, 10, 18) if s in live))

    def move_probabilities(self) -> Values:
        """Rows (left, stay, right) for every state; the absorbing ends stay."""
        states = np.arange(self.num_states)
        span = self.num_states - 1
        mass = np.exp(span / (4 * np.pi) * np.cos(4 * np.pi * (states - 1) / span))
        left = np.concatenate([[0.0], mass[:-1] / (mass[1:] + mass[:-1])])
        right = np.concatenate([mass[1:] / (mass[1:] + mass[:-1]), [0.0]])
        moves = np.stack([left, np.maximum(1 - left - right, 0), right], axis=1)
        moves[[0, -1]] = [0, 1, 0]
        return moves / moves.sum(axis=1, keepdims=True)

    def step(self, key: Array, state: Array) -> tuple[Array, Array, Array]:
        moves = jnp.asarray(self.move_probabilities(), jnp.float32)
        left, stay, _ = jnp.moveaxis(moves[state], -1, 0)
        level = jax.random.uniform(key, state.shape)
        next_state = state - 1 + (level >= left) + (level >= left + stay)
        terminal = ((next_state == 0) | (next_state == self.num_states - 1)).astype(jnp.float32)
        return 1 - terminal, next_state, terminal

    def return_law(self, state: int) -> DiscreteLaw:
        """G = (1-γ^(T-1))/(1-γ) with the hitting time T from powers of the transient matrix."""
        if state not in self.live_states:
            raise ValueError(f"`state={state}` is absorbing; the return law is known for {self.live_states}.")
        left, stay, right = self.move_probabilities()[1:-1].T
        transient = np.diag(stay) + np.diag(right[:-1], 1) + np.diag(left[1:], -1)
        leave = np.zeros(len(stay))
        leave[0] += left[0]
        leave[-1] += right[-1]
        alive = np.zeros(len(stay))
        alive[state - 1] = 1.0
        ends = np.empty(self.max_steps)  # P(T = 1), P(T = 2), …
        for step in range(self.max_steps):
            ends[step] = alive @ leave
            alive = alive @ transient
        return reward_count_law(ends, discount=self.discount)
