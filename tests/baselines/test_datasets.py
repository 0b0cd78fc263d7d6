"""From files to batches: rewards, ends, frames, scaling."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.datasets import Scaling, adroit, load, load_task, prepare, return_range, verify
from pcbf_baselines.datasets import ogbench as ogbench_data
from pcbf_baselines.datasets.download import DatasetError, receipt_path
from pcbf_baselines.datasets.pixels import FrameDataset, HostFrames, augment, frame_index, random_shift, stack_frames
from pcbf_baselines.datasets.rows import Rows, summarise
from pcbf_baselines.datasets.tasks import find_task
from pcbf_baselines.datasets.verify import check_rows, failed, table
from pcbf_baselines.registry import make_agent
from pcbf_baselines.wrappers import corrected_reward, hand_distance, is_dropped
from pcbf_core.learner import LearnerState
from pcbf_core.released import with_terminals_of
from pcbf_core.training import train_chunk
from pcbf_core.types import Transition

POINT = "pointmaze-medium-navigate-singletask-task1-v0"
GOAL = (20.0, 20.0)  # of task 1: cell (6, 6)


@pytest.fixture(scope="module")
def point_data(tmp_path_factory) -> Path:
    """Two episodes of four rows in OGBench's format; the second one starts at the goal."""
    folder = tmp_path_factory.mktemp("data")
    position = np.array([[0, 0], [1, 0], [2, 0], [3, 0], [20, 20], [20, 20.5], [20, 22], [0, 8]], np.float32)
    arrays = dict(
        observations=position,
        actions=np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2),
        qpos=position,
        qvel=np.zeros_like(position),
        terminals=np.array([0, 0, 0, 1, 0, 0, 0, 1], bool),
    )
    (folder / "ogbench").mkdir()
    for suffix in ("", "-val"):
        np.savez(folder / "ogbench" / f"pointmaze-medium-navigate-v0{suffix}.npz", allow_pickle=False, **arrays)
    return folder


