"""What jobs need of a machine, from a rehearsal: time, memory of a GPU, disk space, files. Nothing here imports JAX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcbf_experiments.campaign.plan import Plan, TrainJob
from pcbf_experiments.campaign.rehearsal import OK, Row, read_rows
from pcbf_experiments.data.registry import entries
from pcbf_records.layout import PUBLISHED_REHEARSAL, rehearsal_table
from pcbf_records.sheets import Task

GPU_MEMORY = 80e9  # of the paper's A100, whose 60 GB in tab:cost are the three quarters that XLA takes ahead
ALONE, TOGETHER = 0.75, 0.9  # of a card's memory: what XLA takes for one job, and what jobs that share it may have
FINAL_SNAPSHOTS = 3  # at most, of those that the reported score averages
UNKNOWN_ROWS = 1_000_000  # of a dataset whose number of rows nobody has told us
FRAME_BYTES = 64 * 64 * 3


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal measured of a cell; bytes of `state` are one seed's, of `temporary` all of its seeds'."""

    domain: str
    method: str
    device: str
    seeds: int
    state_bytes: int
    temporary_bytes: int
    checkpoint_bytes: int
    snapshot_bytes: int
    steps_per_second: float

    @property
    def seconds_per_step(self) -> float:
        """Of one gradient step of one seed."""
        return 1 / (self.steps_per_second * self.seeds)

    @property
    def is_on_cpu(self) -> bool:
        return self.device.lower() == "cpu"

    def bytes_of(self, num_seeds: int) -> float:
        """Memory of a job of so many seeds, without its data."""
        return num_seeds * (self.state_bytes + self.temporary_bytes / self.seeds)


def load_rehearsal(root: Path, scale: str) -> dict[tuple[str, str], Rehearsed]:
    """What was rehearsed of a scale, by task and method: here, or else what is published of the paper scale."""
    published = read_rows(root / PUBLISHED_REHEARSAL) if scale == "paper" else {}
    rows = {**published, **read_rows(root / rehearsal_table(scale))}
    return {key: _rehearsed(row) for key, row in rows.items() if row["outcome"] == OK and row["temporary_bytes"]}


