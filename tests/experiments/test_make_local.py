"""Generated data: reproducible, in the official formats, and never to be taken for official."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pcbf_experiments.cli.data import main
from pcbf_experiments.data.download import DatasetError, check_file, local_mark
from pcbf_experiments.data.loading import load_task
from pcbf_experiments.data.local import LocalSettings
from pcbf_experiments.data.make_adroit import POLICIES_VARIABLE, find_policies, policy_mean
from pcbf_experiments.data.rows import Rows
from pcbf_experiments.data.verify import failed, verify
from pcbf_experiments.simulators import SimulatorSpec, make_simulator
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task

from .policies import random_weights

pytestmark = pytest.mark.filterwarnings("ignore")  # of the simulators
CUBE = "cube-single-play-singletask-task1-v0"
POINT = "pointmaze-medium-navigate-singletask-task1-v0"
ROOT = Path(__file__).parents[2]
POLICIES = Path(os.environ.get(POLICIES_VARIABLE, ROOT.parent / "shared" / "adroit_policies"))
SMALL = LocalSettings(num_episodes=2, num_validation_episodes=1, episode_length=30)


def make(name: str, folder: Path, settings: LocalSettings = SMALL, **options) -> list[Path]:
    task = find_task(name)
    how = {"num_workers": 1, "overwrite": False, "progress": False, **options}
    return suite_of(task).make_local(task, folder, settings, **how)


def rows_of(name: str, folder: Path) -> Rows:
    task = find_task(name)
    return suite_of(task).load_rows(task, folder)[0]


@pytest.mark.slow
def test_same_seed_gives_the_same_bytes_with_any_number_of_processes(tmp_path):
    first, again = make(POINT, tmp_path / "a"), make(POINT, tmp_path / "b", num_workers=2)
    for left, right in zip(first, again, strict=True):
        assert left.name == right.name and left.read_bytes() == right.read_bytes()
    other = make(POINT, tmp_path / "c", LocalSettings(2, 1, 30, seed=1))
    assert other[0].read_bytes() != first[0].read_bytes()


@pytest.mark.slow
def test_arm_data_pass_every_check_and_repeat(tmp_path):
    files = make(CUBE, tmp_path / "a")
    again = make(CUBE, tmp_path / "b")  # same process, simulator already used
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    checks, info = verify(CUBE, tmp_path / "a")
    assert not failed(checks) and info.is_local
    assert (info.num_episodes, info.num_transitions) == (2, 60)
    with np.load(files[0]) as arrays:
        assert arrays["observations"].shape == (62, 28) and arrays["terminals"].sum() == 2
        assert arrays["qpos"].dtype == np.float32 and arrays["terminals"].dtype == bool


@pytest.mark.slow
def test_stored_states_replay_to_the_stored_observations(tmp_path):
    """Open loop from the first stored state, the recorded actions lead through the recorded observations."""
    make(CUBE, tmp_path)
    rows = rows_of(CUBE, tmp_path)
    with np.load(tmp_path / "ogbench" / "cube-single-play-v0.npz") as arrays:
        qpos, qvel = arrays["qpos"].astype(np.float64), arrays["qvel"].astype(np.float64)
    env = make_simulator(SimulatorSpec("cube-single-singletask-task1-v0", registered_by="ogbench"))
    env.reset(seed=0)
    env.unwrapped.set_state(qpos[0], qvel[0])  # type: ignore[attr-defined]
    for row in range(5):
        observation, reward, *_ = env.step(rows.action[row])
        np.testing.assert_allclose(observation, rows.observation[row + 1], atol=5e-3)
        assert reward == rows.reward[row]
    env.close()


def test_mark_is_inside_the_file_beside_it_and_in_the_info(tmp_path):
    file = make(POINT, tmp_path)[0]
    mark = local_mark(file)
    assert mark is not None and mark["source"] == "local" and mark["dataset"] == "pointmaze-medium-navigate-v0"
    assert json.loads(file.with_name(file.name + ".json").read_text())["local"] == mark
    info = load_task(POINT, data_dir=tmp_path).info
    assert info.plain()["source"] == "local" and info.plain()["details"]["local"] == mark


def test_nothing_is_overwritten_silently(tmp_path):
    file = make(POINT, tmp_path)[0]
    with pytest.raises(DatasetError, match="exists"):
        make(POINT, tmp_path)
    make(POINT, tmp_path, LocalSettings(1, 1, 10), overwrite=True)
    assert check_file(file)["arrays"]["actions"]["shape"] == [11, 2]
    np.savez(file, observations=np.zeros(3))  # as if it were somebody's
    with pytest.raises(DatasetError, match="was not generated here"):
        make(POINT, tmp_path, overwrite=True)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(DatasetError, match="truncated or corrupt .* move it away"):
        make(POINT, tmp_path, overwrite=True)


def test_point_walks_along_the_shortest_path(tmp_path):
    """A whole episode passes several goals, so it visits many cells of the maze and never enters a wall."""
    make(POINT, tmp_path, LocalSettings(1, 1, 400))
    rows = rows_of(POINT, tmp_path)
    cells = {tuple(np.round(position / 4).astype(int)) for position in rows.observation}
    assert len(cells) >= 8


def test_command_line(tmp_path, capsys):
    options = ["--episodes", "1", "--length", "10", "--workers", "1", "--data-dir", str(tmp_path)]
    assert main(["make-local", "pointmaze-medium-navigate-v0", *options]) == 0
    assert main(["verify", POINT, "--data-dir", str(tmp_path)]) == 0
    assert "terminal exactly at success" in capsys.readouterr().out
    assert main(["fetch", POINT, "--source", str(tmp_path / "ogbench"), "--data-dir", str(tmp_path / "copy")]) == 0
    assert "local" in capsys.readouterr().out
    assert main(["make-local", POINT, *options]) == 1


@pytest.mark.slow
def test_images_are_rendered_from_the_states_of_the_same_episodes(renderer, tmp_path):
    settings = LocalSettings(1, 1, 2)
    make(CUBE, tmp_path, settings)
    file = make("visual-cube-single-play-singletask-task1-v0", tmp_path, settings)[0]
    with np.load(file) as visual, np.load(tmp_path / "ogbench" / "cube-single-play-v0.npz") as state:
        assert visual["observations"].shape == (3, 64, 64, 3) and visual["observations"].dtype == np.uint8
        assert visual["observations"].std() > 5
        for name in ("actions", "qpos", "qvel", "terminals"):
            assert (visual[name] == state[name]).all()
    stored = LocalSettings(1, 1, 2, state_file=tmp_path / "ogbench" / "cube-single-play-v0.npz")
    again = make("visual-cube-single-play-singletask-task1-v0", tmp_path / "b", stored)[0]
    with np.load(file) as made, np.load(again) as rendered:
        difference = np.abs(made["observations"].astype(int) - rendered["observations"].astype(int))
    assert difference.mean() < 1  # float32 states move few pixels
    checks, _ = verify("visual-cube-single-play-singletask-task1-v0", tmp_path)
    assert not failed(checks)


@pytest.mark.parametrize("task", ["door-expert-v1", "pen-cloned-v1"])
def test_adroit_sets_load_through_minari(task, tmp_path):
    policies = POLICIES if POLICIES.is_dir() else random_weights(tmp_path / "policies")
    settings = LocalSettings(2, 1, 25, policies=policies)
    make(task, tmp_path, settings)
    checks, info = verify(task, tmp_path)
    assert not failed(checks) and info.is_local and info.num_episodes == 2
    assert info.details["distance_sign_corrected"] is False
    first = rows_of(task, tmp_path)
    make(task, tmp_path / "again", settings, num_workers=1)
    second = rows_of(task, tmp_path / "again")
    assert (first.observation == second.observation).all() and (first.reward == second.reward).all()
    with pytest.raises(DatasetError, match="exists"):
        make(task, tmp_path, settings)
    folder = tmp_path / "minari" / find_task(task).dataset
    file, receipt = folder / "data" / "main_data.hdf5", folder / "pcbf.json"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(DatasetError, match="main_data.hdf5 is not the file .* Move .* away or delete it"):
        load_task(task, data_dir=tmp_path)
    receipt.write_text("{")
    with pytest.raises(DatasetError, match=r"pcbf\.json cannot be read"):
        load_task(task, data_dir=tmp_path)
    receipt.unlink()
    with pytest.raises(DatasetError, match="truncated or corrupt"):
        load_task(task, data_dir=tmp_path)
    assert not receipt.exists()  # what cannot be read is not vouched for


def test_policies_are_those_one_is_given_and_no_others(tmp_path, monkeypatch):
    monkeypatch.delenv(POLICIES_VARIABLE, raising=False)
    with pytest.raises(DatasetError, match=rf"pass --policies FOLDER or set {POLICIES_VARIABLE}"):
        find_policies()
    monkeypatch.setenv(POLICIES_VARIABLE, str(tmp_path))
    assert find_policies() == tmp_path
    (tmp_path / "mine").mkdir()
    assert find_policies(tmp_path / "mine") == tmp_path / "mine"


def test_policy_mean_is_a_tanh_network():
    weights = {
        "w0": np.array([[2.0]]), "b0": np.array([0.5]), "w1": np.array([[1.0]]), "b1": np.array([0.0]),
        "w2": np.array([[3.0]]), "b2": np.array([1.0]), "in_shift": np.array([1.0]), "in_scale": np.array([2.0]),
        "out_shift": np.array([0.1]), "out_scale": np.array([0.5]),
    }  # fmt: skip
    expected = (3 * np.tanh(np.tanh(2 * (3 - 1) / 2 + 0.5)) + 1) * 0.5 + 0.1
    assert policy_mean(weights, np.array([3.0]))[0] == pytest.approx(expected, rel=1e-6)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="num_episodes=0"):
        LocalSettings(num_episodes=0)
