"""What a campaign will take: `pcbf-plan`. Nothing here imports JAX."""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcbf_experiments.campaign.needs import (
    GPU_MEMORY,
    Rehearsed,
    kept_bytes,
    load_rehearsal,
    memory_lines,
    num_files,
    queue_lines,
)
from pcbf_experiments.campaign.plan import Plan, TrainJob, counted, data_stamp, load_plan
from pcbf_experiments.campaign.settings import SCALES, SELECTORS, SettingsError
from pcbf_experiments.campaign.status import JobStatus, job_status
from pcbf_records.commands import Parser, positive_number
from pcbf_records.files import read_json
from pcbf_records.layout import (
    PAPER_NUMBERS,
    checkpoint_files,
    cost_files,
    group_place,
    group_seeds,
    published_folder,
    scale_folder,
)

REFERENCE = "iql"
REFERENCE_SECONDS = 1000.0  # of a run of 10⁶ steps of IQL on an A100: tab:cost, read as 1.0 x 10³ seconds
CHECKPOINT_BYTES = 40e6  # of one seed at 4x512, unless there are some to look at
RECORD_BYTES = 3e4
# of a dataset that is not there yet, roughly, by suite and observations
DATASET_BYTES = {("ogbench", "state"): 0.35e9, ("ogbench", "pixel"): 12e9, ("adroit", "state"): 0.5e9}
UNKNOWN_BYTES = 1e9


@dataclass(frozen=True)
class Speed:
    """Seconds of one gradient step of one seed on a GPU, and how we know."""

    seconds: float
    source: str


