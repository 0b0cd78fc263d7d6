"""The live display: what Snakemake and the jobs tell it, and what it makes of it."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pcbf_experiments.campaign.plan import load_plan
from pcbf_experiments.campaign.settings import calibration_pairs, exact_pairs, toy_pairs
from pcbf_experiments.campaign.watch import (
    COMPILE_WORK,
    CONTROL_STEP_WORK,
    EPISODE_STEP_WORK,
    START_UP_WORK,
    Display,
    Job,
    RunLog,
    _line_feeder,
    clock,
    config_of,
    describe,
    overall_fraction,
    plan_work,
    read_progress,
    remaining_seconds,
    told_to_log,
    watch,
)
from pcbf_records.layout import SNAKEMAKE_EVENTS, SNAKEMAKE_LOG, JobFiles, ablation
from pcbf_records.progress import Progress

from ..waiting import PATIENCE, text_of, wait_for
from .conftest import REPOSITORY, write_json

PLAN = [{"event": "run_info", "jobs": {"toy": 3, "figure": 1, "all": 1, "total": 5}}]
COMMAND_FAILED = "CalledProcessError in file rules/toy.smk: Command 'pcbf-toy run' returned non-zero exit status 3."


def start(method: str, jobid: int) -> dict[str, Any]:
    wildcards = {"scale": "smoke", "process": "solitaire", "method": method}
    return {"event": "job_info", "id": jobid, "rule": "toy", "wildcards": wildcards}


def finish(jobid: int) -> dict[str, Any]:
    return {"event": "job_finished", "id": jobid}


def fail(jobid: int, method: str = "pcbf") -> list[dict[str, Any]]:
    logs = [f"results/smoke/logs/toy/solitaire/{method}.log"]
    return [
        {"event": "error", "message": COMMAND_FAILED},
        {"event": "job_error", "id": jobid, "rule": "toy", "logs": logs},
    ]


PCBF, VALUE_FLOWS = Job("toy", ("solitaire", "pcbf")), Job("toy", ("solitaire", "value_flows"))


def read(events: Sequence[dict[str, Any]]) -> RunLog:
    run = RunLog()
    for event in events:
        run.feed(json.dumps(event))
    return run


def test_the_log_tells_what_is_planned_running_and_finished():
    run = read([*PLAN, start("pcbf", 2), start("value_flows", 7), finish(2), *PLAN])
    assert run.planned == {"toy": 3, "figure": 1, "all": 1}
    assert run.finished == [PCBF]
    assert run.running == {7: VALUE_FLOWS}


def test_the_log_tells_what_failed_and_how():
    run = read([*PLAN, start("pcbf", 2), *fail(2)])
    (failure,) = run.failures
    assert failure.job == PCBF
    assert failure.exit_code == 3
    assert failure.logs == (Path("results/smoke/logs/toy/solitaire/pcbf.log"),)
    assert not run.running


def test_a_job_that_is_tried_once_more_has_not_failed_yet():
    again = [*PLAN, start("pcbf", 2), *fail(2), start("pcbf", 2)]
    assert read(again).failures == []
    assert read(again).running == {2: PCBF}
    assert [failure.job for failure in read([*again, *fail(2)]).failures] == [PCBF]


def test_the_work_of_a_job_is_its_gradient_steps_or_those_of_its_episodes():
    toy = {"num_seeds": 2, "num_steps": 500}
    run = {"steps": 60, "eval_every": 20, "evaluation": {"num_episodes": 7, "episode_limit": 5}}
    plan = load_plan(REPOSITORY, {"scale": "smoke", "toy": toy, "control": {"run": run, "num_seeds": 3}})
    work, before = plan_work(plan), START_UP_WORK + COMPILE_WORK
    num_coefficients = len(plan.settings["smoke"]["toy"]["dcfm_weights"]["solitaire"])
    alone = sum(len(pairs(plan.settings[plan.scale])) for pairs in (toy_pairs, exact_pairs, calibration_pairs))
    assert len(work) == alone + 2 * len(plan.selected())
    assert work[VALUE_FLOWS.name] == before + num_coefficients * (2 + 1) * 500
    task = "cube-single-play-singletask-task1-v0"
    assert work[f"train-{task}-pcbf-seeds0-1"] == before + 2 * 60 * CONTROL_STEP_WORK
    assert work[f"ablate-control_weight=0.5-{task}-pcbf-seeds2"] == before + 60 * CONTROL_STEP_WORK
    of_one_seed = 3 * 7 * 5 * EPISODE_STEP_WORK  # after 20, 40 and 60 steps
    assert work[f"evaluate-{task}-pcbf-seeds0-1"] == before + 2 * of_one_seed
    assert work[f"evaluate_ablation-control_weight=0.5-{task}-pcbf-seeds2"] == before + of_one_seed


def test_episodes_without_a_limit_of_their_own_count_with_the_tasks():
    run = {"evaluation": {"num_episodes": 1, "episode_limit": None}}
    plan = load_plan(REPOSITORY, {"scale": "smoke", "control": {"run": run}})
    job = plan.selected()[0]
    assert plan.episode_limit(job) == plan.sheets.tasks[job.task].episode_limit > 5


def test_jobs_count_by_their_work_not_by_their_number():
    work = {"toy-a": 1000.0, "toy-b": 9000.0}
    run = RunLog()
    run.planned.update({"toy": 2})
    run.running[1] = Job("toy", ("b",))
    assert overall_fraction(run, work, {"toy-b": Progress(50, 100, 1.0)}) == pytest.approx(0.45)
    run.finished.append(run.running.pop(1))
    assert overall_fraction(run, work, {}) == pytest.approx(0.9)
    run.finished.append(Job("toy", ("a",)))
    assert overall_fraction(run, work, {}) == 1.0


def test_jobs_to_come_count_with_the_mean_of_those_not_started():
    work = {"toy-a": 1000.0, "toy-b": 3000.0, "toy-c": 5000.0}
    run = RunLog()
    run.planned.update({"toy": 2})  # one of the three is up to date, Snakemake does not say which
    run.finished.append(Job("toy", ("a",)))
    assert overall_fraction(run, work, {}) == pytest.approx(1000 / (1000 + (3000 + 5000) / 2))


def test_a_failed_job_no_longer_counts_as_to_come():
    run = read([*PLAN, start("pcbf", 2), *fail(2)])
    assert overall_fraction(run, {}, {}) == pytest.approx(1 / 5)


def test_time_left_is_that_of_the_pace_so_far():
    assert remaining_seconds(0.25, 60.0) == pytest.approx(180.0)
    assert remaining_seconds(1.0, 60.0) == 0.0
    assert remaining_seconds(0.0, 60.0) is None


def test_progress_files_of_earlier_runs_and_broken_ones_are_left_out(tmp_path):
    said = {"job": "x", "done": 30, "total": 120, "unit": "steps", "started": 100.0, "updated": 110.0, "pid": 1}
    write_json(tmp_path / "progress/new.json", said)
    write_json(tmp_path / "progress/old.json", {**said, "updated": 90.0})
    (tmp_path / "progress/broken.json").write_text("{", encoding="utf-8")
    for root in (tmp_path, tmp_path / ablation("control_weight=0.5")):
        files = JobFiles(root, "task", "pcbf", "seeds0")
        write_json(files.progress, {**said, "first": 10})
        write_json(files.evaluation_progress, {**said, "unit": "episodes"})
    found = read_progress(tmp_path, since=95.0)
    assert found == {
        "new": Progress(30, 120, 3.0),
        "train-task-pcbf-seeds0": Progress(30, 120, 2.0),
        "evaluate-task-pcbf-seeds0": Progress(30, 120, 3.0, "episodes"),
        "ablate-control_weight=0.5-task-pcbf-seeds0": Progress(30, 120, 2.0),
        "evaluate_ablation-control_weight=0.5-task-pcbf-seeds0": Progress(30, 120, 3.0, "episodes"),
    }
    assert found["new"].fraction == 0.25


def test_the_line_says_what_a_reader_wants_to_know():
    run = read([*PLAN, start("pcbf", 2), finish(2)])
    run.running[3] = VALUE_FLOWS
    line = describe(run, 0.5, 65.0, {VALUE_FLOWS.name: Progress(30, 120, 1234.0)})
    assert " 50 %" in line
    assert "1:05 elapsed, about 1:05 left" in line
    assert "1/5 jobs" in line
    assert "toy solitaire/value_flows 25 % (1,234 steps/s)" in line
    run.running[4] = judged = Job("evaluate", ("task", "pcbf", "seeds0"))
    slow = describe(run, 0.5, 65.0, {judged.name: Progress(1, 4, 0.126, "episodes")})
    assert "evaluate task/pcbf/seeds0 25 % (0.13 episodes/s)" in slow


def test_clock():
    assert [clock(seconds) for seconds in (5, 65, 3700)] == ["0:05", "1:05", "1:01:40"]


def test_without_a_terminal_lines_come_at_most_every_ten_seconds():
    stream = io.StringIO()
    display = Display(stream)
    for elapsed in (0.0, 5.0, 9.9, 10.0, 15.0, 20.0):
        display.show(RunLog(), 0.0, elapsed, {})
    assert stream.getvalue().splitlines() == ["0:00  planning", "0:10  planning", "0:20  planning"]


def test_on_a_terminal_every_running_job_has_a_line_of_its_own():
    run = read([*PLAN, start("pcbf", 2), start("value_flows", 7)])
    stream = Terminal()
    Display(stream).show(run, 0.5, 65.0, {VALUE_FLOWS.name: Progress(30, 120, 1234.0)})
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).splitlines()]
    whole, *jobs = [line.split(maxsplit=1)[1] for line in lines if line.strip()]
    assert whole.startswith("50 %  1:05 elapsed")
    assert jobs == ["toy solitaire/pcbf", "toy solitaire/value_flows 25 % (1,234 steps/s)"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_config_of_a_command_line():
    command = ["snakemake", "--config", "scale=smoke", 'toy={"num_steps": 50}', "--cores", "all"]
    assert config_of(command) == {"scale": "smoke", "toy": {"num_steps": 50}}


def stand_in(folder: Path, events: Sequence[dict[str, Any]], code: int = 0) -> list[str]:
    """A command that logs as Snakemake does with our plugin, prints a line and ends."""
    lines = "".join(json.dumps(event) + "\n" for event in events)
    file = folder / "snakemake"
    program = (
        "import pathlib, sys",
        "events = sys.argv[sys.argv.index('--logger-pcbf-events') + 1]",
        f"pathlib.Path(events).write_text({lines!r})",
        "print('for people')",
        f"sys.exit({code})",
    )
    file.write_text("\n".join(program), encoding="utf-8")
    return [sys.executable, str(file), "--cores", "1", "--", "target"]


def test_watch_reports_success_and_keeps_the_log(tmp_path):
    stream = io.StringIO()
    assert watch(stand_in(tmp_path, [*PLAN, start("pcbf", 2), finish(2)]), tmp_path, {}, stream) == 0
    assert stream.getvalue().splitlines()[-1].startswith("all 5 jobs done")
    assert (tmp_path / SNAKEMAKE_LOG).read_text(encoding="utf-8") == "for people\n"


def test_watch_tells_when_nothing_is_to_be_done(tmp_path):
    stream = io.StringIO()
    (tmp_path / SNAKEMAKE_EVENTS).parent.mkdir()
    (tmp_path / SNAKEMAKE_EVENTS).write_text("of an earlier run", encoding="utf-8")
    assert watch(stand_in(tmp_path, []), tmp_path, {}, stream) == 0
    assert stream.getvalue().splitlines()[-1].startswith("nothing to do")


def test_watch_shows_the_end_of_a_failed_jobs_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "results/smoke/logs/toy/solitaire/pcbf.log"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(f"line {i}" for i in range(100)) + "\nthe loss is not a number\n", encoding="utf-8")
    stream = io.StringIO()
    assert watch(stand_in(tmp_path, [*PLAN, start("pcbf", 2), *fail(2)], code=1), tmp_path, {}, stream) == 1
    assert "toy solitaire/pcbf failed with exit code 3" in stream.getvalue()
    assert "  the loss is not a number" in stream.getvalue()
    assert "line 10\n" not in stream.getvalue()


def test_watch_says_the_reason_of_every_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = list(PLAN)
    for jobid, method in enumerate(["pcbf", "value_flows", "pcbf-independent"]):
        log = tmp_path / f"results/smoke/logs/toy/solitaire/{method}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"some lines\nthe reason of {method}\n", encoding="utf-8")
        events += [start(method, jobid), *fail(jobid, method)]
    stream = io.StringIO()
    assert watch(stand_in(tmp_path, events, code=1), tmp_path, {}, stream) == 1
    assert all(f"  the reason of {m}\n" in stream.getvalue() for m in ("pcbf", "value_flows", "pcbf-independent"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_child_and_its_end_is_awaited(checkout, number):
    child = (
        "import pathlib, signal, sys, time\n"
        "def stop(number, frame):\n"
        "    pathlib.Path('stopped').write_text(str(number)); sys.exit(1)\n"
        f"signal.signal({int(number)}, stop)\n"
        "pathlib.Path('ready').touch()\n"
        f"time.sleep({PATIENCE})\n"
    )
    command = [sys.executable, "-m", "pcbf_experiments.campaign.watch", "--", sys.executable, "-c", child]
    process = subprocess.Popen(command, cwd=checkout, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: text_of(checkout / "ready"), lambda _: True, ended=lambda: process.poll() is not None)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert (checkout / "stopped").read_text() == str(int(number))
    assert "interrupted" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_the_child_is_started_reaches_it_too(tmp_path, monkeypatch, number):
    start = subprocess.Popen

    def start_and_signal(*arguments, **options):
        child = start(*arguments, **options)
        signal.raise_signal(number)
        return child

    monkeypatch.setattr(subprocess, "Popen", start_and_signal)
    before = signal.signal(number, lambda *_: None)  # if nobody else takes it
    try:
        child = [sys.executable, "-c", "import time; time.sleep(10)"]
        assert watch(child, tmp_path, {}, io.StringIO()) == 128 + number
    finally:
        signal.signal(number, before)


def test_a_letter_that_is_written_in_two_halves_is_read_whole(tmp_path):
    run, file = RunLog(), tmp_path / "log"
    line = json.dumps(start("é", 1), ensure_ascii=False) + "\n"
    first, second = line.encode().split(b"\xa9", maxsplit=1)
    file.write_bytes(first)
    with file.open("rb") as source, file.open("ab") as sink:
        feed = _line_feeder(source, run)
        feed()
        sink.write(b"\xa9" + second)
        sink.flush()
        feed()
    assert run.running == {1: Job("toy", ("solitaire", "é"))}


def test_a_command_that_is_not_snakemake_is_left_alone():
    assert told_to_log(["false", "--config", "scale=smoke"], Path("events")) == ["false", "--config", "scale=smoke"]
    told = told_to_log(["/bin/snakemake", "--cores", "2", "--", "data"], Path("/events"))
    assert told == [
        "/bin/snakemake",
        "--logger",
        "pcbf",
        "--logger-pcbf-events",
        "/events",
        "--cores",
        "2",
        "--",
        "data",
    ]


def test_bad_settings_stop_before_anything_starts(checkout, run_module):
    done = run_module(checkout, "pcbf_experiments.campaign.watch", "--", "false", "--config", "scale=smok")
    assert done.returncode == 1
    assert done.stderr.strip() == "scale = smok: must be one of smoke, laptop, desk, paper; did you mean smoke?"
