"""What every method must do, on vectors and, where the paper runs it, on images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.registry import METHODS, make_agent
from pcbf_core import Dataset, LearnerState, Transition, init_many, train_chunk
from pcbf_core.types import Metrics

from ..methods import SPECS, TINY, random_batch

STATE = [(name, "state") for name in METHODS]
PIXEL = [
    pytest.param(name, "pixel", marks=() if name in ("pcbf", "random") else pytest.mark.slow)
    for name, method in METHODS.items()
    if method.visual
]

UNTRAINED: dict[str, str] = {}
"""Parameters that get no gradient, "method: path" -> reason. There are none."""

SUCCESSOR_COUNTS_AT_TERMINALS = {"value_flows": "the target of its self-consistency term has no mask (app:dcfm)"}


def same(first: LearnerState, second: LearnerState) -> bool:
    return all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), STATE + PIXEL)
def test_contract(name: str, kind: str):
    check_contract(name, kind, TINY[name])


def check_contract(name: str, kind: str, settings: dict[str, Any]) -> None:
    """All that is asked of a method, on observations of a kind, with settings that make it small."""
    spec, agent = SPECS[kind], make_agent(name, SPECS[kind], settings)
    assert hash(agent) == hash(make_agent(name, spec, settings))
    # This generator compiles to one instruction per draw; all that is asked of it here is to be repeatable.
    key = jax.random.key(0, impl="unsafe_rbg")
    keys = jax.random.split(key, 2)
    states = init_many(agent, keys)
    state = jax.tree.map(lambda leaf: leaf[0], states)

    def one_step(batch: Transition) -> tuple[LearnerState, Metrics]:
        """Both seeds after one update on all of `batch` (sampled with replacement)."""
        copies = jax.tree.map(jnp.copy, states)
        return train_chunk(agent, copies, Dataset(batch), keys, num_steps=1, batch_size=8)

    # Actions: shapes, bounds, the same again for the same key.
    batch = random_batch(spec)
    act = jax.jit(agent.act)
    action = act(state, batch.observation, key)
    assert action.shape == (4, 2)
    assert float(jnp.abs(action).max()) <= 1
    np.testing.assert_array_equal(action, act(state, batch.observation, key))
    assert jax.eval_shape(agent.act, state, batch.observation[0], key).shape == (2,)
    assert jax.eval_shape(agent.act, state, batch.observation[None], key).shape == (1, 4, 2)

    # Updates: finite at terminals and elsewhere; target networks move by Polyak averaging and nothing else.
    losses, rate = {}, getattr(agent.config, "polyak_rate", 0.0)  # type: ignore[attr-defined]
    for terminal in (0.0, 1.0):
        new, metrics = one_step(random_batch(spec, terminal=terminal))
        losses[terminal] = np.asarray(metrics.get("critic_loss", np.nan))
        assert all(value.shape == (2, 1) and np.isfinite(value).all() for value in metrics.values()), metrics
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(new.params))
        assert jax.tree.structure(new) == jax.tree.structure(states)
        for role, old in states.target_params.items():
            for before, online, after in zip(
                *map(jax.tree.leaves, (old, new.params[role], new.target_params[role])), strict=True
            ):
                np.testing.assert_allclose(after, rate * online + (1 - rate) * before, atol=1e-6)

    # The successor counts, unless the transition is terminal.
    if not np.isnan(losses[0.0]).any():
        assert (losses[0.0] != losses[1.0]).all()
    if not np.isnan(losses[0.0]).any() and name not in SUCCESSOR_COUNTS_AT_TERMINALS:
        ended = random_batch(spec, terminal=1.0)
        _, elsewhere = one_step(ended.replace(next_observation=ended.next_observation[::-1]))
        np.testing.assert_allclose(elsewhere["critic_loss"], losses[1.0], rtol=1e-5)

    # Seeds are repeatable and differ.
    new, _ = one_step(batch)
    assert same(new, one_step(batch)[0])
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], new) for i in range(2))
    assert name == "random" or not same(first, second)

    # Every online parameter of every member learns: Adam's first step moves what got a gradient.
    members = getattr(agent.config, "num_critics", 1)  # type: ignore[attr-defined]
    for (path, before), after in zip(
        jax.tree_util.tree_leaves_with_path(state.params), jax.tree.leaves(first.params), strict=True
    ):
        place, moved = f"{name}: {jax.tree_util.keystr(path)}", np.abs(np.asarray(after - before))
        assert (moved.max() > 0) == (place not in UNTRAINED), place
        if "critic" in place and before.shape[0] == members and place not in UNTRAINED:
            assert (moved.reshape(members, -1).max(axis=1) > 0).all(), f"a member of {place} is not trained"
