"""Training runs: resumed to the byte, refused when they differ, stopped when they diverge."""

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
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from pcbf_experiments.cli.common import assignment
from pcbf_experiments.cli.train import main, parser, run_settings
from pcbf_experiments.running import loop
from pcbf_experiments.running.checkpoint import CheckpointError, read_header
from pcbf_experiments.running.errors import RunDiverged, RunError, RunStopped
from pcbf_experiments.running.loop import RunOptions, run
from pcbf_experiments.running.metrics import read_metrics
from pcbf_experiments.running.problem import make_problem
from pcbf_experiments.running.resume import load_agents
from pcbf_experiments.running.settings import RunSettings, across_on
from pcbf_experiments.running.snapshot import load_snapshot
from pcbf_experiments.running.stopping import Stopper
from pcbf_experiments.tasks import find_task
from pcbf_records.layout import JobFiles
from pcbf_records.locks import LockedError, held
from pcbf_records.runs import load_run

from ..methods import TINY
from ..waiting import wait_for
from .tiny import SETTINGS, tiny_problem

pytestmark = pytest.mark.usefixtures("tiny_task")
FILES = JobFiles.of_seeds(Path(), "tiny", "linear", (0, 1))


def artefacts(results: Path) -> dict[str, bytes]:
    """What must not depend on where a run was interrupted."""
    folders = ("runs", "metrics", "checkpoints", "snapshots")
    files = sorted(file for folder in folders for file in (results / folder).rglob("*") if file.is_file())
    return {file.relative_to(results).as_posix(): file.read_bytes() for file in files}


def train(
    results: Path, settings: RunSettings = SETTINGS, seeds=(0, 1), *, problem=None, how=None, log=None, **options
):
    """A run of the tiny method; `how` are arguments of `run`, the other ones those of `RunOptions`."""
    chosen = RunOptions(log=log or io.StringIO(), **options)
    return run(problem or tiny_problem(settings), settings, seeds, results, **(how or {}), options=chosen)


@pytest.fixture(scope="module")
def finished(tiny_task, tmp_path_factory) -> Path:
    results = tmp_path_factory.mktemp("finished")
    train(results)
    return results


def test_a_run_leaves_records_metrics_checkpoint_snapshots_progress_and_cost(finished):
    of_seeds = [(FILES.record(s), FILES.metrics(s), *(FILES.snapshot(s, k) for k in (20, 40, 60))) for s in (0, 1)]
    expected = [FILES.checkpoint, *(file for files in of_seeds for file in files)]
    assert set(artefacts(finished)) == {file.as_posix() for file in expected}
    record = load_run(finished / FILES.record(1))
    assert (record.status, record.steps, record.seed) == ("finished", 60, 1)
    assert (record.snapshot_steps, record.final_steps) == ((20, 40, 60), (40, 60))
    snapshot = load_snapshot(finished / FILES.snapshot(1, 40))
    assert (snapshot.seed, snapshot.step, snapshot.config) == (1, 40, record.config)
    assert not (finished / FILES.evaluations(0)).exists()  # that is the next stage
    assert record.dataset["source"] == "local" and record.config["agent"] == {"learning_rate": 0.01, "break_at": -1}
    assert record.versions["jax"] == jax.__version__ and "commit" in record.code
    lines = (finished / FILES.metrics(0)).read_text().splitlines()
    assert lines[0] == "step,actor_loss,reward" and len(lines) == 13
    progress = json.loads((finished / FILES.progress).read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (60, 60, "steps")
    assert json.loads((finished / FILES.cost).read_text())["steps"] == 60


def test_learning_lowers_the_loss_and_seeds_differ(finished):
    losses = [[row["actor_loss"] for row in read_metrics(finished / FILES.metrics(seed))] for seed in (0, 1)]
    assert losses[0][-1] < losses[0][0] and losses[0] != losses[1]


def test_rerunning_a_finished_run_says_so(finished):
    before, log = artefacts(finished), io.StringIO()
    assert [record.seed for record in train(finished, log=log)] == [0, 1]
    assert "seed 0 finished, seed 1 finished" in log.getvalue() and artefacts(finished) == before


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
    assert ("resuming from step" in log.getvalue()) == (stop_at > 10)


def test_row_cut_in_the_middle_is_made_again(finished, tmp_path):
    def interrupt(seed, step, metrics):
        if step == 30 and seed == 1:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path, sinks=[interrupt])
    with open(tmp_path / FILES.metrics(0), "a") as file:
        file.write("35,0.1")
    train(tmp_path)
    assert artefacts(tmp_path) == artefacts(finished)


