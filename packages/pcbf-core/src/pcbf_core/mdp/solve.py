"""Truth by dynamic programming: values, the best policy, and the law of the return of any policy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from jaxtyping import Int
from scipy import sparse

from pcbf_core.mdp.base import NUM_MOVES, FiniteMDP, num_sweeps, outcomes, return_range, to_successors
from pcbf_core.mrp.laws import DiscreteLaw
from pcbf_core.types import Values

NUM_ATOMS = 2001  # of the grid of returns
TOLERANCE = 1e-4  # in W1, of stopping the sweeps of laws


def action_values(mdp: FiniteMDP, values: Values) -> Values:
    """E[R + γ̃ V(S')] of every state and move, (states, moves)."""
    parts = outcomes(mdp)
    return (parts.probability * (parts.reward + parts.effective_discount * values[parts.successor])).sum(axis=-1)


@cache
def optimal_values(mdp: FiniteMDP) -> Values:
    """V* of every state, by value iteration."""
    values = np.zeros(mdp.num_states)
    for _ in range(num_sweeps(mdp.discount)):
        values = action_values(mdp, values).max(axis=1)
    return values


def optimal_policy(mdp: FiniteMDP) -> Values:
    """The policy of highest mean return, (states, moves), deterministic; the first of equal moves."""
    return deterministic(action_values(mdp, optimal_values(mdp)).argmax(axis=1))


def deterministic(moves: Int[np.ndarray, "states"]) -> Values:
    """The policy (states, moves) that takes `moves`."""
    return np.eye(NUM_MOVES)[moves]


def uniform_policy(mdp: FiniteMDP) -> Values:
    """Every move with equal probability."""
    return np.full((mdp.num_states, NUM_MOVES), 1 / NUM_MOVES)


def behaviour_policy(mdp: FiniteMDP, optimal_share: float) -> Values:
    """The policy that data are drawn with: the best one with probability `optimal_share`, else any move."""
    return optimal_share * optimal_policy(mdp) + (1 - optimal_share) * uniform_policy(mdp)


def policy_values(mdp: FiniteMDP, policy: Values) -> Values:
    """Mean return from every state of a policy (states, moves), by solving Bellman's equation."""
    parts, size = outcomes(mdp), mdp.num_states
    weight = policy[:, :, None] * parts.probability
    leads = to_successors(parts, weight * parts.effective_discount)
    return np.linalg.solve(np.eye(size) - leads, (weight * parts.reward).sum(axis=(1, 2)))


def return_laws(mdp: FiniteMDP, policy: Values, num_atoms: int = NUM_ATOMS) -> list[DiscreteLaw]:
    """The law of the return of a policy (states, moves) from every state, on an even grid of returns.

    Sweeps of Z(s) ← ∑ P(way) law of R + γ̃ Z(s'), where each mass between two points of the grid is shared between them
    by nearness. Sharing keeps the mean and adds a spread of at most Δ²/4 in variance, given all before; so the laws are
    those of G + ∑ γᵗ ε_t with E[ε_t | past] = 0 and E[ε_t² | past] ≤ Δ²/4, and W1 ≤ Δ / (2 √(1-γ²)). That and what the
    sweeps leave is their `truncation_error`; the exact CVaR_α lies above theirs by at most that divided by α.
    """
    parts, size = outcomes(mdp), mdp.num_states
    grid = np.linspace(*return_range(mdp), num_atoms)
    spacing = float(grid[1] - grid[0])
    weight = policy[:, :, None] * parts.probability
    ends = np.where(parts.terminal, weight, 0.0).reshape(size, -1)
    last = np.concatenate([ends[s] @ _shared(parts.reward[s].ravel(), grid) for s in range(size)]).reshape(size, -1)
    rewards = np.unique(parts.reward[~parts.terminal & (weight > 0)])
    steps = []
    for reward in rewards:
        leads = to_successors(parts, np.where(~parts.terminal & (parts.reward == reward), weight, 0.0))
        steps.append((leads, _shared(reward + mdp.discount * grid, grid)))
    laws = np.zeros((size, num_atoms))
    laws[:, np.abs(grid).argmin()] = 1.0
    left = np.inf
    while left > TOLERANCE:
        swept = last + sum((leads @ (laws @ shift) for leads, shift in steps), np.zeros_like(last))
        left = float(np.abs(np.cumsum(swept - laws, axis=1)).sum(axis=1).max()) * spacing / (1 - mdp.discount)
        laws = swept
    error = spacing / (2 * np.sqrt(1 - mdp.discount**2)) + left
    return [DiscreteLaw(grid, row / row.sum(), float(error)) for row in np.maximum(laws, 0.0)]


def move_laws(mdp: FiniteMDP, laws: Sequence[DiscreteLaw], state: int) -> list[DiscreteLaw]:
    """The laws of the return of each move in a state, where `laws` are those of what follows it."""
    parts, grid = outcomes(mdp), laws[0].atoms
    found = []
    for move in range(NUM_MOVES):
        weights = np.zeros(len(grid))
        for index, probability in enumerate(parts.probability[state, move]):
            place = state, move, index
            onward = parts.reward[place] + mdp.discount * grid
            ends = parts.terminal[place]
            masses = np.ones(1) if ends else laws[parts.successor[place]].weights
            weights += probability * (masses @ _shared(parts.reward[place][None] if ends else onward, grid))
        found.append(DiscreteLaw(grid, weights / weights.sum(), laws[0].truncation_error))
    return found


def tail_policy(mdp: FiniteMDP, laws: Sequence[DiscreteLaw], level: float) -> Values:
    """The policy that takes in every state the move of highest CVaR at `level`, if `laws` follow: acting by CVaR."""
    scores = [[law.cvar(level) for law in move_laws(mdp, laws, state)] for state in range(mdp.num_states)]
    return deterministic(np.array(scores).argmax(axis=1))


def _shared(values: Values, grid: Values) -> sparse.csr_array:
    """Shares (values, points) of unit masses at `values`, each between the two points of the grid around it."""
    place = np.clip((values - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
    below = np.minimum(place.astype(int), len(grid) - 2)
    rows = np.arange(len(values))
    shares = np.concatenate([1 - (place - below), place - below])
    places = np.concatenate([rows, rows]), np.concatenate([below, below + 1])
    return sparse.csr_array((shares, places), shape=(len(values), len(grid)))
