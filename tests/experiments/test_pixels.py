"""Images: stacked, shifted, on the device or streamed from the host, always the same batches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core.learner import LearnerState
from pcbf_core.training import train_chunk
from pcbf_core.types import Transition
from pcbf_experiments.data import pixels
from pcbf_experiments.data.pixels import HostFrames, augment, frame_index, random_shift, stack_frames

from .frames import frame_dataset, frame_rows


def test_stacks_never_cross_the_start_of_an_episode():
    rows, first = frame_index(frame_rows().is_last)
    assert rows.tolist() == [0, 1, 2, 4, 5] and first.tolist() == [0, 0, 0, 4, 4]
    frames = np.arange(7, dtype=np.uint8)[:, None, None, None]
    assert stack_frames(frames, rows, first)[:, 0, 0].tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 2],
        [4, 4, 4],
        [4, 4, 5],
    ]
    successor = stack_frames(frames, rows + 1, first)[:, 0, 0].tolist()
    assert successor == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [4, 4, 5], [4, 5, 6]]


def test_batches_of_images_are_uint8_stacks_with_their_own_rewards():
    batch = jax.jit(lambda s, k: s.sample(k, 64))(jax.device_put(frame_dataset()), jax.random.key(0))
    assert batch.observation.shape == (64, 8, 8, 9) and batch.observation.dtype == jnp.uint8
    newest = np.asarray(batch.observation[:, 0, 0, -1]) // 10
    assert set(newest.tolist()) == {0, 1, 2, 4, 5}
    assert (np.asarray(batch.reward) == frame_rows().reward[newest]).all()
    assert (np.asarray(batch.next_observation[:, 0, 0, -1]) // 10 == newest + 1).all()


def test_shift_moves_by_the_offset_and_repeats_the_edge():
    image = jnp.arange(16, dtype=jnp.uint8).reshape(1, 4, 4, 1)
    assert (random_shift(image, jnp.array([[3, 3]])) == image).all()
    moved = random_shift(image, jnp.array([[4, 1]]))[0, :, :, 0]  # one down in the picture, two to the left
    assert moved.tolist() == [[4, 4, 4, 5], [8, 8, 8, 9], [12, 12, 12, 13], [12, 12, 12, 13]]


def test_augmentation_is_all_or_none_and_the_same_for_both_observations():
    image = jax.random.randint(jax.random.key(1), (16, 8, 8, 3), 0, 256).astype(jnp.uint8)
    zeros = jnp.zeros(16)
    batch = Transition(image, zeros, zeros, image, zeros)
    shifted = 0
    for seed in range(40):
        result = jax.jit(augment)(batch, jax.random.key(seed))
        assert (result.observation == result.next_observation).all()
        changed = (result.observation != image).any(axis=(1, 2, 3)).sum()
        assert changed == 0 or changed > 8
        shifted += bool(changed)
    assert 8 <= shifted <= 32  # binomial(40, 1/2): outside with probability below 1e-4


BATCHED: list[int] = []
"""How many learners every batched program was made for."""


@jax.custom_batching.custom_vmap
def noted(value):
    return value


@noted.def_vmap
def _note(axis_size, in_batched, value):
    BATCHED.append(axis_size)
    return value, in_batched[0]


class Mean:
    """A learner that sums what it sees, weighted by its key: any change of batch or key shows."""

    def init(self, key):
        return LearnerState({"sum": jnp.zeros(())}, {}, ())

    def update(self, state, batch, key):
        seen = batch.observation.astype(jnp.float32).mean() - batch.next_observation[:, 0, 0].astype(jnp.float32).mean()
        value = noted(state.params["sum"] * 0.5 + seen * jax.random.uniform(key) + batch.reward.mean())
        return state.replace(params={"sum": value}), {"value": value}


def learners(count: int) -> tuple[LearnerState, jax.Array]:
    return LearnerState({"sum": jnp.zeros(count)}, {}, ()), jax.random.split(jax.random.key(0), 3)[:count]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of two steps for two learners, of four for one."""
    monkeypatch.setattr(pixels, "BLOCK_BYTES", 2 * 2 * 4 * 8 * 8 * 3 * 6)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("across", ["vmap", "map"])
def test_streaming_from_the_host_is_the_same_run(across):
    sizes = {"num_steps": 5, "batch_size": 4, "across": across}
    learner, dataset = Mean(), frame_dataset(is_augmented=True)
    states, keys = learners(2)
    _, device = train_chunk(learner, states, jax.device_put(dataset), keys, 3, **sizes)
    states, keys = learners(2)
    BATCHED.clear()
    _, host = HostFrames(dataset).train(learner, states, keys, 3, **sizes)
    np.testing.assert_allclose(host["value"], device["value"], rtol=1e-6)
    assert host["value"].shape == (2, 5)
    assert bool(BATCHED) == (across == "vmap")  # learners in turn are not batched into one


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_streamed_learners_in_turn_do_not_influence_each_other():
    """Alone, beside one and beside two others a learner gets the same bits, however long the blocks are then."""
    sizes = {"num_steps": 5, "batch_size": 4, "across": "map"}
    learner, host = Mean(), HostFrames(frame_dataset(is_augmented=True))
    runs = [host.train(learner, *learners(count), 3, **sizes) for count in (1, 2, 3)]
    for states, metrics in runs:
        np.testing.assert_array_equal(metrics["value"][0], runs[0][1]["value"][0])
        assert states.params["sum"][0] == runs[0][0].params["sum"][0]
    np.testing.assert_array_equal(runs[1][1]["value"], runs[2][1]["value"][:2])
    assert not np.array_equal(runs[1][1]["value"][0], runs[1][1]["value"][1])


def test_actions_kept_for_several_steps_are_refused_when_images_stream():
    learner = Mean()
    learner.action_reuse = 2
    with pytest.raises(ValueError, match="stream from the host"):
        HostFrames(frame_dataset()).train(learner, *learners(2), 3, num_steps=5, batch_size=4)