@pytest.mark.slow
def test_length_of_compiled_calls_changes_no_parameter(finished, tmp_path):
    train(tmp_path, dataclasses.replace(SETTINGS, log_every=20))
    for seed in (0, 1):
        ours, theirs = (load_snapshot(folder / FILES.snapshot(seed, 60)).state for folder in (tmp_path, finished))
        assert all((a == b).all() for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))


@pytest.mark.slow
def test_other_settings_are_refused_with_the_difference(finished, tmp_path):
    other = dataclasses.replace(SETTINGS, batch_size=4)
    with pytest.raises(RunError, match=r"run\.batch_size: 8 there, 4 now"):
        train(finished, other)

    def interrupt(seed, step, metrics):
        if step == 30:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path, sinks=[interrupt])
    with pytest.raises(CheckpointError, match=r"agent\.learning_rate: 0\.01 there, 0\.1 now"):
        train(tmp_path, problem=tiny_problem(learning_rate=0.1))
    (record, _) = train(tmp_path, other, how={"restart": True})
    assert record.config["run"]["batch_size"] == 4


@pytest.mark.slow
def test_divergence_stops_with_a_record_and_the_last_good_state(tmp_path):
    problem = tiny_problem(break_at=32)
    with pytest.raises(RunDiverged, match="actor_loss became nan at step 33 of seed 0"):
        train(tmp_path, problem=problem)
    record = load_run(tmp_path / FILES.record(0))
    assert (record.status, record.steps, record.final_steps) == ("diverged", 30, ())
    assert "step 33" in record.message and record.snapshot_steps == (20,)
    assert read_header(tmp_path / FILES.checkpoint)["step"] == 20
    with pytest.raises(RunDiverged, match="--restart"):
        train(tmp_path, problem=problem)


@pytest.mark.slow
def test_statistics_of_the_data_are_in_the_checkpoint_and_in_snapshots(tmp_path):
    settings = dataclasses.replace(SETTINGS, standardise=True, reward_scale=0.5)
    problem = tiny_problem(settings)
    train(tmp_path, settings, problem=problem)
    for restored in (*load_agents(tmp_path / FILES.checkpoint), load_snapshot(tmp_path / FILES.snapshot(1, 60))):
        assert restored.scaling.reward_scale == 0.5 and restored.step == 60
        seen = np.array([5.0, 7.0, 9.0], np.float32)
        assert (restored.scaling.observations(seen) == problem.scaling.observations(seen)).all()
        assert not (restored.scaling.observations(seen) == seen).any()


def test_a_checkpoint_holds_the_agents_that_snapshots_hold(finished):
    agents = load_agents(finished / FILES.checkpoint)
    assert [(agent.seed, agent.step) for agent in agents] == [(0, 60), (1, 60)]
    for agent in agents:
        snapshot = load_snapshot(finished / FILES.snapshot(agent.seed, 60))
        assert (agent.agent, agent.spec, agent.config) == (snapshot.agent, snapshot.spec, snapshot.config)
        jax.tree.map(np.testing.assert_array_equal, agent.state, snapshot.state)


# --- groups of seeds --------------------------------------------------------------------------------


@pytest.mark.slow
def test_records_do_not_depend_on_how_seeds_are_grouped(tmp_path):
    one_by_one = dataclasses.replace(SETTINGS, across="map")
    train(tmp_path / "together", one_by_one, seeds=(0, 1, 2))
    train(tmp_path / "apart", one_by_one, seeds=(0,))
    train(tmp_path / "apart", one_by_one, seeds=(2, 1))
    kept = [
        {name: content for name, content in artefacts(tmp_path / folder).items() if not name.startswith("checkpoints/")}
        for folder in ("together", "apart")
    ]
    assert len(kept[0]) == 3 * 5 and kept[0] == kept[1]


