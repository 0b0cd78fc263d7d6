"""Solvers: exactness, order of convergence, scan against loop, errors."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import flow_map, flow_times, flow_trajectory


def growth(time, point):
    """dz/dt = z cos t, with solution z_0 exp(sin t)."""
    return point * jnp.cos(time)


def error(num_steps: int, solver: str, **options) -> float:
    noise = jnp.array([1.0, -0.5])
    end = flow_map(growth, noise, num_steps, solver=solver, **options)
    return float(jnp.abs(end - noise * jnp.exp(jnp.sin(1.0))).max())


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2), ("heun", 2)])
@pytest.mark.parametrize("time_power", [1.0, 1.5])
def test_order_of_convergence(solver: str, order: int, time_power: float):
    coarse, fine = (error(n, solver, time_power=time_power) for n in (16, 32))
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.25)


def test_euler_by_hand():
    # z' = -2 z in two steps of 1/2: 1 -> 0 -> 0; in four: (1/2)^4
    assert flow_map(lambda t, z: -2 * z, jnp.array(1.0), 2) == 0
    assert flow_map(lambda t, z: -2 * z, jnp.array(1.0), 4) == pytest.approx(1 / 16)


@pytest.mark.parametrize("solver", ["euler", "midpoint", "heun"])
def test_scan_equals_a_plain_loop_and_jit_changes_nothing(solver: str):
    noise, grid = jnp.linspace(-2, 2, 7), np.asarray(flow_times(5, time_power=1.5))
    point = noise
    for begin, end in itertools.pairwise(grid):
        h, slope = end - begin, growth(begin, point)
        if solver == "euler":
            point = point + h * slope
        elif solver == "midpoint":
            point = point + h * growth(begin + h / 2, point + h / 2 * slope)
        else:
            point = point + h / 2 * (slope + growth(end, point + h * slope))
    run = lambda z: flow_map(growth, z, 5, solver=solver, time_power=1.5)  # noqa: E731
    np.testing.assert_allclose(run(noise), point, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(run)(noise), run(noise), rtol=1e-6)


def test_trajectory_starts_at_the_noise_and_ends_at_the_map():
    noise = jnp.linspace(-1, 1, 4)
    path = flow_trajectory(growth, noise, 8, solver="heun")
    assert path.shape == (9, 4)
    np.testing.assert_array_equal(path[0], noise)
    np.testing.assert_allclose(path[-1], flow_map(growth, noise, 8, solver="heun"), rtol=1e-6)


def test_end_time_stops_each_particle_at_its_own_time():
    noise, end = jnp.ones(3), jnp.array([0.0, 0.5, 1.0])
    result = flow_map(growth, noise, 400, solver="midpoint", end_time=end)
    np.testing.assert_allclose(result, jnp.exp(jnp.sin(end)), rtol=1e-5)


def test_clip_range_holds_after_every_step():
    path = flow_trajectory(lambda t, z: 10 * jnp.ones_like(z), jnp.zeros(2), 5, clip_range=(-1.0, 3.0))
    assert path.max() == 3


def test_flow_times_end_at_one_and_increase():
    for power in (0.5, 1.0, 2.0):
        grid = np.asarray(flow_times(10, time_power=power))
        assert grid[0] == 0 and grid[-1] == 1 and (np.diff(grid) > 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_steps": 0}, "num_steps=0"),
        ({"num_steps": 3, "solver": "rk4"}, "choose one of euler, midpoint, heun"),
        ({"num_steps": 3, "time_power": 0.0}, "time_power=0.0"),
    ],
)
def test_bad_arguments_name_the_remedy(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        flow_map(growth, jnp.zeros(1), **arguments)
