"""The control suite at a glance: every method on every task with its uncertainty."""

from __future__ import annotations

import math
from typing import Any

from pcbf_analysis import statistics
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Suite, data_note, load_suite, paired_differences
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Every method on every task, with uncertainty"
CAPTION = (
    "Scores in percent (success rate or normalised return): mean and sample standard deviation over seeds, Student's "
    "95 % interval of the mean, and interquartile mean where there are five seeds. Then the difference to behaviour "
    "cloning, seed by seed, with Student's 95 % interval, whether that lies above zero, and how many seeds would make "
    "it ±5 points wide: paired so, and if the seeds of the two methods had nothing in common."
)
INPUTS = (CONTROL_EVALUATIONS,)
CLONE = "bc"
HALF_WIDTH = 5.0  # points of score
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
    Column("over_bc", "Over BC", digits=1),
    Column("over_bc_low", "95 % low", digits=1),
    Column("over_bc_high", "95 % high", digits=1),
    Column("is_above_bc", "Above BC", is_number=False),
    Column("seeds_needed", "Seeds for ±5", digits=0),
    Column("seeds_needed_unpaired", "unpaired", digits=0),
)


def compute(results: Results) -> Table:
    """One row per task and method that the folder has runs of; a method without runs on a task has 0 seeds."""
    suite = load_suite(results)
    rows = [
        (task, method, *suite.summary(task, method), *over_clone(suite, task, method))
        for task in suite.tasks
        for method in suite.methods
    ]
    return Table(COLUMNS, tuple(rows), data_note(results, suite, suite.tasks), is_dense=True)


def over_clone(suite: Suite, task: str, method: str) -> tuple[Any, ...]:
    """What a method has over behaviour cloning, and how many seeds would tell it to ±5 points."""
    both = suite.by_seed(task, method), suite.by_seed(task, CLONE)
    differences = paired_differences(*both)
    if method == CLONE or not differences.size:
        return (math.nan, *statistics.UNKNOWN, None, None, None)
    interval = statistics.student_interval(differences)
    unpaired = math.hypot(*(statistics.std(list(scores.values())) for scores in both))
    return (
        *(statistics.mean(differences), *interval, None if math.isnan(interval.low) else interval.low > 0),
        *(statistics.seeds_needed(deviation, HALF_WIDTH) for deviation in (statistics.std(differences), unpaired)),
    )