def load_costs(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """All cost records of results folders, each with its task and method."""
    return [
        {**cost, "task": group_place(path)[0], "method": group_place(path)[1]}
        for folder in folders
        for path in cost_files(folder)
        if (cost := read_json(path)) and cost.get("steps") and cost.get("seeds")
    ]


def seconds_per_step(cost: Mapping[str, Any]) -> float:
    """Training time per gradient step and seed of a cost record."""
    return cost["train_seconds"] / (cost["steps"] * len(cost["seeds"]))


def method_speeds(
    methods: Iterable[str],
    costs: Sequence[Mapping[str, Any]],
    paper: Mapping[str, float],
    reference_seconds: float,
    rehearsed: Mapping[tuple[str, str], Rehearsed] | None = None,
) -> dict[str, Speed]:
    """The speed of each method: measured or rehearsed on a GPU, else as the paper prints it, else by a ratio to IQL.

    Args:
      paper: time of a run relative to IQL (tab:cost), by method.
      reference_seconds: time of a run of 10⁶ steps of IQL.
      rehearsed: what a rehearsal measured, by task and method. One on a CPU tells nothing of a GPU's speed: a CPU
        multiplies, a GPU mostly waits for the next kernel, and methods differ in both by other factors.
    """
    tried = rehearsed_speeds({key: cell for key, cell in (rehearsed or {}).items() if not cell.is_on_cpu})
    on_gpu = [cost for cost in costs if str(cost.get("device", "cpu")).lower() != "cpu"]
    known: dict[str, Speed] = {}
    for method in methods:
        measured = [seconds_per_step(cost) for cost in on_gpu if cost["method"] == method]
        ratios = _ratios(costs, method)
        if measured:
            known[method] = Speed(sum(measured) / len(measured), f"measured on {_devices(on_gpu, method)}")
        elif method in tried:
            known[method] = tried[method]
        elif method in paper:
            known[method] = Speed(paper[method] * reference_seconds / 1e6, "tab:cost of the paper (A100)")
        elif ratios:
            ratio = sum(ratios) / len(ratios)
            known[method] = Speed(ratio * reference_seconds / 1e6, f"{ratio:.2g} times IQL, measured here on the CPU")
    return known


def rehearsed_speeds(cells: Mapping[tuple[str, str], Rehearsed]) -> dict[str, Speed]:
    """The speed of each method, mean over its rehearsed cells."""
    by_method: dict[str, list[Rehearsed]] = defaultdict(list)
    for (_, method), cell in cells.items():
        by_method[method].append(cell)
    return {
        method: Speed(
            sum(cell.seconds_per_step for cell in own) / len(own),
            f"rehearsed on {', '.join(sorted({cell.device for cell in own}))}, {len(own)} cells",
        )
        for method, own in by_method.items()
    }


def _devices(costs: Sequence[Mapping[str, Any]], method: str) -> str:
    return ", ".join(sorted({cost["device"] for cost in costs if cost["method"] == method}))


def _ratios(costs: Sequence[Mapping[str, Any]], method: str) -> list[float]:
    """Time of a method over that of IQL wherever both were measured on the same task, device and number of seeds."""
    base = {_place(cost): seconds_per_step(cost) for cost in costs if cost["method"] == REFERENCE}
    return [
        seconds_per_step(cost) / base[_place(cost)]
        for cost in costs
        if cost["method"] == method and base.get(_place(cost))
    ]


def _place(cost: Mapping[str, Any]) -> tuple[str, str, int]:
    return cost["task"], str(cost.get("device")), len(cost["seeds"])


def needs_gpu(plan: Plan) -> bool:
    return plan.settings[plan.scale]["control"]["gpus_per_job"] > 0


def train_hours(plan: Plan, jobs: Iterable[TrainJob], speeds: Mapping[str, Speed]) -> dict[tuple[str, str], float]:
    """Hours of a GPU, or of a core, by domain and method, of the jobs whose method has a known speed."""
    hours: dict[tuple[str, str], float] = defaultdict(float)
    for job in jobs:
        if job.method in speeds:
            place = plan.sheets.tasks[job.task].domain, job.method
            hours[place] += len(job.seeds) * plan.steps(job) * speeds[job.method].seconds / 3600
    return dict(hours)


def disk_bytes(root: Path, plan: Plan, results: Path, jobs: Sequence[TrainJob]) -> dict[str, float]:
    """Bytes of datasets, checkpoints and records of the jobs; what is there is measured, the rest estimated."""
    sizes = [_size(path) / len(group_seeds(path.stem)) for path in checkpoint_files(results)]
    num_runs = sum(len(job.seeds) for job in jobs)
    kinds = {task.dataset: (task.suite, task.observations) for task in (plan.sheets.tasks[job.task] for job in jobs)}
    folder = root / Path(data_stamp(plan.settings[plan.scale], plan.sheets, jobs[0].task)).parents[1] if jobs else root
    return {
        "datasets": sum(
            _dataset_bytes(folder, dataset) or DATASET_BYTES.get(kind, UNKNOWN_BYTES) for dataset, kind in kinds.items()
        ),
        "checkpoints": num_runs * (max(sizes, default=0) or CHECKPOINT_BYTES),
        "records": num_runs * RECORD_BYTES,
    }


def _dataset_bytes(folder: Path, dataset: str) -> int:
    try:
        files = [path for path in folder.rglob(f"*{dataset}*") if path.is_file()]
        inside = [path for top in folder.rglob(dataset) if top.is_dir() for path in top.rglob("*") if path.is_file()]
    except FileNotFoundError:  # a folder is gone since it was listed: data is being made there right now
        return 0
    return sum(_size(path) for path in {*files, *inside} if path.suffix != ".txt")


def _size(path: Path) -> int:
    """Bytes of a file that others write; 0 if it has been renamed or removed since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def describe_plan(
    root: Path,
    plan: Plan,
    results: Path,
    statuses: Sequence[JobStatus],
    speeds: Mapping[str, Speed],
    rehearsed: Mapping[tuple[str, str], Rehearsed] | None = None,
    memory: float = GPU_MEMORY,
) -> Iterator[str]:
    """Runs, hours, disk space and what is missing, in lines for people."""
    jobs = [status.job for status in statuses]
    yield plan.describe()
    methods = list(dict.fromkeys(job.method for job in jobs))
    if needs_gpu(plan):
        hours = train_hours(plan, jobs, speeds)
        yield from _hours_table("GPU hours", hours, methods)
        yield from queue_lines(hours)
        left = sum(train_hours(plan, [s.job for s in statuses if not s.is_trained], speeds).values())
        yield f"of these, {left:,.0f} hours are still to do"
        yield from (f"  {method}: {speeds[method].source}" for method in methods if method in speeds)
        unknown = [method for method in methods if method not in speeds]
        if unknown:
            yield f"  {', '.join(unknown)}: no measurement, not counted; run a scale that has them beside {REFERENCE}"
        if rehearsed and all(cell.is_on_cpu for cell in rehearsed.values()):
            yield "  rehearsed on a CPU only, which tells nothing of a GPU's speed; rehearse there for measured hours"
        if any(plan.sheets.tasks[job.task].is_pixel for job in jobs):
            yield "  pixel tasks count like the others unless measured, so this is the least they take"
        yield from memory_lines(plan, jobs, rehearsed or {}, memory)
    elif speeds:
        yield from _hours_table("core hours", train_hours(plan, jobs, speeds), methods)
        yield f"  of training, rehearsed here; evaluation comes on top: {sum(map(plan.episodes, jobs)):,} episodes"
    else:
        yield "this scale trains on the CPU; `pcbf-progress` shows the time left, a rehearsal foretells it:"
        yield f"  pcbf-rehearse --scale {plan.scale} --chunk 200"
    sizes = disk_bytes(root, plan, results, jobs)
    sizes |= {name: size for name, size in kept_bytes(plan, jobs, rehearsed or {}).items() if size}
    shown = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items())
    yield f"disk: {sum(sizes.values()) / 1e9:.1f} GB ({shown}), {num_files(plan, jobs):,} files"
    yield from _missing(root, plan, statuses)


def _hours_table(heading: str, hours: Mapping[tuple[str, str], float], methods: Sequence[str]) -> Iterator[str]:
    domains = list(dict.fromkeys(domain for domain, _ in hours))
    width = max(map(len, [*domains, heading]))
    yield " ".join([f"{heading:{width}}", *(f"{method:>11}" for method in methods), f"{'all':>9}"])
    for domain in domains:
        row = [hours.get((domain, method)) for method in methods]
        cells = [f"{'-' if value is None else f'{value:,.1f}':>11}" for value in row]
        yield " ".join([f"{domain:{width}}", *cells, f"{sum(filter(None, row)):>9,.1f}"])
    sums = [sum(value for (_, name), value in hours.items() if name == method) for method in methods]
    yield " ".join([f"{'all':{width}}", *(f"{value:>11,.1f}" for value in sums), f"{sum(sums):>9,.1f}"])


def _missing(root: Path, plan: Plan, statuses: Sequence[JobStatus]) -> Iterator[str]:
    settings, sheets = plan.settings[plan.scale], plan.sheets
    stamps = {sheets.tasks[s.job.task].dataset: data_stamp(settings, sheets, s.job.task) for s in statuses}
    absent = sorted(dataset for dataset, stamp in stamps.items() if not (root / stamp).is_file())
    if absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
        yield f"missing: {len(absent)} of {len(stamps)} datasets ({shown})"
        yield f"  to get them: snakemake data --cores all --config scale={plan.scale}"
    left = [status.job for status in statuses if status.state != "done"]
    yield f"missing: {counted(left)}" if left else "all runs are done"


def paper_times(root: Path) -> dict[str, float]:
    """Time of a run relative to IQL, as tab:cost prints it, by method."""
    with (root / PAPER_NUMBERS / "cost.csv").open(encoding="utf-8", newline="") as file:
        return {row["method"]: float(row["relative_time"]) for row in csv.DictReader(file)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="pcbf-plan",
        description="Say what a scale takes: runs, hours of a GPU by method and domain, in which order, memory, disk "
        "space and files, and what is missing. Speeds are those of cost records of runs on a GPU or of a rehearsal "
        "there (pcbf-rehearse); where there are none, the paper's.",
        examples=["pcbf-plan", "pcbf-plan --scale paper --domains scene-play --methods pcbf iql"],
    )
    parser.add_argument("--scale", default="paper", help=f"one of {', '.join(SCALES)} (default: %(default)s)")
    for part in SELECTORS:
        parser.add_argument(f"--{part}", nargs="+", metavar="NAME", help=f"only these {part} of the scale")
    parser.add_argument(
        "--reference-seconds",
        type=float,
        default=REFERENCE_SECONDS,
        metavar="S",
        help="seconds of a run of a million steps of IQL on your GPU (default: %(default)g, tab:cost)",
    )
    parser.add_argument(
        "--gpu-memory",
        type=positive_number,
        default=GPU_MEMORY / 1e9,
        metavar="GB",
        help="of a card (default: %(default)g)",
    )
    parser.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    options = parser.parse_args(arguments)
    chosen = {part: value for part in SELECTORS if (value := getattr(options, part))}
    try:
        plan = load_plan(options.root, {"scale": options.scale, **chosen})
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    folders = [options.root / folder(scale) for folder in (scale_folder, published_folder) for scale in SCALES]
    rehearsed = load_rehearsal(options.root, plan.scale)
    times = paper_times(options.root), options.reference_seconds
    if needs_gpu(plan):
        speeds = method_speeds(plan.sheets.methods, load_costs(folders), *times, rehearsed)
    else:
        speeds = rehearsed_speeds(rehearsed)
    results = options.root / scale_folder(plan.scale)
    statuses = [job_status(results, job, time.time()) for job in plan.selected()]
    print("\n".join(describe_plan(options.root, plan, results, statuses, speeds, rehearsed, options.gpu_memory * 1e9)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
