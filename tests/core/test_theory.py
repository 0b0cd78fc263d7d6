"""Closed forms against hand-worked numbers, and the identities that tie them together."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pcbf_core import theory
from pcbf_core.theory import TransitionLaw

COIN = TransitionLaw(
    probability=np.array([0.5, 0.5]),
    reward=np.zeros(2),
    successor_return=np.array([-1.0, 1.0]),
    successor_state=np.zeros(2, int),
)
MIXED = TransitionLaw(
    probability=np.array([0.2, 0.3, 0.1, 0.4]),
    reward=np.array([0.0, 1.0, -1.0, 0.5]),
    successor_return=np.array([-2.0, 1.0, 0.5, 3.0]),
    successor_state=np.array([0, 0, 1, 1]),
)


# ------------------------------------------------------------------------------------ linear-Gaussian


def test_closed_forms_at_a_worked_point() -> None:
    # t = γ = 1/2, σ = ρ = 1: D = 1/2, Var Z = 1/16 + 1/4 = 5/16, κ = (1/4)(1/2) / (5/32) = 4/5.
    assert theory.gaussian_bias_slope(0.5, discount=0.5, successor_std=1.0) == pytest.approx(0.8, rel=1e-12)
    # Var(u) = 1 + 1/4 + 2(λ² - 2λ·3/4): 1/4 at λ = 1/2 and 1/8 at λ* = 3/4.
    variance = theory.gaussian_target_variance(0.5, control_weight=[0.5, 0.75], discount=0.5, successor_std=1.0)
    np.testing.assert_allclose(variance, [0.25, 0.125], rtol=1e-12)
    assert theory.optimal_control_weight(jnp.array(0.5), discount=0.5) == pytest.approx(0.75)
    # t = 1/2, σ = 2: (2 - 1/2) / (1 + 1/4) = 6/5.
    assert theory.successor_velocity_slope(0.5, successor_std=2.0) == pytest.approx(1.2, rel=1e-12)


def test_bias_slope_vanishes_where_noise_correlation_equals_discount() -> None:
    times = np.linspace(0, 1, 11)
    slopes = theory.gaussian_bias_slope(times, discount=0.6, successor_std=1.7, noise_correlation=0.6)
    np.testing.assert_array_equal(slopes, 0)
    assert theory.gaussian_bias_slope([0.0, 1.0], discount=0.6, successor_std=1.7).tolist() == [0, 0]


@pytest.mark.parametrize("noise_correlation", [-0.5, 0.0, 1.0])
def test_target_variance_is_least_at_the_optimal_weight(noise_correlation: float) -> None:
    time, step = 0.35, 1e-3
    best = float(theory.optimal_control_weight(jnp.array(time), discount=0.9, noise_correlation=noise_correlation))
    below, least, above = theory.gaussian_target_variance(
        time,
        control_weight=[best - step, best, best + step],
        discount=0.9,
        successor_std=1.3,
        noise_correlation=noise_correlation,
    )
    assert least < min(below, above)
    assert below == pytest.approx(above, rel=1e-6)


def test_density_ratio_norm_against_quadrature() -> None:
    grid = np.linspace(-30, 30, 60001)
    ratio_square = stats.norm.pdf(grid, 0.8, 1.1) ** 2 / stats.norm.pdf(grid, 0, 1.5)
    expected = np.sqrt(np.trapezoid(ratio_square, grid))
    assert theory.gaussian_density_ratio_norm(0.8, 1.1, reference_std=1.5) == pytest.approx(expected, rel=1e-9)
    assert theory.gaussian_density_ratio_norm(0.0, 2.0, reference_std=2.0) == pytest.approx(1, rel=1e-12)
    with pytest.raises(ValueError, match="below √2"):
        theory.gaussian_density_ratio_norm(0.0, 2.0, reference_std=1.0)


# --------------------------------------------------------------------------------- finite transition laws


def test_posterior_of_a_fair_coin_by_hand() -> None:
    # R = 0, γ = 1, X' = ±1, t = 1/2: u = 2x ∓ 1, weight of +1 is 1/(1 + e^{-4x}); E[X' - X_0 | x] = 2 tanh(2x) - 2x.
    x = np.array([-0.7, 0.0, 0.4])
    velocity = theory.posterior_velocity(COIN, x, 0.5, discount=1.0)
    np.testing.assert_allclose(velocity, 2 * np.tanh(2 * x) - 2 * x, rtol=1e-12, atol=1e-15)
    density = theory.interpolated_density(COIN, 0.0, 0.5, discount=1.0)
    assert density == pytest.approx(2 * np.exp(-0.5) / np.sqrt(2 * np.pi), rel=1e-12)
    np.testing.assert_allclose(theory.interpolated_cdf(COIN, [-40.0, 0.0, 40.0], 0.5, discount=1.0), [0, 0.5, 1])
    assert theory.implied_noise(1.0, 0.5, reward=1.0, successor_return=2.0, discount=0.5) == pytest.approx(0.0)


def test_density_starts_normal_integrates_to_one_and_is_the_slope_of_the_cdf() -> None:
    grid = np.linspace(-12, 12, 24001)
    np.testing.assert_allclose(theory.interpolated_density(MIXED, grid, 0.0, discount=0.9), stats.norm.pdf(grid))
    density = theory.interpolated_density(MIXED, grid, 0.8, discount=0.9)
    assert np.trapezoid(density, grid) == pytest.approx(1, rel=1e-12)
    slope = np.gradient(theory.interpolated_cdf(MIXED, grid, 0.8, discount=0.9), grid)
    np.testing.assert_allclose(slope, density, atol=1e-4)


def test_posterior_velocity_at_the_source_is_the_mean_target_minus_the_point() -> None:
    x = np.array([-1.0, 0.5])
    mean = MIXED.probability @ (MIXED.reward + 0.9 * MIXED.successor_return)
    np.testing.assert_allclose(theory.posterior_velocity(MIXED, x, 0.0, discount=0.9), mean - x)


def test_successor_velocity_looks_at_outcomes_of_its_state_only() -> None:
    # At t = 0 it is the mean return of that state minus the point: -0.2 and 2.5.
    velocity = theory.optimal_successor_velocity(MIXED, 0.0, np.array([0.0, 0.0, 1.0]), np.array([0, 1, 1]))
    np.testing.assert_allclose(velocity, [-0.2, 2.5, 1.5])


def test_posterior_mean_keeps_expectations() -> None:
    # E[B[g](X_t)] = E[g], the tower property.
    def g(noise: np.ndarray) -> np.ndarray:
        return np.cos(noise) * MIXED.successor_return

    grid = np.linspace(-10, 12, 4001)
    density = theory.interpolated_density(MIXED, grid, 0.5, discount=0.9)
    mean = np.trapezoid(density * theory.posterior_mean(MIXED, g, grid, 0.5, discount=0.9), grid)
    exact = np.exp(-0.5) * (MIXED.probability @ MIXED.successor_return)
    assert mean == pytest.approx(exact, rel=1e-10)
    assert theory.expectation(MIXED, g) == pytest.approx(exact, rel=1e-10)


def test_errors_of_constant_offsets_and_perfect_fields() -> None:
    def optimal(offset: float, time: float, point: np.ndarray, state: np.ndarray) -> np.ndarray:
        return theory.optimal_successor_velocity(MIXED, time, point, state) + offset

    assert theory.approximation_error(MIXED, 0.6, partial(optimal, 0.0)) == 0
    assert theory.approximation_error(MIXED, 0.6, partial(optimal, -0.25)) == pytest.approx(0.25, rel=1e-12)
    assert theory.interpolant_norm(MIXED, np.ones_like, 0.6, discount=0.9) == pytest.approx(1)


def test_intrinsic_bias_vanishes_where_both_points_carry_the_same_information() -> None:
    # γ = 1 and R = 0: the current point is the successor point. With γ < 1 it is not.
    assert theory.intrinsic_bias(COIN, 0.5, discount=1.0) == pytest.approx(0, abs=1e-12)
    assert theory.intrinsic_bias(COIN, 0.5, discount=0.5) > 0.05


def test_intrinsic_bias_of_a_fine_gaussian_law_is_kappa_times_the_std() -> None:
    levels = (np.arange(32) + 0.5) / 32
    returns = 1.5 * stats.norm.ppf(levels)
    law = TransitionLaw(np.full(32, 1 / 32), np.zeros(32), returns, np.zeros(32, int))
    time, discount, std = 0.5, 0.8, float(returns.std())
    kappa = theory.gaussian_bias_slope(time, discount=discount, successor_std=std)
    current_std = np.hypot(discount * time * std, 1 - time)
    assert theory.intrinsic_bias(law, time, discount=discount) == pytest.approx(kappa * current_std, rel=0.03)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": np.array([0.5, 0.4])}, "sum to 1"),
        ({"probability": np.array([1.0, 0.0])}, "drop null outcomes"),
        ({"reward": np.zeros(3)}, "one length"),
    ],
)
def test_transition_law_rejects(change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransitionLaw(**(vars(COIN) | change))


def test_the_noise_is_not_determined_at_the_end() -> None:
    with pytest.raises(ValueError, match="flow_time=1"):
        theory.posterior_velocity(COIN, 0.0, 1.0, discount=1.0)


# ------------------------------------------------------------------------------------ bounds and conditions


def test_euler_target_bound_by_hand() -> None:
    # (|0.9 - 0.6| + 0.6·1·0.5)·0.1 = 0.06; λ = 0 leaves γ|δ|, λ = γ leaves γLt|δ|.
    bound = partial(theory.euler_target_bound, discount=0.9, lipschitz=1.0, flow_time=0.5, endpoint_error=-0.1)
    assert bound(control_weight=0.6) == pytest.approx(0.06)
    assert bound(control_weight=0.0) == pytest.approx(0.09)
    assert bound(control_weight=0.9) == pytest.approx(0.045)
    assert bound(control_weight=-0.5) == pytest.approx(0.165)


def test_shared_noise_distance_by_hand() -> None:
    first, second = np.array([[0.0, 2.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [0.0, 3.0]])
    weight = np.array([0.25, 0.75])
    # p = 1: pair 0 has 0.75·2 = 1.5, pair 1 has 0.25 + 0.75·2 = 1.75; p = 2: √3 and √3.25.
    assert theory.shared_noise_distance(first, second, weight=weight, power=1) == pytest.approx(1.75)
    assert theory.shared_noise_distance(first, second, weight=weight, power=2) == pytest.approx(np.sqrt(3.25))
    with pytest.raises(ValueError, match=r"power=0\.5"):
        theory.shared_noise_distance(first, second, weight=weight, power=0.5)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_dcfm_solutions_for_one_reward(reward: float) -> None:
    # With the fixed point z° = R/(1-γ): unscaled leaves constants, scaled leaves multiples of z - z°.
    unscaled = theory.dcfm_null_space(discount=0.5, rewards=[reward], degree=5, scaled=False)
    assert unscaled.shape == (6, 1)
    np.testing.assert_allclose(np.abs(unscaled[:, 0]), [1, 0, 0, 0, 0, 0], atol=1e-12)
    scaled = theory.dcfm_null_space(discount=0.5, rewards=[reward], degree=5, scaled=True)
    assert scaled.shape == (6, 1)
    np.testing.assert_allclose(scaled[:, 0] / scaled[1, 0], [-2 * reward, 1, 0, 0, 0, 0], atol=1e-12)


def test_dcfm_solutions_for_random_rewards() -> None:
    assert theory.dcfm_null_space(discount=0.5, rewards=[0, 1], degree=5, scaled=False).shape == (6, 1)
    assert theory.dcfm_null_space(discount=0.5, rewards=[0, 1], degree=5, scaled=True).shape == (6, 0)


# ------------------------------------------------------------------------------------------ integrated paths

REWARD, DISCOUNT = 1.0, 0.8


def straight_successor(time: jax.Array, point: jax.Array) -> jax.Array:
    """X' = X_0 + 2."""
    return 2.0 + 0 * point


