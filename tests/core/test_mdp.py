"""Small decision processes: dynamic programming against closed forms, hand-worked numbers and Monte Carlo."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core.dataset import Dataset
from pcbf_core.mdp import (
    DIRECTIONS,
    EAST,
    MDPS,
    NORTH,
    NUM_MOVES,
    SOUTH,
    WEST,
    Cliff,
    FiniteMDP,
    Gamble,
    Way,
    action_of,
    behaviour_policy,
    best_tail_law,
    deterministic,
    draw_transitions,
    least_shortfall,
    move_of,
    occupancy,
    optimal_policy,
    optimal_values,
    outcomes,
    policy_values,
    return_laws,
    return_range,
    tail_policy,
    task_spec,
    uniform_policy,
)
from pcbf_core.mdp.solve import move_laws
from pcbf_core.mrp import DiscreteLaw

LEVELS = (0.1, 0.25, 0.5)


@dataclass(frozen=True)
class Waiting(FiniteMDP):
    """One state: EAST pays 1 and ends with probability `stop`, else waits; the other moves end with 0."""

    name: ClassVar[str] = "waiting"
    title: ClassVar[str] = "Waiting"
    num_states: int = 1
    start: int = 0
    discount: float = 0.9
    stop: float = 0.25

    def ways(self, state: int, move: int) -> Sequence[Way]:
        if move == EAST:
            return [Way(self.stop, 1.0, None), Way(1 - self.stop, 0.0, 0)]
        return [Way(1.0, 0.0, None)]


def test_an_action_is_the_side_that_it_points_to():
    actions = jnp.array([[1.0, 0.2], [-0.1, 0.3], [-0.8, 0.5], [0.0, -1.0], [0.0, 0.0]])
    assert move_of(actions).tolist() == [EAST, NORTH, WEST, SOUTH, EAST]


def test_actions_of_a_move_lie_about_its_direction():
    moves = np.repeat(np.arange(NUM_MOVES), 500)
    actions = action_of(moves, np.random.default_rng(0))
    np.testing.assert_array_equal(move_of(jnp.asarray(actions)), moves)
    assert np.abs(actions).max() <= 1
    np.testing.assert_allclose(actions.reshape(NUM_MOVES, 500, 2).mean(axis=1), 0.7 * DIRECTIONS, atol=0.03)


def test_waiting_has_its_closed_form():
    """V = p / (1 - γ(1-p)), and G = γ^k with probability p(1-p)^k."""
    mdp = Waiting()
    value = mdp.stop / (1 - mdp.discount * (1 - mdp.stop))
    assert optimal_values(mdp)[0] == pytest.approx(value, abs=1e-8)
    assert optimal_policy(mdp)[0].tolist() == [1, 0, 0, 0]
    law = return_laws(mdp, deterministic(np.array([EAST])))[0]
    counts = np.arange(200)
    weights = mdp.stop * (1 - mdp.stop) ** counts.astype(float)
    closed = DiscreteLaw((mdp.discount**counts)[::-1], (weights / weights.sum())[::-1])
    levels = (np.arange(4000) + 0.5) / 4000
    assert law.wasserstein1(closed.quantile(levels)) < law.truncation_error + 1e-3
    assert law.truncation_error < 1e-3
    assert law.mean == pytest.approx(value, abs=1e-4)
    half = return_laws(mdp, np.array([[0.5, 0.5, 0.0, 0.0]]))[0]
    assert half.mean == pytest.approx(0.5 * mdp.stop / (1 - 0.5 * mdp.discount * (1 - mdp.stop)), abs=1e-4)


def test_the_gamble_by_hand():
    mdp = Gamble()
    weights = mdp.discount ** np.arange(6)
    sure = return_laws(mdp, deterministic(np.full(6, WEST)))[0]
    assert sure.mean == pytest.approx(mdp.sure * weights.sum())
    assert sure.std < sure.truncation_error
    always = policy_values(mdp, deterministic(np.full(6, EAST)))[0]
    stays = (1 - mdp.loss_probability) ** np.arange(6)
    one = (1 - mdp.loss_probability) * mdp.gain + mdp.loss_probability * mdp.loss
    assert always == pytest.approx((weights * stays).sum() * one)
    law = return_laws(mdp, deterministic(np.full(6, EAST)))[0]
    assert law.cdf(0.4 * weights[:5].sum()) == pytest.approx(1 - stays[5] * (1 - mdp.loss_probability), abs=1e-9)
    coin = return_laws(mdp, deterministic(np.full(6, NORTH)))[0]
    np.testing.assert_allclose(coin.std, (0.9 / 2) * np.sqrt((weights**2).sum()), rtol=1e-4)


def test_cvar_by_hand():
    law = DiscreteLaw(np.array([-2.0, 0.0, 1.0]), np.array([0.1, 0.4, 0.5]))
    assert law.cvar(0.05) == pytest.approx(-2)
    assert law.cvar(0.2) == pytest.approx(-1)
    assert law.cvar(1.0) == pytest.approx(law.mean)


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_laws_have_the_mean_of_the_linear_equations(mdp: FiniteMDP):
    for policy in (optimal_policy(mdp), behaviour_policy(mdp, 0.5)):
        means = [law.mean for law in return_laws(mdp, policy)]
        np.testing.assert_allclose(means, policy_values(mdp, policy), atol=1e-4)
    low, high = return_range(mdp)
    assert low < optimal_values(mdp).min()
    assert optimal_values(mdp).max() < high
    assert (policy_values(mdp, uniform_policy(mdp)) <= optimal_values(mdp) + 1e-9).all()


def simulated(mdp: FiniteMDP, policy: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Discounted returns from the start."""
    rng, parts = np.random.default_rng(seed), outcomes(mdp)
    state, total, weight = np.full(count, mdp.start), np.zeros(count), np.ones(count)
    for _ in range(200):
        joint = (policy[:, :, None] * parts.probability).reshape(mdp.num_states, -1).cumsum(axis=1)
        which = (rng.random(count)[:, None] > joint[state]).sum(axis=1).clip(max=joint.shape[1] - 1)
        place = state, *np.divmod(which, parts.probability.shape[2])
        total += weight * parts.reward[place]
        weight *= parts.effective_discount[place]
        state = parts.successor[place]
    return total


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_laws_are_those_of_simulated_returns(mdp: FiniteMDP):
    for policy in (optimal_policy(mdp), behaviour_policy(mdp, 0.25)):
        returns = simulated(mdp, policy, 20_000)
        law = return_laws(mdp, policy)[mdp.start]
        assert law.wasserstein1(returns) < 0.02 * law.std + law.truncation_error
        worst = np.sort(returns)[: int(0.1 * len(returns))].mean()
        assert law.cvar(0.1) == pytest.approx(worst, abs=0.06)


