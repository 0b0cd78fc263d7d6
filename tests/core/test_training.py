"""The training loop: scan equals a loop, chunks of any size, seeds side by side, same seed same bytes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import LearnerState, PCBFCritic, PCBFCriticConfig, Transition, init_many, train_chunk
from pcbf_core.dataset import Dataset
from pcbf_core.learner import held_then_decayed
from pcbf_core.mrp import MRPS

PROCESS = MRPS["solitaire"]
CRITIC = PCBFCritic(
    PCBFCriticConfig(discount=0.9, hidden_sizes=(8, 8), num_flow_steps=3, num_critics=2, learning_rate=1e-2),
    PROCESS.spec,
)
KEYS = jax.random.split(jax.random.key(7), 3)


def trained(keys, num_steps=6, chunks=(6,), across="vmap"):
    states, start, losses = init_many(CRITIC, keys), 0, []
    for length in chunks:
        states, metrics = train_chunk(
            CRITIC, states, PROCESS, keys, start, num_steps=length, batch_size=16, across=across
        )
        start += length
        losses.append(np.asarray(metrics["critic_loss"]))
    assert start == num_steps
    return states, np.concatenate(losses, axis=1)


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.mark.slow
def test_scan_equals_a_python_loop():
    states, losses = trained(KEYS[:1])
    state = CRITIC.init(KEYS[0])
    for step in range(6):
        batch_key, update_key = jax.random.split(jax.random.fold_in(KEYS[0], step))
        state, metrics = jax.jit(CRITIC.update)(state, PROCESS.sample(batch_key, 16), update_key)
        assert float(metrics["critic_loss"]) == pytest.approx(losses[0, step], rel=1e-4)
    assert_close(jax.tree.map(lambda x: x[0], states.params), state.params, atol=1e-5)


@pytest.mark.slow
def test_chunks_of_any_size_give_the_same_run():
    whole, losses = trained(KEYS)
    parts, part_losses = trained(KEYS, chunks=(1, 3, 2))
    assert_close(whole, parts, atol=1e-6)
    np.testing.assert_allclose(losses, part_losses, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("across", ["vmap", "map"])
def test_seeds_side_by_side_equal_single_runs(across: str):
    together, losses = trained(KEYS, across=across)
    for index in range(3):
        alone, single = trained(KEYS[index : index + 1])
        assert_close(
            jax.tree.map(lambda x, i=index: x[i], together.params),
            jax.tree.map(lambda x: x[0], alone.params),
            atol=1e-5,
        )
        np.testing.assert_allclose(losses[index], single[0], rtol=1e-4)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes():
    first, second = trained(KEYS)[0], trained(KEYS)[0]
    assert jax.tree.all(
        jax.tree.map(lambda a, b: a.tobytes() == b.tobytes(), *(jax.tree.map(np.asarray, s) for s in (first, second)))
    )


@pytest.mark.slow
def test_different_seeds_differ():
    _, losses = trained(KEYS)
    assert len(np.unique(losses[:, 0])) == 3


@pytest.mark.slow
def test_coefficients_can_vary_over_learners_in_one_call():
    keys = jnp.stack([KEYS[0], KEYS[0]])
    states = init_many(CRITIC, keys).replace(coefficients={"control_weight": jnp.array([0.0, 0.9])})
    states, metrics = train_chunk(CRITIC, states, PROCESS, keys, num_steps=4, batch_size=16)
    assert abs(float(metrics["critic_loss"][0, -1] - metrics["critic_loss"][1, -1])) > 1e-6
    alone = PCBFCritic(PCBFCriticConfig(**{**vars(CRITIC.config), "control_weight": 0.9}), PROCESS.spec)
    single, _ = train_chunk(alone, init_many(alone, KEYS[:1]), PROCESS, KEYS[:1], num_steps=4, batch_size=16)
    assert_close(jax.tree.map(lambda x: x[1], states.params), jax.tree.map(lambda x: x[0], single.params), atol=1e-5)


def test_learning_rate_is_held_then_falls_to_zero():
    schedule = held_then_decayed(0.1, num_steps=100, hold_fraction=0.4)
    assert callable(schedule)
    assert [float(schedule(step)) for step in (0, 39)] == pytest.approx([0.1, 0.1])
    assert float(schedule(70)) == pytest.approx(0.05) and float(schedule(100)) == pytest.approx(0)
    assert held_then_decayed(0.1, num_steps=None) == 0.1


@dataclass(frozen=True)
class Ledger:
    """A learner that keeps no weights but books: which transitions it was given, and when they were prepared."""

    action_reuse: int

    def init(self, key):
        return LearnerState(params={"step": jnp.zeros((), jnp.int32)}, target_params={}, opt_state=())

    def prepare(self, state, batch, key):
        return batch.replace(next_action=jnp.full(batch.reward.shape, state.params["step"]))

    def learn(self, state, batch, key):
        step = state.params["step"]
        books = {"rows": batch.reward, "prepared": batch.next_action, "step": step}
        return state.replace(params={"step": step + 1}), books

    def update(self, state, batch, key):
        return self.learn(state, self.prepare(state, batch, key), key)


@pytest.mark.slow
def test_a_prepared_transition_serves_the_asked_number_of_steps_and_is_never_older_than_its_round():
    blank = jnp.zeros(10_000)
    source = Dataset(Transition(blank, blank, jnp.arange(10_000.0), blank, blank))
    keys = KEYS[:2]
    learner = Ledger(action_reuse=3)
    states = jax.vmap(learner.init)(keys)
    states, books = train_chunk(learner, states, source, keys, num_steps=9 + 9 + 4, batch_size=8)
    np.testing.assert_array_equal(states.params["step"], 22)
    assert books["rows"].shape == (2, 22, 8)
    for rows in np.asarray(books["rows"]):
        for start in (0, 9):  # two whole rounds: three passes, each over the same three batches
            passes = rows[start : start + 9].reshape(3, 24)
            np.testing.assert_array_equal(np.sort(passes[0]), np.sort(passes[1]))
            np.testing.assert_array_equal(np.sort(passes[0]), np.sort(passes[2]))
    age = np.asarray(books["step"])[..., None] - np.asarray(books["prepared"])
    assert age.min() == 0 and age.max() == 8


@pytest.mark.slow
def test_without_reuse_every_batch_is_fresh():
    blank = jnp.zeros(10_000)
    source = Dataset(Transition(blank, blank, jnp.arange(10_000.0), blank, blank))
    keys = KEYS[:1]
    learner = Ledger(action_reuse=1)
    _, books = train_chunk(learner, jax.vmap(learner.init)(keys), source, keys, num_steps=5, batch_size=8)
    np.testing.assert_array_equal(books["prepared"][0], np.arange(5)[:, None] * np.ones(8))
