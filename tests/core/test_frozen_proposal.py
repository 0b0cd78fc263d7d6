"""A proposal that is given and not trained: who holds it, what is chosen among, and that nothing else changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import PCBF, Dataset, PCBFConfig, Proposal, draw_candidates, init_many, train_chunk
from pcbf_core.config import recorded
from pcbf_core.proposing import takes_proposal

from ..methods import SPECS, TINY, random_batch

KEY, SPEC = jax.random.key(0), SPECS["state"]
DATA = Dataset(random_batch(SPEC, size=50))


def agent(**settings: Any) -> PCBF:
    return PCBF(PCBFConfig.variant("paper", **{**TINY["pcbf"], "proposal_training": "frozen", **settings}), SPEC)


def cloned(key: jax.Array = KEY) -> Any:
    return jax.jit(agent().proposal.init_params)(key)


def begun(one: PCBF, keys: jax.Array, params: Any = None) -> Any:
    """Fresh states, each with a proposal of its own."""
    return jax.vmap(one.with_proposal)(init_many(one, keys), jax.vmap(cloned)(keys) if params is None else params)


@pytest.mark.slow
def test_the_critic_is_trained_and_the_proposal_stays():
    one, joint = agent(), agent(proposal_training="joint")
    state = one.with_proposal(jax.jit(one.init)(KEY), cloned())
    assert takes_proposal(one) and not takes_proposal(joint)
    assert set(state.params) == {"critic"} and "proposal" in jax.jit(joint.init)(KEY).params
    after, metrics = jax.jit(one.update)(state, random_batch(SPEC), KEY)
    jax.tree.map(np.testing.assert_array_equal, after.frozen, state.frozen)
    assert "proposal_loss" not in metrics
    num_moments = len(jax.tree.leaves(jax.tree.map(jnp.shape, state.opt_state)))
    assert num_moments < len(jax.tree.leaves(jax.tree.map(jnp.shape, jax.jit(joint.init)(KEY).opt_state)))


@pytest.mark.slow
def test_with_the_same_proposal_the_critic_learns_as_beside_a_joint_one():
    one, joint = agent(), agent(proposal_training="joint")
    beside = jax.jit(joint.init)(KEY)
    alone = one.with_proposal(jax.jit(one.init)(KEY), beside.params["proposal"])
    jax.tree.map(np.testing.assert_array_equal, alone.params["critic"], beside.params["critic"])
    batch = random_batch(SPEC)
    beside, joint_metrics = jax.jit(joint.update)(beside, batch, KEY)
    alone, metrics = jax.jit(one.update)(alone, batch, KEY)
    np.testing.assert_allclose(metrics["critic_loss"], joint_metrics["critic_loss"], rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), alone.params["critic"], beside.params["critic"]
    )


@pytest.mark.slow
def test_a_missing_or_foreign_proposal_is_named_with_its_remedy():
    one, state = agent(), jax.jit(agent().init)(KEY)
    for use in (
        lambda: one.act(state, DATA.transitions.observation, KEY),
        lambda: one.update(state, DATA.transitions, KEY),
    ):
        with pytest.raises(ValueError, match=r"needs the parameters of a cloned proposal.*with_proposal"):
            use()
    wider = Proposal(dataclasses.replace(one.config, hidden_sizes=(8, 9)), SPEC)
    with pytest.raises(ValueError, match=r"not those of this agent's proposal.*same `hidden_sizes`"):
        one.with_proposal(state, jax.jit(wider.init_params)(KEY))
    with pytest.raises(ValueError, match='set "frozen"'):
        agent(proposal_training="joint").with_proposal(state, cloned())
    with pytest.raises(ValueError, match="proposal_training"):
        agent(proposal_training="frosen")


@pytest.mark.slow
def test_candidates_drawn_in_blocks_are_those_of_one_call():
    one, observation = agent(), DATA.transitions.next_observation
    whole = jax.jit(one.proposal.candidates)(cloned(), observation, KEY)
    for block_size in (7, 50, 4096):
        drawn = draw_candidates(one.proposal, cloned(), observation, KEY, block_size=block_size)
        np.testing.assert_allclose(drawn, whole, atol=1e-6)


@pytest.mark.slow
def test_targets_choose_among_the_candidates_that_the_batch_has():
    one = agent(num_candidates=5)
    state = one.with_proposal(jax.jit(one.init)(KEY), cloned())
    batch = random_batch(SPEC).replace(next_candidates=jnp.full((4, 5, 2), 0.25).at[:, 2].set(-0.5))
    chosen = jax.jit(one.prepare)(state, batch, KEY)
    assert chosen.next_candidates is None
    assert all(action in ([0.25, 0.25], [-0.5, -0.5]) for action in chosen.successor_action.tolist())
    key, _ = jax.random.split(KEY)  # the same draws ahead as at the choice
    ahead = one.proposal.candidates(state.frozen["proposal"], batch.next_observation, key)
    at_once = one.prepare(state, batch.replace(next_candidates=None), KEY)
    np.testing.assert_allclose(
        one.prepare(state, batch.replace(next_candidates=ahead), KEY).next_action, at_once.next_action, atol=1e-6
    )
    sample = agent(next_action="bc_sample").prepare(state, batch, KEY)
    np.testing.assert_array_equal(sample.successor_action, 0.25)


@pytest.mark.slow
@pytest.mark.parametrize("reuse", [1, 2])
@pytest.mark.parametrize("across", ["vmap", "map"])
def test_every_learner_has_its_own_table_and_chunks_of_any_size_give_the_same_run(across: str, reuse: int):
    one, keys = agent(action_reuse=reuse), jax.random.split(KEY, 2)
    proposals = jax.vmap(cloned)(keys)  # serve several runs: training must not take their memory
    tables = jnp.stack([draw_candidates(one.proposal, cloned(k), DATA.transitions.next_observation, k) for k in keys])

    def trained(chosen: Any, chunks: tuple[int, ...]) -> Any:
        given = proposals if chosen == slice(None) else jax.tree.map(lambda leaf: leaf[chosen], proposals)
        states, step = begun(one, keys[chosen], given), 0
        for count in chunks:
            states, _ = train_chunk(
                one,
                states,
                DATA,
                keys[chosen],
                step,
                num_steps=8,
                batch_size=4,
                count=count,
                across=across,
                candidates=tables[chosen],
            )
            step += count
        return states

    whole, parts = trained(slice(None), (8,)), trained(slice(None), (4, 4))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, parts)
    for index in (0, 1):
        alone = trained(slice(index, index + 1), (8,))
        jax.tree.map(lambda a, b, i=index: np.testing.assert_allclose(a[i], b[0], atol=1e-5), whole, alone)


@pytest.mark.slow
def test_candidates_that_do_not_stand_beside_the_data_are_refused():
    one, keys = agent(), jax.random.split(KEY, 2)
    states, sizes = begun(one, keys), {"num_steps": 1, "batch_size": 4}
    for shape, message in (
        ((1, 50, 3, 2), "for 1 learners, the states are 2"),
        ((2, 49, 3, 2), r"not \(50 transitions, candidates, 2 numbers"),
        ((2, 50, 3, 1), "draw_candidates"),
    ):
        with pytest.raises(ValueError, match=message):
            train_chunk(one, states, DATA, keys, **sizes, candidates=jnp.zeros(shape))
    with pytest.raises(ValueError, match="draw_candidates"):
        train_chunk(one, states, DATA.with_candidates(jnp.zeros((50, 3, 1))), keys, **sizes)
    with pytest.raises(ValueError, match="next_candidates` reaches 3"):
        DATA.with_candidates(jnp.full((50, 3, 2), 3.0))


def test_records_tell_the_setting_only_where_it_departs():
    assert "proposal_training" not in recorded(agent(proposal_training="joint").config)
    assert recorded(agent().config)["proposal_training"] == "frozen"
    assert "action_reuse" in recorded(agent().config)