def _rehearsed(row: Row) -> Rehearsed:
    return Rehearsed(
        domain=row["domain"],
        method=row["method"],
        device=row["device"],
        seeds=int(row["seeds"]),
        state_bytes=int(row["state_bytes"]),
        temporary_bytes=int(row["temporary_bytes"]),
        checkpoint_bytes=int(row["checkpoint_bytes"]),
        snapshot_bytes=int(row["snapshot_bytes"]),
        steps_per_second=float(row["steps_per_second"]),
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def data_bytes(task: Task) -> float:
    """Memory of a task's dataset on the device."""
    found = [entries()[name] for name in (f"ogbench/{task.dataset}.npz", f"minari/{task.dataset}") if name in entries()]
    if not found:
        return 0.0
    rows = found[0].rows or UNKNOWN_ROWS
    observation, action = (found[0].arrays[name][1][0] or 0 for name in ("observations", "actions"))
    floats = 2 * action + 3 + (0 if task.is_pixel else 2 * observation)
    return rows * (4.0 * floats + (FRAME_BYTES if task.is_pixel else 0))


def memory_lines(
    plan: Plan, jobs: Sequence[TrainJob], rehearsed: Mapping[tuple[str, str], Rehearsed], memory: float
) -> Iterator[str]:
    """The seeds per job and jobs per GPU that fit into `memory` bytes of a card, by kind of observation."""
    known = [job for job in jobs if (job.task, job.method) in rehearsed]
    devices = sorted({rehearsed[job.task, job.method].device for job in known})
    if not known:
        return
    note = "; a GPU's programs differ, so rehearse there as well" if devices == ["cpu"] else ""
    yield f"memory, by XLA's analysis in the rehearsal on {', '.join(devices)}{note}:"
    for kind in ("state", "pixel"):
        own = [job for job in known if plan.sheets.tasks[job.task].observations == kind]
        if own:
            yield f"  {_proposal(plan, kind, own, rehearsed, memory)}"


def _proposal(
    plan: Plan,
    kind: str,
    jobs: Sequence[TrainJob],
    rehearsed: Mapping[tuple[str, str], Rehearsed],
    memory: float,
) -> str:
    def largest(count: int) -> float:
        return max(data_bytes(plan.sheets.tasks[j.task]) + rehearsed[j.task, j.method].bytes_of(count) for j in jobs)

    num_seeds = min(plan.sheets.tasks[job.task].seeds for job in jobs)
    fitting = [
        count for count in range(1, num_seeds + 1) if num_seeds % count == 0 and largest(count) <= ALONE * memory
    ]
    if not fitting:
        return f"{kind} tasks: one seed takes {largest(1) / 1e9:.1f} GB, too much for a card of {memory / 1e9:.0f} GB"
    together = max(int(TOGETHER * memory / largest(max(fitting))), 1)
    return (
        f"{kind} tasks: seeds_per_job up to {max(fitting)} ({largest(max(fitting)) / 1e9:.1f} GB with its data); then "
        f"jobs_per_gpu up to {together} by the memory of a card of {memory / 1e9:.0f} GB"
    )


# --- disk -------------------------------------------------------------------------------------------------------------


def kept_bytes(
    plan: Plan, jobs: Iterable[TrainJob], rehearsed: Mapping[tuple[str, str], Rehearsed]
) -> dict[str, float]:
    """Bytes of the checkpoints (the last good one of each job) and kept snapshots; nothing without a rehearsal.

    A cell that was not rehearsed counts as the largest that was.
    """
    sizes = {"checkpoints": 0.0, "snapshots": 0.0}
    if not rehearsed:
        return sizes
    largest = max(rehearsed.values(), key=lambda cell: cell.checkpoint_bytes / cell.seeds)
    for job in jobs:
        cell = rehearsed.get((job.task, job.method), largest)
        sizes["checkpoints"] += len(job.seeds) * cell.checkpoint_bytes / cell.seeds
        sizes["snapshots"] += len(job.seeds) * num_snapshots(plan, job) * cell.snapshot_bytes
    return sizes


def num_snapshots(plan: Plan, job: TrainJob) -> int:
    """Snapshots of a seed that stay when a job is judged, at most."""
    keep, judged = plan.settings[plan.scale]["control"]["keep_snapshots"], len(plan.judged_steps(job))
    return {"all": judged, "final": min(judged, FINAL_SNAPSHOTS), "none": 0}[keep]


def num_files(plan: Plan, jobs: Iterable[TrainJob]) -> int:
    """Files that jobs leave in a results folder, at most."""
    total = 0
    for job in jobs:
        files = job.files()
        stages = ("train", "evaluate")
        of_job = [*files.receipts, files.checkpoint, files.cost, files.evaluation_cost, files.progress]
        of_job += [files.evaluation_progress, *map(files.log, stages), *map(files.benchmark, stages)]
        of_seed = [files.record(0), files.evaluations(0), files.metrics(0), *(files.lock(0, stage) for stage in stages)]
        total += len(of_job) + len(job.seeds) * (len(of_seed) + num_snapshots(plan, job))
    return total


# --- order ------------------------------------------------------------------------------------------------------------


def queue_lines(hours: Mapping[tuple[str, str], float]) -> Iterator[str]:
    """In which order the domains are trained, and after how many hours of GPUs each row of the tables is full."""
    total, said = 0.0, []
    for domain in dict.fromkeys(domain for domain, _ in hours):
        total += sum(value for (name, _), value in hours.items() if name == domain)
        said.append(f"{domain} after {total:,.0f}")
    if said:
        yield f"queue, domain by domain, full after so many GPU hours: {', '.join(said)}"