@pytest.mark.slow
def test_learners_of_pcbf_do_not_depend_on_the_group(tmp_path):
    """The parameters themselves, to the last bit."""
    settings = dataclasses.replace(SETTINGS, across="map", steps=10, eval_every=5)
    problem = make_problem("tiny", "pcbf", settings, TINY["pcbf"])
    together = train(tmp_path / "together", settings, seeds=(0, 1), problem=problem)
    apart = [train(tmp_path / "apart", settings, seeds=(seed,), problem=problem)[0] for seed in (0, 1)]
    assert together == apart
    files = [JobFiles.of_seeds(tmp_path / name, "tiny", "pcbf", (0, 1)) for name in ("together", "apart")]
    for seed in (0, 1):
        ours, theirs = (each.snapshot(seed, 10).read_bytes() for each in files)
        assert ours == theirs
    assert files[0].snapshot(0, 10).read_bytes() != files[0].snapshot(1, 10).read_bytes()


@pytest.mark.slow
def test_only_the_missing_seeds_of_a_group_are_trained(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "results")
    steps = []
    train(tmp_path / "results", seeds=(0, 1, 2), sinks=[lambda seed, step, _: steps.append(seed)])
    assert set(steps) == {2}


def test_a_seed_that_diverges_does_not_stop_the_others(tmp_path, monkeypatch):
    note = loop._Loop._note_diverged

    def break_one(self, histories):
        if self.state.step == 30:
            histories["actor_loss"] = histories["actor_loss"].copy()
            histories["actor_loss"][0] = np.nan
        note(self, histories)

    monkeypatch.setattr(loop._Loop, "_note_diverged", break_one)
    records = {record.seed: record for record in train(tmp_path)}
    assert (records[0].status, records[1].status) == ("diverged", "finished")
    assert "actor_loss became nan at step 31 of seed 0" in records[0].message
    assert records[1].steps == 60


# --- faults -----------------------------------------------------------------------------------------


def test_asked_to_stop_it_saves_and_goes_on_to_the_same_bytes(finished, tmp_path):
    stopper = Stopper()

    def ask(seed, step, metrics):
        if step == 35:
            stopper.ask()

    with pytest.raises(RunStopped, match="stopped at step 35; rerun to resume"):
        train(tmp_path, stopper=stopper, sinks=[ask])
    assert read_header(tmp_path / FILES.checkpoint)["step"] == 35
    train(tmp_path)
    assert artefacts(tmp_path) == artefacts(finished)


def test_a_snapshot_that_a_killed_process_was_writing_is_swept_away(finished, tmp_path):
    half = tmp_path / FILES.snapshot(0, 20).with_name(".step20.safetensors.99999.tmp")
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    train(tmp_path)
    assert not half.exists() and artefacts(tmp_path) == artefacts(finished)


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
    assert read_header(tmp_path / FILES.checkpoint)["step"] == 20  # the last whole one
    assert not list(tmp_path.rglob("*.tmp"))
    train(tmp_path)
    assert artefacts(tmp_path) == artefacts(finished)


def test_a_corrupt_checkpoint_is_named_with_its_remedy(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "results")
    for seed in (0, 1):
        (tmp_path / "results" / FILES.record(seed)).unlink()
    checkpoint = tmp_path / "results" / FILES.checkpoint
    checkpoint.write_bytes(checkpoint.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=r"seeds0-1\.npz is not a whole checkpoint.*delete it"):
        train(tmp_path / "results")
    log = io.StringIO()
    train(tmp_path / "results", how={"replace": True}, log=log)  # as a campaign does: put aside and trained anew
    assert "was moved to seeds0-1.npz.old" in log.getvalue()
    checkpoint.with_name("seeds0-1.npz.old").unlink()
    assert artefacts(tmp_path / "results") == artefacts(finished)


def test_records_of_other_settings_are_replaced_if_asked_for(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "results")
    other = dataclasses.replace(SETTINGS, batch_size=4)
    log = io.StringIO()
    records = train(tmp_path / "results", other, how={"replace": True}, log=log)
    assert all(record.config["run"]["batch_size"] == 4 for record in records)
    assert "run.batch_size: 8 there, 4 now" in log.getvalue()


