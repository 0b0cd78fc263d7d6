"""What a Markov reward process must provide, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.mrp.laws import ReturnLaw
from pcbf_core.types import TaskSpec, Transition


class MarkovRewardProcess(ABC):
    """A process without actions on integer states, with its exact return law.

    A process is a small frozen dataclass; define the class attributes, `step` and `return_law`, then
    add it to `MRPS` in `pcbf_core.mrp`. As a pytree it has no leaves, so it passes through jit as static.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    num_states: int
    discount: float
    live_states: tuple[int, ...]  # states in which the process goes on; episodes start in one of them
    absorbing_states: tuple[int, ...] = ()  # states whose return is 0 for ever
    evaluation_states: tuple[int, ...]  # those the paper reports

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_static(cls)

    @abstractmethod
    def step(self, key: Array, state: Array) -> tuple[Array, Array, Array]:
        """Rewards, next states and terminal flags (0. or 1.) of transitions from an array of live states."""

    @abstractmethod
    def return_law(self, state: int) -> ReturnLaw:
        """Exact law of the discounted return from a live state."""

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(observation_shape=(), action_dim=0, num_states=self.num_states)

    def sample(self, key: Array, batch_size: int, absorbing_fraction: float = 0.0) -> Transition:
        """Independent transitions from states drawn uniformly among the live ones.

        A share `absorbing_fraction` of them starts in an absorbing state instead (reward 0, terminal):
        only a method that looks at the velocity field of terminal states needs these.
        """
        state_key, absorb_key, which_key, step_key = jax.random.split(key, 4)
        state = _pick(state_key, self.live_states, batch_size)
        reward, next_state, terminal = self.step(step_key, state)
        if absorbing_fraction and self.absorbing_states:
            absorbed = jax.random.bernoulli(absorb_key, absorbing_fraction, (batch_size,))
            rest = _pick(which_key, self.absorbing_states, batch_size)
            state, next_state = (jnp.where(absorbed, rest, x) for x in (state, next_state))
            reward, terminal = jnp.where(absorbed, 0.0, reward), jnp.where(absorbed, 1.0, terminal)
        nothing = jnp.zeros((batch_size, 0))
        return Transition(state, nothing, reward, next_state, terminal, next_action=nothing)

    def monte_carlo_returns(self, key: Array, state: int, num_samples: int, max_steps: int = 2000) -> Array:
        """Discounted returns of simulated episodes from `state`."""

        def one_step(carry: tuple[Array, Array, Array], step_key: Array) -> tuple[tuple[Array, Array, Array], None]:
            states, weight, total = carry
            reward, next_state, terminal = self.step(step_key, states)
            return (next_state, weight * self.discount * (1 - terminal), total + weight * reward), None

        start = (jnp.full(num_samples, state), jnp.ones(num_samples), jnp.zeros(num_samples))
        (_, _, total), _ = jax.lax.scan(one_step, start, jax.random.split(key, max_steps))
        return total


def _pick(key: Array, states: tuple[int, ...], batch_size: int) -> Array:
    """States drawn uniformly, without drawing where there is only one."""
    if len(states) == 1:
        return jnp.full(batch_size, states[0])
    return jnp.array(states)[jax.random.randint(key, (batch_size,), 0, len(states))]
