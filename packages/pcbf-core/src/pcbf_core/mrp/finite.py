"""Markov reward processes as finite lists of transitions, for computations that sum over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.bernoulli import Bernoulli
from pcbf_core.mrp.chain import MonteCarloChain
from pcbf_core.mrp.crossroads import Crossroads
from pcbf_core.mrp.laws import ReturnLaw
from pcbf_core.mrp.normal import NormalRewards
from pcbf_core.mrp.solitaire import SolitaireDice
from pcbf_core.types import Values


@dataclass(frozen=True, eq=False)
class FiniteProcess:
    """A Markov reward process as lists of transitions, one row per live state and one column per transition.

    Attributes:
      probability: of each transition; rows sum to 1, and unused columns have 0.
      reward: its reward.
      successor: row of its next state; any row where `terminal`.
      terminal: True where the return ends with the reward.
      discount: γ.
      laws: the exact return law of each row.
      states: the process' own names of the rows.
    """

    probability: Values
    reward: Values
    successor: NDArray[np.integer]
    terminal: NDArray[np.bool_]
    discount: float
    laws: tuple[ReturnLaw, ...]
    states: tuple[int, ...]

    def __post_init__(self) -> None:
        shape = (len(self.states), self.probability.shape[-1])
        for name in ("probability", "reward", "successor", "terminal"):
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"`{name}` has shape {getattr(self, name).shape}, expected (states, columns) = {shape}."
                )
        if (self.probability < 0).any() or np.abs(self.probability.sum(1) - 1).max() > 1e-9:
            raise ValueError(f"rows of `probability` must be nonnegative and sum to 1, got {self.probability.sum(1)}.")
        if not 0 <= self.discount < 1:
            raise ValueError(f"`discount={self.discount}` must lie in [0, 1): the fixed point needs a contraction.")

    @property
    def effective_discount(self) -> Values:
        """γ̃ of every transition."""
        return np.where(self.terminal, 0.0, self.discount)


@singledispatch
def finite_process(process: MarkovRewardProcess) -> FiniteProcess:
    """The lists of transitions of one of the library's processes; `register` a function for a process of your own."""
    raise TypeError(
        f"{type(process).__name__} has no lists of transitions; register one with `finite_process.register`."
    )


@finite_process.register
def _(process: Bernoulli) -> FiniteProcess:
    return _from_lists(process, [[(0.5, 0.0, 0, False), (0.5, 1.0, 0, False)]])


@finite_process.register
def _(process: SolitaireDice) -> FiniteProcess:
    stop = process.stop_probability
    return _from_lists(process, [[(stop, 0.0, 0, True), (1 - stop, 1.0, 0, False)]])


@finite_process.register
def _(process: MonteCarloChain) -> FiniteProcess:
    moves = process.move_probabilities()
    rows: list[list[tuple[float, float, int, bool]]] = []
    for state in process.live_states:
        row = []
        for move, probability in zip((-1, 0, 1), moves[state], strict=True):
            ends = state + move in process.absorbing_states
            row.append((float(probability), float(not ends), 0 if ends else state + move - 1, ends))
        rows.append(row)
    return _from_lists(process, rows)


def _from_lists(
    process: MarkovRewardProcess, rows: Sequence[Sequence[tuple[float, float, int, bool]]]
) -> FiniteProcess:
    probability, reward, successor, terminal = np.moveaxis(np.array(rows, float), -1, 0)
    return FiniteProcess(
        probability=probability,
        reward=reward,
        successor=successor.astype(int),
        terminal=terminal.astype(bool),
        discount=process.discount,
        laws=tuple(process.return_law(state) for state in process.live_states),
        states=process.live_states,
    )


_NUM_REWARDS = 16


@finite_process.register
def normal_process(process: NormalRewards, num_rewards: int = _NUM_REWARDS) -> FiniteProcess:
    """The normal rewards as nodes of Gauss-Hermite quadrature.

    Every point of the path is spread by its noise as well, by no less than min(1, γ std(G)), so the sum over rewards
    converges exponentially in their number.
    """
    spread = _normal_nodes(process.reward_mean, process.reward_std, num_rewards)
    return _from_lists(process, [[(weight, reward, 0, False) for weight, reward in spread]])


@finite_process.register
def _(process: Crossroads) -> FiniteProcess:
    rows = []
    for state in process.live_states:
        row = []
        for probability, mean, successor in process.ways(state):
            ends = successor in process.absorbing_states
            spread = _normal_nodes(mean, process.reward_std, _NUM_REWARDS)
            row += [(probability * weight, reward, 0 if ends else successor, ends) for weight, reward in spread]
        rows.append(row)
    width = max(map(len, rows))
    return _from_lists(process, [row + [(0.0, 0.0, 0, True)] * (width - len(row)) for row in rows])


def _normal_nodes(mean: float, std: float, count: int) -> list[tuple[float, float]]:
    """Weights and nodes of the Gauss-Hermite rule for N(mean, std²)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return list(zip(weights / weights.sum(), mean + std * nodes, strict=True))
