"""What changing one setting does: score and cost of every ablation beside those of the suite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcbf_analysis import statistics
from pcbf_analysis.records import Results, run_records
from pcbf_analysis.tables.cost import measured_costs
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Suite, data_note, load_suite

TITLE = "What changing one setting does to score and cost"
CAPTION = (
    "Runs with one setting changed beside the suite's own: mean score over seeds with its 95 % bootstrap interval over "
    "seeds and episodes, and the difference from the suite's with Welch's 95 % interval over seeds. Time is that of a "
    "gradient step, compilation included, and depends on what else the machine did; a change is shown as faster or "
    "slower than the suite's setting by the ratio of the two."
)
INPUTS = ("runs", "ablations", "cost")
COLUMNS = (
    Column("task", "Task", is_number=False),
    Column("method", "Method", is_number=False),
    Column("setting", "Setting", is_number=False),
    Column("value", "Value", is_number=False),
    Column("suite_value", "Suite's", is_number=False),
    Column("mean", "Mean", digits=1),
    Column("low", "95 % low", digits=1),
    Column("high", "95 % high", digits=1),
    Column("difference", "Difference", digits=1),
    Column("difference_low", "95 % low", digits=1),
    Column("difference_high", "95 % high", digits=1),
    Column("num_seeds", "Seeds", digits=0),
    Column("milliseconds", "ms per step", digits=2),
    Column("relative_time", "Time / suite's", digits=2),
)


def compute(results: Results) -> Table:
    """One row per task and method that was trained with a setting changed."""
    suite = load_suite(results)
    folders = sorted((results.root / "ablations").glob("*=*"), key=_order)
    rows = [row for folder in folders for row in changed_rows(results, suite, folder)]
    return Table(COLUMNS, tuple(rows), data_note(results, suite, suite.tasks), is_dense=True)


def _order(folder: Path) -> tuple[str, float, str]:
    """By setting, then by value, as a number where it is one."""
    setting, _, value = folder.name.partition("=")
    try:
        return setting, float(value), value
    except ValueError:
        return setting, math.inf, value


def changed_rows(results: Results, suite: Suite, folder: Path) -> Iterator[tuple[Any, ...]]:
    """The rows of one change, `folder` being ablations/<setting>=<value>."""
    setting, _, value = folder.name.partition("=")
    changed = replace(results, root=folder)
    ours, times = load_suite(changed), milliseconds(changed)
    suite_times, suite_values = milliseconds(results), agent_values(results, setting)
    for task in ours.tasks:
        for method in ours.methods:
            seeds, base = ours.seeds(task, method), suite.seeds(task, method)
            time = times.get((task, method), math.nan)
            both = [(statistics.mean(x), statistics.std(x), len(x)) for x in (seeds, base)]
            yield (
                *(task, method, setting, value, suite_values.get((task, method))),
                *(statistics.mean(seeds), *ours.interval(task, method)),
                *(both[0][0] - both[1][0], *statistics.difference_interval(both[0], both[1])),
                *(len(seeds), time, time / suite_times.get((task, method), math.nan)),
            )


def milliseconds(results: Results) -> dict[tuple[str, str], float]:
    """Time of a gradient step by task and method; of the last group, should there be several."""
    return {(cost.task, cost.method): cost.milliseconds for cost in measured_costs(results)}


def agent_values(results: Results, setting: str) -> dict[tuple[str, str], str]:
    """The value of a setting in the suite's own runs, by task and method."""
    values = {(run.task, run.method): run.config["agent"].get(setting) for run in run_records(results)}
    return {place: f"{value:g}" if isinstance(value, float) else str(value) for place, value in values.items()}
