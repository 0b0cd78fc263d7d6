"""Where a campaign stands: `pcbf-status`. Nothing here imports JAX."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pcbf_experiments.campaign.plan import Plan, TrainJob, load_plan
from pcbf_experiments.campaign.settings import DEFAULT_SCALE, SCALES, SettingsError
from pcbf_records.canonical import suggestion
from pcbf_records.commands import Parser
from pcbf_records.files import read_json
from pcbf_records.layout import JobFiles, ablation_folders, found_groups, scale_folder
from pcbf_records.progress import Progress, clock, is_alive, is_gone, progress_of
from pcbf_records.runs import receipt_faults

State = Literal["done", "trained", "running", "hangs", "failed", "stopped", "lost", "waiting"]
STATES: tuple[State, ...] = get_args(State)

SILENCE = 900.0  # seconds after which a job that says nothing any more hangs, if its process is there, or has stopped


@dataclass(frozen=True)
class JobStatus:
    """How far a job is.

    Attributes:
      num_done: runs that are trained and judged.
      is_trained: whether nothing of its training is left.
      progress: of its training, or of its evaluation once it is trained.
      reason: why it failed, what it has lost, or since when it says nothing.
    """

    job: TrainJob
    state: State
    num_done: int = 0
    num_diverged: int = 0
    is_trained: bool = False
    progress: Progress | None = None
    reason: str = ""


def job_status(results: Path, job: TrainJob, now: float) -> JobStatus:
    """The status of one job, from what its processes have written."""
    files = job.files(results)
    lost = [fault for receipt in files.receipts if receipt.exists() for fault in receipt_faults(files.root, receipt)]
    records = {seed: said for seed in job.seeds if (said := read_json(files.record(seed)))}
    diverged = sum(record.get("status") == "diverged" for record in records.values())
    num_done = sum(is_judged(record, files, seed) for seed, record in records.items())
    if lost:
        return JobStatus(job, "lost", num_done, diverged, reason="; ".join(map(str, lost)))
    if num_done == len(job.seeds):
        return JobStatus(job, "done", num_done, diverged, is_trained=True)
    is_trained = len(records) == len(job.seeds)
    file = files.evaluation_progress if is_trained else files.progress
    said, failure = read_json(file), read_json(files.failure)
    progress = None
    if said:
        with suppress(KeyError, TypeError):
            progress = progress_of(said)
    state: State = "trained" if is_trained else "waiting"
    reason = str(failure.get("reason", ""))
    if said and is_alive(said) and now - said.get("updated", 0) > SILENCE:
        state, reason = "hangs", f"process {said['pid']} has said nothing for {clock(now - said.get('updated', 0))}"
    elif said and now - said.get("updated", 0) <= SILENCE and not is_gone(said) and not _is_newer(files.failure, file):
        state = "trained" if is_trained else "running"
    elif failure:
        state = "failed"
    elif said and not is_trained:
        state = "stopped"
    return JobStatus(job, state, num_done, diverged, is_trained, progress, reason)


def is_judged(record: Mapping[str, Any], files: JobFiles, seed: int) -> bool:
    """Whether the evaluations that the score of a run averages are there."""
    judged = {item["step"] for item in read_json(files.evaluations(seed)).get("evaluations", [])}
    steps = record["snapshot_steps"][-record["num_final_evaluations"] :] if record["status"] == "finished" else []
    return judged >= set(steps)


def _is_newer(failure: Path, progress: Path) -> bool:
    """Whether a failure was noted after the last word of a job's progress."""
    try:
        return failure.stat().st_mtime >= progress.stat().st_mtime
    except OSError:
        return False