def straight_current(time: jax.Array, point: jax.Array) -> jax.Array:
    """Field of Z_t = (1-t) X_0 + t (R + γ(X_0 + 2)), written in Z_t."""
    end_shift = REWARD + DISCOUNT * 2.0
    noise = (point - time * end_shift) / (1 - time + DISCOUNT * time)
    return end_shift - (1 - DISCOUNT) * noise


def curved_successor(time: jax.Array, point: jax.Array) -> jax.Array:
    """Z'_t = X_0 e^t."""
    return point


def curved_current(time: jax.Array, point: jax.Array) -> jax.Array:
    """Field of Z_t = tR + γ X_0 e^t + (1-t)(1-γ) X_0."""
    scale = DISCOUNT * jnp.exp(time) + (1 - time) * (1 - DISCOUNT)
    noise = (point - time * REWARD) / scale
    return REWARD + noise * (DISCOUNT * jnp.exp(time) - (1 - DISCOUNT))


def residual(
    current: theory.Velocity, successor: theory.Velocity, num_flow_steps: int, **other: jax.Array
) -> jax.Array:
    noise = jax.random.normal(jax.random.key(0), (512,))
    return theory.corrected_residual(
        current,
        successor,
        noise=noise,
        reward=jnp.full(512, REWARD),
        discount=DISCOUNT,
        num_flow_steps=num_flow_steps,
        **other,
    )


