"""Campaigns whose processes are killed: the same command goes on, and what comes out is the same to the byte.

Trainers and evaluators are real but for the data, which are noise, and the simulators, which nobody needs to hear
what an agent does in nine made-up observations.
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
from pcbf_analysis.results import Results
from pcbf_experiments.campaign.plan import data_stamp, load_plan
from pcbf_experiments.campaign.scheduler import clear_receipt, clear_stale_locks, stale_receipts
from pcbf_records import layout
from pcbf_records.control import collect_control
from pcbf_records.layout import JobFiles
from pcbf_records.locks import open_lock, try_lock
from pcbf_records.runs import load_evaluations
from pcbf_records.sheets import load_sheets

from ..waiting import exit_code, text_of, wait_for, wait_for_words
from .conftest import REPOSITORY, copy_pipeline, write_job, write_run

TASK = "cube-single-play-singletask-task1-v0"
STEPS, EVERY = 150, 5
CONTROL = {
    "methods": ["bc", "iql"],
    "run": {"steps": STEPS, "eval_every": EVERY, "log_every": EVERY},
    "ablations": {"control_weights": [], "tasks": []},
}
SEEDS = (0, 1)
RESULTS = Path(layout.scale_folder("smoke"))

# Python runs this before everything else. Trainers pause at every snapshot and evaluators at every evaluation, and stop
# themselves once at the step that STOP has for their stage. Evaluators tell in the file JUDGED what they have judged.
START = """
import os, signal, sys, time

stage = os.path.basename(sys.orig_argv[1]).removeprefix("pcbf-") if len(sys.orig_argv) > 1 else ""


def pause(step):
    time.sleep(float(os.environ["PAUSE"]))
    if (word := f"{stage}:{step}") in stops:
        stops.remove(word)  # once, although there are several seeds
        os.kill(os.getpid(), signal.SIGSTOP)


