"""Probability that a run of one method scores above a run of another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pcbf_analysis import statistics
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Suite, data_note, load_suite
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Probability that PCBF improves on another method"
CAPTION = (
    "Probability that a run of PCBF scores above a run of the other method on the same task, mean over the tasks that "
    "both have runs of; a tie counts one half. The 95 % interval is by the stratified bootstrap (seeds drawn within "
    "tasks); below five seeds nothing is said. Likely says whether it lies wholly above one half. The csv has all "
    "pairs of methods."
)
INPUTS = (CONTROL_EVALUATIONS,)
OURS = "pcbf"
_NUMBERS = (
    Column("probability", "Probability", digits=2),
    Column("low", "95 % low", digits=2),
    Column("high", "95 % high", digits=2),
    Column("num_tasks", "Tasks", digits=0),
    Column("is_likely", "Likely", is_number=False),
)
COLUMNS = (Column("method", "PCBF over", is_number=False), *_NUMBERS)
DETAILS = (
    Column("first", "Method", is_number=False),
    Column("second", "Other method", is_number=False),
    *_NUMBERS,
)


def compute(results: Results) -> Table:
    """One row per other method; the csv has one per ordered pair."""
    suite = load_suite(results)
    pairs = [(x, y) for x in suite.methods for y in suite.methods if x != y]
    found = {pair: comparison(suite, *pair) for pair in pairs}
    rows = tuple((second, *values) for (first, second), values in found.items() if first == OURS)
    details = Table(DETAILS, tuple((*pair, *values) for pair, values in found.items()))
    return Table(COLUMNS, rows, data_note(results, suite, suite.tasks), details)


def comparison(suite: Suite, first: str, second: str) -> tuple[Any, ...]:
    """Probability, its interval, number of common tasks and whether the interval lies above one half."""
    tasks = common_tasks(suite, (first, second))
    ours, theirs = ([suite.seeds(task, method) for task in tasks] for method in (first, second))
    if not tasks:
        return (math.nan, *statistics.UNKNOWN, 0, None)
    interval = statistics.improvement_interval(ours, theirs)
    likely = None if math.isnan(interval.low) else interval.low > 0.5
    return (statistics.probability_of_improvement(ours, theirs), *interval, len(tasks), likely)


def common_tasks(suite: Suite, methods: Iterable[str]) -> list[str]:
    """Tasks on which all the methods have finished runs."""
    names = tuple(methods)
    return [task for task in suite.tasks if all(len(suite.seeds(task, method)) for method in names)]
