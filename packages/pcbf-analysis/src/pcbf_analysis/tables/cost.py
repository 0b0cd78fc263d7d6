"""tab:cost: time and memory of training, relative to IQL."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pcbf_analysis import theme
from pcbf_analysis.results import Results, cost_frame, short_task
from pcbf_analysis.statistics import mean
from pcbf_analysis.tables.form import Column, Table, without

TITLE = "Cost of training"
CAPTION = (
    "Time of a gradient step and peak memory, and both relative to IQL on the same task, device and number of seeds "
    "trained together. The paper's values are for cube-double-play task 1 on an A100 with 10⁶ steps; ratios on another "
    "device stand beside them but are not the same measurement. Time includes compilation; host memory is that of the "
    "whole program, data included. The paper's 60 GB are about three quarters of an 80 GB GPU, which is also what "
    "JAX reserves by default."
)
INPUTS = ("cost",)
REFERENCE = "iql"
PAPER_TASK = "cube-double-play-singletask-task1-v0"
DETAILS = (
    Column("task", "Task", is_number=False),
    Column("device", "Device", is_number=False),
    Column("num_seeds", "Seeds at once", digits=0),
    Column("method", "Method", is_number=False),
    Column("steps", "Steps", digits=0),
    Column("milliseconds", "ms per step", digits=2),
    Column("relative_time", "Time / IQL", digits=2),
    Column("paper_relative_time", "in the paper", digits=1),
    Column("memory_gb", "Memory, GB", digits=2),
    Column("memory_kind", "of", is_number=False),
    Column("relative_memory", "Memory / IQL", digits=2),
    Column("paper_relative_memory", "in the paper", digits=1),
    Column("is_paper_device", "A100", is_number=False),
)
LEFT_TO_CSV = ("num_seeds", "steps", "memory_kind", "is_paper_device")


@dataclass(frozen=True)
class Cost:
    """What a method costs in one group of task, device and number of seeds; the mean where it was measured more often.

    Memory is the device's where it reports any, else the host's.
    """

    task: str
    device: str
    num_seeds: int
    method: str
    steps: float
    milliseconds: float
    memory_gb: float
    memory_kind: str

    @property
    def group(self) -> tuple[str, str, int]:
        return self.task, self.device, self.num_seeds


def compute(results: Results) -> Table:
    """One row per method in each group of task, device and number of seeds."""
    costs, paper = measured_costs(results.root), paper_costs(results)
    references = {cost.group: cost for cost in costs if cost.method == REFERENCE}
    rows = []
    for cost in costs:
        base, theirs = references.get(cost.group), paper.get(cost.method, (math.nan, math.nan))
        rows.append(
            (
                *(*cost.group, cost.method, cost.steps),
                *(cost.milliseconds, relative_time(cost, base), theirs[0]),
                *(cost.memory_gb, cost.memory_kind, relative_memory(cost, base), theirs[1]),
                is_paper_device(cost.device),
            )
        )
    details = Table(DETAILS, tuple(rows) or missing_rows(paper))
    return without(details, LEFT_TO_CSV, cost_note(results, costs))


def measured_costs(folder: Path) -> list[Cost]:
    """All measured costs of a results folder; the paper's task first, methods in the usual order."""
    groups: dict[tuple[str, str, int, str], list[Mapping[Any, Any]]] = {}
    for record in cost_frame(folder).to_dict("records"):
        key = (record["task"], record["device"], record["num_seeds"], record["method"])
        groups.setdefault(key, []).append(record)
    order = sorted(groups, key=lambda key: (key[0] != PAPER_TASK, *key[:3], theme.method_order(key[3])))
    return [_mean_cost(key, groups[key]) for key in order]


def _mean_cost(key: tuple[str, str, int, str], records: Sequence[Mapping[Any, Any]]) -> Cost:
    on_device = all(pd.notna(record["peak_device_bytes"]) for record in records)
    peak = "peak_device_bytes" if on_device else "peak_host_bytes"
    return Cost(
        *key,
        steps=mean([record["steps"] for record in records]),
        milliseconds=mean([1000 * record["train_seconds"] / record["steps"] for record in records]),
        memory_gb=mean([record[peak] / 1e9 for record in records]),
        memory_kind="device" if on_device else "host",
    )


def paper_costs(results: Results) -> dict[str, tuple[float, float]]:
    """The paper's time and memory of each method relative to IQL."""
    rows = {row["method"]: row for row in results.paper_table("cost").to_dict("records")}
    base = rows[REFERENCE]
    return {
        method: (row["relative_time"] / base["relative_time"], row["memory_gb"] / base["memory_gb"])
        for method, row in rows.items()
    }


def relative_time(cost: Cost, base: Cost | None) -> float:
    """Time of a step over IQL's; nan where IQL was not measured."""
    return cost.milliseconds / base.milliseconds if base else math.nan


def relative_memory(cost: Cost, base: Cost | None) -> float:
    """Memory over IQL's; nan where IQL was not measured or its memory is of another kind."""
    return cost.memory_gb / base.memory_gb if base and base.memory_kind == cost.memory_kind else math.nan


def is_paper_device(device: str) -> bool:
    return "A100" in device


def missing_rows(paper: dict[str, tuple[float, float]]) -> tuple[tuple[Any, ...], ...]:
    """The paper's rows, without ours."""
    nan = math.nan
    return tuple(
        (PAPER_TASK, None, nan, method, nan, nan, nan, time, nan, None, nan, memory, None)
        for method, (time, memory) in paper.items()
    )


def cost_note(results: Results, costs: Sequence[Cost]) -> str:
    """Which devices were measured on which tasks, and whether they are the paper's."""
    if not costs:
        return f"Scale: {results.scale}; {theme.NO_RECORDS}."
    devices = list(dict.fromkeys(cost.device for cost in costs))
    tasks = ", ".join(dict.fromkeys(short_task(cost.task) for cost in costs))
    other = "" if all(map(is_paper_device, devices)) else " Not the paper's hardware."
    return f"Scale: {results.scale}; measured on {', '.join(devices)}; tasks {tasks}.{other}"