def test_a_second_trainer_of_the_same_seed_is_kept_out(finished, tmp_path):
    with held([tmp_path / FILES.lock(1, "train")]), pytest.raises(LockedError, match="works on the same run"):
        train(tmp_path, how={"wait": False})
    assert not artefacts(tmp_path)


@pytest.mark.slow
def test_killed_at_random_points_it_ends_with_the_same_bytes(tmp_path, monkeypatch):
    """SIGKILL at random moments of the loop, wherever they fall: in a call, a snapshot or another write."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # other processes know the module by its own name
    from tiny import run_tiny  # type: ignore[import-not-found]

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
    file = results / FILES.metrics(1)
    return max((int(row["step"]) for row in read_metrics(file)), default=0)


# --- command line -----------------------------------------------------------------------------------


def test_command_line_settings():
    options = parser().parse_args(
        ["scene-play-singletask-task2-v0", "pcbf", "--steps", "2500", "--set", "a=0.4", "b=[1,2]", "--set", "c=text"]
    )
    assert dict(pair for pairs in options.set for pair in pairs) == {"a": 0.4, "b": [1, 2], "c": "text"}
    settings = run_settings(options, find_task(options.task))
    assert (settings.steps, settings.eval_every, settings.log_every) == (2500, 250, 250)
    paper = run_settings(parser().parse_args(["pen-cloned-v1", "iql"]), find_task("pen-cloned-v1"))
    assert (paper.steps, paper.eval_every, paper.log_every) == (500_000, 50_000, 1000)
    assert assignment("x=None") == ("x", None)


def test_a_failed_command_leaves_its_reason_and_a_corrupt_dataset_is_named(tmp_path, capsys):
    data = tmp_path / "data/ogbench"
    data.mkdir(parents=True)
    for name in ("cube-single-play-v0.npz", "cube-single-play-v0-val.npz"):
        (data / name).write_bytes(b"PK not a dataset")
    task, out = "cube-single-play-singletask-task1-v0", tmp_path / "results"
    assert main([task, "random", "--data-dir", str(tmp_path / "data"), "--out", str(out), "--steps", "2"]) == 1
    error = capsys.readouterr().err
    assert "cube-single-play-v0.npz is truncated or corrupt" in error
    reason = json.loads(JobFiles.of_seeds(out, task, "random", [0]).failure.read_text())["reason"]
    assert reason and reason in error


def test_another_version_of_the_method_is_refused(tmp_path, capsys):
    words = ["cube-single-play-singletask-task1-v0", "random", "--method-version", "99", "--out", str(tmp_path)]
    assert main(words) == 1
    assert "version 99 of random is asked for" in capsys.readouterr().err


def test_wrong_names_and_numbers_are_told(tmp_path, capsys):
    assert main(["pen-clonedd-v1", "pcbf"]) == 1
    assert "pen-cloned-v1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="multiple of"):
        RunSettings(steps=10, eval_every=7, log_every=5)
    with pytest.raises(ValueError, match="different numbers"):
        train(tmp_path, seeds=(1, 1))


@pytest.mark.parametrize("extra", [["--steps", "5"], ["--set", "a=1"], ["--episodes", "50", "--batch-size", "7"]])
def test_what_a_job_would_replace_is_refused_beside_it(extra, capsys):
    job = json.dumps({"run": {"steps": 2}, "domain": {}, "default": {}, "method": {}})
    with pytest.raises(SystemExit) as ended:
        main(["tiny", "linear", "--job", job, *extra])
    named = ", ".join(word for word in ("--steps", "--set", "--batch-size", "--episodes") if word in extra)
    assert ended.value.code == 2
    assert f"--job holds all settings, so {named} cannot be given beside it" in capsys.readouterr().err


def test_seeds_share_a_call_as_the_platform_likes_it():
    assert (across_on("cpu"), across_on("gpu"), across_on("tpu")) == ("map", "vmap", "vmap")
    assert across_on() == across_on(jax.default_backend())
