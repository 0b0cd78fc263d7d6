"""tab:fullogbench_comparison: score of every method on every task."""

from __future__ import annotations

import math
from typing import Any

from pcbf_analysis import statistics
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Score, Table
from pcbf_analysis.tables.scores import (
    PAPER_METHODS,
    SUMMARY,
    Suite,
    ahead_of_all,
    bold_note,
    data_note,
    domain_of,
    load_suite,
    method_columns,
    paper_cells,
    seeds_remark,
    shown_tasks,
    wanted_seeds,
)
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Scores on every task"
CAPTION = (
    "Success rate in percent (OGBench, mean of the last three evaluations) or normalised return (Adroit, last "
    "evaluation): mean ± sample standard deviation over seeds. Bold is ahead of every other method of the row by "
    "Student's 95 % intervals of the differences, seed by seed. A dash is a cell without runs; what stands in brackets "
    "says which seeds are missing or diverged. The csv adds Student's 95 % interval over seeds, the interquartile mean "
    "from five seeds on, and the paper's cell."
)
INPUTS = (CONTROL_EVALUATIONS,)
DETAILS = (
    Column("task", "Task", is_number=False),
    Column("domain", "Domain", is_number=False),
    Column("method", "Method", is_number=False),
    Column("source", "Data", is_number=False),
    *(Column(name, name) for name in SUMMARY),
    Column("is_bold", "Bold", is_number=False),
    *(Column(name, name) for name in ("paper_mean", "paper_std")),
    *(Column(name, name, is_number=False) for name in ("paper_is_bold", "paper_is_bold_by_rule")),
)


def compute(results: Results) -> Table:
    """One row per task; the csv has one per task and method."""
    suite, reported = load_suite(results), results.paper_table("fullogbench_comparison")
    paper = paper_cells(reported, "task")
    rows, details = [], []
    tasks = shown_tasks(results, suite)
    for task in tasks:
        wanted = wanted_seeds(results, suite, task)
        cells = list(ahead_of_all({method: suite.by_seed(task, method) for method in PAPER_METHODS}).items())
        rows.append((task, *(score(suite, task, method, wanted, strong) for method, strong in cells)))
        domain = domain_of(results, task)
        details += [detail(suite, task, domain, method, strong, paper.get((task, method))) for method, strong in cells]
    columns = (Column("task", "Task", is_number=False), *method_columns(PAPER_METHODS))
    note = f"{data_note(results, suite, tasks)} {bold_note(reported, 'task')}"
    return Table(columns, tuple(rows), note, Table(DETAILS, tuple(details)), is_dense=True)


def score(suite: Suite, task: str, method: str, wanted: int, is_bold: bool) -> Score:
    """A cell for readers."""
    seeds = suite.seeds(task, method)
    remark = seeds_remark(len(seeds), suite.num_diverged(task, method), wanted)
    return Score(statistics.mean(seeds), statistics.std(seeds), remark, is_bold)


def detail(
    suite: Suite, task: str, domain: str, method: str, is_bold: bool, paper: tuple[float, float, bool, bool] | None
) -> tuple[Any, ...]:
    """A cell with all its statistics."""
    return (
        *(task, domain, method, "+".join(sorted(suite.sources.get(task, ()))) or None),
        *suite.summary(task, method),
        is_bold if len(suite.seeds(task, method)) else None,
        *(paper or (math.nan, math.nan, None, None)),
    )
