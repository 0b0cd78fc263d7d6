"""The velocity field is the plain MLP on the concatenated input; ensembles are independent members."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pcbf_core import networks
from pcbf_core.networks import MLP, StateEmbedding, VelocityField, ensemble_velocity, in_blocks, init_ensemble


@pytest.mark.slow
def test_hoisted_first_layer_equals_the_plain_mlp():
    field = VelocityField(context_dim=5, hidden_sizes=(16, 8))
    keys = jax.random.split(jax.random.key(0), 4)
    observation, action = jax.random.normal(keys[0], (7, 3)), jax.random.normal(keys[1], (7, 2))
    point, time = jax.random.normal(keys[2], (7,)), jax.random.uniform(keys[3], (7,))
    params = field.init(jax.random.key(1), observation, action, method="everything")
    params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(keys[0], x.shape), params)

    plain = MLP((16, 8), 1)
    inputs = jnp.concatenate([point[:, None], time[:, None], observation, action], axis=-1)
    shapes = jax.eval_shape(plain.init, jax.random.key(0), inputs)
    own = params["params"]
    same = {
        "Dense_0": {"kernel": own["kernel"], "bias": own["bias"]},
        "HiddenUnit_0": own["unit"],
        "Dense_1": own["rest"]["Dense_0"],
        "HiddenUnit_1": own["rest"]["HiddenUnit_0"],
        "Dense_2": own["rest"]["Dense_1"],
    }
    assert jax.tree.map(jnp.shape, same) == jax.tree.map(lambda x: x.shape, shapes["params"])
    context = field.apply(params, observation, action, method="context")
    velocity = field.apply(params, time, point, context)
    np.testing.assert_allclose(velocity, plain.apply({"params": same}, inputs)[:, 0], atol=1e-5)


@pytest.mark.slow
def test_hidden_layers_follow_the_paper():
    """4×512 GELU with LayerNorm after the activation; bias zero and Glorot-uniform kernels at the start."""
    net = MLP((512,) * 4, 1)
    params = net.init(jax.random.key(0), jnp.zeros(40))["params"]
    kernel = params["Dense_1"]["kernel"]
    assert kernel.shape == (512, 512)
    assert float(jnp.abs(kernel).max()) <= np.sqrt(6 / 1024)
    assert float(jnp.abs(params["Dense_1"]["bias"]).max()) == 0
    x = jax.random.normal(jax.random.key(1), (3, 40))
    first = nn.LayerNorm().apply(
        {"params": params["HiddenUnit_0"]["LayerNorm_0"]},
        nn.gelu(x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]),
    )
    shortened = MLP((512,), None).apply({"params": {k: params[k] for k in ("Dense_0", "HiddenUnit_0")}}, x)
    np.testing.assert_allclose(shortened, first, atol=1e-5)


@pytest.mark.slow
def test_members_differ_and_see_their_own_points():
    field = VelocityField(context_dim=4, hidden_sizes=(8,), encoder=StateEmbedding(3, 4))
    states, nothing = jnp.array([0, 1, 2]), jnp.zeros((3, 0))
    params = init_ensemble(field, jax.random.key(0), 2, states[0], nothing[0], method="everything")
    velocity = ensemble_velocity(field, params, states, nothing, sample_axes=1)
    same_points = velocity(jnp.asarray(0.3), jnp.ones((2, 3, 5)))
    assert same_points.shape == (2, 3, 5)
    assert float(jnp.abs(same_points[0] - same_points[1]).min()) > 0
    moved = velocity(jnp.asarray(0.3), jnp.ones((2, 3, 5)).at[1].add(1.0))
    np.testing.assert_array_equal(moved[0], same_points[0])
    assert float(jnp.abs(moved[1] - same_points[1]).min()) > 0


@pytest.mark.slow
def test_flow_time_broadcasts_against_points():
    field = VelocityField(context_dim=2, hidden_sizes=(8, 8))
    observation, action = jnp.ones((3, 1)), jnp.ones((3, 1))
    params = init_ensemble(field, jax.random.key(0), 2, observation[0], action[0], method="everything")
    velocity = ensemble_velocity(field, params, observation, action, sample_axes=1)
    point, times = jnp.ones((2, 3, 1)), jnp.array([0.1, 0.5, 0.9])[:, None]
    together = velocity(times, point)
    for row, time in enumerate((0.1, 0.5, 0.9)):
        np.testing.assert_allclose(together[:, row], velocity(jnp.asarray(time), point)[:, row], rtol=1e-6)


def test_one_discrete_state_is_enough():
    embedding = StateEmbedding(1, 4)
    params = embedding.init(jax.random.key(0), jnp.zeros((), int))
    assert embedding.apply(params, jnp.zeros((5,), int)).shape == (5, 4)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_blocks_give_every_row_what_it_had(num_rows, monkeypatch):
    """Also where blocks do not divide the rows, and for arrays that lack axes of the others."""
    monkeypatch.setattr(networks, "BLOCK_BYTES", num_rows * 4 * 3)
    monkeypatch.setattr(networks, "BLOCK_ROWS", 1)
    keys = jax.random.split(jax.random.key(0), 4)
    context, own, common = (
        jax.random.normal(key, shape) for key, shape in zip(keys, [(7, 1, 3), (7, 2, 3), (3,)], strict=False)
    )
    calls = []

    def apply(params, context, *inputs):
        calls.append(jnp.broadcast_shapes(context.shape, *(x.shape for x in inputs)))
        return jnp.sin(params * context) + sum(inputs)

    whole = apply(2.0, context, own, common)
    np.testing.assert_allclose(in_blocks(apply, 2.0, context, own, common), whole, rtol=1e-6)
    assert all(math.prod(shape[:-1]) < 14 for shape in calls[1:])