def test_no_stationary_policy_of_the_gamble_has_a_better_tail():
    mdp = Gamble(num_states=3)
    laws = [
        return_laws(mdp, deterministic(np.array(moves)), 801)[0]
        for moves in itertools.product((EAST, NORTH, WEST), repeat=3)
    ]
    shortfall = least_shortfall(mdp)
    for level in (0.05, *LEVELS, 1.0):
        found = best_tail_law(mdp, shortfall, level).cvar(level)
        best = max(law.cvar(level) for law in laws)
        assert found > best - 0.01, level
        assert found < best + 0.2, "memory buys little here"
    assert best_tail_law(mdp, shortfall, 1.0).mean == pytest.approx(optimal_values(mdp)[0], abs=1e-3)


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_the_best_mean_and_the_best_tail_are_different_policies(mdp: FiniteMDP):
    best_mean = return_laws(mdp, optimal_policy(mdp))[mdp.start]
    best_tail = best_tail_law(mdp, least_shortfall(mdp), 0.1)
    assert best_mean.mean > best_tail.mean + 0.1, "the short way pays"
    assert best_tail.cvar(0.1) > best_mean.cvar(0.1) + 1
    assert best_tail_law(mdp, least_shortfall(mdp), 1.0).mean == pytest.approx(best_mean.mean, abs=2e-3)


def test_the_best_mean_walks_beside_the_cliff():
    mdp = Cliff()
    visits = occupancy(mdp, optimal_policy(mdp), np.eye(mdp.num_states)[mdp.start])
    slippery = np.array([mdp.ground(cell) == "~" for cell in mdp.cells])
    assert visits[slippery].min() > 0.5
    assert visits[[cell[1] > 1 for cell in mdp.cells]].sum() == pytest.approx(0)
    careful = tail_policy(mdp, return_laws(mdp, optimal_policy(mdp)), 0.1)
    visits = occupancy(mdp, careful, np.eye(mdp.num_states)[mdp.start])
    assert visits[slippery].sum() == pytest.approx(0)


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_laws_of_moves_mix_to_the_law_of_the_policy(mdp: FiniteMDP):
    policy = behaviour_policy(mdp, 0.25)
    laws = return_laws(mdp, policy)
    mixed = sum(p * law.weights for p, law in zip(policy[mdp.start], move_laws(mdp, laws, mdp.start), strict=True))
    assert np.abs(np.cumsum(mixed - laws[mdp.start].weights)).max() < 1e-3


def test_data_are_those_of_the_behaviour_and_of_the_seed():
    mdp = Cliff()
    behaviour = behaviour_policy(mdp, 0.25)
    first, again = (draw_transitions(mdp, behaviour, np.random.default_rng(3), 4000) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert Dataset(first).size == 4000
    assert first.observation.shape[1:] == task_spec(mdp).observation_shape
    state, move = np.asarray(first.observation.argmax(axis=1)), np.asarray(move_of(first.action))
    assert set(state) == set(range(mdp.num_states))
    counts = np.zeros((mdp.num_states, NUM_MOVES))
    np.add.at(counts, (state, move), 1)
    share = (counts * optimal_policy(mdp)).sum() / 4000
    assert share == pytest.approx(0.25 + 0.75 / 4, abs=0.03)
    falls = np.asarray(first.reward) < -1
    assert (np.asarray(first.terminal)[falls] == 1).all()


def test_wrong_processes_are_refused():
    class Leaking(Waiting):
        def ways(self, state: int, move: int) -> Sequence[Way]:
            return [Way(0.5, 0.0, None)]

    with pytest.raises(ValueError, match="sum to 0.5"):
        outcomes(Leaking())
    with pytest.raises(ValueError, match="must lie in"):
        outcomes(Waiting(discount=1.0))
