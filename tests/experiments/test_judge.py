"""From snapshots to evaluation records: the same numbers as at once, nothing twice, nothing lost."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from pcbf_experiments import evaluation
from pcbf_experiments.cli import evaluate, train
from pcbf_experiments.evaluation import Evaluator
from pcbf_experiments.running import loop
from pcbf_experiments.running.errors import RunDiverged
from pcbf_experiments.running.judge import judge_group
from pcbf_experiments.running.loop import RunOptions, run
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.running.snapshot import SnapshotError, save_snapshot
from pcbf_experiments.running.stopping import Stopper
from pcbf_records.canonical import plain
from pcbf_records.control import collect_control
from pcbf_records.layout import JobFiles, snapshot_steps
from pcbf_records.locks import LockedError, held
from pcbf_records.runs import final_score, load_evaluations, load_run, receipt_faults
from pcbf_records.sheets import Task

from ..waiting import wait_for_words
from .tiny import JUDGING, SETTINGS, TASK, tiny_problem

pytestmark = pytest.mark.usefixtures("tiny_task")
HERE = Path(__file__).parent
SEEDS = ["--seeds", "0", "1"]
BY_HAND = ["--steps", "60", "--batch-size", "8", "--eval-every", "20", "--log-every", "5", "--no-domain-settings"]
PLAYED = ["--episodes", "4", "--slots", "2", "--workers", "0"]


def files_in(results: Path) -> JobFiles:
    return JobFiles.of_seeds(results, "tiny", "linear", (0, 1))


def fit(results: Path, settings: RunSettings = SETTINGS, **config: Any) -> JobFiles:
    options = RunOptions(log=io.StringIO())
    run(tiny_problem(settings, **config), settings, (0, 1), results, options=options)
    return files_in(results)


def judge(files: JobFiles, settings: Any = JUDGING, **how: Any) -> str:
    """What the stage prints."""
    log = io.StringIO()
    with Evaluator(TASK, settings) as evaluator:
        judge_group(files, evaluator, log=log, **how)
    return log.getvalue()


@pytest.fixture(scope="module")
def trained(tiny_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose snapshots nobody has judged."""
    results = tmp_path_factory.mktemp("trained")
    fit(results)
    return results


@pytest.fixture
def files(trained: Path, tmp_path: Path) -> JobFiles:
    """A copy of that run."""
    shutil.copytree(trained, tmp_path / "results")
    return files_in(tmp_path / "results")


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every evaluation that is played from now on."""
    played: list[str] = []
    real = evaluation.play

    def play(pool: Any, task_name: str, act: Any, num_episodes: int) -> Any:
        played.append(task_name)
        return real(pool, task_name, act, num_episodes)

    monkeypatch.setattr(evaluation, "play", play)
    return played


def records(files: JobFiles) -> list[bytes]:
    return [files.evaluations(seed).read_bytes() for seed in files.seeds]


# --- the same numbers -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("standardise", [False, True])
def test_a_snapshot_plays_as_the_live_state_did(
    standardise: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training is stopped at every snapshot to play with the state in memory; the stage must get the same."""
    settings = dataclasses.replace(SETTINGS, standardise=standardise)
    problem, live = tiny_problem(settings), {}
    with Evaluator(TASK, JUDGING) as evaluator:

        def play_and_save(path: Path, state: Any, *, seed: int, step: int, **rest: Any) -> None:
            live[seed, step] = evaluator(problem.agent, state, problem.scaling, step=step)
            save_snapshot(path, state, seed=seed, step=step, **rest)

        monkeypatch.setattr(loop, "save_snapshot", play_and_save)
        run(problem, settings, (0, 1), tmp_path, options=RunOptions(log=io.StringIO()))
    files = files_in(tmp_path)
    judge(files)
    judged = {(seed, e.step): e for seed in (0, 1) for e in load_evaluations(files.evaluations(seed)).evaluations}
    assert set(judged) == set(live) and len(judged) == 6
    for place, made in judged.items():
        assert made.snapshot is not None and dataclasses.replace(made, snapshot=None) == live[place]
        assert len(made.scores) == 4 and made.settings == JUDGING.recorded
    assert judged[0, 60].scores != judged[1, 60].scores and judged[0, 60].scores != judged[0, 20].scores
    assert len(set(judged[0, 60].lengths)) > 1


