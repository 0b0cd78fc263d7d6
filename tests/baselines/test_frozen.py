"""A proposal cloned alone is the one that is cloned beside a critic: the same loss, the same step."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from pcbf_baselines.registry import make_agent
from pcbf_core.learner import fresh_state

from ..methods import SPECS, TINY, random_batch

KEY, SPEC = jax.random.key(0), SPECS["state"]
SEARCHING = ("pcbf", "value_flows", "iqn", "c51")
DISTILLING = {"fql": {"critic", "actor"}, "floq": {"critic", "distilled", "actor"}, "codac": {"critic", "actor"}}


@pytest.mark.slow
@pytest.mark.parametrize("method", SEARCHING)
def test_cloned_alone_it_has_the_loss_and_the_step_that_it_has_beside_a_critic(method: str):
    joint: Any = make_agent(method, SPEC, TINY[method])
    alone: Any = make_agent("bc", SPEC, TINY["bc"])
    beside = jax.jit(joint.init)(KEY)
    own = fresh_state(alone.config, {"proposal": beside.params["proposal"]}, target_roles=())
    batch = random_batch(SPEC)
    batch = batch.replace(next_action=batch.action)
    _, proposal_key = jax.random.split(KEY)
    beside, joint_metrics = jax.jit(joint.learn)(beside, batch, KEY)
    own, metrics = jax.jit(alone.learn)(own, batch, proposal_key)
    np.testing.assert_allclose(metrics["proposal_loss"], joint_metrics["proposal_loss"], rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), own.params["proposal"], beside.params["proposal"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), [*((method, "state") for method in SEARCHING), ("pcbf", "pixel")])
def test_every_searching_method_takes_a_frozen_proposal(method: str, kind: str):
    spec = SPECS[kind]
    agent: Any = make_agent(method, spec, {**TINY[method], "proposal_training": "frozen"})
    cloned = jax.jit(make_agent("bc", spec, TINY["bc"]).init)(KEY).params["proposal"]
    state, batch = agent.with_proposal(jax.jit(agent.init)(KEY), cloned), random_batch(spec)
    after, metrics = jax.jit(agent.update)(state, batch, KEY)
    assert set(after.params) == {"critic"} and all(np.isfinite(value) for value in metrics.values())
    jax.tree.map(np.testing.assert_array_equal, after.frozen["proposal"], cloned)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), after.params, state.params)
    assert min(jax.tree.leaves(moved)) > 0
    assert jax.jit(agent.act)(after, batch.observation, KEY).shape == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", DISTILLING)
def test_every_distilling_method_takes_a_frozen_proposal_and_learns_as_beside_a_joint_one(method: str):
    settings = {**TINY[method], "actor_layer_norm": True}
    joint, frozen = (make_agent(method, SPEC, {**settings, "proposal_training": how}) for how in ("joint", "frozen"))
    beside, batch = jax.jit(joint.init)(KEY), random_batch(SPEC)
    alone = frozen.with_proposal(jax.jit(frozen.init)(KEY), beside.params["proposal"])
    assert set(alone.params) == DISTILLING[method]
    jax.tree.map(np.testing.assert_array_equal, alone.params, {name: beside.params[name] for name in alone.params})
    after_joint, joint_metrics = jax.jit(joint.update)(beside, batch, KEY)
    after, metrics = jax.jit(frozen.update)(alone, batch, KEY)
    assert "proposal_loss" in joint_metrics and "proposal_loss" not in metrics
    np.testing.assert_allclose(metrics["distillation_loss"], joint_metrics["distillation_loss"], rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        after.params,
        {name: after_joint.params[name] for name in after.params},
    )
    jax.tree.map(np.testing.assert_array_equal, after.frozen["proposal"], beside.params["proposal"])
