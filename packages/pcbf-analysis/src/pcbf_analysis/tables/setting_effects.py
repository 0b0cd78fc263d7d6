"""What changing one setting does: score and cost of every ablation beside those of the suite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pcbf_analysis import statistics
from pcbf_analysis.results import Results
from pcbf_analysis.tables.cost import measured_costs
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Cell, Suite, data_note, load_suite, paired_differences
from pcbf_records.layout import CONTROL_EVALUATIONS, ablation, changed

TITLE = "What changing one setting does to score and cost"
CAPTION = (
    "Runs with one setting changed beside the suite's own: mean score over seeds with Student's 95 % interval, and the "
    "difference from the suite's own, seed by seed, with Student's 95 % interval. Time is that of a "
    "gradient step, compilation included, and depends on what else the machine did; a change is shown as faster or "
    "slower than the suite's setting by the ratio of the two."
)
INPUTS = (CONTROL_EVALUATIONS, "cost")
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
    suite, times, agents = load_suite(results), milliseconds(results.root), agent_settings(results)
    rows = [row for change in results.control.changes for row in changed_rows(results, change, suite, times, agents)]
    return Table(COLUMNS, tuple(rows), data_note(results, suite, suite.tasks), is_dense=True)


def changed_rows(
    results: Results,
    change: str,
    suite: Suite,
    suite_times: Mapping[Cell, float],
    agents: Mapping[Cell, Mapping[str, Any]],
) -> Iterator[tuple[Any, ...]]:
    """The rows of one change, `<setting>=<value>`, beside what the suite's own runs gave."""
    setting, value = changed(change)
    ours, times = load_suite(results, change), milliseconds(results.root / ablation(change))
    for task in ours.tasks:
        for method in ours.methods:
            cell, seeds = Cell(task, method), ours.seeds(task, method)
            differences = paired_differences(ours.by_seed(task, method), suite.by_seed(task, method))
            time, known = times.get(cell, math.nan), agents.get(cell, {}).get(setting)
            yield (
                *(task, method, setting, value, f"{known:g}" if isinstance(known, float) else known),
                *(statistics.mean(seeds), *statistics.student_interval(seeds)),
                *(statistics.mean(differences), *statistics.student_interval(differences)),
                *(len(seeds), time, time / suite_times.get(cell, math.nan)),
            )


def milliseconds(folder: Path) -> dict[Cell, float]:
    """Time of a gradient step by task and method; of the last group, should there be several."""
    return {Cell(cost.task, cost.method): cost.milliseconds for cost in measured_costs(folder)}


def agent_settings(results: Results) -> dict[Cell, Mapping[str, Any]]:
    """The agent's settings in the suite's own runs, by task and method."""
    return {Cell(run.task, run.method): run.config["agent"] for run in results.control.suite}