@pytest.mark.slow
def test_residual_vanishes_on_straight_paths() -> None:
    values = residual(straight_current, straight_successor, 8)
    assert values.shape == (9,)
    np.testing.assert_allclose(values, 0, atol=2e-6)


@pytest.mark.slow
def test_residual_by_hand_for_resting_fields() -> None:
    # Both fields zero: |x - (tR + γx + (1-t)(1-γ)x)| = t|(1-γ)x - R|, here |0.2·3 - 1| t = 0.4 t.
    still = lambda time, point: jnp.zeros_like(point)  # noqa: E731
    values = theory.corrected_residual(
        still, still, noise=jnp.array([3.0]), reward=jnp.array([1.0]), discount=0.8, num_flow_steps=4
    )
    np.testing.assert_allclose(values, 0.4 * np.linspace(0, 1, 5), atol=1e-6)


def test_residual_of_a_terminal_transition_ignores_the_successor() -> None:
    # γ̃ = 0: the path must be tR + (1-t) X_0, whose field is (R - z)/(1-t).
    values = theory.corrected_residual(
        lambda time, point: (REWARD - point) / (1 - time),
        straight_successor,
        noise=jnp.array([-1.0, 0.5]),
        reward=jnp.array([REWARD]),
        discount=jnp.zeros(1),
        num_flow_steps=4,
    )
    np.testing.assert_allclose(values, 0, atol=1e-6)


