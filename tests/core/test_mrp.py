"""Exact return laws against known moments, Bellman's equation, Monte Carlo and hand-worked distances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core.mrp import (
    MRPS,
    Bernoulli,
    Crossroads,
    DiscreteLaw,
    MonteCarloChain,
    NormalMixtureLaw,
    SolitaireDice,
    UniformLaw,
)

CASES = [(process, state) for process in MRPS.values() for state in process.evaluation_states]
IDS = [f"{process.name}-{state}" for process, state in CASES]


@pytest.mark.parametrize(
    ("environment", "state", "mean", "std"),
    [
        ("solitaire", 0, 3.3333, 2.6149),
        ("bernoulli", 0, 1.0, 2 / np.sqrt(12)),
        ("chain", 1, 3.290, 4.448),
        ("chain", 5, 12.253, 5.862),
        ("chain", 10, 19.229, 1.934),
        ("chain", 18, 1.547, 3.819),
    ],
)
def test_moments(environment: str, state: int, mean: float, std: float):
    law = MRPS[environment].return_law(state)
    assert law.mean == pytest.approx(mean, abs=1e-3)
    assert law.std == pytest.approx(std, abs=1e-3)
    assert law.truncation_error < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("process", "state"), CASES, ids=IDS)
def test_simulated_returns_follow_the_law(process, state: int):
    samples = np.asarray(process.monte_carlo_returns(jax.random.key(state + 1), state, 20_000, max_steps=600))
    law = process.return_law(state)
    assert law.wasserstein1(samples) < 0.02 * law.std + 0.01


def test_solitaire_atoms_and_probabilities():
    law = SolitaireDice().return_law(0)
    np.testing.assert_allclose(law.atoms[:4], [0, 1, 1.9, 2.71], atol=1e-12)
    np.testing.assert_allclose(law.weights[:3], [1 / 6, 5 / 36, 25 / 216], atol=1e-12)


@pytest.mark.parametrize(
    ("state", "moves"),
    [
        (1, (0.4210, 0.1581, 0.4210)),
        (5, (0.5942, 0.0, 0.4058)),
        (10, (0.3536, 0.1464, 0.5)),
        (18, (0.2732, 0.0322, 0.6947)),
    ],
)
def test_chain_moves(state: int, moves: tuple[float, ...]):
    np.testing.assert_allclose(MonteCarloChain().move_probabilities()[state], moves, atol=6e-5)


def test_chain_laws_solve_the_distributional_bellman_equation():
    """F_s(x) = ∑ P(s, s') F_{s'}((x - r) / γ), with a return of 0 once absorbed."""
    chain = MonteCarloChain()
    moves = chain.move_probabilities()
    x = np.linspace(-0.5, 20.5, 1001)

    def successor_cdf(state: int) -> np.ndarray:
        if state in chain.absorbing_states:
            return (x >= 0).astype(float)
        return chain.return_law(state).cdf((x - 1) / chain.discount + 1e-9)

    for state in (1, 7, 18):
        mixture = sum(moves[state, k] * successor_cdf(state - 1 + k) for k in range(3))
        np.testing.assert_allclose(chain.return_law(state).cdf(x), mixture, atol=1e-6)


def test_crossroads_by_hand():
    """The good road's last state pays N(2, ½²); the bad one's mixes the loss with it."""
    good, bad = (Crossroads().return_law(state) for state in (3, 6))
    assert (good.mean, good.std) == (pytest.approx(2.0), pytest.approx(0.5))
    assert bad.mean == pytest.approx(0.1 * -10 + 0.9 * -2)
    fork = Crossroads().return_law(0)
    assert fork.mean == pytest.approx(0.9 * (0.6 * 2 * (1 + 0.9 + 0.81) + 0.4 * Crossroads().return_law(4).mean))
    assert fork.cdf(0.0) == pytest.approx(0.4, abs=1e-3)  # two modes, one on either side


def test_a_mixture_of_normals_against_its_parts():
    law = NormalMixtureLaw(np.array([0.3, 0.7]), np.array([-2.0, 3.0]), np.array([0.5, 1.0]))
    levels = np.linspace(0.01, 0.99, 21)
    np.testing.assert_allclose(law.cdf(law.quantile(levels)), levels, atol=1e-12)
    assert law.quantile(0.0) == -np.inf
    assert law.quantile(1.0) == np.inf
    samples = law.quantile((np.arange(4000) + 0.5) / 4000)
    assert (samples.mean(), samples.std()) == (pytest.approx(law.mean, abs=1e-3), pytest.approx(law.std, rel=1e-3))
    assert law.wasserstein1(samples) < 1e-3
    assert law.wasserstein1(samples + 0.25) == pytest.approx(0.25, abs=1e-4)
    # one sample in the middle of N(0, 1): the mean of |x|
    one = NormalMixtureLaw(np.array([1.0]), np.array([0.0]), np.array([1.0]))
    assert one.wasserstein1([0.0]) == pytest.approx(np.sqrt(2 / np.pi))
    with pytest.raises(ValueError, match="sum to 1"):
        NormalMixtureLaw(np.array([0.3]), np.array([0.0]), np.array([1.0]))


def test_the_range_of_returns_holds_all_laws():
    for process in MRPS.values():
        low, high = process.return_range
        for state in process.live_states:
            law = process.return_law(state)
            assert low <= law.quantile(0.001) <= law.quantile(0.999) <= high


def test_wasserstein_by_hand():
    assert DiscreteLaw(np.array([0.0, 1.0]), np.array([0.5, 0.5])).wasserstein1([0.0, 3.0]) == pytest.approx(1.0)
    # one sample at 1 against U[0, 2]: the mean of |x - 1| is 1/2
    assert UniformLaw(0, 2).wasserstein1([1.0]) == pytest.approx(0.5)
    # two samples at the quartile points 0.5 and 1.5: each interval costs a mean distance of 1/4
    assert UniformLaw(0, 2).wasserstein1([1.5, 0.5]) == pytest.approx(0.25)
    assert UniformLaw(0, 2).wasserstein1([-1.0, -1.0]) == pytest.approx(2.0)


@pytest.mark.parametrize("law", [SolitaireDice().return_law(0), Bernoulli().return_law(0)], ids=["discrete", "uniform"])
def test_quantile_inverts_cdf(law):
    levels = np.array([0.01, 0.2, 0.5, 0.77, 0.999])
    assert (law.cdf(law.quantile(levels)) >= levels - 1e-9).all()
    assert (law.cdf(law.quantile(levels) - 1e-6) < levels).all()


def test_truncated_law_states_its_error():
    short, long = SolitaireDice(max_rolls=5), SolitaireDice()
    error = short.return_law(0).truncation_error
    reference = long.return_law(0)
    shift = reference.wasserstein1(short.return_law(0).quantile((np.arange(20_000) + 0.5) / 20_000))
    assert 0 < shift <= error + 1e-3


@pytest.mark.slow
def test_batches_are_well_formed_and_repeatable():
    for process in MRPS.values():
        batch = process.sample(jax.random.key(0), 512)
        again = process.sample(jax.random.key(0), 512)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), batch, again))
        assert set(np.unique(batch.observation)) <= set(process.live_states)
        assert set(np.unique(batch.next_observation)) <= set(range(process.num_states))
        ended = np.isin(batch.next_observation, process.absorbing_states)
        np.testing.assert_array_equal(ended, np.asarray(batch.terminal, bool))


@pytest.mark.slow
def test_absorbing_share_of_a_batch():
    chain = MonteCarloChain()
    batch = chain.sample(jax.random.key(1), 4000, absorbing_fraction=0.25)
    resting = np.isin(batch.observation, chain.absorbing_states)
    assert resting.mean() == pytest.approx(0.25, abs=0.03)
    assert float(jnp.abs(batch.reward[resting]).max()) == 0 and float(batch.terminal[resting].min()) == 1


def test_errors_name_the_remedy():
    with pytest.raises(ValueError, match="state=0.*absorbing"):
        MonteCarloChain().return_law(0)
    with pytest.raises(ValueError, match="at least 3"):
        MonteCarloChain(num_states=2)
    with pytest.raises(ValueError, match="increase strictly"):
        DiscreteLaw(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
