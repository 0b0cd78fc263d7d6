"""Value Flows' critic: its BCFM term is PCBF at λ = 0, its DCFM term what the definition says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.value_flows import ValueFlowsCritic, ValueFlowsCriticConfig
from pcbf_core import PCBFCritic, PCBFCriticConfig, flow_map
from pcbf_core.mrp import MRPS
from pcbf_core.noise import noise_and_times

PROCESS = MRPS["chain"]
SHARED = {"discount": 0.95, "hidden_sizes": (8, 8), "num_flow_steps": 3, "num_critics": 2, "num_flow_times": 2}
KEY = jax.random.key(5)
BATCH = PROCESS.sample(jax.random.key(1), 16, absorbing_fraction=0.2)


def value_flows(**values) -> ValueFlowsCritic:
    return ValueFlowsCritic(ValueFlowsCriticConfig(**SHARED, **values), PROCESS.spec)


def loss(critic, state, key=KEY):
    run = jax.jit(lambda s: critic.loss(s.params["critic"], s.target_params["critic"], BATCH, key, s.coefficients))
    return run(state)


@pytest.mark.slow
def test_without_dcfm_the_loss_is_pcbf_at_zero_control_weight():
    ours = PCBFCritic(
        PCBFCriticConfig(**{"solver": "euler", "stratified": False, **SHARED}, control_weight=0.0), PROCESS.spec
    )
    state = ours.init(jax.random.key(0))
    draw_key, _ = jax.random.split(KEY)  # PCBF keeps a second key for the independent-noise ablation
    theirs = value_flows(dcfm_weight=0.0)
    pcbf, _ = loss(ours, state)
    vf, _ = loss(
        theirs, theirs.init(jax.random.key(0)).replace(params=state.params, target_params=state.params), draw_key
    )
    assert float(vf) == pytest.approx(float(pcbf), rel=1e-5)


@pytest.mark.slow
def test_the_two_terms_add_up_with_their_weights():
    critic = value_flows(bcfm_weight=2.0, dcfm_weight=0.5)
    total, metrics = loss(critic, critic.init(jax.random.key(0)))
    assert float(total) == pytest.approx(2 * float(metrics["bcfm_loss"]) + 0.5 * float(metrics["dcfm_loss"]), rel=1e-6)
    assert float(metrics["dcfm_loss"]) > 0


@pytest.mark.slow
def test_dcfm_term_from_its_definition():
    """|v(t, r + γ̃ Ẑ_t | s) - mean_e v⁻_e(t, Ẑ_t | s')|² with Ẑ_t the mean partial flow, per member."""
    critic = value_flows()
    state = critic.init(jax.random.key(0))
    params = state.params["critic"]
    noise, times = noise_and_times(KEY, 16, 2)
    time = times[:, :1]
    successor = critic.ensemble(params, BATCH.next_observation, BATCH.next_action, sample_axes=1)
    point = jnp.stack([noise, noise])
    for step in range(3):  # Euler from 0 to t in steps of t / 3
        point = point + time / 3 * successor(time[None] * step / 3, point)
    middle = point.mean(axis=0)
    target = successor(time[None], jnp.stack([middle, middle])).mean(axis=0)
    bellman = BATCH.reward[:, None] + 0.95 * (1 - BATCH.terminal[:, None]) * middle
    online = critic.ensemble(params, BATCH.observation, BATCH.action, sample_axes=1)
    expected = jnp.mean((online(time[None], jnp.stack([bellman, bellman])) - target) ** 2)
    _, metrics = loss(critic, state)
    assert float(metrics["dcfm_loss"]) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.slow
def test_both_members_are_trained_and_targets_are_not():
    critic = value_flows()
    state = critic.init(jax.random.key(0))
    gradient = jax.jit(jax.grad(lambda p, q: critic.loss(p, q, BATCH, KEY, state.coefficients)[0], argnums=(0, 1)))
    online, target = gradient(state.params["critic"], state.target_params["critic"])
    for leaf in jax.tree.leaves(online):
        assert (np.abs(np.asarray(leaf)).reshape(2, -1).max(axis=1) > 0).all()
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(target))


@pytest.mark.slow
def test_partial_flow_of_a_member_ends_at_its_own_time():
    critic = value_flows()
    params = critic.init(jax.random.key(0)).params["critic"]
    velocity = critic.ensemble(params, BATCH.observation, BATCH.action, sample_axes=1)
    start = jnp.ones((2, 16, 1))
    stopped = flow_map(velocity, start, 3, end_time=jnp.zeros((1, 16, 1)))
    np.testing.assert_array_equal(stopped, start)


def test_bad_weights_are_refused():
    with pytest.raises(ValueError, match="dcfm_weight=-1"):
        ValueFlowsCriticConfig(dcfm_weight=-1)
