"""The flow path: its ends, its velocity, what it shares with the linear path and Value Flows, and what it learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pcbf_baselines.value_flows import ValueFlowsCritic, ValueFlowsCriticConfig
from pcbf_core import Dataset, PCBFConfig, PCBFCritic, PCBFCriticConfig, TaskSpec, Transition
from pcbf_core.flow import flow_map, flow_times, flow_trajectory, on_polygon
from pcbf_core.paths import current_point, flow_path_point
from pcbf_core.targets import bellman_velocity, flow_path_velocity
from pcbf_core.training import init_many, train_chunk

from ..methods import random_batch

SPEC = TaskSpec(observation_shape=(3,), action_dim=2)
SMALL: dict[str, Any] = dict(hidden_sizes=(8, 8), num_flow_steps=4, discount=0.9)


def draws(seed: int, terminal: bool) -> dict[str, Any]:
    """One transition of a successor whose field v(t, z) = a + b z has the flow x e^{bt} + a (e^{bt} - 1) / b."""
    rng = np.random.default_rng(seed)
    a, b, noise, other, reward = rng.normal(size=5)

    def flow(time: Any) -> Any:
        return other * jnp.exp(b * time) + a * (jnp.exp(b * time) - 1) / b

    discount = 0.0 if terminal else float(rng.uniform(0.1, 0.99))
    ends = dict(noise=noise, successor_noise=other, successor_return=flow(1.0), reward=reward)
    return {"flow": flow, "field": lambda time, z: a + b * z, "ends": {**ends, "effective_discount": discount}}


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


WEIGHTS = {"0": lambda t: 0 * t, "1/2": lambda t: 0.5 + 0 * t, "1": lambda t: 1 + 0 * t, "function": lambda t: 1 - t**2}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("seed", range(3))
def test_it_joins_noise_and_bellman_target_and_its_velocity_is_the_targets(seed, weight, terminal):
    given = draws(seed, terminal)
    ends, flow = given["ends"], given["flow"]

    def point(time):
        return flow_path_point(**ends, flow_point=flow(time), flow_time=time, control_weight=weight(time))

    bellman = ends["reward"] + ends["effective_discount"] * ends["successor_return"]
    np.testing.assert_allclose([point(0.0), point(1.0)], [ends["noise"], bellman], atol=1e-12)
    for time in (0.0, 0.3, 0.8, 1.0):
        _, slope = jax.jvp(point, (time,), (1.0,))
        target = flow_path_velocity(
            **ends,
            flow_point=flow(time),
            flow_velocity=given["field"](time, flow(time)),
            flow_time=time,
            control_weight=weight(time),
            control_weight_slope=jax.grad(weight)(time),
        )
        np.testing.assert_allclose(slope, target, atol=1e-12)
        if terminal:  # straight to the reward
            np.testing.assert_allclose(target, ends["reward"] - ends["noise"], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_without_weight_it_is_the_papers_path(seed):
    given = draws(seed, terminal=False)
    plain = {name: value for name, value in given["ends"].items() if name != "successor_noise"}
    for time in (0.2, 0.7):
        on_flow = dict(flow_point=given["flow"](time), flow_time=time, control_weight=0.0)
        assert flow_path_point(**given["ends"], **on_flow) == current_point(**plain, flow_time=time)
        assert flow_path_velocity(**given["ends"], **on_flow, flow_velocity=5.0) == bellman_velocity(**plain)


def test_the_polygon_goes_through_the_nodes_and_is_straight_between():
    times = flow_times(4, time_power=1.5)
    nodes = jnp.array([[0.0, 1.0], [2.0, 0.5], [2.5, -1.0], [2.5, 3.0], [4.0, 4.0]])
    np.testing.assert_allclose(jnp.stack([on_polygon(times, nodes, t) for t in times]), nodes, atol=1e-12)
    middle = (times[1:] + times[:-1]) / 2
    between = jnp.stack([on_polygon(times, nodes, t) for t in middle])
    np.testing.assert_allclose(between, (nodes[1:] + nodes[:-1]) / 2, atol=1e-12)


@pytest.mark.slow
def test_points_on_the_polygon_err_by_the_square_of_the_step():
    """So v⁻(t, Ẑ_t) is the velocity of the path up to second order, as the midpoint solver's own end is."""

    def field(time, z):
        return jnp.sin(3 * z) + time

    noise, time = jnp.linspace(-2, 2, 9), jnp.float64(0.37)
    exact = flow_map(field, noise, 2000, solver="midpoint", end_time=time)
    errors = []
    for steps in (8, 16, 32):
        nodes = flow_trajectory(field, noise, steps, solver="midpoint")
        errors.append(float(jnp.abs(on_polygon(flow_times(steps), nodes, time) - exact).max()))
    assert errors[1] < errors[0] / 2.5 and errors[2] < errors[1] / 2.5


# --- the critic -----------------------------------------------------------------------------------------------------


def batch() -> Transition:
    made = random_batch(SPEC, size=6)
    return made.replace(next_action=made.action[::-1], terminal=jnp.array([0.0] * 5 + [1.0]))


def loss_of(config: Any, kind: Any = PCBFCritic, **coefficients: float) -> float:
    critic = kind(config, SPEC)
    params, target = (critic.init_params(jax.random.key(seed)) for seed in (0, 1))
    given = {**critic.init(jax.random.key(0)).coefficients, **coefficients}
    return float(critic.loss(params, target, batch(), jax.random.key(2), given)[0])


