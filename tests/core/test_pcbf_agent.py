"""PCBF as an agent: its switches do what they say, its scores are those of the critic."""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import LearnerState, TaskSpec, Transition
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig, path_coupled_pair
from pcbf_core.pcbf import PCBF, PCBFConfig
from pcbf_core.released import blended_pair, with_terminals_of

SPEC = TaskSpec(observation_shape=(3,), action_dim=2, return_range=(-5.0, 5.0))
TINY = {"hidden_sizes": (8,), "num_flow_steps": 2, "num_action_steps": 2, "num_candidates": 4, "control_weight": 0.5}
KEY = jax.random.key(0)


def batch(size: int = 8) -> Transition:
    keys = jax.random.split(jax.random.key(3), 5)
    return Transition(
        observation=jax.random.normal(keys[0], (size, 3)),
        action=jax.random.uniform(keys[1], (size, 2), minval=-1),
        reward=jax.random.normal(keys[2], (size,)),
        next_observation=jax.random.normal(keys[3], (size, 3)),
        terminal=jnp.zeros(size),
        next_action=jax.random.uniform(keys[4], (size, 2), minval=-1),
        trajectory_end=jnp.ones(size),
    )


def agent(**settings) -> PCBF:
    return PCBF(PCBFConfig(**{**TINY, **settings}), SPEC)


@cache
def fresh() -> LearnerState:
    """A state that serves all agents of these sizes."""
    return jax.jit(agent().init)(KEY)


@pytest.mark.slow
def test_next_action_by_each_rule():
    x = batch()
    state = fresh()
    np.testing.assert_array_equal(agent(next_action="current_action").choose_next_action(state, x, KEY), x.action)
    np.testing.assert_array_equal(agent(next_action="dataset_next").choose_next_action(state, x, KEY), x.next_action)
    sample = agent(next_action="bc_sample").choose_next_action(state, x, KEY)
    np.testing.assert_array_equal(sample, agent().proposal.sample(state.params["proposal"], x.next_observation, KEY))
    chosen = agent().choose_next_action(state, x, KEY)
    candidate_key, score_key = jax.random.split(KEY)
    candidates = agent().proposal.candidates(state.params["proposal"], x.next_observation, candidate_key)
    score = agent().score(state, x.next_observation[:, None], candidates, score_key, for_target=True)
    np.testing.assert_array_equal(chosen, candidates[jnp.arange(8), score.argmax(axis=1)])


@pytest.mark.slow
def test_missing_fields_are_named():
    state, x = fresh(), batch()
    with pytest.raises(ValueError, match=r"Transition.next_action.*rejection"):
        agent(next_action="dataset_next").prepare(state, x.replace(next_action=None), KEY)
    with pytest.raises(ValueError, match=r"Transition.trajectory_end.*masks"):
        agent(done_source="terminals").update(state, x.replace(trajectory_end=None), KEY)
    with pytest.raises(ValueError, match="return_range"):
        PCBF(PCBFConfig(**TINY), TaskSpec((3,), 2)).init(KEY)


@pytest.mark.slow
def test_done_source():
    x = batch()
    np.testing.assert_array_equal(with_terminals_of("masks", x).terminal, 0.0)
    np.testing.assert_array_equal(with_terminals_of("terminals", x).terminal, 1.0)

    def loss(transitions: Transition, **settings) -> float:
        state = fresh()
        return float(agent(**settings).critic_loss(state.params["critic"], state, transitions, KEY)[0])

    ended = x.replace(terminal=x.trajectory_end)
    assert loss(x, done_source="terminals") == loss(ended) != loss(x)
    assert loss(ended.replace(trajectory_end=x.terminal), done_source="terminals") == loss(x)


@pytest.mark.slow
def test_scores_are_means_of_the_critics_returns_under_noise_common_to_candidates():
    one, x = agent(score="mean", score_noise="shared", num_return_samples=3), batch(4)
    state = fresh()
    action = jnp.stack([x.action, x.action, x.next_action], axis=1)
    observation = x.observation[:, None]
    score = one.score(state, observation, action, KEY, for_target=False)
    np.testing.assert_allclose(score[:, 0], score[:, 1], rtol=1e-6)  # the same action gets the same score
    noise = jax.random.normal(KEY, (4, 1, 3))
    plain = one.critic.returns_at(state, x.observation, x.next_action, noise[:, 0]).mean(axis=-1)
    np.testing.assert_allclose(score[:, 2], plain, rtol=1e-5)

    own = agent(score="mean", score_noise="per_candidate", num_return_samples=3)
    alone = own.score(state, observation, action, KEY, for_target=False)
    assert float(jnp.abs(alone[:, 0] - alone[:, 1]).min()) > 0


@pytest.mark.slow
def test_one_step_score_is_noise_plus_velocity():
    one, x = agent(score="one_step", score_noise="shared", num_return_samples=1), batch(4)
    state = fresh()
    score = one.score(state, x.observation[:, None], x.action[:, None], KEY, for_target=False)
    noise = jax.random.normal(KEY, (4, 1, 1))[:, 0]
    velocity = one.critic.ensemble(state.params["critic"], x.observation, x.action, sample_axes=1)
    members = noise + velocity(jnp.zeros(()), jnp.broadcast_to(noise, (2, 4, 1)))
    np.testing.assert_allclose(score, jnp.clip(members, -5, 5).mean(axis=0), rtol=1e-5)


