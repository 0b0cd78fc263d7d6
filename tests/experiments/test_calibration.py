"""Calibration: returns by hand, honest choice of states, and every critic from data to record."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pcbf_core.types import TaskSpec
from pcbf_experiments import calibration
from pcbf_experiments.calibration import CalibrationSettings, known_rows, load_problem, make_critic, returns_to_go
from pcbf_experiments.cli.calibrate import main
from pcbf_experiments.data.make_calibration import load_data, make_data
from pcbf_experiments.data.rows import Rows
from pcbf_records.calibration import MARGINAL, load_calibration_record
from pcbf_records.errors import RecordError
from pcbf_records.layout import CALIBRATION_RESULTS, calibration_run

SIZES = {"episodes": 4, "length": 40, "seed": 0, "data_dir": None}
SETTINGS = CalibrationSettings(
    num_seeds=2, num_steps=3, batch_size=8, discount=0.8, truncation=0.05, num_states=9, num_levels=4, num_eval_steps=2
)


def two_episodes() -> Rows:
    """Rewards 1, 2, 4 of an episode that ends by itself; 8, 16, 32, 64 of one that is cut, its third return ended."""
    ends = np.array([0, 0, 0, 1, 0, 0, 0, 0, 1], bool)
    return Rows(
        observation=np.arange(9, dtype=np.float32)[:, None],
        action=np.zeros((9, 1), np.float32),
        reward=np.array([1, 2, 4, 99, 8, 16, 32, 64, 99], np.float32),
        terminal=np.array([0, 0, 1, 0, 0, 0, 1, 0, 0], np.float32),
        is_last=ends,
        has_last_action=False,
    )


def test_returns_to_go_by_hand():
    # 1 + 2/2 + 4/4, 2 + 4/2, 4; then 8 + 16/2 + 32/4 where the return ends, 16 + 32/2, 32, and 64 alone
    assert returns_to_go(two_episodes(), 0.5).tolist() == [3, 4, 4, 0, 24, 32, 32, 64, 0]


def test_states_are_chosen_by_their_step_and_not_by_what_becomes_of_them():
    rows = two_episodes()
    # two more steps must fit before step 4, where episodes are cut: steps 0, 1 and 2 of both
    assert known_rows(rows, length=4, horizon=2).tolist() == [0, 1, 2, 4, 5, 6]
    # the third step of the first is not taken at a horizon of 3, though the episode has ended by itself
    assert known_rows(rows, length=4, horizon=3).tolist() == [0, 1, 4, 5]
    assert known_rows(rows, length=6, horizon=3).tolist() == [0, 1, 2, 4, 5]  # the other has only four steps


@pytest.mark.parametrize(("truncation", "horizon"), [(0.01, 7), (0.25, 3), (0.26, 2)])
def test_the_horizon_is_the_first_with_a_weight_below_the_truncation(truncation: float, horizon: int):
    settings = dataclasses.replace(SETTINGS, discount=0.5, truncation=truncation)
    assert settings.horizon == horizon and 0.5**horizon < truncation <= 0.5 ** (horizon - 1)


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "hopper.npz"
    make_data("hopper", path, **SIZES)
    return path


def test_data_repeat_with_their_seed(hopper: Path, tmp_path: Path):
    make_data("hopper", tmp_path / "again.npz", **SIZES)
    make_data("hopper", tmp_path / "other.npz", **{**SIZES, "seed": 1})
    first, again, other = (load_data(path)[0] for path in (hopper, tmp_path / "again.npz", tmp_path / "other.npz"))
    np.testing.assert_array_equal(first.observation, again.observation)
    assert not np.array_equal(first.observation[:5], other.observation[:5])
    assert (first.num_episodes, load_data(hopper)[1]) == (4, 40) and first.episode_lengths.max() <= 40


@pytest.mark.slow
def test_a_walk_through_the_maze_moves_by_its_actions_but_for_jumps(tmp_path: Path):
    make_data("teleport", tmp_path / "maze.npz", **{**SIZES, "episodes": 6, "length": 250})
    rows, _ = load_data(tmp_path / "maze.npz")
    index = rows.transition_rows()
    moved = np.abs(rows.observation[index + 1] - rows.observation[index]).max(axis=-1)
    assert set(rows.reward[index].tolist()) == {-1.0}
    assert (moved < 0.5).mean() > 0.9 and moved.max() > 3  # somebody was carried away
    assert 0 < rows.terminal.sum() < 6


def test_a_problem_is_split_by_episodes_and_scaled(hopper: Path):
    problem, rows = load_problem(hopper, SETTINGS), load_data(hopper)[0]
    learned = np.asarray(problem.outcomes.transitions.reward)
    low, high = problem.spec.return_range or (0, 0)
    assert (high - low, np.ptp(learned)) == pytest.approx((4.0, 4.0 / 1.2))  # a tenth wider at both ends
    assert problem.deviation == pytest.approx(learned.std(), rel=1e-4)
    index = rows.transition_rows(next_actions=True)
    of_episodes = np.bincount(np.cumsum(rows.is_last)[index])
    assert len(index) - problem.data.size in of_episodes  # a fifth of four is one
    assert not set(problem.returns.round(4)) & set(learned.round(4)) and len(problem.returns) == SETTINGS.num_states
    np.testing.assert_allclose(np.asarray(problem.data.transitions.observation).mean(axis=0), 0, atol=1e-4)
    with pytest.raises(ValueError, match="make more or longer episodes"):
        load_problem(hopper, dataclasses.replace(SETTINGS, discount=0.99))


def test_settings_reach_the_critics_that_have_them():
    spec = TaskSpec((3,), 2, return_range=(-1.0, 1.0))
    critic = make_critic("pcbf_flow-half", spec, 0.8, {"hidden_sizes": (8,), "num_atoms": 3}, {"control_weight": 0.5})
    assert (critic.config.discount, critic.config.hidden_sizes) == (0.8, (8,))
    assert vars(critic.config)["path"] == "flow" and vars(critic.config)["control_weight"] == 0.5
    with pytest.raises(ValueError, match="GaussianCriticConfig key"):
        make_critic("gaussian", spec, 0.8, {}, {"control_weight": 0.5})


def test_the_marginal_law_is_that_of_all_training_returns(hopper: Path):
    problem = load_problem(hopper, SETTINGS)
    laws = calibration.marginal_laws(problem, SETTINGS)
    learned = np.asarray(problem.outcomes.transitions.reward)
    assert laws.shape == (2, 9, 4) and np.ptp(laws, axis=(0, 1)).max() == 0
    assert [(learned < quantile).mean().round(2) for quantile in laws[0, 0]] == pytest.approx(
        [0.125, 0.375, 0.625, 0.875], abs=0.03
    )
    record = calibration.make_record(hopper, MARGINAL, SETTINGS, {}, {})
    assert record["crps"].shape == (2,) and np.ptp(record["crps"]) == 0
    np.testing.assert_allclose(record["pit"].sum(axis=-1), 1)


@pytest.mark.slow
def test_the_command_writes_and_collects(hopper: Path, tmp_path: Path):
    chosen = {**dataclasses.asdict(SETTINGS), "default": {"hidden_sizes": [8]}, "own": {"least_deviation": 0.1}}
    output = tmp_path / calibration_run("hopper", "gaussian")
    words = ["run", "hopper", "gaussian", "--data", str(hopper), "--output", str(output)]
    main([*words, "--settings", json.dumps(chosen)])
    record = load_calibration_record(output)
    assert record.metadata["own"] == {"least_deviation": 0.1} and record.num_states.tolist() == [9]
    main(["collect", "--results", str(tmp_path)])
    lines = (tmp_path / CALIBRATION_RESULTS).read_text().splitlines()
    assert lines[0] == "dataset,method,seed,measure,value" and len(lines) == 1 + 2 * 8


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    np.savez(tmp_path / "other.npz", rows=np.zeros(3))
    with pytest.raises(RecordError, match="pcbf-calibrate data"):
        load_data(tmp_path / "other.npz")
