"""What a small Markov decision process must provide, and the data that follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from pcbf_core.types import TaskSpec, Transition, Values

EAST = 0
"""The move towards (1, 0)."""
NORTH = 1
"""The move towards (0, 1)."""
WEST = 2
"""The move towards (-1, 0)."""
SOUTH = 3
"""The move towards (0, -1)."""
NUM_MOVES = 4
"""How many moves there are in every state."""
ACTION_DIM = 2
DIRECTIONS = np.array([(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)])
"""The directions of the moves, (moves, 2), in the square of actions."""
ACTION_SPREAD = 0.3


class Way(NamedTuple):
    """One outcome of a move: its probability, its reward and the next state, None where the return ends."""

    probability: float
    reward: float
    successor: int | None


class FiniteMDP(ABC):
    """A decision process with few states and four moves, whose every policy has an exact return law.

    A process is a small frozen dataclass; define the class attributes, the fields below and `ways`, then add it to
    `MDPS` in `pcbf_core.mdp`. Agents see a state as its indicator vector and act in the square [-1, 1]², see `move_of`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    discount: float
    num_states: int  # states in which the return goes on, 0, 1, …
    start: int  # where policies are judged

    @abstractmethod
    def ways(self, state: int, move: int) -> Sequence[Way]:
        """All outcomes of a move (EAST, NORTH, WEST or SOUTH) in a state."""

    @property
    def observations(self) -> Float[np.ndarray, "states states"]:
        """The observation of every state."""
        return np.eye(self.num_states, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The ways of a process as arrays (states, moves, ways); unused ones have probability 0.

    Attributes:
      successor: any state where `terminal`.
      terminal: True where the return ends with the reward.
    """

    probability: Values
    reward: Values
    successor: NDArray[np.integer]
    terminal: NDArray[np.bool_]
    discount: float

    @property
    def effective_discount(self) -> Values:
        """γ̃ of every way."""
        return np.where(self.terminal, 0.0, self.discount)


@cache
def outcomes(mdp: FiniteMDP) -> Outcomes:
    """The ways of `mdp`, checked: probabilities of a move sum to 1, next states exist."""
    if not 0 < mdp.discount < 1:
        raise ValueError(f"`discount={mdp.discount}` of {mdp.name} must lie in (0, 1): returns need bounds.")
    lists = [[list(mdp.ways(state, move)) for move in range(NUM_MOVES)] for state in range(mdp.num_states)]
    width = max(len(ways) for row in lists for ways in row)
    shape = (mdp.num_states, NUM_MOVES, width)
    probability, reward = np.zeros(shape), np.zeros(shape)
    successor, terminal = np.zeros(shape, int), np.ones(shape, bool)
    for state, row in enumerate(lists):
        for move, ways in enumerate(row):
            total = sum(way.probability for way in ways)
            if abs(total - 1) > 1e-9 or any(way.probability < 0 for way in ways):
                raise ValueError(f"probabilities of move {move} in state {state} of {mdp.name} sum to {total}, not 1.")
            for index, way in enumerate(ways):
                place = state, move, index
                probability[place], reward[place] = way.probability, way.reward
                terminal[place] = way.successor is None
                if way.successor is not None:
                    if not 0 <= way.successor < mdp.num_states:
                        raise ValueError(f"state {state} of {mdp.name} leads to {way.successor}, which is no state.")
                    successor[place] = way.successor
    return Outcomes(probability, reward, successor, terminal, mdp.discount)


@cache
def return_range(mdp: FiniteMDP) -> tuple[float, float]:
    """Least and greatest return from any state, whatever the policy, up to 10⁻⁶ outwards."""
    parts = outcomes(mdp)
    possible = parts.probability > 0
    low = high = np.zeros(mdp.num_states)
    for _ in range(num_sweeps(mdp.discount)):
        follow = parts.reward + parts.effective_discount * np.stack([low, high])[:, parts.successor]
        low = np.where(possible, follow[0], np.inf).min(axis=(1, 2))
        high = np.where(possible, follow[1], -np.inf).max(axis=(1, 2))
    return float(low.min()) - 1e-6, float(high.max()) + 1e-6


def num_sweeps(discount: float, tolerance: float = 1e-9) -> int:
    """Bellman sweeps after which γⁿ is below `tolerance`."""
    return int(np.ceil(np.log(tolerance) / np.log(discount)))


def task_spec(mdp: FiniteMDP) -> TaskSpec:
    """What a learner must know of the process."""
    return TaskSpec((mdp.num_states,), ACTION_DIM, return_range=return_range(mdp))


# --- actions and data -------------------------------------------------------------------------------------------------


def move_of(action: Float[Array, "*batch 2"]) -> Int[Array, "*batch"]:
    """The move of an action: the side of the square that it points to, EAST for (1, 0), NORTH for (0, 1)."""
    x, y = action[..., 0], action[..., 1]
    return jnp.where(jnp.abs(x) >= jnp.abs(y), jnp.where(x >= 0, EAST, WEST), jnp.where(y >= 0, NORTH, SOUTH))


def action_of(move: Int[np.ndarray, "*batch"], rng: np.random.Generator) -> Float[np.ndarray, "*batch 2"]:
    """Actions of `move`: uniform in a square of side 0.6 about 0.7 in its direction, so that moves keep a distance."""
    noise = rng.uniform(-ACTION_SPREAD, ACTION_SPREAD, (*move.shape, ACTION_DIM))
    return (DIRECTIONS[move] * (1 - ACTION_SPREAD) + noise).astype(np.float32)


def draw_transitions(mdp: FiniteMDP, behaviour: Values, rng: np.random.Generator, count: int) -> Transition:
    """Independent transitions of a policy (states, moves): states by its occupancy from uniform starts.

    Episodes begin in any state and stop with probability 1-γ after each step, so that all states are seen.
    """
    parts = outcomes(mdp)
    visits = occupancy(mdp, behaviour, np.full(mdp.num_states, 1 / mdp.num_states))
    joint = visits[:, None, None] * behaviour[:, :, None] * parts.probability
    which = rng.choice(joint.size, count, p=joint.ravel() / joint.sum())
    state, move, _ = np.unravel_index(which, joint.shape)
    return Transition(
        observation=jnp.asarray(mdp.observations[state]),
        action=jnp.asarray(action_of(move, rng)),
        reward=jnp.asarray(parts.reward.ravel()[which], jnp.float32),
        next_observation=jnp.asarray(mdp.observations[parts.successor.ravel()[which]]),
        terminal=jnp.asarray(parts.terminal.ravel()[which], jnp.float32),
    )


def occupancy(mdp: FiniteMDP, policy: Values, start: Values) -> Values:
    """Expected discounted visits ∑ γ^t P(S_t = s) of a policy (states, moves) from a law of starts, (states,)."""
    parts = outcomes(mdp)
    leads = to_successors(parts, policy[:, :, None] * parts.probability * parts.effective_discount)
    return np.asarray(np.linalg.solve(np.eye(mdp.num_states) - leads.T, start), np.float64)


def to_successors(parts: Outcomes, weight: Values) -> Values:
    """Weights (states, moves, ways) gathered by where they lead, (states, next states)."""
    leads = np.zeros((len(weight), len(weight)))
    rows = np.broadcast_to(np.arange(len(weight))[:, None, None], weight.shape)
    np.add.at(leads, (rows, parts.successor), weight)
    return leads
