"""Identities of the paths and targets, stated for random samples and for numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import (
    bellman_velocity,
    control_variate,
    current_point,
    current_point_from_successor,
    optimal_control_weight,
    path_coupled_pair,
    successor_point,
    uncorrected_point,
    velocity_target,
)


def sample(key: int = 0, size: int = 100) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(key), 5)
    return {
        "noise": jax.random.normal(keys[0], (size,)),
        "successor_return": 3 * jax.random.normal(keys[1], (size,)) + 1,
        "reward": jax.random.normal(keys[2], (size,)),
        "flow_time": jax.random.uniform(keys[3], (size,)),
        "effective_discount": 0.9 * jax.random.bernoulli(keys[4], 0.8, (size,)),
    }


@pytest.fixture(params=[False, True], ids=["plain", "jit"])
def maybe_jit(request: pytest.FixtureRequest):
    return jax.jit if request.param else lambda function: function


def test_current_point_by_hand(maybe_jit):
    point = maybe_jit(current_point)(
        noise=2.0, successor_return=10.0, reward=1.0, flow_time=0.25, effective_discount=0.5
    )
    assert point == pytest.approx(0.75 * 2 + 0.25 * (1 + 0.5 * 10))  # 3.0


def test_velocity_target_by_hand(maybe_jit):
    # Y = 1 + 0.5·10 - 2 = 4; C = 7 - (10 - 2) = -1; u = 4 + 0.4·(-1)
    target = maybe_jit(velocity_target)(
        noise=2.0,
        successor_return=10.0,
        reward=1.0,
        successor_velocity=7.0,
        effective_discount=0.5,
        effective_control_weight=0.4,
    )
    assert target == pytest.approx(3.6)


@pytest.mark.slow
def test_both_forms_of_the_current_path_agree():
    x = sample()
    np.testing.assert_allclose(current_point(**x), current_point_from_successor(**x), atol=1e-5)


def test_paths_start_at_the_noise_and_end_at_the_bellman_target():
    x = sample()
    start, end = {**x, "flow_time": jnp.zeros(100)}, {**x, "flow_time": jnp.ones(100)}
    bellman = x["reward"] + x["effective_discount"] * x["successor_return"]
    np.testing.assert_allclose(current_point(**start), x["noise"], atol=1e-6)
    np.testing.assert_allclose(current_point(**end), bellman, atol=1e-6)
    arguments = {name: x[name] for name in ("noise", "successor_return")}
    np.testing.assert_allclose(successor_point(**arguments, flow_time=0.0), x["noise"], atol=1e-6)
    np.testing.assert_allclose(successor_point(**arguments, flow_time=1.0), x["successor_return"], atol=1e-6)


def test_the_uncorrected_path_ends_right_but_starts_shifted():
    x = sample()
    start, end = {**x, "flow_time": jnp.zeros(100)}, {**x, "flow_time": jnp.ones(100)}
    bellman = x["reward"] + x["effective_discount"] * x["successor_return"]
    np.testing.assert_allclose(uncorrected_point(**end), bellman, atol=1e-6)
    np.testing.assert_allclose(
        uncorrected_point(**start), x["reward"] + x["effective_discount"] * x["noise"], atol=1e-6
    )
    assert jnp.abs(uncorrected_point(**start) - x["noise"]).mean() > 0.1


def test_the_bellman_velocity_is_the_time_derivative_of_the_current_path():
    x = sample()
    slope = jax.vmap(jax.grad(lambda t, x: current_point(**{**x, "flow_time": t})))(x["flow_time"], x)
    velocity = bellman_velocity(**{name: value for name, value in x.items() if name != "flow_time"})
    np.testing.assert_allclose(slope, velocity, atol=1e-5)


def test_control_weight_zero_gives_y_and_control_weight_discount_removes_the_sample():
    x = sample()
    common = {name: x[name] for name in ("noise", "reward")}
    velocity = jnp.linspace(-3.0, 3.0, 100)

    def target(successor_return, weight):
        return velocity_target(
            **common,
            successor_return=successor_return,
            successor_velocity=velocity,
            effective_discount=0.9,
            effective_control_weight=weight,
        )

    y = bellman_velocity(**common, successor_return=x["successor_return"], effective_discount=0.9)
    np.testing.assert_allclose(target(x["successor_return"], 0.0), y, atol=1e-6)
    np.testing.assert_allclose(target(x["successor_return"], 0.9), target(x["successor_return"] + 5, 0.9), atol=1e-4)
    assert jnp.abs(target(x["successor_return"], 0.5) - target(x["successor_return"] + 5, 0.5)).min() > 1


def test_control_variate_vanishes_for_the_sampled_velocity():
    x = sample()
    exact = x["successor_return"] - x["noise"]
    arguments = {"noise": x["noise"], "successor_return": x["successor_return"]}
    np.testing.assert_array_equal(control_variate(**arguments, successor_velocity=exact), 0)


def test_terminal_transitions_forget_the_successor():
    x = sample()
    point, target = path_coupled_pair(
        lambda t, z: 100 * jnp.sin(z),
        noise=x["noise"],
        successor_noise=x["noise"],
        successor_return=x["successor_return"],
        flow_time=x["flow_time"],
        reward=x["reward"],
        terminal=jnp.ones(100),
        discount=0.9,
        control_weight=jnp.asarray(0.7),
    )
    np.testing.assert_allclose(target, x["reward"] - x["noise"], atol=1e-6)
    np.testing.assert_allclose(point, (1 - x["flow_time"]) * x["noise"] + x["flow_time"] * x["reward"], atol=1e-6)


def test_optimal_control_weight_at_the_ends():
    assert optimal_control_weight(0.0, discount=0.9, noise_correlation=1.0) == pytest.approx(0.9)
    assert optimal_control_weight(1.0, discount=0.9, noise_correlation=1.0) == pytest.approx(1.0)
    assert optimal_control_weight(1.0, discount=0.9, noise_correlation=0.0) == 0
