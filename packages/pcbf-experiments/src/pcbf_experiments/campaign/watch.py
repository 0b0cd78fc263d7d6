"""A live display of overall progress around a Snakemake run: `pcbf-progress -- snakemake --cores all`.

Snakemake tells by a logger plugin (`snakemake_logger_plugin_pcbf`), in `<results>/logs/snakemake.jsonl`, what is
planned, started, finished and failed; its own output goes to `snakemake.log` beside it. Long jobs tell in
`<results>/progress/<job>.json` how far they are. Jobs are weighted by their work.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

import yaml

from pcbf_experiments.campaign.plan import Plan, load_plan
from pcbf_experiments.campaign.settings import (
    SettingsError,
    calibration_job,
    calibration_pairs,
    exact_job,
    exact_pairs,
    seeds_work,
    toy_job,
    toy_pairs,
    toy_work,
)
from pcbf_records import layout
from pcbf_records.commands import Parser
from pcbf_records.progress import Progress, clock, progress_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

START_UP_WORK = 10_000  # starting a job, or a short job as a whole, takes about as long as this many gradient steps
COMPILE_WORK = 20_000  # what a training job needs besides, before its first step
CONTROL_STEP_WORK = 12  # a gradient step of an agent takes about as long as so many of a toy critic
EPISODE_STEP_WORK = 5  # as does a step of an episode, simulator and choice of the action, measured at the laptop scale
LIVE_INTERVAL, PLAIN_INTERVAL = 0.5, 10.0  # seconds between updates on a terminal and elsewhere
TAIL_LINES = 20
BAR_WIDTH = 20
FAILURES_IN_FULL = 2
ABLATION_RULES = {"train": "ablate", "evaluate": "evaluate_ablation"}  # the same with one setting changed
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Job:
    """A job that Snakemake has started."""

    rule: str
    wildcards: tuple[str, ...] = ()  # without the scale

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.rule, *self.wildcards]))


@dataclass(frozen=True)
class Failure:
    job: Job
    logs: tuple[Path, ...]
    exit_code: int | None


@dataclass
class RunLog:
    """What Snakemake has told so far; give it the events one by one."""

    planned: Counter[str] = field(default_factory=Counter)  # jobs per rule
    running: dict[int, Job] = field(default_factory=dict)
    finished: list[Job] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _exit_code: int | None = None  # of the command whose job is said to have failed next

    @property
    def num_planned(self) -> int:
        return sum(self.planned.values())

    def feed(self, line: str) -> None:
        """One event, as `snakemake_logger_plugin_pcbf` writes it."""
        event = json.loads(line)
        match event["event"]:
            case "run_info" if not self.planned:  # it may be told again at the end
                self.planned.update({rule: count for rule, count in event["jobs"].items() if rule != "total"})
            case "job_info":
                wildcards = event["wildcards"] or {}
                job = Job(event["rule"], tuple(str(value) for name, value in wildcards.items() if name != "scale"))
                self.running[event["id"]] = job
                self.failures = [failure for failure in self.failures if failure.job != job]  # it is tried once more
            case "job_finished":
                if done := self.running.pop(event["id"], None):
                    self.finished.append(done)
            case "error":
                if found := re.search(r"returned non-zero exit status (\d+)", event["message"]):
                    self._exit_code = int(found[1])
            case "job_error":
                job = self.running.pop(event["id"], Job(event["rule"]))
                self.failures.append(Failure(job, tuple(map(Path, event["logs"])), self._exit_code))
                self._exit_code = None


def read_progress(results: Path, since: float) -> dict[str, Progress]:
    """Progress of each job of a results folder that has spoken after the time `since`."""
    found = {}
    for path in layout.progress_files(results):
        with suppress(OSError, ValueError, KeyError, TypeError):  # a display must not stop the run
            said = json.loads(path.read_text(encoding="utf-8"))
            if said["updated"] >= since:
                found[_job_name(results, path)] = progress_of(said)
    return found


def _job_name(results: Path, path: Path) -> str:
    """The name of the job (`Job.name`) that a progress file belongs to."""
    change = layout.change_of(path.relative_to(results).as_posix())
    stage, _, job = path.stem.partition("-")
    return f"{ABLATION_RULES[stage]}-{change}-{job}" if change else path.stem


def plan_work(plan: Plan) -> dict[str, float]:
    """Work of every job that trains or evaluates by name, in gradient steps of a toy; what comes before included."""
    settings, before = plan.settings[plan.scale], START_UP_WORK + COMPILE_WORK
    toys = {Job("toy", pair): toy_work(toy_job(settings, *pair), pair[1]) for pair in toy_pairs(settings)}
    exact = {Job("exact", pair): seeds_work(exact_job(settings, pair[1])) for pair in exact_pairs(settings)}
    critics = {Job("calibrate", p): seeds_work(calibration_job(settings, *p)) for p in calibration_pairs(settings)}
    control = {
        Job(ABLATION_RULES[stage] if job.change else stage, (job.change, job.task, job.method, job.group)): work
        for job in plan.selected()
        for stage, work in (
            ("train", CONTROL_STEP_WORK * len(job.seeds) * plan.steps(job)),
            ("evaluate", EPISODE_STEP_WORK * plan.episodes(job) * plan.episode_limit(job)),
        )
    }
    return {job.name: before + work for job, work in {**toys, **exact, **critics, **control}.items()}


def overall_fraction(run: RunLog, work: Mapping[str, float], progress: Mapping[str, Progress]) -> float:
    """Share of the planned work that is done; jobs that are not in `work` count as a start-up."""

    def weight(job: Job) -> float:
        return work.get(job.name, START_UP_WORK)

    ended = [*run.finished, *(failure.job for failure in run.failures)]
    done = sum(map(weight, ended))
    partly = sum(weight(job) * progress[job.name].fraction for job in run.running.values() if job.name in progress)
    started = [*ended, *run.running.values()]
    total = sum(map(weight, started)) + _work_to_come(run, work, started)
    return (done + partly) / total if total else 0.0


def _work_to_come(run: RunLog, work: Mapping[str, float], started: Sequence[Job]) -> float:
    """Work of the planned jobs that have not started: Snakemake says how many of each rule, not which."""
    names = {job.name for job in started}
    left = run.planned - Counter(job.rule for job in started)
    total = 0.0
    for rule, count in left.items():
        open_work = [value for name, value in work.items() if name.startswith(f"{rule}-") and name not in names]
        total += count * (sum(open_work) / len(open_work) if open_work else START_UP_WORK)
    return total


def remaining_seconds(fraction: float, elapsed: float) -> float | None:
    """Time left at the pace so far; None as long as too little is done to tell."""
    return elapsed * (1 - fraction) / fraction if fraction >= 0.01 and elapsed >= 3 else None


def describe(run: RunLog, fraction: float, elapsed: float, progress: Mapping[str, Progress]) -> str:
    """The state of the run in one line."""
    jobs = ", ".join(_describe_job(job, progress.get(job.name)) for job in run.running.values())
    return f"{headline(run, fraction, elapsed)}  {jobs}".rstrip()


def headline(run: RunLog, fraction: float, elapsed: float) -> str:
    """The state of the run as a whole."""
    if not run.planned:
        return f"{clock(elapsed)}  planning"
    left = remaining_seconds(fraction, elapsed)
    parts = [
        f"{100 * fraction:3.0f} %",
        f"{clock(elapsed)} elapsed, {'time left unknown yet' if left is None else f'about {clock(left)} left'}",
        f"{len(run.finished)}/{run.num_planned} jobs",
    ]
    if run.failures:
        parts.append(f"{len(run.failures)} failed")
    return "  ".join(parts)


def _describe_job(job: Job, said: Progress | None) -> str:
    label = " ".join([job.rule, "/".join(job.wildcards)]).rstrip()
    if said is None:
        return label
    rate = f"{said.rate:,.0f}" if said.rate >= 10 else f"{said.rate:.2g}"
    return f"{label} {100 * said.fraction:.0f} % ({rate} {said.unit}/s)"


class Display:
    """A picture of the run that renews itself on a terminal; elsewhere plain lines, at most one every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.live = _live(stream) if stream.isatty() else None
        self._next = 0.0

    def show(self, run: RunLog, fraction: float, elapsed: float, progress: Mapping[str, Progress]) -> None:
        """The state of the run `elapsed` seconds after its start."""
        if self.live is not None:
            self.live.start()
            self.live.update(picture(run, fraction, elapsed, progress), refresh=True)
        elif elapsed >= self._next:
            self._next = elapsed + PLAIN_INTERVAL
            self.say(describe(run, fraction, elapsed, progress))

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.live is not None:
            self.live.stop()
        self.stream.write(text + "\n")
        self.stream.flush()