def test_the_score_is_the_mean_of_the_final_evaluations(files: JobFiles) -> None:
    judge(files)
    run_record, judged = load_run(files.record(1)), load_evaluations(files.evaluations(1))
    means = {e.step: float(np.mean(e.scores)) for e in judged.evaluations}
    assert final_score(run_record, judged) == pytest.approx((means[40] + means[60]) / 2)
    assert judged.config_hash == run_record.config_hash and judged.versions["jax"] == jax.__version__


@pytest.mark.slow
def test_by_hand_and_as_a_stage_are_the_same_evaluation(tmp_path: Path, plays: list[str]) -> None:
    """`pcbf-train` judges as it goes; `pcbf-evaluate` then has nothing to play, and from scratch plays the same."""
    out = ["--out", str(tmp_path)]
    assert train.main(["tiny", "linear", *SEEDS, *BY_HAND, *PLAYED, *out]) == 0
    files = files_in(tmp_path)
    assert len(plays) == 6
    by_hand = records(files)
    assert evaluate.main(["tiny", "linear", *SEEDS, *PLAYED, *out]) == 0
    assert len(plays) == 6 and records(files) == by_hand
    for seed in (0, 1):
        files.evaluations(seed).unlink()
    assert evaluate.main(["tiny", "linear", *SEEDS, *PLAYED, *out]) == 0
    assert len(plays) == 12 and records(files) == by_hand


