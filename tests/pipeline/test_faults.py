"""Campaigns whose processes are killed: the same command goes on, and what comes out is the same to the byte.

The trainers are real but for their problem, a linear learner that needs neither data nor a simulator.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pcbf_analysis import artefacts
from pcbf_analysis.control import data_stamp, load_plan
from pcbf_analysis.records import Results
from pcbf_analysis.scheduler import clear_stale_locks

from ..waiting import exit_code, text_of, wait_for, wait_for_words
from .conftest import REPOSITORY, copy_pipeline

TASK = "cube-single-play-singletask-task1-v0"
STEPS = 150
CONTROL = {
    "methods": ["bc", "iql"],
    "run": {"steps": STEPS, "eval_every": 5, "log_every": 5},
    "ablations": {"control_weights": [], "tasks": []},
}
NEVER = STEPS + 1

# Python runs this before everything else; in trainers it replaces the problem.
START = f"""
import os, signal, sys, time
if any(word.endswith("pcbf-train") for word in sys.orig_argv):
    sys.path.append({str(REPOSITORY / "tests/baselines")!r})
    import dataclasses
    import tiny
    from pcbf_baselines import runner

    stops = [int(os.environ["STOP_AT"])]  # once, although every seed is judged

    def judge(agent, state, step):
        time.sleep(float(os.environ["PAUSE"]))
        if step in stops:
            stops.clear()
            os.kill(os.getpid(), signal.SIGSTOP)
        return tiny.judge(agent, state, step)

    def make_problem(task, method, settings, chosen, **options):
        return dataclasses.replace(tiny.tiny_problem(), task=task, method=method, evaluate=judge)

    runner.make_problem = make_problem
    runner.code_version = dict
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path, monkeypatch, compile_cache) -> Iterator[Start]:
    """A function that starts a campaign in a folder; whatever still runs ends with the test."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start/sitecustomize.py").write_text(START, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"), prepend=os.pathsep)
    with ExitStack() as stack:

        def run(folder: Path, *arguments: str, pause: float = 0.03, stop_at: int = NEVER) -> subprocess.Popen[bytes]:
            options = ["--cores", "2", "--config", "scale=smoke", f"control={json.dumps(CONTROL)}", *arguments]
            command = [sys.executable, "-m", "snakemake", *options, "--", "runs"]
            environment = {**os.environ, **compile_cache, "PAUSE": str(pause), "STOP_AT": str(stop_at)}
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
            stack.callback(end, folder, process)
            return process

        yield run


def end(folder: Path, scheduler: subprocess.Popen[bytes]) -> None:
    """Kill the scheduler and whatever else works in the folder, those included that have not yet said a word."""

    def kill() -> list[int]:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if works_in(pid, folder)]
        for pid in sorted(found, key=lambda pid: pid != scheduler.pid):
            send(pid, signal.SIGKILL)
        return found

    wait_for(kill, lambda found: not found)
    scheduler.wait()


def works_in(pid: int, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:  # it has ended
        return False


def send(pid: int, number: int) -> bool:
    """Whether there was somebody to take the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def campaign(folder: Path) -> Path:
    """A checkout that believes to have its data."""
    copy_pipeline(folder)
    plan = load_plan(folder, {"scale": "smoke"})
    stamp = folder / data_stamp(plan.settings["smoke"], plan.sheets, TASK)
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    return folder


def trainers(folder: Path) -> dict[int, int]:
    """Steps done of each trainer that is alive, by process."""
    found = {}
    for path in (folder / "results/smoke/progress").glob("train-*.json"):
        with suppress(OSError, ValueError):  # it has just been removed or is not whole
            said = json.loads(text_of(path))
            if is_trainer(said["pid"]):
                found[said["pid"]] = said["done"]
    return found


def is_trainer(pid: int) -> bool:
    try:
        return b"pcbf-train" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    return "\nState:\tT" in text_of(Path(f"/proc/{pid}/status"))


def outcome(folder: Path) -> dict[str, bytes]:
    """What must not depend on kills: records, metrics, checkpoints, receipts and the tables made from them."""
    results = folder / "results/smoke"
    names = ("runs", "metrics", "checkpoints", "receipts")
    files = [path for name in names for path in sorted((results / name).rglob("*")) if path.is_file()]
    tables = {
        f"{label}.{name}": content
        for label in ("control_suite", "aggregated")
        for name, content in artefacts.TABLES[label].render(Results(results, REPOSITORY / "data/paper")).items()
    }
    return {path.relative_to(results).as_posix(): path.read_bytes() for path in files} | tables


def log_of(folder: Path) -> str:
    return text_of(folder / "log")


def code_of(folder: Path, scheduler: subprocess.Popen[bytes]) -> int:
    """The exit code of a campaign that runs in `folder`, once it has one."""
    return exit_code(scheduler, folder / "log")


