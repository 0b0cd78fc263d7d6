"""The cells of a scale, task by method, to be tried before a campaign, and the table of what came of it.

Nothing here imports JAX; `pcbf_experiments.running.rehearse` does the work.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pcbf_experiments.campaign.plan import CLONER, Plan, data_folder, takes_proposal, train_job
from pcbf_experiments.campaign.settings import Settings
from pcbf_records.canonical import content_hash
from pcbf_records.files import atomic_write

OK = "ok"
COLUMNS = (
    *("task", "domain", "suite", "method", "config", "outcome", "device", "data", "seeds", "batch_size"),
    "trained_batch_size",
    *("parameters", "state_bytes", "compile_seconds", "argument_bytes", "output_bytes", "temporary_bytes"),
    *("program_bytes", "checkpoint_bytes", "snapshot_bytes", "steps_per_second", "resume_difference"),
    *("evaluation_seconds", "score", "peak_host_bytes", "peak_device_bytes"),
)
Row = dict[str, str]


@dataclass(frozen=True)
class Cell:
    """One method on one task as a scale has it; plain values, so that a worker process can be told.

    Attributes:
      job: what its training job is told.
      evaluation: how its snapshots are judged.
      seeds_per_job: learners side by side.
      cloning_job: that of behaviour cloning, if the method takes a proposal that was cloned before.
    """

    task: str
    domain: str
    suite: str
    observations: str
    method: str
    version: int
    job: Settings
    evaluation: Settings
    seeds_per_job: int
    cloning_job: Settings | None = None

    def config_hash(self, **how: Any) -> str:
        """Of all that decides what a rehearsal of the cell tries; `how` are options of the command."""
        return content_hash({**dataclasses.asdict(self), **how})[:16]


def cells_of(plan: Plan) -> list[Cell]:
    """The cells of the chosen scale, ablations left out, as far as the selection leaves them."""
    settings, sheets = plan.settings[plan.scale], plan.sheets
    control = settings["control"]
    found: dict[tuple[str, str], Cell] = {}
    for job in plan.selected():
        if job.change:
            continue
        task, is_given = sheets.tasks[job.task], takes_proposal(settings, sheets, job.task, job.method)
        found[job.task, job.method] = Cell(
            task=job.task,
            domain=task.domain,
            suite=task.suite,
            observations=task.observations,
            method=job.method,
            version=sheets.methods[job.method].version,
            job=train_job(settings, sheets, job.task, job.method),
            evaluation=control["run"]["evaluation"],
            seeds_per_job=control["seeds_per_job"],
            cloning_job=train_job(settings, sheets, job.task, CLONER) if is_given else None,
        )
    return list(found.values())


def sample(cells: Sequence[Cell], count: int) -> list[Cell]:
    """So many of the cells: first one of each suite, kind of observation and method, then a second of each."""
    kinds: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        kinds.setdefault((cell.suite, cell.observations, cell.method), []).append(cell)
    in_turn = [cell for each in zip_longest(*kinds.values()) for cell in each if cell is not None]
    chosen = set(map(id, in_turn[:count]))
    return [cell for cell in cells if id(cell) in chosen]


def groups_of(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The cells by domain and method: those that may share compiled programs, tried by one process."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.domain, cell.method), []).append(cell)
    return list(groups.values())


def real_data(plan: Plan) -> str:
    """Where the datasets of the chosen scale lie, if they are there."""
    return data_folder(plan.settings[plan.scale])


# --- the table ------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> dict[tuple[str, str], Row]:
    """The rows of a table of rehearsals by task and method; empty if there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        return {}
    if rows and not set(COLUMNS) <= set(rows[0]):
        raise ValueError(f"{path} is no table of rehearsals; move it away, or pass another --out.")
    return {(row["task"], row["method"]): row for row in rows}


def add_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put rows into a table, each in place of an earlier one of its cell; readers see the old table or the new one."""
    known = read_rows(path)
    known |= {(row["task"], row["method"]): {name: _text(row.get(name)) for name in COLUMNS} for row in rows}
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(known.values())


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