def test_a_job_leaves_judging_to_the_stage_which_writes_a_receipt(tmp_path: Path, plays: list[str]) -> None:
    job = {"run": dataclasses.asdict(SETTINGS), "domain": {}, "default": {"discount": 0.9}, "method": {}}
    files, out = files_in(tmp_path), ["--out", str(tmp_path)]
    words = ["--job", json.dumps(job), "--receipt", str(files.receipt)]
    assert train.main(["tiny", "linear", *SEEDS, *words, *out]) == 0
    assert not plays and not files.evaluations(0).exists()
    words = ["--settings", json.dumps(plain(JUDGING)), "--workers", "0", "--receipt", str(files.evaluation_receipt)]
    assert evaluate.main(["tiny", "linear", *SEEDS, *words, *out]) == 0
    assert len(plays) == 6
    assert not list(receipt_faults(tmp_path, files.receipt))
    assert not list(receipt_faults(tmp_path, files.evaluation_receipt))
    cost = json.loads(files.evaluation_cost.read_text())
    assert cost["seeds"] == [0, 1] and cost["evaluate_seconds"] > 0
    progress = json.loads(files.evaluation_progress.read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (24, 24, "episodes")
    assert collect_control(tmp_path, {TASK.name: TASK}) == 2


def test_a_file_is_judged_as_its_run_was(files: JobFiles, capsys: pytest.CaptureFixture[str]) -> None:
    judge(files)
    made = load_evaluations(files.evaluations(1)).at(60)
    assert made is not None
    for path, words in ((files.snapshot(1, 60), []), (files.checkpoint, ["--seed", "1"])):
        assert evaluate.main([str(path), *words, *PLAYED]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["task"], shown["method"]) == ("tiny", "linear") and list(shown["seeds"]) == ["1"]
        assert tuple(shown["seeds"]["1"]["scores"]) == made.scores
    assert evaluate.main([str(files.checkpoint), "--seed", "5"]) == 1
    assert "it holds 0, 1" in capsys.readouterr().err


# --- nothing twice, nothing lost --------------------------------------------------------------------------------------


def test_other_episodes_need_neither_checkpoint_nor_data(files: JobFiles, plays: list[str]) -> None:
    judge(files)
    files.checkpoint.unlink()
    more = dataclasses.replace(JUDGING, num_episodes=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcbf_experiments.data.loading.load_task", lambda *_, **__: pytest.fail("data were read"))
        words = ["--out", str(files.root), "--episodes", "6", "--slots", "2", "--workers", "0"]
        assert evaluate.main(["tiny", "linear", *SEEDS, *words]) == 0
    assert len(plays) == 12
    again = load_evaluations(files.evaluations(0))
    assert [len(e.scores) for e in again.evaluations] == [6, 6, 6]
    assert all(e.settings == more.recorded for e in again.evaluations)
    judge(files, more)
    assert len(plays) == 12


def test_episodes_are_the_same_whoever_asks_for_more(files: JobFiles) -> None:
    """The first four of six episodes are those of four, as episodes depend on their numbers alone."""
    judge(files, dataclasses.replace(JUDGING, num_slots=1))
    four = load_evaluations(files.evaluations(0)).at(60)
    judge(files, dataclasses.replace(JUDGING, num_slots=1, num_episodes=6))
    six = load_evaluations(files.evaluations(0)).at(60)
    assert four is not None and six is not None
    assert six.lengths[:4] == four.lengths
    np.testing.assert_allclose(six.returns[:4], four.returns, rtol=1e-5)


def test_fresh_starts_differ_from_step_to_step_and_are_the_same_for_every_seed(files: JobFiles) -> None:
    """In the tiny simulator the length of an episode depends on its start alone."""

    def lengths(*, fresh_starts: bool) -> list[list[tuple[int, ...]]]:
        judge(files, dataclasses.replace(JUDGING, num_episodes=6, fresh_starts=fresh_starts))
        records = [load_evaluations(files.evaluations(seed)) for seed in (0, 1)]
        assert all(("fresh_starts" in e.settings) is fresh_starts for record in records for e in record.evaluations)
        return [[e.lengths for e in record.evaluations] for record in records]

    shared, fresh = lengths(fresh_starts=False), lengths(fresh_starts=True)
    assert shared[0] == shared[1] and len(set(shared[0])) == 1
    assert fresh[0] == fresh[1] and len(set(fresh[0])) == 3


@pytest.mark.parametrize(("keep", "left"), [("all", [20, 40, 60]), ("final", [40, 60]), ("none", [])])
def test_snapshots_that_nothing_needs_go_and_evaluations_stay(
    keep: Any, left: list[int], files: JobFiles, plays: list[str]
) -> None:
    words = ["--out", str(files.root), *PLAYED, "--keep", keep]
    assert evaluate.main(["tiny", "linear", *SEEDS, *words]) == 0
    assert [snapshot_steps(files, seed) for seed in (0, 1)] == [left, left]
    before = records(files)
    assert [e.step for e in load_evaluations(files.evaluations(0)).evaluations] == [20, 40, 60]
    assert evaluate.main(["tiny", "linear", *SEEDS, *words]) == 0
    assert len(plays) == 6 and records(files) == before
    more = ["--out", str(files.root), "--episodes", "5", "--slots", "2", "--workers", "0", "--keep", keep]
    assert evaluate.main(["tiny", "linear", *SEEDS, *more]) == 0
    judged = load_evaluations(files.evaluations(1)).evaluations
    assert [len(e.scores) for e in judged] == [5 if step in left else 4 for step in (20, 40, 60)]


@pytest.mark.slow
def test_a_snapshot_that_changed_is_judged_anew_and_the_others_are_not(files: JobFiles, plays: list[str]) -> None:
    judge(files)
    other = fit(files.root / "other", dataclasses.replace(SETTINGS))
    shutil.copy(other.snapshot(0, 60), files.snapshot(0, 60))
    judge(files)
    assert len(plays) == 6  # the same bytes
    retrained = fit(files.root / "slow", learning_rate=1e-3)
    for seed in (0, 1):
        shutil.copy(retrained.record(seed), files.record(seed))
        for step in (20, 40, 60):
            shutil.copy(retrained.snapshot(seed, step), files.snapshot(seed, step))
    judge(files)
    assert len(plays) == 12
    assert load_evaluations(files.evaluations(0)).config_hash == load_run(retrained.record(0)).config_hash


KILLED = """
import signal, sys
sys.path.insert(0, {here!r})
import tiny
from pcbf_experiments import evaluation
from pcbf_experiments.cli import evaluate
from pcbf_experiments.running import judge

tiny.register()
judge.code_version = dict  # a commit made meanwhile must not show
real, left = evaluation.play, {plays}

def play(pool, task_name, act, num_episodes):
    global left
    left -= 1
    if left < 0:
        def act(*_):  # in the middle of an episode
            print("waiting to be killed", flush=True)
            signal.pause()
    else:
        print("played", flush=True)
    return real(pool, task_name, act, num_episodes)

evaluation.play = play
sys.exit(evaluate.main(sys.argv[1:]))
"""


def start_judging(folder: Path, num_plays: int) -> tuple[subprocess.Popen[bytes], Path]:
    """An evaluation of what `folder` holds that waits in its play after `num_plays`, and its log."""
    log = folder.with_name(f"{folder.name}-{num_plays}.log")
    code = KILLED.format(here=str(HERE), plays=num_plays)
    words = ["tiny", "linear", *SEEDS, *PLAYED, "--out", str(folder)]
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=stream, stderr=subprocess.STDOUT)
    return process, log


@pytest.fixture(scope="module")
def judged(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything has been evaluated without a kill."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("judged") / "whole"))
    process, log = start_judging(folder, 100)
    assert process.wait() == 0, log.read_text()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kill_after", [0, 2, 4])
def test_a_killed_evaluation_loses_nothing(kill_after: int, trained: Path, judged: Path, tmp_path: Path) -> None:
    killed = Path(shutil.copytree(trained, tmp_path / "killed"))
    process, log = start_judging(killed, kill_after)
    try:
        wait_for_words(log, "waiting to be killed", ended=lambda: process.poll() is not None)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    files = files_in(killed)
    made = {seed: files.evaluations(seed).read_bytes() for seed in (0, 1) if files.evaluations(seed).exists()}
    kept = {seed: load_evaluations(files.evaluations(seed)).evaluations for seed in made}
    assert sum(map(len, kept.values())) == kill_after
    process, log = start_judging(killed, 101)
    assert process.wait() == 0, log.read_text()
    assert log.read_text().count("played") == 6 - kill_after
    assert records(files) == records(files_in(judged))
    for seed, evaluations in kept.items():
        assert load_evaluations(files.evaluations(seed)).evaluations[: len(evaluations)] == evaluations
        if len(evaluations) == 3:
            assert files.evaluations(seed).read_bytes() == made[seed]
    assert not list(killed.rglob("*.tmp"))


def test_a_signal_ends_it_and_it_keeps_what_it_has(
    files: JobFiles, plays: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopper, codes = Stopper(), []
    monkeypatch.setattr(os, "_exit", lambda code: codes.append(code) or sys.exit(code))

    def ask(done: int) -> None:
        if done == 2:
            stopper.ask(signal.SIGINT)

    with pytest.raises(SystemExit):
        judge(files, stopper=stopper, report=ask)
    assert codes == [130] and len(plays) == 2
    judge(files)
    assert len(plays) == 6


def test_a_second_evaluation_of_the_same_seed_is_kept_out(files: JobFiles) -> None:
    with held([files.lock(1, "evaluate")]), pytest.raises(LockedError, match="works on the same run"):
        judge(files, wait=False)
    with held([files.lock(1, "train")]):  # training and judging do not exclude each other
        judge(files, wait=False)


# --- faults -----------------------------------------------------------------------------------------------------------


def told(files: JobFiles, capsys: pytest.CaptureFixture[str]) -> str:
    """What `pcbf-evaluate` says of a fault, which is also noted for `pcbf-status`."""
    assert evaluate.main(["tiny", "linear", *SEEDS, "--out", str(files.root), *PLAYED]) == 1
    message = capsys.readouterr().err
    assert message.strip().splitlines()[-1].startswith("error: ") and "Traceback" not in message
    assert json.loads(files.failure.read_text())["reason"] in message
    return message


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def test_a_truncated_snapshot_is_named_and_what_is_judged_stays(
    files: JobFiles, plays: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    good = files.snapshot(0, 60).read_bytes()
    truncate(files.snapshot(0, 60))
    message = told(files, capsys)
    assert f"{files.snapshot(0, 60)} is not a whole safetensors file" in message and "train again" in message
    assert [e.step for e in load_evaluations(files.evaluations(0)).evaluations] == [20, 40]
    files.snapshot(0, 60).write_bytes(good)
    judge(files)
    assert len(plays) == 6


@pytest.mark.parametrize("source", [lambda f: f.snapshot(1, 60), lambda f: f.snapshot(0, 40)], ids=["seed", "step"])
def test_a_renamed_snapshot_is_refused(
    source: Callable[[JobFiles], Path], files: JobFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(source(files), files.snapshot(0, 60))
    assert f"{files.snapshot(0, 60)} is of seed" in (message := told(files, capsys))
    assert "put it where its name says" in message


@pytest.mark.slow
def test_a_snapshot_of_another_run_is_refused(files: JobFiles) -> None:
    other = fit(files.root / "other", learning_rate=1e-3)
    shutil.copy(other.snapshot(0, 20), files.snapshot(0, 20))
    with pytest.raises(SnapshotError, match=r"step20\.safetensors is of another run .*train again with --restart"):
        judge(files)


@pytest.mark.slow
def test_a_missing_final_snapshot_is_named_with_its_remedy(files: JobFiles, capsys: pytest.CaptureFixture[str]) -> None:
    files.snapshot(1, 40).unlink()
    message = told(files, capsys)
    assert f"{files.snapshot(1, 40)} is missing and was never judged" in message
    assert str(files.checkpoint) in message and str(files.record(1)) in message
    for path in (files.checkpoint, files.record(1)):  # as the message says
        path.unlink()
    fit(files.root)
    judge(files)


def test_a_missing_early_snapshot_is_told_and_the_score_stands(files: JobFiles) -> None:
    files.snapshot(0, 20).unlink()
    assert "seed 0, step 20: no snapshot is left, and it was never judged" in judge(files)
    assert final_score(load_run(files.record(0)), load_evaluations(files.evaluations(0))) is not None


def test_without_training_there_is_nothing_to_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["tiny", "linear", "--out", str(tmp_path)]) == 1
    assert "seed0.json is not there; train first: pcbf-train tiny linear" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evaluate.main(["tiny", "linear", "more"])


def test_an_evaluation_record_that_cannot_be_read_is_put_aside(files: JobFiles, plays: list[str]) -> None:
    judge(files)
    before = records(files)
    files.evaluations(0).write_text("{")
    judge(files)
    assert len(plays) == 9 and records(files) == before
    assert files.evaluations(0).with_name("seed0.json.old").read_text() == "{"


@pytest.mark.slow
@pytest.mark.parametrize(("break_at", "steps"), [(32, [20]), (3, [])])
def test_a_run_that_diverged_is_judged_as_far_as_it_came(break_at: int, steps: list[int], tmp_path: Path) -> None:
    with pytest.raises(RunDiverged):
        fit(tmp_path, break_at=break_at)
    files = files_in(tmp_path)
    judge(files)
    run_record, judged = load_run(files.record(0)), load_evaluations(files.evaluations(0))
    assert [e.step for e in judged.evaluations] == steps
    assert final_score(run_record, judged) is None
    assert collect_control(tmp_path, {}) == 2