def _live(stream: TextIO) -> Live:
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(file=stream), auto_refresh=False, transient=True)


def picture(run: RunLog, fraction: float, elapsed: float, progress: Mapping[str, Progress]) -> RenderableType:
    """The state of the run, with a bar for all of it and one for every running job that has spoken."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=BAR_WIDTH)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_row(ProgressBar(100, 100 * fraction, BAR_WIDTH), Text(headline(run, fraction, elapsed), style="bold"))
    for job in run.running.values():
        said = progress.get(job.name)
        bar = ProgressBar(100, 100 * said.fraction, BAR_WIDTH) if said else Text("starting", style="dim")
        grid.add_row(bar, Text(_describe_job(job, said)))
    for failure in run.failures:
        grid.add_row(Text("failed", style="red"), Text(_describe_job(failure.job, None)))
    return grid


def watch(command: Sequence[str], results: Path, work: Mapping[str, float], stream: TextIO) -> int:
    """Exit code of `command`, run with the display on `stream`."""
    log_path, events_path = results / layout.SNAKEMAKE_LOG, results / layout.SNAKEMAKE_EVENTS
    log_path.parent.mkdir(parents=True, exist_ok=True)
    events_path.write_bytes(b"")
    display, run, began, clock_began = Display(stream), RunLog(), time.time(), time.monotonic()
    with log_path.open("wb") as sink, events_path.open("rb") as source, _signals_passed_on() as (received, pass_to):
        child = subprocess.Popen(
            told_to_log(command, events_path),
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        pass_to(child)
        feed = _line_feeder(source, run)
        while child.poll() is None:
            feed()
            elapsed, progress = time.monotonic() - clock_began, read_progress(results, began)
            fraction = overall_fraction(run, work, progress)
            display.show(run, fraction, elapsed, progress)
            try:
                child.wait(LIVE_INTERVAL)
            except subprocess.TimeoutExpired:
                continue
        feed()
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    code = 128 + received[-1] if received and code else code
    for line in _last_words(run, code, log_path, time.monotonic() - clock_began):
        display.say(line)
    return code


def told_to_log(command: Sequence[str], events: Path) -> list[str]:
    """The command with Snakemake's events going to a file; one without Snakemake in it stays as it is."""
    place = next((i + 1 for i, word in enumerate(command) if Path(word).name == "snakemake"), None)
    if place is None:
        return list(command)
    return [*command[:place], "--logger", "pcbf", "--logger-pcbf-events", str(events.resolve()), *command[place:]]