@pytest.mark.slow
def test_without_weight_linear_path_flow_path_and_value_flows_are_one_algorithm():
    flow, linear = (loss_of(PCBFCriticConfig(**SMALL, path=path, control_weight=0.0)) for path in ("flow", "linear"))
    np.testing.assert_allclose(flow, linear, rtol=1e-6)
    shared = dict(SMALL, solver="midpoint", stratified=True)
    critic = PCBFCritic(PCBFCriticConfig(**shared, path="linear"), SPEC)
    noise_key, _ = jax.random.split(jax.random.key(2))
    same = ValueFlowsCritic(ValueFlowsCriticConfig(**shared, dcfm_weight=0.0), SPEC)
    params, target = (critic.init_params(jax.random.key(seed)) for seed in (0, 1))
    coefficients = {"bcfm_weight": jnp.ones(()), "dcfm_weight": jnp.zeros(())}
    bcfm = same.loss(params, target, batch(), noise_key, coefficients)[0]
    np.testing.assert_allclose(bcfm, linear, rtol=1e-6)


@pytest.mark.slow
def test_a_constant_function_is_that_constant():
    constant = loss_of(PCBFCriticConfig(**SMALL, control_weight=0.5))
    np.testing.assert_allclose(loss_of(PCBFCriticConfig(**SMALL, control_weight=lambda t: 0.5)), constant, rtol=1e-6)
    assert loss_of(PCBFCriticConfig(**SMALL, control_weight=lambda t: t)) != pytest.approx(constant)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_the_path_of_an_ensemble_ends_at_its_return_and_moves_at_its_velocity(aggregation):
    critic = PCBFCritic(PCBFCriticConfig(**{**SMALL, "num_flow_steps": 64}), SPEC)
    x = batch()
    flow = critic.flow_at(critic.init_params(jax.random.key(0)), x.observation, x.action, aggregation=aggregation)
    noise = jnp.linspace(-1, 1, 6)[:, None]
    path = flow.path(noise)
    np.testing.assert_allclose(path.returns, flow.returns(noise), rtol=1e-6)
    time, step = jnp.full((6, 1), 0.4), 1e-3
    (before, _), (after, _) = path.at(time - step), path.at(time + step)
    np.testing.assert_allclose((after - before) / (2 * step), path.at(time)[1], atol=2e-2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"control_weight": 1.5}, "`control_weight=1.5` is out of range; it must be >= 0 and <= 1"),
        ({"control_weight": -0.1}, "`control_weight=-0.1` is out of range"),
        ({"path": "curved"}, "`path='curved'` is unknown; choose one of flow, linear, blended"),
        ({"control_weight": "optimal"}, 'on `path="flow"` pass a number in'),
        ({"lambda_scale": "inside_discount"}, 'or choose `path="linear"`'),
    ],
)
def test_bad_values_are_told_what_is_allowed(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        PCBFCriticConfig(**settings)


def test_the_defaults_are_the_flow_path_and_the_variants_the_papers():
    for config in (PCBFCriticConfig(), PCBFConfig()):
        assert (config.path, config.control_weight, config.solver, config.stratified) == ("flow", 1.0, "midpoint", True)
        assert (config.num_flow_steps, config.polyak_rate) == (5, 0.01)
    assert PCBFCriticConfig(path="linear").control_weight == 0.0
    for name in PCBFConfig.variants:
        paper = PCBFConfig.variant(name)
        assert (paper.control_weight, paper.solver, paper.num_flow_steps, paper.stratified) == (0.0, "euler", 10, False)
        assert (paper.path, paper.polyak_rate) == ("blended" if name == "compiled" else "linear", 0.005)


# --- what it learns -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_the_defaults_learn_a_normal_law_once_the_learning_rate_decays():
    """One state, R ~ N(1, 1), γ = 0.8, so G ~ N(5, 1/0.36): W1 within 3 % of its deviation, CVaR_0.1 within 0.08."""
    with jax.enable_x64(False):
        reward, zeros = np.random.default_rng(0).normal(1, 1, 40_000), np.zeros((40_000, 1))
        data = Dataset(Transition(zeros, zeros, reward, zeros, zeros[:, 0], zeros))
        spec = TaskSpec(observation_shape=(1,), action_dim=1)
        config = replace(PCBFCriticConfig(), discount=0.8, hidden_sizes=(64, 64), decay_steps=4000)
        critic, keys = PCBFCritic(config, spec), jax.random.split(jax.random.key(1), 1)
        states, _ = train_chunk(critic, init_many(critic, keys), data, keys, num_steps=4000, batch_size=64)
        state, place = jax.tree.map(lambda leaf: leaf[0], states), (jnp.zeros(1), jnp.zeros(1))
        levels = (np.arange(2000) + 0.5) / 2000
        mean, deviation = reward.mean() / 0.2, reward.std() / 0.6
        exact = mean + deviation * stats.norm.ppf(levels)
        learned = np.asarray(critic.quantiles(state, *place, levels))
        assert np.abs(learned - exact).mean() <= 0.03 * deviation
        assert float(critic.cvar(state, *place, 0.1)) == pytest.approx(exact[:200].mean(), abs=0.08)