def test_ogbench_rows_equal_the_official_loader(point_data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ogbench

        file = point_data / "ogbench" / "pointmaze-medium-navigate-v0.npz"
        loaded: Any = ogbench.make_env_and_datasets(POINT, dataset_path=str(file))
    official = loaded[1]
    source, spec, info = load(POINT, data_dir=point_data)
    ours = source.transitions  # type: ignore[union-attr]
    assert (ours.observation == official["observations"]).all()
    assert (ours.next_observation == official["next_observations"]).all()
    assert (ours.reward == official["rewards"]).all() and (ours.terminal == 1 - official["masks"]).all()
    assert (ours.trajectory_end == official["terminals"]).all()
    np.testing.assert_allclose(ours.action, official["actions"], atol=1.1e-5)
    assert (info.source, info.num_transitions, info.num_episodes) == ("found", 6, 2)
    assert (spec.observation_shape, spec.action_dim) == ((2,), 2)


def test_labels_are_kept_until_the_data_changes(point_data, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    shutil.copytree(point_data, folder)
    shutil.rmtree(folder / "ogbench" / "labels", ignore_errors=True)
    first, *_ = load(POINT, data_dir=folder)
    monkeypatch.setattr(ogbench_data, "make_environment", lambda *_: pytest.fail("a simulator was built again"))
    second, *_ = load(POINT, data_dir=folder)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    monkeypatch.undo()
    file = folder / "ogbench" / "pointmaze-medium-navigate-v0.npz"
    arrays = dict(np.load(file))
    np.savez(file, allow_pickle=False, **{**arrays, "qpos": arrays["qpos"][::-1]})
    receipt_path(file).unlink(missing_ok=True)
    changed, *_ = load(POINT, data_dir=folder)
    assert changed.transitions.reward.tolist() != first.transitions.reward.tolist()  # type: ignore[union-attr]


def test_rewards_judge_the_state_and_ends_of_recordings_do_not_end_returns(point_data):
    source, spec, info = load(POINT, data_dir=point_data)
    ours = source.transitions  # type: ignore[union-attr]
    assert ours.reward.tolist() == [-1, -1, -1, 0, 0, -1]
    assert ours.terminal.tolist() == [0, 0, 0, 1, 1, 0]
    assert ours.trajectory_end.tolist() == [0, 0, 1, 0, 0, 1]
    assert spec.return_range == pytest.approx((-100, 0))
    assert info.success_fraction == pytest.approx(1 / 3)


def test_next_action_is_the_recorded_one(point_data):
    source, _, _ = load(POINT, data_dir=point_data)
    ours = source.transitions  # type: ignore[union-attr]
    assert (ours.next_action[:2] == ours.action[1:3]).all()
    assert ours.next_action[2].tolist() == pytest.approx([-1 + 2 * 6 / 15, -1 + 2 * 7 / 15], abs=1e-5)
    assert jnp.abs(ours.action).max() <= 1 - 1e-5


def test_missing_file_is_told_with_both_remedies(tmp_path):
    with pytest.raises(DatasetError, match=r"missing.*pcbf-data fetch.*pcbf-data make-local"):
        load(POINT, data_dir=tmp_path)


def test_standardised_and_scaled(point_data):
    plain = load_task(POINT, data_dir=point_data)
    scaled = load_task(POINT, data_dir=point_data, standardise=True, return_width=5.0)
    rows = np.load(point_data / "ogbench" / "pointmaze-medium-navigate-v0.npz")["observations"]
    seen = scaled.source.transitions.observation  # type: ignore[union-attr]
    original = plain.source.transitions.observation  # type: ignore[union-attr]
    np.testing.assert_allclose(seen, (original - rows.mean(0)) / rows.std(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaled.scaling.observations(np.asarray(original)), seen, rtol=1e-5, atol=1e-6)
    assert scaled.spec.return_range == pytest.approx((-5, 0))
    assert scaled.source.transitions.reward.min() == pytest.approx(-0.05)  # type: ignore[union-attr]
    assert Scaling().observations("as it is") == "as it is"
    with pytest.raises(ValueError, match="pass one"):
        load_task(POINT, data_dir=point_data, reward_scale=2.0, return_width=5.0)
    with pytest.raises(ValueError, match="unbounded"):
        load_task(POINT, data_dir=point_data, discount=1.0)


# --- images -----------------------------------------------------------------------------------------

VISUAL = "visual-cube-double-play-singletask-task1-v0"


def frame_rows(height: int = 64) -> Rows:
    """Two episodes of three and two transitions; every pixel of row i is 10 i."""
    count = 7
    frames = np.broadcast_to(10 * np.arange(count, dtype=np.uint8)[:, None, None, None], (count, height, height, 3))
    return Rows(
        observation=frames.copy(),
        action=np.linspace(-0.9, 0.9, count * 5, dtype=np.float32).reshape(count, 5),
        reward=np.array([-2, -1, 0, -9, -2, -2, -9], np.float32),
        terminal=np.array([0, 0, 1, 0, 0, 0, 0], np.float32),
        is_last=np.array([0, 0, 0, 1, 0, 0, 1], bool),
        has_last_action=True,
    )


def frame_dataset(is_augmented: bool = False) -> FrameDataset:
    rows = frame_rows(8)
    index, first = frame_index(rows.is_last)
    return FrameDataset(rows.observation, index, first, rows.transitions(index, images=True), is_augmented)  # type: ignore[arg-type]


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


class Mean:
    """A learner that sums what it sees, weighted by its key: any change of batch or key shows."""

    def init(self, key):
        return LearnerState({"sum": jnp.zeros(())}, {}, ())

    def update(self, state, batch, key):
        seen = batch.observation.astype(jnp.float32).mean() - batch.next_observation[:, 0, 0].astype(jnp.float32).mean()
        value = state.params["sum"] * 0.5 + seen * jax.random.uniform(key) + batch.reward.mean()
        return state.replace(params={"sum": value}), {"value": value}


def test_streaming_from_the_host_is_the_same_run(monkeypatch):
    from pcbf_baselines.datasets import pixels

    monkeypatch.setattr(pixels, "BLOCK_BYTES", 2 * 2 * 4 * 8 * 8 * 3 * 6)  # blocks of two steps
    learner, keys = Mean(), jax.random.split(jax.random.key(0), 2)
    states = LearnerState({"sum": jnp.zeros(2)}, {}, ())
    dataset = frame_dataset(is_augmented=True)
    _, device = train_chunk(learner, states, jax.device_put(dataset), keys, 3, num_steps=5, batch_size=4)
    states = LearnerState({"sum": jnp.zeros(2)}, {}, ())
    _, host = HostFrames(dataset).train(learner, states, keys, 3, num_steps=5, batch_size=4)
    np.testing.assert_allclose(host["value"], device["value"], rtol=1e-6)
    assert host["value"].shape == (2, 5)
    learner.action_reuse = 2
    with pytest.raises(ValueError, match="stream from the host"):
        HostFrames(dataset).train(learner, states, keys, 3, num_steps=5, batch_size=4)


def test_large_image_sets_stay_on_the_host():
    task, rows = find_task(VISUAL), frame_rows()
    info = summarise(task.dataset, rows, "local", {}, {})
    assert isinstance(prepare(task, rows, info, discount=0.9, memory_budget=1000).source, HostFrames)
    small = prepare(task, rows, info, discount=0.9)
    assert isinstance(small.source, FrameDataset) and small.spec.observation_shape == (64, 64, 9)
    assert small.spec.return_range == pytest.approx((-20, 0))
    with pytest.raises(ValueError, match="images"):
        prepare(task, rows, info, discount=0.9, standardise=True)


# --- Adroit -----------------------------------------------------------------------------------------


def door_episode(sign: float, seed: int = 0) -> SimpleNamespace:
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(21, 39))
    rewards = sign * 0.1 * hand_distance("door", observations[1:]) + 3.0 + 0.001 * rng.normal(size=20)
    ends = np.zeros(20, bool)
    return SimpleNamespace(
        observations=observations, actions=np.ones((20, 28)), rewards=rewards, terminations=ends, truncations=ends
    )


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_sign_of_the_distance_term_is_read_from_the_data(sign):
    assert adroit.distance_slope("door", [door_episode(sign, seed) for seed in range(3)]) == pytest.approx(
        0.1 * sign, abs=0.01
    )


def test_correction_turns_the_payment_into_a_cost():
    paid, cost = door_episode(1.0), door_episode(-1.0)
    np.testing.assert_allclose(corrected_reward("door", paid.rewards, paid.observations[1:]), cost.rewards)
    assert corrected_reward("pen", 5.0, paid.observations[1]) == 5.0
    observation = np.zeros(46)
    observation[33:36], observation[36:39] = (1, 2, 2), (1, 2, 0)
    assert hand_distance("hammer", observation) == 2.0
    with pytest.raises(ValueError, match="no distance term"):
        hand_distance("pen", observation)


def test_dropped_pen_and_normalised_score():
    observation = np.ones((2, 45))
    observation[1, 26] = 0.07
    assert is_dropped(observation).tolist() == [False, True]
    assert adroit.normalised_score("pen", 3076.8331017826877) == pytest.approx(100)
    assert adroit.normalised_score("relocate", -6.425911) == pytest.approx(0)


def test_transitions_without_a_next_action_are_left_out_only_when_it_is_asked_for():
    part = adroit._episode_rows("door", door_episode(-1.0), False)
    rows = adroit._join([part, part])
    assert (rows.num_transitions, rows.num_episodes) == (40, 2)
    assert len(rows.transition_rows()) == 40 and len(rows.transition_rows(next_actions=True)) == 38
    info = summarise("d", rows, "local", {}, {})
    low, high = return_range(find_task("door-expert-v1"), info, 0.5)
    assert (low, high) == (2 * info.reward_range[0], 2 * info.reward_range[1])


def test_what_follows_a_fall_of_the_pen_is_left_out():
    observations = np.ones((6, 45))
    observations[3:, 26] = 0.05  # on the table after the third step
    ends = np.zeros(5, bool)
    episode = SimpleNamespace(
        observations=observations, actions=np.ones((5, 24)), rewards=np.arange(5.0), terminations=ends
    )
    rows = adroit._join([adroit._episode_rows("pen", episode, False)])
    assert rows.num_transitions == 3 and rows.terminal.tolist() == [0, 0, 1, 0]
    assert rows.reward[:3].tolist() == [0, 1, 2] and rows.is_last.tolist() == [False] * 3 + [True]
    other = adroit._join([adroit._episode_rows("", episode, False)])
    assert other.num_transitions == 5 and not other.terminal.any()


# --- the end of a trajectory, for settings that imitate the paper's repository ------------------------


@pytest.mark.parametrize("next_actions", [False, True])
def test_the_last_transition_that_is_kept_ends_the_trajectory(next_actions):
    """Without the action of closing rows, asking for next actions leaves out each episode's last transition."""
    part = adroit._episode_rows("door", door_episode(-1.0), False)
    rows = adroit._join([part, part])
    kept = rows.transition_rows(next_actions=next_actions)
    ends = np.flatnonzero(rows.transitions(kept, next_actions=next_actions).trajectory_end)
    assert ends.tolist() == ([18, 37] if next_actions else [19, 39])


def test_released_pcbf_ends_returns_with_trajectories_on_all_sources(point_data, tiny):
    """As released, goal states go on bootstrapping and the ends of recordings do not."""
    task, rows = find_task(VISUAL), frame_rows()
    info = summarise(task.dataset, rows, "local", {}, {})
    images = prepare(task, rows, info, discount=0.9)
    on_host = prepare(task, rows, info, discount=0.9, memory_budget=1000)
    part = adroit._episode_rows("door", door_episode(-1.0), False)
    hands = adroit._join([part, part])
    door = prepare(find_task("door-expert-v1"), hands, summarise("d", hands, "local", {}, {}), discount=0.9)
    point = load_task(POINT, data_dir=point_data)
    key = jax.random.key(0)
    batches = {
        "point": (point, point.source.sample(key, 16)),
        "images": (images, images.source.sample(key, 16)),
        "host": (on_host, jax.tree.map(jnp.asarray, on_host.source.gather(np.arange(5)))),
        "door": (door, door.source.sample(key, 64)),
    }
    for name, (loaded, batch) in batches.items():
        assert batch.trajectory_end.max() == 1 and batch.trajectory_end.min() == 0, name
        agent: Any = make_agent("pcbf", loaded.spec, {**tiny["pcbf"], "variant": "released"})
        state = jax.eval_shape(agent.init, key)
        prepared = agent.prepare(state, batch, key)
        assert (prepared.next_action == batch.action).all()
        assert (with_terminals_of(agent.config.done_source, prepared).terminal == batch.trajectory_end).all()
        new, metrics = jax.eval_shape(agent.update, state, batch, key)
        assert metrics["critic_loss"].shape == () and jax.tree.structure(new) == jax.tree.structure(state)


# --- verify -----------------------------------------------------------------------------------------


def image_rows(num_episodes: int = 7) -> Rows:
    """Episodes of three rows that begin somewhere else each; the last transition of each succeeds."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 200, (num_episodes, 1, 64, 64, 3))
    frames = (starts + np.arange(3)[None, :, None, None, None]).astype(np.uint8).reshape(-1, 64, 64, 3)
    return Rows(
        observation=frames,
        action=rng.uniform(-0.9, 0.9, (3 * num_episodes, 5)).astype(np.float32),
        reward=np.tile(np.array([-2, 0, -9], np.float32), num_episodes),
        terminal=np.tile(np.array([0, 1, 0], np.float32), num_episodes),
        is_last=np.tile([False, False, True], num_episodes),
        has_last_action=True,
    )


def faults(task: str, rows: Rows, source: str = "local", largest: float = 1.0) -> set[str]:
    """Names of the checks that fail."""
    info = summarise("d", rows, source, {}, {"largest_action": largest})
    return {check.name for check in failed(check_rows(find_task(task), rows, info))}


def test_verify_passes_good_rows():
    rows = image_rows()
    info = summarise("d", rows, "local", {}, {"largest_action": 1.0})
    checks = check_rows(find_task(VISUAL), rows, info)
    assert not failed(checks) and "transitions at success" in table(checks)
    assert "0.50000" in table(checks)  # of its transitions, one in two succeeds


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("observation type", {"observation": image_rows().observation.astype(np.float32)}),
        ("observation shape", {"observation": image_rows().observation[:, :32]}),
        ("blank images", {"observation": np.tile(np.arange(21, dtype=np.uint8).reshape(21, 1, 1, 1), (1, 64, 64, 3))}),
        ("actions finite", {"action": np.where(image_rows().action > 0.8, np.nan, image_rows().action)}),
        ("action dimensions", {"action": image_rows().action[:, :4]}),
        ("rewards finite", {"reward": np.where(image_rows().reward == -2, np.inf, image_rows().reward)}),
        ("reward range", {"reward": image_rows().reward - 0.5}),
        ("reward range", {"reward": image_rows().reward - 1}),
        ("terminal exactly at success", {"terminal": np.zeros(21, np.float32)}),
        ("terminal exactly at success", {"terminal": np.ones(21, np.float32)}),
        ("terminal is 0 or 1", {"terminal": image_rows().terminal * 0.5}),
        ("episode lengths", {"is_last": np.arange(21) % 3 == np.where(np.arange(21) < 18, 2, 0)}),
        ("episodes closed", {"is_last": image_rows().is_last & (np.arange(21) < 20)}),
        ("jump of observations at boundaries", {"is_last": np.arange(21) % 3 == 1}),  # off by one row
    ],
)  # fmt: skip
def test_verify_names_what_is_wrong(fault, change):
    assert fault in faults(VISUAL, replace(image_rows(), **change))


def test_verify_wants_a_known_source_and_actions_inside_the_simulators_limits():
    assert faults(VISUAL, image_rows(), source="somewhere") == {"source"}
    assert faults(VISUAL, image_rows(), largest=1.5) == {"largest action coordinate"}
    assert faults(VISUAL, image_rows(), largest=np.nan) == {"largest action coordinate"}


def test_verify_knows_what_the_hands_can_earn():
    def door(**change) -> set[str]:
        part = adroit._episode_rows("door", door_episode(-1.0), False)
        return faults("door-expert-v1", replace(adroit._join([part, part]), **change), largest=1.2)

    assert not door()  # actions beyond 1 happen in D4RL
    reward = np.full(42, 3.0, np.float32)
    assert door(reward=np.where(np.arange(42) == 3, 25, reward)) == {"reward range"}
    terminal = (np.arange(42) == 5).astype(np.float32)
    assert door(terminal=terminal) == {"terminal only closes episodes", "terminal transitions"}


def test_verify_compares_the_validation_file(tmp_path):
    arrays = {"actions": np.zeros((3, 2), np.float32), "terminals": np.zeros(3, bool)}
    np.savez(tmp_path / "train.npz", allow_pickle=False, **arrays)
    np.savez(tmp_path / "val.npz", allow_pickle=False, actions=arrays["actions"][:1], terminals=arrays["terminals"][:1])
    assert verify._validation_check(tmp_path / "train.npz", tmp_path / "val.npz").holds
    np.savez(tmp_path / "val.npz", allow_pickle=False, actions=np.zeros((3, 5)), extra=np.zeros(3))
    check = verify._validation_check(tmp_path / "train.npz", tmp_path / "val.npz")
    assert not check.holds and check.found == "actions, extra, terminals"


@pytest.mark.parametrize("change", [{"qpos": None}, {"actions": np.zeros((3, 2), np.float32)}])
def test_file_without_what_rewards_need_is_named(point_data, tmp_path, change):
    with np.load(point_data / "ogbench" / "pointmaze-medium-navigate-v0.npz") as stored:
        arrays = {name: array for name, array in {**stored, **change}.items() if array is not None}
    (tmp_path / "ogbench").mkdir()
    for suffix in ("", "-val"):
        np.savez(tmp_path / "ogbench" / f"pointmaze-medium-navigate-v0{suffix}.npz", allow_pickle=False, **arrays)
    with pytest.raises(DatasetError, match=r"pointmaze-medium-navigate-v0\.npz is no OGBench file.*[Mm]ove it away"):
        load(POINT, data_dir=tmp_path)
