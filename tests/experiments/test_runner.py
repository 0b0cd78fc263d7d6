"""Runs: resumed to the byte, refused when they differ, stopped when they diverge."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from pcbf_baselines import runner
from pcbf_baselines.cli import assignment, run_settings, train_main, train_parser
from pcbf_baselines.datasets import Scaling
from pcbf_baselines.datasets.tasks import find_task
from pcbf_baselines.locks import LockedError, held
from pcbf_baselines.registry import make_agent
from pcbf_baselines.runner import RunDiverged, RunError, RunPaths, RunSettings, RunStopped, restore_run, run
from pcbf_core.checkpoint import CheckpointError, read_header
from pcbf_core.records import Evaluation, load_record

from ..waiting import wait_for

sys.path.insert(0, str(Path(__file__).parent))
from tiny import SETTINGS, TinyAgent, TinyConfig, run_tiny, tiny_problem

PATHS = RunPaths(Path(), "tiny", "linear", (0, 1))


def artefacts(results: Path) -> dict[str, bytes]:
    """What must not depend on where a run was interrupted."""
    folders = ("runs", "metrics", "checkpoints")
    files = sorted(file for folder in folders for file in (results / folder).rglob("*") if file.is_file())
    return {file.relative_to(results).as_posix(): file.read_bytes() for file in files}


def train(results: Path, settings: RunSettings = SETTINGS, seeds=(0, 1), log=None, **options):
    problem = options.pop("problem", None) or tiny_problem()
    return run(problem, settings, seeds, results, log=log or io.StringIO(), **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    results = tmp_path_factory.mktemp("finished")
    train(results)
    return results


def test_a_run_leaves_records_metrics_checkpoint_progress_and_cost(finished):
    assert set(artefacts(finished)) == {
        "runs/tiny/linear/seed0.json",
        "runs/tiny/linear/seed1.json",
        "metrics/tiny/linear/seed0.csv",
        "metrics/tiny/linear/seed1.csv",
        "checkpoints/tiny/linear/seeds0-1.npz",
    }
    record = load_record(finished / PATHS.record(1))
    assert (record.status, record.steps, record.seed) == ("finished", 60, 1)
    assert [evaluation.step for evaluation in record.evaluations] == [20, 40, 60]
    assert record.dataset["source"] == "local" and record.config["agent"] == {"learning_rate": 0.01, "break_at": -1}
    assert record.versions["jax"] == jax.__version__ and "commit" in record.code
    lines = (finished / PATHS.metrics(0)).read_text().splitlines()
    assert lines[0] == "step,actor_loss,reward" and len(lines) == 13
    progress = json.loads((finished / PATHS.progress).read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (60, 60, "steps")
    assert json.loads((finished / PATHS.cost).read_text())["steps"] == 60


def test_learning_lowers_the_loss_and_seeds_differ(finished):
    losses = [[row["actor_loss"] for row in runner.read_metrics(finished / PATHS.metrics(seed))] for seed in (0, 1)]
    assert losses[0][-1] < losses[0][0] and losses[0] != losses[1]


def test_rerunning_a_finished_run_says_so(finished):
    before, log = artefacts(finished), io.StringIO()
    assert [record.seed for record in train(finished, log=log)] == [0, 1]
    assert "is finished" in log.getvalue() and artefacts(finished) == before


class Stop(Exception):
    pass


@pytest.mark.parametrize("stop_at", [5, 35, 60])
def test_a_stopped_run_goes_on_to_the_same_bytes(finished, tmp_path, stop_at):
    def interrupt(seed, step, metrics):
        if step >= stop_at and seed == 1:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path, checkpoint_every=10, sinks=[interrupt])
    log = io.StringIO()
    train(tmp_path, log=log)
    assert artefacts(tmp_path) == artefacts(finished)
    assert ("going on from step" in log.getvalue()) == (stop_at > 10)


def test_row_cut_in_the_middle_is_made_again(finished, tmp_path):
    def interrupt(seed, step, metrics):
        if step == 30 and seed == 1:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path, sinks=[interrupt])
    with open(tmp_path / PATHS.metrics(0), "a") as file:
        file.write("35,0.1")
    train(tmp_path)
    assert artefacts(tmp_path) == artefacts(finished)


def test_length_of_compiled_calls_changes_no_parameter(finished, tmp_path):
    train(tmp_path, dataclasses.replace(SETTINGS, log_every=20))
    ours, theirs = (restore_run(folder / PATHS.checkpoint, make_tiny).states for folder in (tmp_path, finished))
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))


def make_tiny(method, spec, settings):
    return TinyAgent(TinyConfig(**settings), spec)


def test_other_settings_are_refused_with_the_difference(finished, tmp_path):
    other = dataclasses.replace(SETTINGS, batch_size=4)
    with pytest.raises(RunError, match=r"run\.batch_size: 8 \(record\) -> 4 \(now\)"):
        train(finished, other)

    def interrupt(seed, step, metrics):
        if step == 30:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path, sinks=[interrupt])
    with pytest.raises(CheckpointError, match=r"agent\.learning_rate: 0\.01 \(checkpoint\) -> 0\.1 \(now\)"):
        train(tmp_path, problem=tiny_problem(learning_rate=0.1))
    (record, _) = train(tmp_path, other, restart=True)
    assert record.config["run"]["batch_size"] == 4


def test_divergence_stops_with_a_record_and_the_last_good_state(tmp_path):
    problem = tiny_problem(break_at=32)
    with pytest.raises(RunDiverged, match="actor_loss became nan at step 33 of seed 0"):
        train(tmp_path, problem=problem)
    record = load_record(tmp_path / PATHS.record(0))
    assert (record.status, record.steps, record.score) == ("diverged", 30, None)
    assert "step 33" in record.message and len(record.evaluations) == 1
    assert read_header(tmp_path / PATHS.checkpoint)["step"] == 20
    with pytest.raises(RunDiverged, match="--restart"):
        train(tmp_path, problem=problem)


def test_statistics_of_the_data_are_in_the_checkpoint(tmp_path):
    scaling = Scaling(np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32), 0.5)
    problem = dataclasses.replace(tiny_problem(), scaling=scaling)
    train(tmp_path, dataclasses.replace(SETTINGS, standardise=True), problem=problem)
    restored = restore_run(tmp_path / PATHS.checkpoint, make_tiny)
    assert restored.scaling.reward_scale == 0.5 and restored.step == 60
    assert restored.scaling.observations(np.array([5.0, 7.0, 9.0])).tolist() == [1, 1, 1]


# --- groups of seeds --------------------------------------------------------------------------------


def test_records_do_not_depend_on_how_seeds_are_grouped(tmp_path):
    one_by_one = dataclasses.replace(SETTINGS, across="map")
    train(tmp_path / "together", one_by_one, seeds=(0, 1, 2))
    train(tmp_path / "apart", one_by_one, seeds=(0,))
    train(tmp_path / "apart", one_by_one, seeds=(2, 1))
    records = [
        {n: b for n, b in artefacts(tmp_path / f).items() if n.startswith("runs/")} for f in ("together", "apart")
    ]
    assert len(records[0]) == 3 and records[0] == records[1]


@pytest.mark.slow
def test_learners_of_pcbf_do_not_depend_on_the_group(tmp_path):
    """The parameters themselves, to the last bit, shown as scores."""

    def show(agent, state, step):
        sums = tuple(float(np.asarray(leaf, np.float64).sum()) for leaf in jax.tree.leaves(state.params))
        return Evaluation(step, sums, sums, (1,) * len(sums), sums)

    problem = tiny_problem()
    problem = dataclasses.replace(
        problem, agent=make_agent("pcbf", problem.spec, {"hidden_sizes": [8, 8], "discount": 0.9}), evaluate=show
    )
    settings = dataclasses.replace(SETTINGS, across="map", steps=10, eval_every=5)
    together = train(tmp_path / "together", settings, seeds=(0, 1), problem=problem)
    apart = [train(tmp_path / "apart", settings, seeds=(seed,), problem=problem)[0] for seed in (0, 1)]
    assert together == apart
    assert together[0].evaluations != together[1].evaluations


def test_only_the_missing_seeds_of_a_group_are_trained(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "results")
    steps = []
    train(tmp_path / "results", seeds=(0, 1, 2), sinks=[lambda seed, step, _: steps.append(seed)])
    assert set(steps) == {2}


def test_a_seed_that_diverges_does_not_stop_the_others(tmp_path, monkeypatch):
    note = runner._Loop._note_diverged

    def break_one(loop, histories):
        if loop.state.step == 30:
            histories["actor_loss"] = histories["actor_loss"].copy()
            histories["actor_loss"][0] = np.nan
        note(loop, histories)

    monkeypatch.setattr(runner._Loop, "_note_diverged", break_one)
    records = {record.seed: record for record in train(tmp_path)}
    assert (records[0].status, records[1].status) == ("diverged", "finished")
    assert "actor_loss became nan at step 31 of seed 0" in records[0].message
    assert records[1].steps == 60


# --- faults -----------------------------------------------------------------------------------------


def test_asked_to_stop_it_saves_and_goes_on_to_the_same_bytes(finished, tmp_path):
    asked = iter([False] * 6 + [True])
    with pytest.raises(RunStopped, match="stopped at step 35; the same command goes on"):
        train(tmp_path, should_stop=lambda: next(asked))
    assert read_header(tmp_path / PATHS.checkpoint)["step"] == 35
    train(tmp_path)
    assert artefacts(tmp_path) == artefacts(finished)


def test_a_full_disk_stops_the_run_and_spoils_nothing(finished, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(seed, step, metrics):
        if step == 30:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))

    try:
        with pytest.raises(OSError, match="File too large"):
            train(tmp_path, sinks=[fill])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_header(tmp_path / PATHS.checkpoint)["step"] == 20  # the last whole one
    assert not list(tmp_path.rglob("*.tmp"))
    train(tmp_path)
    assert artefacts(tmp_path) == artefacts(finished)


def test_a_corrupt_checkpoint_is_named_with_its_remedy(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "results")
    for seed in (0, 1):
        (tmp_path / "results" / PATHS.record(seed)).unlink()
    checkpoint = tmp_path / "results" / PATHS.checkpoint
    checkpoint.write_bytes(checkpoint.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=r"seeds0-1\.npz is not a whole checkpoint.*delete it"):
        train(tmp_path / "results")
    log = io.StringIO()
    train(tmp_path / "results", replace=True, log=log)  # as a campaign does: put aside and trained anew
    assert "was moved to seeds0-1.npz.old" in log.getvalue()
    checkpoint.with_name("seeds0-1.npz.old").unlink()
    assert artefacts(tmp_path / "results") == artefacts(finished)


def test_records_of_other_settings_are_replaced_if_asked_for(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "results")
    other = dataclasses.replace(SETTINGS, batch_size=4)
    log = io.StringIO()
    records = train(tmp_path / "results", other, replace=True, log=log)
    assert all(record.config["run"]["batch_size"] == 4 for record in records)
    assert "run.batch_size: 8 (record) -> 4 (now)" in log.getvalue()


def test_a_second_trainer_of_the_same_seed_is_kept_out(finished, tmp_path):
    with held([tmp_path / PATHS.lock(1)]), pytest.raises(LockedError, match="trains the same run"):
        train(tmp_path, wait=False)
    assert not artefacts(tmp_path)


@pytest.mark.slow
def test_killed_at_random_points_it_ends_with_the_same_bytes(tmp_path):
    """SIGKILL at random moments of the loop, wherever they fall: in a call, an evaluation or a write."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tiny"])  # imports once; every process starts its own JAX

    def start(folder: str, rows: float = math.inf):
        process = context.Process(target=run_tiny, args=(str(tmp_path / folder), rows), daemon=True)
        process.start()
        return process

    whole = start("whole")
    whole.join()
    assert whole.exitcode == 0
    results, rng, kills = tmp_path / "killed", random.Random(0), 0
    for _ in range(10):
        done = _steps_done(results)
        aim = min(done + rng.choice([5, 5, 10]), 55)
        # not beyond the row after the aim, so that it is met however late we look
        process = start("killed", rows=max(aim - done, 0) // SETTINGS.log_every)
        wait_for(
            lambda: _steps_done(results),
            lambda steps, aim=aim: steps >= aim,
            ended=lambda process=process: not process.is_alive(),
            every=0.001,
        )
        time.sleep(rng.random() * 0.01)  # so that kills fall anywhere
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    last = start("killed")
    last.join()
    assert last.exitcode == 0 and kills == 10
    assert artefacts(results) == artefacts(tmp_path / "whole")


def _steps_done(results: Path) -> int:
    file = results / PATHS.metrics(1)
    return max((int(row["step"]) for row in runner.read_metrics(file)), default=0)


# --- command line -----------------------------------------------------------------------------------


def test_command_line_settings():
    options = train_parser().parse_args(
        ["scene-play-singletask-task2-v0", "pcbf", "--steps", "2500", "--set", "a=0.4", "b=[1,2]", "--set", "c=text"]
    )
    assert dict(pair for pairs in options.set for pair in pairs) == {"a": 0.4, "b": [1, 2], "c": "text"}
    settings = run_settings(options, find_task(options.task))
    assert (settings.steps, settings.eval_every, settings.log_every) == (2500, 250, 250)
    paper = run_settings(train_parser().parse_args(["pen-cloned-v1", "iql"]), find_task("pen-cloned-v1"))
    assert (paper.steps, paper.eval_every, paper.log_every) == (500_000, 50_000, 1000)
    assert assignment("x=None") == ("x", None)


def test_a_failed_command_leaves_its_reason_and_a_corrupt_dataset_is_named(tmp_path, capsys):
    data = tmp_path / "data/ogbench"
    data.mkdir(parents=True)
    for name in ("cube-single-play-v0.npz", "cube-single-play-v0-val.npz"):
        (data / name).write_bytes(b"PK not a dataset")
    task, out = "cube-single-play-singletask-task1-v0", tmp_path / "results"
    assert train_main([task, "random", "--data-dir", str(tmp_path / "data"), "--out", str(out), "--steps", "2"]) == 1
    error = capsys.readouterr().err
    assert "cube-single-play-v0.npz is truncated or corrupt" in error
    reason = json.loads((out / f"failures/train-{task}-random-seeds0.json").read_text())["reason"]
    assert reason and reason in error


def test_another_version_of_the_method_is_refused(tmp_path, capsys):
    words = ["cube-single-play-singletask-task1-v0", "random", "--method-version", "99", "--out", str(tmp_path)]
    assert train_main(words) == 1
    assert "version 99 of random is asked for" in capsys.readouterr().err


def test_wrong_names_and_numbers_are_told(tmp_path, capsys):
    assert train_main(["pen-clonedd-v1", "pcbf"]) == 1
    assert "pen-cloned-v1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="multiple of"):
        RunSettings(steps=10, eval_every=7, log_every=5)
    with pytest.raises(ValueError, match="different numbers"):
        train(tmp_path, seeds=(1, 1))
