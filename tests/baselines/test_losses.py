"""Each loss term against numbers worked by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines import losses, make_agent
from pcbf_baselines.c51 import tail_masses
from pcbf_baselines.floq import FloQ, FloQConfig
from pcbf_baselines.value_flows import ValueFlowsCritic, ValueFlowsCriticConfig, with_tangent
from pcbf_core import PCBFCritic, PCBFCriticConfig
from pcbf_core.flow import flow_map
from pcbf_core.types import TaskSpec

from ..methods import SPECS, random_batch


def test_expectile():
    # 0.9 · 2² above, 0.1 · 2² below, and ½ makes it half the square
    np.testing.assert_allclose(losses.expectile_loss(jnp.array([2.0, -2.0]), 0.9), [3.6, 0.4], rtol=1e-6)
    np.testing.assert_allclose(losses.expectile_loss(jnp.array([2.0, -2.0]), 0.5), [2.0, 2.0])


def test_awr_weight_is_capped():
    weight = losses.awr_weight(jnp.array([0.0, 1.0, 5.0]), 2.0)
    np.testing.assert_allclose(weight, [1.0, np.exp(2.0), 100.0], rtol=1e-6)


def test_gaussian_log_density():
    # two coordinates at distance 1 and 2: -(1 + 4)/2 - log 2π
    value = losses.gaussian_log_density(jnp.array([1.0, 3.0]), jnp.array([0.0, 1.0]))
    assert float(value) == pytest.approx(-2.5 - np.log(2 * np.pi), rel=1e-6)


def test_quantile_huber():
    # κ = 0.5: |δ| = 0.2 is quadratic, 0.02; |δ| = 2 is linear, 0.125 + 0.5 · 1.5 = 0.875; then / κ and the level
    difference = jnp.array([0.2, -0.2, 2.0, -2.0])
    expected = [0.25 * 0.04, 0.75 * 0.04, 0.25 * 1.75, 0.75 * 1.75]
    np.testing.assert_allclose(losses.quantile_huber_loss(difference, jnp.array(0.25), 0.5), expected, rtol=1e-6)


def test_quantile_regression_sums_predictions_and_averages_the_rest():
    prediction, level = jnp.array([[[0.0, 1.0]]]), jnp.array([[0.5, 0.5]])  # one member, one transition, N = 2
    target = jnp.array([[1.0, 3.0]])
    # κ = 1, H(1) = ½, H(2) = 1½, H(3) = 2½, H(0) = 0; half of (½ + 2½) and of (0 + 1½), each averaged over two targets
    expected = 0.5 * (0.5 + 2.5) / 2 + 0.5 * (0.0 + 1.5) / 2
    assert float(losses.quantile_regression_loss(prediction, level, target, 1.0)) == pytest.approx(expected)


def test_gaussian_bellman_loss():
    # σ = 2, m - μ = 3, d = 1: log 2 + (9 + 1) / 8
    value = losses.gaussian_bellman_loss(jnp.array(1.0), jnp.array(2.0), jnp.array(4.0), jnp.array(1.0))
    assert float(value) == pytest.approx(np.log(2) + 1.25, rel=1e-6)
    # targets N(0, 1) and N(4, 1), alike often: their mean is 2, their variance 1 + 4, where both derivatives vanish
    slope = jax.grad(lambda m, s: losses.gaussian_bellman_loss(m, s, jnp.array([0.0, 4.0]), 1.0).mean(), argnums=(0, 1))
    np.testing.assert_allclose(slope(2.0, 5**0.5), 0, atol=1e-6)


def test_floq_embeds_points_of_any_distance():
    """A critic may leave the range of returns, and data whose returns are far from 0 have all its noise outside."""
    spec = TaskSpec(observation_shape=(1,), action_dim=1, return_range=(-22.0, -20.0))
    agent = FloQ(FloQConfig(discount=0.9, num_bins=4, bin_spread=0.5), spec)  # edges from -22.1 to -19.9
    points = jnp.array([-1e6, -22.0, -20.0, -2.1, 0.0, 1e6])
    masses, slopes = jax.vmap(jax.value_and_grad(lambda z: jnp.dot(agent.embed(z), jnp.arange(4.0))))(points)
    np.testing.assert_allclose(agent.embed(points).sum(axis=-1), 1, rtol=1e-5)
    assert jnp.isfinite(slopes).all() and float(masses[1]) < 1 < 2 < float(masses[2])
    np.testing.assert_allclose(agent.embed(points)[jnp.array([0, 3, 4, 5])].argmax(axis=-1), [0, 3, 3, 3])


def test_conservative_penalty():
    # two actions of density ½ and value log 3, log 5: log(3/½ + 5/½) - 1 = log 16 - 1
    value = losses.conservative_penalty(jnp.log(jnp.array([3.0, 5.0])), jnp.log(jnp.array([0.5, 0.5])), jnp.array(1.0))
    assert float(value) == pytest.approx(np.log(16) - 1, rel=1e-6)


@pytest.mark.slow
def test_codacs_penalty_sees_actions_in_the_box_with_the_density_of_unclipped_ones():
    spec = SPECS["state"]
    agent = make_agent("codac", spec, {"hidden_sizes": (8,), "actor_hidden_sizes": (8,)})
    params = jax.tree.map(lambda leaf: 30 * leaf, agent.init_params(jax.random.key(0)))
    observation, key = random_batch(spec).observation[:, None], jax.random.key(1)
    action, density = agent.policy_actions(params, observation, (4, 64), key)
    assert float(jnp.mean(jnp.abs(action) == 1)) > 0.5  # cut off
    assert float(jnp.abs(action).max()) == 1
    noise, probe = (jax.random.normal(k, action.shape) for k in jax.random.split(key))
    _, change = jax.jvp(lambda n: agent.policy.raw_action(params, observation, n), (noise,), (probe,))
    expected = losses.gaussian_log_density(noise) - (probe * change).sum(axis=-1)
    np.testing.assert_allclose(density, expected, rtol=1e-4)


def test_bcfm_pair():
    # G = 1 + 0.9 · 2 = 2.8; at t = ¼ from ε = -1: ¾ · -1 + ¼ · 2.8 = -0.05, velocity 3.8; a terminal forgets X'
    inputs = dict(noise=jnp.array(-1.0), successor_return=jnp.array(2.0), flow_time=jnp.array(0.25), discount=0.9)
    np.testing.assert_allclose(
        losses.bcfm_pair(reward=jnp.array(1.0), terminal=jnp.array(0.0), **inputs), [-0.05, 3.8], rtol=1e-5
    )
    np.testing.assert_allclose(
        losses.bcfm_pair(reward=jnp.array(1.0), terminal=jnp.array(1.0), **inputs), [-0.5, 2.0], rtol=1e-5
    )


def test_dcfm_pair():
    # Ẑ = 2, v⁻(t, z) = t + z: input 1 + 0.9 · 2 = 2.8, target 2.25 without a factor γ
    point, target = losses.dcfm_pair(
        lambda t, z: t + z,
        successor_point=jnp.array(2.0),
        flow_time=jnp.array(0.25),
        reward=jnp.array(1.0),
        terminal=jnp.array(0.0),
        discount=0.9,
    )
    assert (float(point), float(target)) == (pytest.approx(2.8), pytest.approx(2.25))


def test_confidence_weight():
    # sigmoid(-log 3) = ¼ at τ/σ = log 3; ½ + ½ in the limit of a wide law, ½ for a certain return
    weight = losses.confidence_weight(jnp.array([1.0, 1e9, 0.0]), float(np.log(3)))
    np.testing.assert_allclose(weight, [0.75, 1.0, 0.5], rtol=1e-5)


def test_tangent_flow_gives_the_slope_of_the_flow_map():
    # dz/dt = z/2 over five Euler steps multiplies by 1.1⁵
    pair = flow_map(with_tangent(lambda t, z: 0.5 * z), jnp.array([[3.0], [1.0]]), 5)
    np.testing.assert_allclose(pair[:, 0], [3 * 1.1**5, 1.1**5], rtol=1e-5)


def test_distillation():
    assert float(losses.distillation_loss(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 2.0]]))) == pytest.approx(2.5)


def test_categorical_projection():
    support = jnp.array([0.0, 1.0, 2.0])
    # ½ at 0.25 is shared 3:1 between 0 and 1; ½ at 5 goes to the end
    mass = losses.categorical_projection(support, jnp.array([0.25, 5.0]), jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(mass, [0.375, 0.125, 0.5], rtol=1e-6)


def test_cross_entropy_normalises_the_logits():
    logits = jnp.log(jnp.array([1.0, 3.0])) + 7.0  # probabilities ¼, ¾ whatever is added
    value = losses.cross_entropy(logits, jnp.array([0.5, 0.5]))
    assert float(value) == pytest.approx(-0.5 * np.log(0.25) - 0.5 * np.log(0.75), rel=1e-5)


def test_tail_masses():
    probability = jnp.array([0.1, 0.4, 0.5])
    np.testing.assert_allclose(tail_masses(probability, 0.25, upper=False), [0.1, 0.15, 0.0], atol=1e-6)
    np.testing.assert_allclose(tail_masses(probability, 0.6, upper=True), [0.0, 0.1, 0.5], atol=1e-6)


@pytest.mark.slow
def test_pcbf_without_control_variate_is_the_endpoint_term_of_value_flows():
    spec, shared = SPECS["state"], dict(hidden_sizes=(8,), num_flow_steps=3, discount=0.9, clip_returns=True)
    batch = random_batch(spec, size=16)
    batch = batch.replace(next_action=batch.action[::-1], terminal=jnp.arange(16.0) % 2)
    pcbf = PCBFCritic(PCBFCriticConfig(control_weight=0.0, solver="euler", stratified=False, **shared), spec)
    flows = ValueFlowsCritic(ValueFlowsCriticConfig(**shared), spec)
    state, other, key = pcbf.init(jax.random.key(0)), flows.init(jax.random.key(0)), jax.random.key(1)
    ours, _ = pcbf.loss(state.params["critic"], state.target_params["critic"], batch, key, state.coefficients)
    same_draws = jax.random.split(key)[0]  # PCBF keeps the other half for independent successor noise
    _, theirs = flows.loss(other.params["critic"], other.target_params["critic"], batch, same_draws, other.coefficients)
    assert float(ours) == pytest.approx(float(theirs["bcfm_loss"]), rel=1e-6)
