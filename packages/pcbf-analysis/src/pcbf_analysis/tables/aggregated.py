"""tab:aggregated: score of every method on every domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from pcbf_analysis import statistics, theme
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Score, Table
from pcbf_analysis.tables.scores import (
    PAPER_METHODS,
    Suite,
    ahead_of_all,
    bold_note,
    data_note,
    domain_tasks,
    load_suite,
    method_columns,
    paper_cells,
    shown_tasks,
    wanted_seeds,
)
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Scores aggregated by domain"
CAPTION = (
    "Mean of the tasks' mean scores ± mean of their sample standard deviations over seeds, which is how the paper's "
    "domain rows follow from its task rows. Bold is ahead of every other method of the row by Student's 95 % "
    "intervals of the differences, seed by seed, of the means over tasks; a method that lacks a task of the domain has "
    "no part in that. A dash is a cell without runs. The csv adds Student's 95 % interval over seeds (of the "
    "means over tasks of each seed), from five seeds on interquartile means with stratified-bootstrap intervals, and "
    "the paper's cell, also recomputed from its task rows."
)
INPUTS = (CONTROL_EVALUATIONS,)
DETAILS = (
    Column("domain", "Domain", is_number=False),
    Column("method", "Method", is_number=False),
    *(Column(name, name) for name in ("mean", "std", "low", "high", "iqm", "iqm_low", "iqm_high")),
    *(Column(name, name) for name in ("num_tasks", "num_tasks_present", "num_runs", "num_diverged")),
    Column("is_bold", "Bold", is_number=False),
    *(Column(name, name) for name in ("paper_mean", "paper_std")),
    *(Column(name, name, is_number=False) for name in ("paper_is_bold", "paper_is_bold_by_rule")),
    *(Column(name, name) for name in ("paper_mean_recomputed", "paper_std_recomputed")),
)


def compute(results: Results) -> Table:
    """One row per domain; the csv has one per domain and method."""
    suite, reported = load_suite(results), results.paper_table("aggregated")
    paper, recomputed = paper_cells(reported, "domain"), recomputed_cells(results)
    tasks = shown_tasks(results, suite)
    rows, details = [], []
    for domain, members in domain_tasks(results, tasks).items():
        present = {method: present_tasks(suite, members, method) for method in PAPER_METHODS}
        whole = {m: means_by_seed(suite, members, m) if len(present[m]) == len(members) else {} for m in present}
        wanted = sum(wanted_seeds(results, suite, task) for task in members)
        bold = ahead_of_all(whole)
        rows.append(
            (
                f"{domain} ({len(members)} task{'s' * (len(members) > 1)})",
                *(score(suite, members, present[m], m, wanted, bold[m]) for m in PAPER_METHODS),
            )
        )
        details += [
            (
                domain,
                method,
                *detail(suite, members, present[method], method, bold[method]),
                *paper.get((domain, method), (math.nan, math.nan, None, None)),
                *recomputed.get((domain, method), (math.nan, math.nan)),
            )
            for method in PAPER_METHODS
        ]
    columns = (Column("domain", "Domain", is_number=False), *method_columns(PAPER_METHODS))
    note = f"{data_note(results, suite, tasks)} {bold_note(reported, 'domain')} {recomputed_note(paper, recomputed)}"
    return Table(columns, tuple(rows), note, Table(DETAILS, tuple(details)), is_dense=True)


def present_tasks(suite: Suite, tasks: Sequence[str], method: str) -> list[str]:
    """Those of the tasks on which the method has a finished run."""
    return [task for task in tasks if len(suite.seeds(task, method))]


def score(
    suite: Suite, tasks: Sequence[str], present: Sequence[str], method: str, num_wanted: int, is_bold: bool
) -> Score:
    """A cell for readers: the mean over the tasks that are there, and what is missing."""
    seeds = [suite.seeds(task, method) for task in present]
    num_runs, diverged = sum(map(len, seeds)), sum(suite.num_diverged(task, method) for task in tasks)
    lacking = ""
    if 0 < len(present) < len(tasks):
        lacking = f"{len(present)} of {len(tasks)} tasks"
    elif 0 < num_runs < num_wanted:
        lacking = f"{num_runs} of {num_wanted} runs"
    remark = ", ".join(filter(None, [lacking, f"{diverged} diverged" if diverged else ""]))
    return Score(*statistics.aggregate(seeds), remark, is_bold)


def detail(suite: Suite, tasks: Sequence[str], present: Sequence[str], method: str, is_bold: bool) -> tuple[Any, ...]:
    """All statistics of a cell."""
    seeds = [suite.seeds(task, method) for task in present]
    return (
        *statistics.aggregate(seeds),
        *statistics.student_interval(list(means_by_seed(suite, present, method).values())),
        statistics.interquartile_mean(seeds),
        *statistics.bootstrap_interval(seeds, statistics.pooled_interquartile_mean),
        len(tasks),
        len(present),
        sum(map(len, seeds)),
        sum(suite.num_diverged(task, method) for task in tasks),
        is_bold if present else None,
    )


def means_by_seed(suite: Suite, tasks: Sequence[str], method: str) -> dict[int, float]:
    """The mean over tasks of every seed that has all of them, ordered by seed."""
    scores = [suite.by_seed(task, method) for task in tasks]
    common = sorted(set.intersection(*map(set, scores))) if scores else []
    return {seed: statistics.mean([of_task[seed] for of_task in scores]) for seed in common}


def recomputed_cells(results: Results) -> dict[tuple[str, str], tuple[float, float]]:
    """The paper's domain cells as they follow from its printed task rows: mean of the means, mean of the ±."""
    tasks: pd.DataFrame = results.paper_table("fullogbench_comparison")
    means = tasks.groupby(["domain", "method"], sort=False)[["mean", "std"]].mean()
    return {(str(key[0]), str(key[1])): (float(row["mean"]), float(row["std"])) for key, row in means.iterrows()}  # type: ignore[index]


def recomputed_note(
    paper: dict[tuple[str, str], tuple[float, float, bool, bool]],
    recomputed: dict[tuple[str, str], tuple[float, float]],
) -> str:
    """Cells of the paper's domain table that do not follow from its own task table.

    A difference up to one is rounding: half a unit in the cell, half in the task rows.
    """
    apart = [
        f"{theme.METHODS[method].label} on {domain} ({quantity} {printed:.0f} printed, {value:.1f} recomputed)"
        for (domain, method), values in recomputed.items()
        for quantity, printed, value in zip(("mean", "±"), paper[domain, method], values, strict=False)
        if abs(printed - value) > 1
    ]
    exceptions = f" except for {', '.join(apart)}" if apart else ""
    return f"The paper's domain cells follow from its task cells up to rounding{exceptions}."
