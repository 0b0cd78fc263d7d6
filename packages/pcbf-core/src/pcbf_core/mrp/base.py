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

    @property
    def return_range(self) -> tuple[float, float]:
        """Bounds of the return from every live state; of an unbounded law all but 10⁻⁴ of either tail."""
        laws = [self.return_law(state) for state in self.live_states]
        return min(float(law.quantile(1e-4)) for law in laws), max(float(law.quantile(1 - 1e-4)) for law in laws)

    def sample(self, key: Array, batch_size: int, absorbing_fraction: float = 0.0, group_size: int = 1) -> Transition:
        """Independent transitions from states drawn uniformly among the live ones.

        A share `absorbing_fraction` of them starts in an absorbing state instead (reward 0, terminal):
        only a method that looks at the velocity field of terminal states needs these. With `group_size` so many
        rows in turn start in one state.
        """
        if batch_size % group_size:
            raise ValueError(f"`batch_size={batch_size}` is not a multiple of `group_size={group_size}`.")
        num_groups = batch_size // group_size
        state_key, absorb_key, which_key, step_key = jax.random.split(key, 4)
        state = jnp.repeat(_pick(state_key, self.live_states, num_groups), group_size)
        reward, next_state, terminal = self.step(step_key, state)
        if absorbing_fraction and self.absorbing_states:
            absorbed = jnp.repeat(jax.random.bernoulli(absorb_key, absorbing_fraction, (num_groups,)), group_size)
            rest = jnp.repeat(_pick(which_key, self.absorbing_states, num_groups), group_size)
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