@pytest.mark.slow
def test_residual_is_first_order_in_the_step() -> None:
    ends = [float(residual(curved_current, curved_successor, steps)[-1]) for steps in (8, 16, 32)]
    for coarse, fine in pairwise(ends):
        assert coarse / fine == pytest.approx(2, rel=0.15)


@pytest.mark.slow
def test_independent_noise_leaves_a_residual_at_the_source() -> None:
    # |X_0 - (γX_0' + (1-γ)X_0)| = γ|X_0 - X_0'|; shared noise leaves none.
    noise, other = jax.random.normal(jax.random.key(0), (512,)), jax.random.normal(jax.random.key(1), (512,))
    shared = residual(straight_current, straight_successor, 4)
    independent = residual(straight_current, straight_successor, 4, successor_noise=other)
    assert float(shared[0]) < 1e-6
    assert float(independent[0]) == pytest.approx(DISCOUNT * float(jnp.abs(noise - other).mean()), rel=1e-5)
    np.testing.assert_array_equal(residual(straight_current, straight_successor, 4, successor_noise=noise), shared)


@pytest.mark.slow
def test_residual_jit_equals_no_jit() -> None:
    compiled = jax.jit(residual, static_argnums=(0, 1, 2))
    np.testing.assert_allclose(
        compiled(curved_current, curved_successor, 8),
        residual(curved_current, curved_successor, 8),
        rtol=1e-5,
        atol=1e-6,
    )
