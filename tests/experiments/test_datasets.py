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

from pcbf_baselines.registry import make_agent
from pcbf_core.released import with_terminals_of
from pcbf_experiments.data.download import DatasetError, receipt_path
from pcbf_experiments.data.loading import load_task, prepare, return_range
from pcbf_experiments.data.pixels import FrameDataset, HostFrames
from pcbf_experiments.data.rows import Rows, summarise
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.data.verify import check_rows, failed, table
from pcbf_experiments.simulators import corrected_reward, hand_distance, is_dropped
from pcbf_experiments.suites import adroit, minari
from pcbf_experiments.suites import ogbench as ogbench_suite
from pcbf_experiments.tasks import find_task

from ..methods import TINY
from .frames import VISUAL, frame_rows

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


@pytest.mark.slow
def test_ogbench_rows_equal_the_official_loader(point_data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ogbench

        file = point_data / "ogbench" / "pointmaze-medium-navigate-v0.npz"
        made: Any = ogbench.make_env_and_datasets(POINT, dataset_path=str(file))
    official = made[1]
    loaded = load_task(POINT, data_dir=point_data)
    ours, spec, info = loaded.source.transitions, loaded.spec, loaded.info  # type: ignore[union-attr]
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
    first = load_task(POINT, data_dir=folder).source
    monkeypatch.setattr(ogbench_suite, "make_simulator", lambda *_: pytest.fail("a simulator was built again"))
    second = load_task(POINT, data_dir=folder).source
    jax.tree.map(np.testing.assert_array_equal, first, second)
    monkeypatch.undo()
    file = folder / "ogbench" / "pointmaze-medium-navigate-v0.npz"
    arrays = dict(np.load(file))
    np.savez(file, allow_pickle=False, **{**arrays, "qpos": arrays["qpos"][::-1]})
    receipt_path(file).unlink(missing_ok=True)
    changed = load_task(POINT, data_dir=folder).source
    assert changed.transitions.reward.tolist() != first.transitions.reward.tolist()  # type: ignore[union-attr]


def test_rewards_judge_the_state_and_ends_of_recordings_do_not_end_returns(point_data):
    loaded = load_task(POINT, data_dir=point_data)
    ours, spec, info = loaded.source.transitions, loaded.spec, loaded.info  # type: ignore[union-attr]
    assert ours.reward.tolist() == [-1, -1, -1, 0, 0, -1]
    assert ours.terminal.tolist() == [0, 0, 0, 1, 1, 0]
    assert ours.trajectory_end.tolist() == [0, 0, 1, 0, 0, 1]
    assert spec.return_range == pytest.approx((-100, 0))
    assert info.success_fraction == pytest.approx(1 / 3)


def test_next_action_is_the_recorded_one(point_data):
    ours = load_task(POINT, data_dir=point_data).source.transitions  # type: ignore[union-attr]
    assert (ours.next_action[:2] == ours.action[1:3]).all()
    assert ours.next_action[2].tolist() == pytest.approx([-1 + 2 * 6 / 15, -1 + 2 * 7 / 15], abs=1e-5)
    assert jnp.abs(ours.action).max() <= 1 - 1e-5


def test_missing_file_is_told_with_both_remedies(tmp_path):
    with pytest.raises(DatasetError, match=r"missing.*pcbf-data fetch.*pcbf-data make-local"):
        load_task(POINT, data_dir=tmp_path)


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
    rows = minari.joined([part, part])
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
    rows = minari.joined([adroit._episode_rows("pen", episode, False)])
    assert rows.num_transitions == 3 and rows.terminal.tolist() == [0, 0, 1, 0]
    assert rows.reward[:3].tolist() == [0, 1, 2] and rows.is_last.tolist() == [False] * 3 + [True]
    other = minari.joined([adroit._episode_rows("", episode, False)])
    assert other.num_transitions == 5 and not other.terminal.any()


# --- the end of a trajectory, for settings that imitate the paper's repository ------------------------


@pytest.mark.parametrize("next_actions", [False, True])
def test_the_last_transition_that_is_kept_ends_the_trajectory(next_actions):
    """Without the action of closing rows, asking for next actions leaves out each episode's last transition."""
    part = adroit._episode_rows("door", door_episode(-1.0), False)
    rows = minari.joined([part, part])
    kept = rows.transition_rows(next_actions=next_actions)
    ends = np.flatnonzero(rows.transitions(kept, next_actions=next_actions).trajectory_end)
    assert ends.tolist() == ([18, 37] if next_actions else [19, 39])


@pytest.mark.slow
def test_released_pcbf_ends_returns_with_trajectories_on_all_sources(point_data):
    """As released, goal states go on bootstrapping and the ends of recordings do not."""
    task, rows = find_task(VISUAL), frame_rows()
    info = summarise(task.dataset, rows, "local", {}, {})
    images = prepare(task, rows, info, discount=0.9)
    on_host = prepare(task, rows, info, discount=0.9, memory_budget=1000)
    part = adroit._episode_rows("door", door_episode(-1.0), False)
    hands = minari.joined([part, part])
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
        agent: Any = make_agent("pcbf", loaded.spec, {**TINY["pcbf"], "variant": "released"})
        state = jax.eval_shape(agent.init, key)
        prepared = agent.prepare(state, batch, key)
        assert (prepared.next_action == batch.action).all()
        ended = with_terminals_of(agent.config.done_source, prepared)
        assert (ended.terminal == batch.trajectory_end).all()
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
        return faults("door-expert-v1", replace(minari.joined([part, part]), **change), largest=1.2)

    assert not door()  # actions beyond 1 happen in D4RL
    reward = np.full(42, 3.0, np.float32)
    assert door(reward=np.where(np.arange(42) == 3, 25, reward)) == {"reward range"}
    terminal = (np.arange(42) == 5).astype(np.float32)
    assert door(terminal=terminal) == {"terminal only closes episodes", "terminal transitions"}


def test_verify_compares_the_validation_file(tmp_path):
    arrays = {"actions": np.zeros((3, 2), np.float32), "terminals": np.zeros(3, bool)}
    np.savez(tmp_path / "train.npz", allow_pickle=False, **arrays)
    np.savez(tmp_path / "val.npz", allow_pickle=False, actions=arrays["actions"][:1], terminals=arrays["terminals"][:1])
    assert ogbench_suite._validation_check(tmp_path / "train.npz", tmp_path / "val.npz").holds
    np.savez(tmp_path / "val.npz", allow_pickle=False, actions=np.zeros((3, 5)), extra=np.zeros(3))
    check = ogbench_suite._validation_check(tmp_path / "train.npz", tmp_path / "val.npz")
    assert not check.holds and check.found == "actions, extra, terminals"


@pytest.mark.parametrize("change", [{"qpos": None}, {"actions": np.zeros((3, 2), np.float32)}])
def test_file_without_what_rewards_need_is_named(point_data, tmp_path, change):
    with np.load(point_data / "ogbench" / "pointmaze-medium-navigate-v0.npz") as stored:
        arrays = {name: array for name, array in {**stored, **change}.items() if array is not None}
    (tmp_path / "ogbench").mkdir()
    for suffix in ("", "-val"):
        np.savez(tmp_path / "ogbench" / f"pointmaze-medium-navigate-v0{suffix}.npz", allow_pickle=False, **arrays)
    with pytest.raises(DatasetError, match=r"pointmaze-medium-navigate-v0\.npz is no OGBench file.*[Mm]ove it away"):
        load_task(POINT, data_dir=tmp_path)