@pytest.mark.slow
def test_few_even_noises_score_as_many_random_ones_do():
    state, x = fresh(), batch(4)
    where = (state, x.observation[:, None], jnp.stack([x.action, x.next_action], axis=1))
    even = agent(score="mean", score_noise="even", num_return_samples=4)
    score = even.score(*where, KEY, for_target=False)
    np.testing.assert_array_equal(score, even.score(*where, jax.random.key(9), for_target=False))  # nothing is drawn
    many = agent(score="mean", score_noise="shared", num_return_samples=4096).score(*where, KEY, for_target=False)
    few = agent(score="mean", score_noise="shared", num_return_samples=4).score(*where, KEY, for_target=False)
    assert float(jnp.abs(score - many).max()) < 0.1 < float(jnp.abs(few - many).max())


@pytest.mark.slow
def test_tail_scores_are_ordered():
    state, x = fresh(), batch(4)
    where = (state, x.observation[:, None], x.action[:, None], KEY)
    low, high = (
        agent(score="cvar", risk_level=0.2, risk_seeking=seeking).score(*where, for_target=False)
        for seeking in (False, True)
    )
    whole = agent(score="cvar", risk_level=1.0).score(*where, for_target=False)
    assert bool((low < whole).all()) and bool((whole < high).all())


@pytest.mark.slow
def test_released_variant_trains_one_critic_and_scores_with_both():
    one = PCBF(PCBFConfig.variant("released", **TINY), SPEC)
    state = jax.jit(one.init)(KEY)
    new, _ = jax.jit(one.update)(state, batch(), KEY)
    for before, after in zip(
        jax.tree.leaves(state.params["critic"]), jax.tree.leaves(new.params["critic"]), strict=True
    ):
        assert float(jnp.abs(after[0] - before[0]).max()) > 0
        np.testing.assert_array_equal(after[1], before[1])
    bent = {**state.params, "critic": jax.tree.map(lambda leaf: leaf.at[1].add(0.3), state.params["critic"])}
    x = batch()
    where = (x.observation[:, None], x.action[:, None], KEY)
    scores = [one.score(s, *where, for_target=False) for s in (state, state.replace(params=bent))]
    assert float(jnp.abs(scores[0] - scores[1]).min()) > 0
    losses = [
        one.critic.loss(p["critic"], state.target_params["critic"], x, KEY, state.coefficients)[0]
        for p in (state.params, bent)
    ]
    assert float(losses[0]) == float(losses[1])


@pytest.mark.slow
def test_gradients_are_clipped_by_their_joint_norm():
    x = batch()
    state = fresh()
    prepare_key, loss_key = jax.random.split(KEY)
    prepared = agent().prepare(state, x, prepare_key)
    gradient = jax.jit(jax.grad(lambda p: agent().loss(p, state, prepared, loss_key)[0]))(state.params)
    norm = float(jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient))))
    clipped = agent(grad_clip=norm / 4)
    new, _ = jax.jit(lambda: clipped.update(clipped.init(KEY), x, KEY))()
    moment = new.opt_state[1][0].mu  # (1 - 0.9) times the gradient that Adam saw
    jax.tree.map(lambda m, g: np.testing.assert_allclose(m, 0.1 * g / 4, atol=1e-6), moment, gradient)


PAIR = dict(
    noise=jnp.array(-1.0),
    successor_noise=jnp.array(-1.0),
    successor_return=jnp.array(2.0),
    flow_time=jnp.array(0.25),
    reward=jnp.array(1.0),
    terminal=jnp.array(0.0),
    discount=0.8,
    control_weight=jnp.array(0.5),
)


def test_blended_pair_by_hand():
    # Ẑ = 1, v⁻ = z + 1 = 2; Z^{s'} = ¾ · -1 + ¼ · 2 = -¼, mixed ⅜
    # Z = ¼ + 0.8 · ⅜ + ¾ · 0.2 · -1 = 0.4; u = 1 + 0.8 (2 + ½ (2 - 2)) + (½ - 1) · -1 = 3.1
    pair = blended_pair(lambda t, z: z + 1, flow_point=jnp.array(1.0), lambda_scale="inside_discount", **PAIR)
    np.testing.assert_allclose(pair, [0.4, 3.1], rtol=1e-5)
    # at a terminal the target keeps λ X_0 too much: 1 - ½ · -1 instead of 1 - -1
    ended = {**PAIR, "terminal": jnp.array(1.0)}
    pair = blended_pair(lambda t, z: z + 1, flow_point=jnp.array(1.0), lambda_scale="inside_discount", **ended)
    assert float(pair[1]) == pytest.approx(1.5)


def test_blended_pair_contains_the_papers():
    expected = path_coupled_pair(lambda t, z: z + t, **PAIR)
    pair = blended_pair(lambda t, z: z + t, flow_point=None, lambda_scale="paper", **PAIR)
    np.testing.assert_allclose(pair, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["linear", "blended"])
@pytest.mark.parametrize("scale", ["paper", "inside_discount"])
def test_all_forms_agree_without_control_variate(path: str, scale: str):
    x, losses = batch(), []
    for settings in ({}, {"path": path, "lambda_scale": scale}):
        critic = PCBFCritic(PCBFCriticConfig(hidden_sizes=(8,), num_flow_steps=2, control_weight=0.0, **settings), SPEC)
        params, coefficients = fresh().params["critic"], {"control_weight": jnp.zeros(())}
        loss = jax.jit(partial(critic.loss, coefficients=coefficients))
        losses.append(float(loss(params, params, x, KEY)[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"next_action": "reject"}, "Did you mean 'rejection'"),
        ({"done_source": "mask"}, "Did you mean 'masks'"),
        ({"score": "average"}, "mean, one_step, cvar"),
        ({"trained_critics": 3}, "trained_critics=3"),
        ({"path": "linar"}, "Did you mean 'linear'"),
        ({"risk_level": 0.0}, "risk_level"),
    ],
)
def test_bad_settings_say_what_is_allowed(values: dict, message: str):
    with pytest.raises(ValueError, match=message):
        PCBFConfig(**values)