def _line_feeder(source: IO[bytes], run: RunLog) -> Callable[[], None]:
    """A function that gives `run` the complete lines which `source` has gained since the last call."""
    rest = b""  # of a line, which may end in the middle of a letter

    def feed() -> None:
        nonlocal rest
        *lines, rest = (rest + source.read()).split(b"\n")
        for line in lines:
            run.feed(line.decode("utf-8", "replace"))

    return feed


@contextmanager
def _signals_passed_on() -> Iterator[tuple[list[int], Callable[[subprocess.Popen[Any]], None]]]:
    """The signals received so far: Ctrl-C and the like go to Snakemake and its jobs; we stay to tell how they end.

    And a function to call with the child once it is there; what came while it was being started is passed on then.
    """
    received: list[int] = []
    waiting: list[int] = []
    groups: list[int] = []

    def pass_on(number: int, _: object) -> None:
        received.append(number)
        waiting.append(number)
        deliver()

    def deliver() -> None:
        while groups and waiting:
            with suppress(ProcessLookupError):  # it may have ended in this very moment
                os.killpg(groups[0], waiting.pop(0))

    def pass_to(child: subprocess.Popen[Any]) -> None:
        groups.append(child.pid)
        deliver()

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield received, pass_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_words(run: RunLog, code: int, log_path: Path, elapsed: float) -> Iterator[str]:
    if code == 0:
        done = f"all {run.num_planned} jobs done" if run.planned else "nothing to do, all is up to date"
        yield f"{done} ({clock(elapsed)})"
        return
    if code > 128:
        yield f"interrupted after {clock(elapsed)}; rerun to resume, finished work is skipped"
        return
    for place, failure in enumerate(run.failures):
        label = " ".join([failure.job.rule, "/".join(failure.job.wildcards)]).rstrip()
        yield f"{label} failed" + (f" with exit code {failure.exit_code}" if failure.exit_code is not None else "")
        for path in failure.logs:
            in_full = place < FAILURES_IN_FULL
            yield f"last lines of {path}:" if in_full else f"last line of {path}:"
            yield from (f"  {line}" for line in (tail(path) if in_full else tail(path)[-1:]))
    if not run.failures:
        yield from tail(log_path, after="Building DAG of jobs...")
    yield f"stopped with exit code {code} after {clock(elapsed)}; Snakemake's own log is {log_path}"


def tail(path: Path, after: str = "") -> list[str]:
    """The last lines of a file, from the words `after` on; or a line that says that there is nothing."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ["(no such file)"]
    text = text.rpartition(after)[2] if after else text
    return text.strip("\n").splitlines()[-TAIL_LINES:] or ["(empty)"]


def config_of(command: Sequence[str]) -> dict[str, Any]:
    """What a Snakemake command line gives after `--config`."""
    config, inside = {}, False
    for word in command:
        if word.startswith("-"):
            inside = word in ("--config", "-C")
        elif inside and "=" in word:
            name, _, value = word.partition("=")
            config[name] = yaml.safe_load(value)
    return config


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="pcbf-progress",
        description="Run Snakemake with a live display of overall progress and time left.",
        examples=["pcbf-progress -- snakemake --cores all --config scale=smoke"],
    )
    parser.add_argument("command", nargs="+", help="the Snakemake command, after --")
    command = parser.parse_args(arguments).command
    try:
        plan = load_plan(Path.cwd(), config_of(command))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return watch(command, Path(layout.scale_folder(plan.scale)), plan_work(plan), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
