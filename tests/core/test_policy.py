"""The proposal: hoisted contexts equal the plain form, actions stay in bounds, the best candidate wins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import TaskSpec
from pcbf_core.candidates import CandidateConfig
from pcbf_core.encoders import ImpalaEncoder, observation_encoder
from pcbf_core.networks import MLP, ConditionedMLP, product
from pcbf_core.policy import Proposal, ProposalConfig, best_candidate
from pcbf_core.roles import make_role, over_candidates

SPEC = TaskSpec(observation_shape=(3,), action_dim=2)
PIXELS = TaskSpec(observation_shape=(64, 64, 9), action_dim=2)
TINY = {"hidden_sizes": (8, 8), "encoder_channels": (2, 2), "encoder_features": 8, "num_action_steps": 3}
KEY = jax.random.key(0)


def test_product_of_parts_is_the_product_of_their_concatenation():
    keys = jax.random.split(KEY, 3)
    observation, action = jax.random.normal(keys[0], (4, 1, 3)), jax.random.normal(keys[1], (4, 5, 2))
    kernel = jax.random.normal(keys[2], (5, 6))
    whole = jnp.concatenate([jnp.broadcast_to(observation, (4, 5, 3)), action], axis=-1) @ kernel
    np.testing.assert_allclose(product([observation, action], kernel), whole, atol=1e-5)


@pytest.mark.slow
def test_conditioned_mlp_is_the_plain_mlp():
    net = ConditionedMLP(context_dim=3, input_dim=2, hidden_sizes=(8, 4), output_dim=2)
    context, inputs = jax.random.normal(KEY, (7, 3)), jax.random.normal(jax.random.key(1), (7, 2))
    params = net.init(KEY, context, method="everything")
    own = params["params"]
    plain = {
        "Dense_0": {"kernel": own["kernel"], "bias": own["bias"]},
        "HiddenUnit_0": own["unit"],
        "Dense_1": own["rest"]["Dense_0"],
        "HiddenUnit_1": own["rest"]["HiddenUnit_0"],
        "Dense_2": own["rest"]["Dense_1"],
    }
    expected = MLP((8, 4), 2).apply({"params": plain}, jnp.concatenate([context, inputs], axis=-1))
    hoisted = net.apply(params, net.apply(params, context, method="context"), inputs)
    np.testing.assert_allclose(hoisted, expected, atol=1e-5)


@pytest.mark.slow
def test_members_of_a_role_share_the_encoder_and_nothing_else():
    role = make_role(PIXELS, ProposalConfig(**TINY), input_dim=2, output_dim=1, members=2)
    params = jax.jit(lambda key: role.init(key, PIXELS))(KEY)
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(params["network"]))
    kernel = params["network"]["params"]["kernel"]
    assert float(jnp.abs(kernel[0] - kernel[1]).max()) > 0
    single = jax.eval_shape(ImpalaEncoder((2, 2), 8).init, KEY, jnp.zeros((64, 64, 9), jnp.uint8))
    assert jax.tree.map(jnp.shape, params["encoder"]) == jax.tree.map(lambda leaf: leaf.shape, single)


def test_the_impala_encoder_has_the_published_shape():
    encoder, features = observation_encoder(PIXELS, ProposalConfig())
    assert isinstance(encoder, ImpalaEncoder) and features == 512
    shapes = jax.eval_shape(encoder.init, KEY, jnp.zeros((64, 64, 9), jnp.uint8))["params"]
    assert shapes["Dense_0"]["kernel"].shape == (8 * 8 * 32, 512)
    assert shapes["ImpalaStack_0"]["Conv_0"]["kernel"].shape == (3, 3, 9, 16)
    assert jax.eval_shape(encoder.apply, {"params": shapes}, jnp.zeros((5, 1, 64, 64, 9), jnp.uint8)).shape == (
        5,
        1,
        512,
    )
    with pytest.raises(ValueError, match="neither a vector nor an image"):
        observation_encoder(TaskSpec(observation_shape=(4, 4), action_dim=1), ProposalConfig())


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SPEC, PIXELS], ids=["state", "pixel"])
def test_candidates_are_the_flow_of_each_observation_repeated(spec: TaskSpec):
    proposal = Proposal(ProposalConfig(**TINY, num_candidates=4), spec)
    params = jax.jit(proposal.init_params)(KEY)
    observation = jax.random.randint(KEY, (2, *spec.observation_shape), 0, 256)
    observation = observation.astype(jnp.uint8) if len(spec.observation_shape) == 3 else observation / 256
    candidates = jax.jit(proposal.candidates)(params, observation, jax.random.key(1))
    assert candidates.shape == (2, 4, 2)
    assert float(jnp.abs(candidates).max()) <= 1
    noise = jax.random.normal(jax.random.key(1), (2, 4, 2))
    for k in range(4):
        alone = jax.jit(proposal.flow)(params, observation, noise[:, k])
        np.testing.assert_allclose(candidates[:, k], alone, atol=1e-5)


@pytest.mark.slow
def test_clipping_at_the_end_differs_from_clipping_every_step():
    noise = 3 * jax.random.normal(KEY, (16, 2))
    observation = jnp.ones((16, 3))
    actions = {}
    for clip in ("every_step", "end"):
        proposal = Proposal(ProposalConfig(**TINY, action_clip=clip), SPEC)
        actions[clip] = proposal.flow(jax.jit(proposal.init_params)(KEY), observation, noise)
        assert float(jnp.abs(actions[clip]).max()) <= 1
    assert float(jnp.abs(actions["every_step"] - actions["end"]).max()) > 0


@pytest.mark.slow
def test_cloning_loss_of_a_field_that_is_zero():
    # f = 0 leaves E|a - x_0|² = |a|² + 1 per coordinate
    proposal = Proposal(ProposalConfig(**TINY), SPEC)
    params = jax.tree.map(jnp.zeros_like, jax.jit(proposal.init_params)(KEY))
    action = jnp.full((4000, 2), 0.5)
    assert float(proposal.loss(params, jnp.zeros((4000, 3)), action, KEY)) == pytest.approx(1.25, abs=0.05)


def test_the_best_candidate_wins_state_by_state():
    candidates = jnp.arange(12.0).reshape(2, 3, 2)
    scores = jnp.array([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]])
    np.testing.assert_array_equal(best_candidate(candidates, scores), [[2.0, 3.0], [6.0, 7.0]])
    np.testing.assert_array_equal(best_candidate(candidates[0], scores[0]), [2.0, 3.0])


@pytest.mark.slow
def test_best_of_hands_the_score_one_observation_per_state():
    proposal = Proposal(ProposalConfig(**TINY, num_candidates=5), SPEC)
    params, observation = jax.jit(proposal.init_params)(KEY), jax.random.normal(KEY, (2, 3))
    seen = []

    def score(observation, candidates, key):
        seen.append((observation.shape, candidates.shape))
        return -jnp.abs(candidates[..., 0])

    best = proposal.best_of(params, observation, jax.random.key(1), score)
    assert seen == [((2, 1, 3), (2, 5, 2))]
    candidates = proposal.candidates(params, observation, jax.random.split(jax.random.key(1))[0])
    np.testing.assert_array_equal(jnp.abs(best[:, 0]), jnp.abs(candidates[..., 0]).min(axis=1))


def test_the_axis_of_candidates_stands_before_the_observation():
    assert over_candidates(jnp.zeros((4, 64, 64, 9)), PIXELS).shape == (4, 1, 64, 64, 9)
    assert over_candidates(jnp.zeros(3), SPEC).shape == (1, 3)
    assert over_candidates(jnp.zeros(7, int), TaskSpec((), 2, num_states=3)).shape == (7, 1)


def test_tail_levels():
    levels = jnp.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(CandidateConfig(score="cvar", risk_level=0.2).tail_levels(levels), [0.0, 0.1, 0.2])
    seeking = CandidateConfig(score="cvar", risk_level=0.2, risk_seeking=True)
    np.testing.assert_allclose(seeking.tail_levels(levels), [1.0, 0.9, 0.8])
    np.testing.assert_allclose(CandidateConfig().tail_levels(levels), levels)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_candidates": 0}, "num_candidates=0"),
        ({"action_clip": "ends"}, "Did you mean 'end'"),
        ({"actor_hidden_sizes": ()}, "whole number >= 1 in each place"),
        ({"grad_clip": 0.0}, "grad_clip"),
    ],
)
def test_bad_settings_say_what_is_allowed(values: dict, message: str):
    with pytest.raises(ValueError, match=message):
        ProposalConfig(**values)