def describe_status(results: Path, plan: Plan | None, statuses: Sequence[JobStatus]) -> Iterator[str]:
    """The state of a campaign in lines for people."""
    jobs = Counter(status.state for status in statuses)
    runs = sum(len(status.job.seeds) for status in statuses)
    diverged = sum(status.num_diverged for status in statuses)
    yield (
        f"{results.as_posix()}: {sum(status.num_done for status in statuses)} of {runs} runs done"
        f"{f' ({diverged} diverged)' if diverged else ''}; jobs: "
        + ", ".join(f"{jobs[state]} {state}" for state in STATES if state != "hangs" or jobs[state])
    )
    if (left := time_left(plan, statuses)) is not None:
        yield f"about {clock(left)} of training left at the speed of the jobs that run now"
    for state, title in (
        ("running", "running"),
        ("trained", "trained, to be evaluated"),
        (
            "hangs",
            f"hang: nothing said for more than {SILENCE / 60:g} minutes; look at the log, end the process, rerun",
        ),
        ("stopped", "stopped; rerun to resume"),
        ("failed", "failed"),
        ("lost", "records lost; rerun to make them again"),
    ):
        chosen = [status for status in statuses if status.state == state]
        if chosen:
            yield f"{title}:"
            yield from (f"  {_describe_job(status)}" for status in chosen)


def _describe_job(status: JobStatus) -> str:
    change = f" {status.job.change}" if status.job.change else ""
    words = [f"{status.job.task} {status.job.method}{change} {status.job.group}"]
    if status.progress is not None:
        words.append(f"{100 * status.progress.fraction:.0f} % of {status.progress.total} {status.progress.unit}")
    if status.state == "running" and status.progress is not None and status.progress.seconds_left is not None:
        words.append(
            f"{status.progress.rate:,.3g} {status.progress.unit}/s, {clock(status.progress.seconds_left)} left"
        )
    if status.reason and status.state in ("failed", "lost", "hangs"):
        words.append(status.reason.partition("\n")[0])
    return ": ".join([words[0], ", ".join(words[1:])]) if len(words) > 1 else words[0]


def time_left(plan: Plan | None, statuses: Sequence[JobStatus]) -> float | None:
    """Seconds that all training left takes at the speed at which the running jobs work together.

    Without a plan, only of jobs that have said how many steps they take.
    """
    speed = sum(status.progress.rate * len(status.job.seeds) for status in _running(statuses) if status.progress)
    if speed <= 0:
        return None
    left = sum(len(status.job.seeds) * _steps_left(plan, status) for status in statuses if not status.is_trained)
    return left / speed


def _steps_left(plan: Plan | None, status: JobStatus) -> float:
    if status.progress:
        return status.progress.total - status.progress.done
    return plan.steps(status.job) if plan else 0


def _running(statuses: Iterable[JobStatus]) -> list[JobStatus]:
    return [status for status in statuses if status.state == "running"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="pcbf-status",
        description="Say which runs of a results folder are done, running, stopped, failed and lost, and why. For the "
        "folder of a scale these are the runs that the scale has, for any other those that have begun.",
        examples=["pcbf-status results/paper"],
    )
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=Path(scale_folder(DEFAULT_SCALE)),
        help="results folder, such as results/paper or results/own (default: %(default)s)",
    )
    parser.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    options = parser.parse_args(arguments)
    results, scale = options.root / options.results, options.results.resolve().name
    try:
        plan = load_plan(options.root, {"scale": scale}) if scale in SCALES else None
    except SettingsError as error:
        print(f"pcbf-status: error: {error}", file=sys.stderr)
        return 1
    jobs = plan.selected() if plan else found_jobs(results)
    if not jobs:
        others = sorted(path.name for path in results.parent.glob("*/") if path != results)
        hint = suggestion(scale, others) or f"; beside it: {', '.join(others) or 'nothing'}"
        print(f"pcbf-status: error: {options.results} has no runs{hint}", file=sys.stderr)
        return 1
    statuses = [job_status(results, job, time.time()) for job in jobs]
    print("\n".join(describe_status(options.results, plan, statuses)))
    return 0


def found_jobs(results: Path) -> list[TrainJob]:
    """The jobs that have begun in a results folder, those with a change included."""
    own = [TrainJob(*group) for group in found_groups(results)]
    changed = [TrainJob(*group, folder.name) for folder in ablation_folders(results) for group in found_groups(folder)]
    return [*own, *changed]


if __name__ == "__main__":
    sys.exit(main())
