"""Facts of the population fixed point: where the linear path is biased, and that the flow path is not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

from pcbf_core.mrp import (
    MRPS,
    Bernoulli,
    FiniteProcess,
    MonteCarloChain,
    NormalLaw,
    NormalRewards,
    SolitaireDice,
    finite_process,
    normal_process,
)
from pcbf_core.population import PopulationFlow, solve

solve_bernoulli = partial(solve, Bernoulli())
coarse = partial(solve, num_flow_steps=25, num_points=101)
NORMAL = normal_process(NormalRewards(), num_rewards=12)

pytestmark = pytest.mark.slow


def relative_w1(flow: PopulationFlow) -> float:
    """Largest over states of W1 to the exact law, in units of its standard deviation."""
    return float((flow.wasserstein1 / flow.exact_std).max())


# ------------------------------------------------------------------------------------ processes


@pytest.mark.parametrize("name", MRPS)
def test_lists_of_transitions_have_the_exact_means_and_variances(name: str) -> None:
    lists = finite_process(MRPS[name])
    mean = np.array([law.mean for law in lists.laws])
    second = np.array([law.std**2 + law.mean**2 for law in lists.laws])
    discount, reward, successor = lists.effective_discount, lists.reward, lists.successor
    np.testing.assert_allclose((lists.probability * (reward + discount * mean[successor])).sum(1), mean, rtol=1e-9)
    squares = reward**2 + 2 * reward * discount * mean[successor] + discount**2 * second[successor]
    np.testing.assert_allclose((lists.probability * squares).sum(1), second, rtol=1e-9)


def test_normal_process_has_the_law_of_its_rewards() -> None:
    (law,) = finite_process(NormalRewards()).laws
    assert (law.mean, law.std) == (pytest.approx(5.0), pytest.approx(5 / 3))
    samples = law.mean + law.std * stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    assert law.wasserstein1(samples) < 2e-3
    assert NormalLaw(0.0, 1.0).wasserstein1([0.0]) == pytest.approx(np.sqrt(2 / np.pi))


def test_bad_lists_are_refused() -> None:
    good = finite_process(Bernoulli())
    fields = {name: getattr(good, name) for name in FiniteProcess.__dataclass_fields__}
    with pytest.raises(ValueError, match="sum to 1"):
        FiniteProcess(**fields | {"probability": np.array([[0.5, 0.6]])})
    with pytest.raises(ValueError, match="`reward` has shape"):
        FiniteProcess(**fields | {"reward": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="`discount=1.0`"):
        FiniteProcess(**fields | {"discount": 1.0})


# ------------------------------------------------------------------------------------ Bernoulli


def test_bernoulli_on_the_linear_path_is_right_without_control() -> None:
    flow = solve_bernoulli(path="linear", control_weight=0.0)
    assert relative_w1(flow) < 1e-3
    assert flow.std_ratio == pytest.approx(1, abs=5e-4)
    np.testing.assert_allclose(flow.quantile([0.1, 0.5, 0.9]), [[0.2, 1.0, 1.8]], atol=2e-3)


@pytest.mark.parametrize(("control_weight", "w1", "ratio"), [(0.3, 0.0221, 0.970), (0.5, 0.0459, 0.934)])
def test_bernoulli_on_the_linear_path_is_too_narrow(control_weight: float, w1: float, ratio: float) -> None:
    flow = solve_bernoulli(path="linear", control_weight=control_weight, num_flow_steps=50, num_points=201)
    assert flow.wasserstein1 == pytest.approx(w1, abs=1e-3)
    assert flow.std_ratio == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize("control_weight", [0.0, 0.5, 1.0])
def test_bernoulli_on_the_flow_path_is_right_at_every_weight(control_weight: float) -> None:
    flow = solve_bernoulli(path="flow", control_weight=control_weight)
    assert relative_w1(flow) < 1e-3
    assert flow.std_ratio == pytest.approx(1, abs=5e-4)


def test_both_paths_are_one_without_control() -> None:
    linear, flow = (coarse(Bernoulli(), path=path, control_weight=0.0) for path in ("linear", "flow"))
    np.testing.assert_array_equal(linear.points, flow.points)
    np.testing.assert_array_equal(linear.target_variance, flow.target_variance)


def test_bernoulli_converges_in_first_order() -> None:
    errors = [
        relative_w1(solve_bernoulli(path="flow", control_weight=1.0, num_flow_steps=steps, num_points=4 * steps + 1))
        for steps in (12, 24, 48)
    ]
    assert errors[2] < errors[1] < errors[0] and errors[2] < errors[0] / 3


# ------------------------------------------------------------------------------------ the normal law


def gaussian_spread(control_weight: float, *, discount: float = 0.8, num_times: int = 2000) -> float:
    """Fixed point of the learned std on the linear path when R ~ N(μ, 1), from linear regression at every t.

    All flows are affine, ψ_t(x) = m_t + s_t x, so the field's slope B = ṡ/s is a ratio of covariances,

        B = (t + a (γs - 1 - λ(s - 1))) / (a² + t² - λ a c),   a = 1 - t + tγs,  c = 1 - t + ts,  s = exp ∫ B dt.
    """
    time = (np.arange(num_times) + 0.5) / num_times
    spread = 1.0
    for _ in range(200):
        current, successor = 1 - time + time * discount * spread, 1 - time + time * spread
        above = time + current * (discount * spread - 1 - control_weight * (spread - 1))
        spread = np.exp((above / (current**2 + time**2 - control_weight * current * successor)).mean())
    return float(spread)


@pytest.mark.parametrize("control_weight", [0.0, 0.5, 1.0])
def test_normal_law_on_the_flow_path_is_right_at_every_weight(control_weight: float) -> None:
    flow = coarse(NORMAL, path="flow", control_weight=control_weight)
    assert relative_w1(flow) < 1e-3
    assert flow.std_ratio == pytest.approx(1, abs=5e-4)


@pytest.mark.parametrize("control_weight", [0.3, 0.8])
def test_normal_law_on_the_linear_path_has_the_spread_of_linear_regression(control_weight: float) -> None:
    flow = coarse(NORMAL, path="linear", control_weight=control_weight)
    assert flow.std == pytest.approx(gaussian_spread(control_weight), rel=3e-4)
    assert flow.std < 0.995 * flow.exact_std


def test_midpoint_is_second_order_on_a_smooth_law() -> None:
    flows = [
        solve(NORMAL, path="flow", control_weight=1.0, num_flow_steps=steps, num_points=61, tolerance=1e-7)
        for steps in (5, 10, 20)
    ]
    errors = [abs(float(flow.std_ratio[0]) - 1) for flow in flows]
    assert 3 < errors[0] / errors[1] < 5 and 3 < errors[1] / errors[2] < 5


# ------------------------------------------------------------------------------------ laws with atoms


def test_flow_path_finds_laws_with_atoms() -> None:
    dice = solve(SolitaireDice(), path="flow", control_weight=1.0, num_flow_steps=50, num_points=401, tolerance=1e-3)
    assert relative_w1(dice) < 0.02
    chain = solve(MonteCarloChain(), path="flow", control_weight=1.0, num_flow_steps=20, num_points=101, tolerance=1e-3)
    assert (chain.wasserstein1 / chain.exact_std).mean() < 0.06


# ------------------------------------------------------------------------------------ variance of targets


def test_flow_path_has_less_target_variance_than_no_control() -> None:
    none, half, full = (coarse(Bernoulli(), path="flow", control_weight=weight) for weight in (0.0, 0.5, 1.0))
    assert none.target_variance == pytest.approx(0.484, abs=2e-3)
    assert full.target_variance == pytest.approx(0.432, abs=2e-3)
    assert full.target_variance < half.target_variance < none.target_variance


def test_independent_noise_has_more_target_variance_and_the_same_law() -> None:
    grids = dict(path="linear", control_weight=0.0, num_flow_steps=25, num_points=101, tolerance=1e-3)
    shared = solve_bernoulli(**grids)
    independent = solve_bernoulli(**grids, shared_noise=False, start=shared)
    assert relative_w1(independent) < 5e-3
    assert independent.target_variance > 1.7 * shared.target_variance


def test_what_has_no_fixed_point_or_no_grid_says_so() -> None:
    with pytest.raises(RuntimeError, match="no fixed point after 3 iterations"):
        coarse(Bernoulli(), path="linear", control_weight=0.0, max_iterations=3)
    start = coarse(Bernoulli(), path="flow", control_weight=0.0)
    with pytest.raises(ValueError, match="same `num_flow_steps` and `num_points`"):
        solve_bernoulli(path="flow", control_weight=0.0, start=start)
    with pytest.raises(ValueError, match="`relaxation=0.0`"):
        coarse(Bernoulli(), path="flow", control_weight=0.0, relaxation=0.0)
