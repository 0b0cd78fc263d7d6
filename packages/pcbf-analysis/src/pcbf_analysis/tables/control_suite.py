"""The control suite at a glance: every method on every task with its uncertainty."""

from __future__ import annotations

from typing import Any

from pcbf_analysis import statistics
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Suite, data_note, load_suite
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Every method on every task, with uncertainty"
CAPTION = (
    "Scores in percent (success rate or normalised return): mean and sample standard deviation over seeds, 95 % "
    "bootstrap interval of the mean over seeds and the episodes within them, and interquartile mean of the seeds. "
    "Above BC says whether the interval lies wholly above that of behaviour cloning. With few seeds such intervals "
    "are too narrow rather than too wide."
)
INPUTS = (CONTROL_EVALUATIONS,)
CLONE = "bc"
COLUMNS = (
    Column("task", "Task", is_number=False),
    Column("method", "Method", is_number=False),
    Column("mean", "Mean", digits=1),
    Column("std", "± std", digits=1),
    Column("low", "95 % low", digits=1),
    Column("high", "95 % high", digits=1),
    Column("iqm", "IQM", digits=1),
    Column("num_seeds", "Seeds", digits=0),
    Column("num_diverged", "Diverged", digits=0),
    Column("num_episodes", "Episodes", digits=0),
    Column("is_above_bc", "Above BC", is_number=False),
)


def compute(results: Results) -> Table:
    """One row per task and method that the folder has runs of; a method without runs on a task has 0 seeds."""
    suite = load_suite(results)
    rows = [
        row(suite, task, m, clone)
        for task in suite.tasks
        for clone in [suite.interval(task, CLONE)]
        for m in suite.methods
    ]
    return Table(COLUMNS, tuple(rows), data_note(results, suite, suite.tasks), is_dense=True)


def row(suite: Suite, task: str, method: str, clone: statistics.Interval) -> tuple[Any, ...]:
    """A cell with its statistics, held against the interval of behaviour cloning."""
    above = is_above(suite.interval(task, method), clone) if method != CLONE else None
    return (task, method, *suite.summary(task, method), above)


def is_above(ours: statistics.Interval, theirs: statistics.Interval) -> bool | None:
    """Whether our interval lies wholly above theirs; None when one of them is unknown."""
    known = ours.low == ours.low and theirs.high == theirs.high
    return ours.low > theirs.high if known else None