@pytest.mark.slow
def test_twenty_random_kills_change_nothing(tmp_path, start):
    whole, killed = campaign(tmp_path / "whole"), campaign(tmp_path / "killed")
    assert code_of(whole, start(whole, pause=0.0)) == 0, log_of(whole)
    rng, kills = random.Random(0), 0
    while kills < 20:
        scheduler, aims = start(killed), {}

        def is_due(scheduler=scheduler, aims=aims) -> bool:
            alive = trainers(killed)
            for pid, done in alive.items():
                aims.setdefault(pid, done + rng.choice([0, 0, 5]))
            return scheduler.poll() is not None or any(done >= aims[pid] for pid, done in alive.items())

        while scheduler.poll() is None and kills < 20:
            wait_for(is_due)
            time.sleep(rng.random() * 0.05)  # so that kills fall anywhere
            alive = trainers(killed)
            if alive and rng.random() < 0.85:  # one trainer, or all at once as when the power fails
                kills += send(rng.choice(sorted(alive)), rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            elif alive:
                end(killed, scheduler)
                kills += 1
            wait_for(lambda alive=alive: not alive or set(alive) - set(trainers(killed)))
        if code_of(killed, scheduler) == 0 and kills < 20:  # the trainers were faster than the kills: once more
            assert outcome(killed) == outcome(whole)
            shutil.rmtree(killed / "results")
    assert code_of(killed, start(killed, pause=0.0)) == 0, log_of(killed)
    assert outcome(killed) == outcome(whole)
    assert len(outcome(whole)) > 10


@pytest.mark.slow
def test_after_the_scheduler_is_killed_its_orphan_and_two_new_ones_do_not_meet(tmp_path, start):
    folder = campaign(tmp_path / "campaign")
    one = ["methods=bc"]
    first = start(folder, *one, stop_at=10)  # so that its trainer is still there when the next one comes
    (orphan,) = wait_for(lambda: list(filter(is_stopped, trainers(folder))), ended=lambda: first.poll() is not None)
    first.kill()
    first.wait()
    second = start(folder, *one, pause=0.0)
    job_log = folder / f"results/smoke/logs/train/{TASK}/bc/seeds0-1.log"
    wait_for_words(job_log, f"held by process {orphan} on", ended=lambda: second.poll() is not None)
    assert second.poll() is None and is_trainer(orphan)
    third = start(folder, *one)
    assert code_of(folder, third) == 1  # refused by Snakemake: the second one is alive
    send(orphan, signal.SIGCONT)
    assert code_of(folder, second) == 0, log_of(folder)
    assert "its lock on this directory was removed" in log_of(folder)
    assert "Directory cannot be locked" in log_of(folder)
    calm = campaign(tmp_path / "calm")
    assert code_of(calm, start(calm, *one, pause=0.0)) == 0, log_of(calm)
    assert outcome(folder) == outcome(calm)


@pytest.mark.slow
def test_a_failed_run_is_told_with_its_reason_and_the_others_go_on(tmp_path, start, run_module):
    folder = campaign(tmp_path / "campaign")
    sheet = folder / "config/methods.tsv"
    text = sheet.read_text(encoding="utf-8")
    sheet.write_text(text.replace("iql\tIQL\t1\t1", "iql\tIQL\t1\t9"), encoding="utf-8")  # the code has version 1
    assert code_of(folder, start(folder, pause=0.0)) == 1, log_of(folder)
    status = run_module(folder, "pcbf_analysis.campaign", "status", "results/smoke")
    assert "iql seeds0-1: version 9 of iql is asked for, this code has version 1" in status.stdout
    assert (folder / f"results/smoke/receipts/{TASK}/bc/seeds0-1.json").exists()
    sheet.write_text(text, encoding="utf-8")
    assert code_of(folder, start(folder, pause=0.0)) == 0, log_of(folder)
    assert "failed:" not in run_module(folder, "pcbf_analysis.campaign", "status", "results/smoke").stdout


# --- locks of dead schedulers -------------------------------------------------------------------------------------


def test_locks_of_a_dead_scheduler_are_removed_and_those_of_a_living_one_kept(tmp_path):
    stale = tmp_path / "locks/0.input.lock"
    stale.parent.mkdir()
    stale.touch()
    assert clear_stale_locks(tmp_path) == [stale]
    stale.touch()
    assert clear_stale_locks(tmp_path) == []  # we are alive ourselves and hold the first lock
    assert stale.exists()


def test_locks_of_another_machine_are_kept(tmp_path):
    stale = tmp_path / "locks/0.input.lock"
    stale.parent.mkdir()
    stale.touch()
    (tmp_path / "pcbf-scheduler.lock").write_text("another-machine", encoding="utf-8")
    assert clear_stale_locks(tmp_path) == []
    assert stale.exists()
