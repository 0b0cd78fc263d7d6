"""The tail of a return law, and the policy with the best tail."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcbf_core.mdp.base import FiniteMDP, num_sweeps, outcomes, return_range
from pcbf_core.mrp.laws import DiscreteLaw
from pcbf_core.types import Values

NUM_THRESHOLDS = 2001
PRUNED = 1e-12  # probability below which a path is not followed


@dataclass(frozen=True, eq=False)
class Shortfall:
    """Least mean shortfall min E[(y - G)⁺] over all policies, from every state at every threshold of a grid."""

    thresholds: Values
    values: Values  # (states, thresholds)

    def at(self, states: NDArray[np.integer], thresholds: Values) -> Values:
        """The shortfall between the points of the grid: 0 below all returns, of slope 1 above them."""
        low, high = self.thresholds[0], self.thresholds[-1]
        place = (np.clip(thresholds, low, high) - low) / (self.thresholds[1] - low)
        below = np.minimum(place.astype(int), len(self.thresholds) - 2)
        share = place - below
        inside = (1 - share) * self.values[states, below] + share * self.values[states, below + 1]
        return inside + np.maximum(thresholds - high, 0.0)

    def of_moves(self, mdp: FiniteMDP, state: int, threshold: Values) -> Values:
        """Shortfalls (moves, thresholds) of each move at `threshold` (thresholds,) with the best policy after it."""
        parts = outcomes(mdp)
        rest = threshold - parts.reward[state][..., None]  # (moves, ways, thresholds)
        successor = np.broadcast_to(parts.successor[state][..., None], rest.shape)
        follow = mdp.discount * self.at(successor, rest / mdp.discount)
        shortfall = np.where(parts.terminal[state][..., None], np.maximum(rest, 0.0), follow)
        return (parts.probability[state][..., None] * shortfall).sum(axis=1)


def least_shortfall(mdp: FiniteMDP, num_thresholds: int = NUM_THRESHOLDS) -> Shortfall:
    """Least mean shortfall by value iteration on (state, threshold), the threshold moving to (y - R) / γ.

    Policies may remember the rewards so far: what is left of the threshold says all of them that matters (Bäuerle and
    Ott, Markov decision processes with average-value-at-risk criteria, 2011). Linear interpolation of these convex
    functions lies above them, by at most a quarter of the grid's spacing in each sweep.
    """
    thresholds = np.linspace(*return_range(mdp), num_thresholds)
    found = Shortfall(thresholds, np.zeros((mdp.num_states, num_thresholds)))
    for _ in range(num_sweeps(mdp.discount, 1e-6)):
        swept = np.stack([found.of_moves(mdp, s, thresholds).min(axis=0) for s in range(mdp.num_states)])
        done = np.abs(swept - found.values).max() < 1e-9
        found = Shortfall(thresholds, swept)
        if done:
            break
    return found


def best_tail_law(mdp: FiniteMDP, shortfall: Shortfall, level: float) -> DiscreteLaw:
    """The return law of the policy with the highest CVaR at `level` from the start, among all policies with memory.

    CVaR_α = max_y y - E[(y - G)⁺] / α: the best y of the grid, then at every step the move of least shortfall at what
    is left of y. The law is that of the policy so found, path by path, so its CVaR can be reached; paths are followed
    until γᵗ is nothing and those that meet in state and threshold together.
    """
    parts, gamma = outcomes(mdp), mdp.discount
    at_start = shortfall.thresholds - shortfall.values[mdp.start] / level
    threshold = float(shortfall.thresholds[at_start.argmax()])
    paths: dict[tuple[int, float], float] = {(mdp.start, threshold): 1.0}
    ends: dict[float, float] = defaultdict(float)
    for step in range(num_sweeps(gamma, 1e-6)):
        onward: dict[tuple[int, float], float] = defaultdict(float)
        for (state, left), mass in paths.items():
            move = int(shortfall.of_moves(mdp, state, np.array([left]))[:, 0].argmin())
            for index, probability in enumerate(parts.probability[state, move]):
                place = state, move, index
                rest = left - parts.reward[place]
                if mass * probability < PRUNED:
                    continue
                if parts.terminal[place]:
                    ends[round(threshold - gamma**step * rest, 9)] += mass * probability
                else:
                    onward[int(parts.successor[place]), round(rest / gamma, 9)] += mass * probability
        paths = onward
    for (_, left), mass in paths.items():
        ends[round(threshold - gamma ** num_sweeps(gamma, 1e-6) * left, 9)] += mass
    atoms = np.array(sorted(ends))
    weights = np.array([ends[atom] for atom in sorted(ends)])
    return DiscreteLaw(atoms, weights / weights.sum())
