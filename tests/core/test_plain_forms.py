"""Fast forms compute what the plain ones do: every method's update, hoisted, batched, scanned and in blocks or not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain import plain_forms

from pcbf_baselines.registry import METHODS, make_agent
from pcbf_core import networks
from pcbf_core.types import TaskSpec, Transition

SPEC = TaskSpec(observation_shape=(6,), action_dim=3, return_range=(-10.0, 0.0))
TINY = {
    "hidden_sizes": (8, 8),
    "num_flow_steps": 3,
    "num_action_steps": 3,
    "num_candidates": 3,
    "flow_hidden_sizes": (8, 8),
    "quantile_features": 8,
    "num_levels": 4,
    "control_weight": 0.5,
}
KEY = jax.random.key(5)


def batch(size: int = 9) -> Transition:
    keys = jax.random.split(KEY, 4)
    return Transition(
        observation=jax.random.normal(keys[0], (size, 6)),
        action=jax.random.uniform(keys[1], (size, 3), minval=-1.0),
        reward=-jax.random.uniform(keys[2], (size,)),
        next_observation=jax.random.normal(keys[3], (size, 6)),
        terminal=(jnp.arange(size) == 3).astype(jnp.float32),
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"random"}))
def test_update_equals_its_plain_form(method, monkeypatch):
    monkeypatch.setattr(networks, "BLOCK_BYTES", 3 * 8 * 4)  # blocks of three rows
    monkeypatch.setattr(networks, "BLOCK_ROWS", 1)
    names = {name for name in TINY if name in METHODS[method].config.__dataclass_fields__}
    agent = make_agent(
        method, SPEC, {name: TINY[name] for name in names - ({"num_candidates"} if method == "bc" else set())}
    )
    state = jax.jit(agent.init)(KEY)
    x = batch()
    fast, fast_metrics = jax.jit(agent.update)(state, x, KEY)
    with plain_forms():
        plain, plain_metrics = jax.jit(lambda *args: agent.update(*args))(state, x, KEY)
    for name, value in fast_metrics.items():
        assert float(plain_metrics[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), fast.params, plain.params)
    actions = jax.jit(agent.act)(state, x.observation, KEY)
    with plain_forms():
        slow = jax.jit(lambda *args: agent.act(*args))(state, x.observation, KEY)
    np.testing.assert_allclose(actions, slow, atol=1e-4)