if stage in ("train", "evaluate"):
    import functools
    import types
    import jax
    import numpy as np
    from pcbf_core.dataset import Dataset
    from pcbf_core.types import TaskSpec, Transition
    from pcbf_experiments import evaluation
    from pcbf_experiments.data.scaling import Scaling
    from pcbf_experiments.running import judge, loop, problem
    from pcbf_records.runs import Evaluation

    stops = os.environ["STOP"].split(",")

    def load_task(name, **options):
        rng = np.random.default_rng(9)
        rows = {"observation": (50, 3), "action": (50, 2), "reward": (50,), "next_observation": (50, 3)}
        noise = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in rows.items()}
        return types.SimpleNamespace(
            spec=TaskSpec(observation_shape=(3,), action_dim=2, return_range=(-1.0, 1.0)),
            source=Dataset(Transition(**noise, terminal=np.zeros(50, np.float32))),
            scaling=Scaling(),
            info=types.SimpleNamespace(plain=lambda: {"source": "local", "files": {"a": "0"}}),
        )

    def save_snapshot(path, state, *, step, **options):
        pause(step)
        save(path, state, step=step, **options)

    @functools.partial(jax.jit, static_argnums=0)
    def acted(agent, state, observation, keys):
        return jax.vmap(agent.act, in_axes=(None, 0, 0))(state, observation, keys)

    def judged(self, agent, state, scaling, *, step, number=0, snapshot=None):
        pause(step)
        observation = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
        keys = jax.random.split(jax.random.key(step), 3)
        actions = acted(agent, state, observation, keys)
        scores = tuple(np.asarray(actions, np.float64).sum(axis=1).tolist())
        with open(os.environ["JUDGED"], "a") as file:
            file.write(f"{snapshot}\\n")
        return Evaluation(step, scores, (0.0,) * 3, (1,) * 3, (0.0,) * 3, self.settings.recorded, snapshot)

    save, loop.save_snapshot = loop.save_snapshot, save_snapshot
    problem.load_task = load_task
    evaluation.Evaluator.__call__ = judged
    loop.code_version = judge.code_version = dict
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path, monkeypatch) -> Iterator[Start]:
    """A function that starts a campaign in a folder; whatever still runs ends with the test."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start/sitecustomize.py").write_text(START, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"), prepend=os.pathsep)
    with ExitStack() as stack:

        def run(
            folder: Path, *config: str, pause: float = 0.03, stop: str = "", gpus: int = 0
        ) -> subprocess.Popen[bytes]:
            control = f"control={json.dumps({**CONTROL, 'gpus_per_job': gpus})}"
            options = ["--cores", "2", "--resources", f"gpu={gpus}", "--config", "scale=smoke", control, *config]
            command = [sys.executable, "-m", "snakemake", *options, "--", "runs"]
            told = {"PAUSE": str(pause), "STOP": stop, "JUDGED": str(folder / "judged")}
            environment = {**os.environ, **told}
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
            stack.callback(end, folder, process)
            return process

        yield run


@pytest.fixture
def undisturbed(made_once, start) -> Path:
    """A folder in which the campaign has run to its end, once for all tests."""

    def run(folder: Path) -> None:
        assert code_of(campaign(folder), start(folder, pause=0.0)) == 0, log_of(folder)

    return made_once("undisturbed", run)


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


def of_method(folder: Path, method: str) -> JobFiles:
    return JobFiles.of_seeds(folder / RESULTS, TASK, method, SEEDS)


def workers(folder: Path, *stages: str) -> dict[int, int]:
    """How much is done of each trainer and evaluator that is alive, by process; of the given stages only."""
    found = {}
    for path in layout.progress_files(folder / RESULTS):
        with suppress(OSError, ValueError):  # it has just been removed or is not whole
            said = json.loads(text_of(path))
            if is_worker(said["pid"], *(stages or ("train", "evaluate"))):
                found[said["pid"]] = said["done"]
    return found


def is_worker(pid: int, *stages: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(f"pcbf-{stage}".encode() in command for stage in stages)


def wait_for_stopped(folder: Path, stage: str, scheduler: subprocess.Popen[bytes]) -> list[int]:
    """The processes of the stage that have stopped themselves, as soon as there are some."""
    return wait_for(
        lambda: list(filter(is_stopped, workers(folder, stage))), ended=lambda: scheduler.poll() is not None
    )


def is_stopped(pid: int) -> bool:
    return "\nState:\tT" in text_of(Path(f"/proc/{pid}/status"))


def outcome(folder: Path, method: str) -> dict[str, bytes]:
    """What must not depend on kills: records, metrics, checkpoints, snapshots and receipts of a method."""
    results = folder / RESULTS
    names = ("runs", "evaluations", "metrics", "checkpoints", "snapshots", "receipts")
    found = [path for name in names for path in sorted((results / name).rglob(f"{method}/**/*")) if path.is_file()]
    return {path.relative_to(results).as_posix(): path.read_bytes() for path in found}


def tables(folder: Path) -> dict[str, bytes]:
    """What is made from the records of all methods."""
    results = folder / RESULTS
    collect_control(results, load_sheets(REPOSITORY).tasks)
    made = {path.name: path.read_bytes() for path in (results / "control").iterdir()}
    return made | {
        f"{label}.{name}": content
        for label in ("control_suite", "aggregated")
        for name, content in artefacts.TABLES[label].render(Results(results, REPOSITORY)).items()
    }


def log_of(folder: Path) -> str:
    return text_of(folder / "log")


def code_of(folder: Path, scheduler: subprocess.Popen[bytes]) -> int:
    """The exit code of a campaign that runs in `folder`, once it has one."""
    return exit_code(scheduler, folder / "log")


@pytest.mark.slow
def test_twenty_random_kills_change_nothing(tmp_path, start, undisturbed):
    killed, methods = campaign(tmp_path / "killed"), CONTROL["methods"]
    rng, kills = random.Random(0), 0
    while kills < 20:
        scheduler, aims = start(killed), {}

        def is_due(scheduler=scheduler, aims=aims) -> bool:
            alive = workers(killed)
            for pid, done in alive.items():
                aims.setdefault(pid, done + rng.choice([0, 0, 5]))
            return scheduler.poll() is not None or any(done >= aims[pid] for pid, done in alive.items())

        while scheduler.poll() is None and kills < 20:
            wait_for(is_due)
            time.sleep(rng.random() * 0.05)  # so that kills fall anywhere
            alive = workers(killed)
            if alive and rng.random() < 0.85:  # one process, or all at once as when the power fails
                kills += send(rng.choice(sorted(alive)), rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            elif alive:
                end(killed, scheduler)
                kills += 1
            wait_for(lambda alive=alive: not alive or set(alive) - set(workers(killed)))
        if code_of(killed, scheduler) == 0 and kills < 20:  # the jobs were faster than the kills: once more
            assert [outcome(killed, name) for name in methods] == [outcome(undisturbed, name) for name in methods]
            shutil.rmtree(killed / "results")
    assert code_of(killed, start(killed, pause=0.0)) == 0, log_of(killed)
    for name in methods:
        assert outcome(killed, name) == outcome(undisturbed, name)
        assert len(outcome(undisturbed, name)) > 10
    assert tables(killed) == tables(undisturbed)


@pytest.mark.slow
def test_after_the_scheduler_is_killed_its_orphan_and_two_new_ones_do_not_meet(tmp_path, start, undisturbed):
    folder = campaign(tmp_path / "campaign")
    one = ["methods=bc"]
    first = start(folder, *one, stop="train:10")  # so that its trainer is still there when the next one comes
    (orphan,) = wait_for_stopped(folder, "train", first)
    first.kill()
    first.wait()
    second = start(folder, *one, pause=0.0)
    job_log = of_method(folder, "bc").log("train")
    wait_for_words(job_log, f"held by process {orphan} on", ended=lambda: second.poll() is not None)
    assert second.poll() is None and is_worker(orphan, "train")
    third = start(folder, *one)
    assert code_of(folder, third) == 1  # refused by Snakemake: the second one is alive
    send(orphan, signal.SIGCONT)
    assert code_of(folder, second) == 0, log_of(folder)
    assert "its lock on this directory was removed" in log_of(folder)
    assert "Directory cannot be locked" in log_of(folder)
    assert outcome(folder, "bc") == outcome(undisturbed, "bc")


@pytest.mark.slow
def test_a_failed_run_is_told_with_its_reason_and_the_others_go_on(tmp_path, start, run_module):
    folder = campaign(tmp_path / "campaign")
    sheet = folder / "config/methods.tsv"
    text = sheet.read_text(encoding="utf-8")
    sheet.write_text(text.replace("iql\tIQL\t1\t1", "iql\tIQL\t1\t9"), encoding="utf-8")  # the code has version 1
    assert code_of(folder, start(folder, pause=0.0)) == 1, log_of(folder)
    status = run_module(folder, "pcbf_experiments.campaign.status", str(RESULTS))
    assert "iql seeds0-1: version 9 of iql is asked for, this code has version 1" in status.stdout
    assert of_method(folder, "bc").evaluation_receipt.exists()
    sheet.write_text(text, encoding="utf-8")
    assert code_of(folder, start(folder, pause=0.0)) == 0, log_of(folder)
    assert "failed:" not in run_module(folder, "pcbf_experiments.campaign.status", str(RESULTS)).stdout


@pytest.mark.slow
def test_after_a_kill_amid_evaluation_what_was_judged_is_not_judged_again(tmp_path, start, undisturbed, run_module):
    folder, one, middle = campaign(tmp_path / "campaign"), ["methods=iql"], STEPS // 2
    first = start(folder, *one, pause=0.0, stop=f"evaluate:{middle}")
    wait_for_stopped(folder, "evaluate", first)
    status = run_module(folder, "pcbf_experiments.campaign.status", str(RESULTS)).stdout
    assert "trained, to be evaluated:" in status and "iql seeds0-1: " in status
    end(folder, first)
    files = of_method(folder, "iql")
    kept = load_evaluations(files.evaluations(0)).evaluations
    assert [evaluation.step for evaluation in kept] == list(range(EVERY, middle, EVERY))
    assert not files.evaluation_receipt.exists()

    assert code_of(folder, start(folder, *one, pause=0.0)) == 0, log_of(folder)
    judged = text_of(folder / "judged").split()
    assert len(judged) == len(set(judged)) == len(SEEDS) * STEPS // EVERY
    assert load_evaluations(files.evaluations(0)).evaluations[: len(kept)] == kept
    assert outcome(folder, "iql") == outcome(undisturbed, "iql")


@pytest.mark.slow
def test_training_holds_the_gpu_and_evaluation_does_not(tmp_path, start, monkeypatch):
    """One GPU, two jobs: while the first is being evaluated, the second has the GPU and is trained to its end."""
    monkeypatch.setenv("PCBF_GPUS", "fake0")
    monkeypatch.setenv("PCBF_LOCK_DIR", str(tmp_path / "locks"))

    def is_free() -> bool:
        with open_lock(tmp_path / "locks/fake0.0.lock") as file:
            return try_lock(file)

    folder = campaign(tmp_path / "campaign")
    scheduler = start(folder, pause=0.0, stop=f"train:{EVERY},evaluate:{EVERY}", gpus=1)
    (trainer,) = wait_for_stopped(folder, "train", scheduler)
    assert not is_free()
    send(trainer, signal.SIGCONT)
    (evaluator,) = wait_for_stopped(folder, "evaluate", scheduler)
    (trainer,) = wait_for_stopped(folder, "train", scheduler)  # the next one, beside an evaluation that is not done
    assert not is_free() and is_stopped(evaluator)
    send(trainer, signal.SIGCONT)
    both = [of_method(folder, method) for method in ("bc", "iql")]
    wait_for(lambda: [text_of(files.receipt) for files in both], ended=lambda: scheduler.poll() is not None)
    wait_for(is_free)  # once the trainer is gone, although the evaluator is there
    assert is_stopped(evaluator)
    send(evaluator, signal.SIGCONT)
    wait_for(lambda: [send(pid, signal.SIGCONT) for pid in workers(folder)], lambda _: scheduler.poll() is not None)
    assert code_of(folder, scheduler) == 0, log_of(folder)
    for files in both:
        assert "pcbf-lease: leased fake0" in text_of(files.log("train"))
        assert "pcbf-lease" not in text_of(files.log("evaluate"))


# --- receipts of records that are gone ----------------------------------------------------------------------------


def test_receipts_are_stale_once_a_record_is_missing_or_changed(tmp_path):
    whole, lost, edited = (JobFiles.of_seeds(tmp_path, TASK, method, SEEDS) for method in ("bc", "fql", "iql"))
    for files in (whole, lost, edited):
        write_job(files, dict.fromkeys(SEEDS, 50.0))
    assert stale_receipts(tmp_path) == {}
    lost.evaluations(1).unlink()
    write_run(edited, 0, score=51.0)
    assert {path: [str(fault) for fault in faults] for path, faults in stale_receipts(tmp_path).items()} == {
        lost.evaluation_receipt: [f"{lost.evaluations(1)} is missing"],
        edited.receipt: [f"{edited.record(0)} has changed since it was made"],
    }


def test_a_stale_receipt_is_removed_and_a_changed_record_put_aside(tmp_path):
    files = JobFiles.of_seeds(tmp_path, TASK, "iql", SEEDS)
    write_job(files, dict.fromkeys(SEEDS, 50.0))
    write_run(files, 0, score=51.0)
    for receipt, faults in stale_receipts(tmp_path).items():
        clear_receipt(receipt, faults)
    assert not files.receipt.exists() and files.evaluation_receipt.exists()
    assert not files.record(0).exists() and files.record(0).with_name("seed0.json.old").exists()
    assert files.record(1).exists()


def test_a_receipt_that_cannot_be_read_is_stale(tmp_path):
    files = JobFiles.of_seeds(tmp_path, TASK, "iql", SEEDS)
    write_job(files, dict.fromkeys(SEEDS, 50.0))
    files.receipt.write_text("{", encoding="utf-8")
    ((receipt, faults),) = stale_receipts(tmp_path).items()
    clear_receipt(receipt, faults)
    assert not files.receipt.exists() and files.record(0).exists()


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
