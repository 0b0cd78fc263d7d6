"""What the results tables share: runs as seeds × tasks, the paper's cells beside them, and what is said of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from pcbf_analysis import statistics, theme
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column
from pcbf_records.arrays import Floats

PAPER_SCALE = "paper"
SUMMARY = ("mean", "std", "low", "high", "iqm", "num_seeds", "num_diverged", "num_episodes")  # of a cell
PAPER_METHODS = ("iqn", "codac", "floq", "fql", "iql", "value_flows", "pcbf")  # the columns of the paper's tables


class Cell(NamedTuple):
    """A method on a task."""

    task: str
    method: str


@dataclass(frozen=True, eq=False)
class Suite:
    """All control runs of a results folder as seeds × tasks.

    Attributes:
      scores: of the finished seeds of each cell, by seed.
      num_episodes: how many episodes are behind them.
      diverged: how many seeds of a cell diverged.
      suites: the suite of each task.
      sources: where the data of each task come from.
    """

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    scores: Mapping[Cell, Mapping[int, float]]
    num_episodes: Mapping[Cell, int]
    diverged: Mapping[Cell, int]
    sources: Mapping[str, frozenset[str]]
    suites: Mapping[str, str]

    def by_seed(self, task: str, method: str) -> Mapping[int, float]:
        return self.scores.get(Cell(task, method), {})

    def seeds(self, task: str, method: str) -> Floats:
        """Scores ordered by seed."""
        return np.array([score for _, score in sorted(self.by_seed(task, method).items())])

    def num_diverged(self, task: str, method: str) -> int:
        return self.diverged.get(Cell(task, method), 0)

    def summary(self, task: str, method: str) -> tuple[float, ...]:
        """A cell under `SUMMARY`."""
        seeds = self.seeds(task, method)
        return (
            *(statistics.mean(seeds), statistics.std(seeds), *statistics.student_interval(seeds)),
            statistics.interquartile_mean([seeds]),
            *(len(seeds), self.num_diverged(task, method), self.num_episodes.get(Cell(task, method), 0)),
        )

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds, finished or diverged, that a cell has."""
        cells = {*self.scores, *self.diverged}
        return max((len(self.seeds(*cell)) + self.num_diverged(*cell) for cell in cells), default=0)


def paired_differences(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Floats:
    """Ours minus theirs, by the seeds that both have."""
    return np.array(list(differences_by_seed(ours, theirs).values()))


def differences_by_seed(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Ours minus theirs, of every seed that both have."""
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}


def ahead_of_all(row: Mapping[str, Mapping[int, float]]) -> dict[str, bool]:
    """Which method of a row is ahead of every other, by the interval of their differences, seed by seed."""
    rivals = {method: scores for method, scores in row.items() if scores}

    def is_ahead(ours: str) -> bool:
        others = [theirs for theirs in rivals if theirs != ours]
        lows = [statistics.student_interval(paired_differences(row[ours], rivals[theirs]))[0] for theirs in others]
        return bool(lows) and all(low > 0 for low in lows)

    return {method: method in rivals and is_ahead(method) for method in row}


def better_side(interval: tuple[float, float], sign: int, ours: str, theirs: str) -> str:
    """Whose side the interval of a difference, ours minus theirs, decides for; `sign` is 1 where more is better."""
    worst, best = sorted(sign * bound for bound in interval)
    return ours if worst > 0 else theirs if best < 0 else "no"


@lru_cache(maxsize=32)
def load_suite(results: Results, change: str = "") -> Suite:
    """The runs of a results folder, or those of one ablation; tasks in the paper's order, others after them by name.

    Built once for each `results`, as most tables read it.
    """
    scores: dict[Cell, dict[int, float]] = {}
    num_episodes: dict[Cell, int] = {}
    diverged: dict[Cell, int] = {}
    sources: dict[str, set[str]] = {}
    runs = results.control.of_change(change)
    for run in runs:
        cell = Cell(run.task, run.method)
        sources.setdefault(run.task, set()).add(run.source)
        if not run.final:
            diverged[cell] = diverged.get(cell, 0) + 1
            continue
        scores.setdefault(cell, {})[run.seed] = run.score
        num_episodes[cell] = num_episodes.get(cell, 0) + run.episodes.size
    cells = {*scores, *diverged}
    paper = list(dict.fromkeys(results.paper_table("fullogbench_comparison")["task"]))
    return Suite(
        tasks=tuple(sorted({cell.task for cell in cells}, key=lambda task: _task_order(task, paper))),
        methods=tuple(sorted({cell.method for cell in cells}, key=theme.method_order)),
        scores=scores,
        num_episodes=num_episodes,
        diverged=diverged,
        sources={task: frozenset(names) for task, names in sources.items()},
        suites={run.task: run.suite for run in runs},
    )


def _task_order(task: str, paper: Sequence[str]) -> tuple[int, str]:
    return (paper.index(task), "") if task in paper else (len(paper), task)


def shown_tasks(results: Results, suite: Suite) -> tuple[str, ...]:
    """All 38 tasks of the paper at the paper's scale; at others those that have runs."""
    if results.scale != PAPER_SCALE:
        return suite.tasks
    return tuple(dict.fromkeys([*results.paper_table("fullogbench_comparison")["task"], *suite.tasks]))


def wanted_seeds(results: Results, suite: Suite, task: str) -> int:
    """Seeds that a cell should have: the paper's number at its scale, else as many as the fullest cell has."""
    paper = results.paper_table("fullogbench_comparison")
    known = paper.loc[paper["task"] == task, "num_seeds"]
    return int(known.iloc[0]) if results.scale == PAPER_SCALE and len(known) else suite.most_seeds


def seeds_remark(num_seeds: int, num_diverged: int, num_wanted: int) -> str:
    """What a reader must know about the seeds of a cell: nothing when all are there."""
    if num_seeds == 0:
        return "diverged" if num_diverged else ""
    missing = f"{num_seeds} of {num_wanted} seeds" if num_seeds < num_wanted else ""
    return ", ".join(filter(None, [missing, f"{num_diverged} diverged" if num_diverged else ""]))


def by_rule(cells: pd.DataFrame, row: str) -> pd.Series:
    """Which of the paper's cells are bold by its own rule, computed from its printed means; aligned with `cells`."""
    ruled = pd.Series(False, index=cells.index)
    for _, group in cells.groupby(row, sort=False):
        ruled.loc[group.index] = statistics.within_best(list(group["mean"]))
    return ruled


def paper_cells(cells: pd.DataFrame, row: str) -> dict[tuple[str, str], tuple[float, float, bool, bool]]:
    """The paper's mean, ±, bold as printed and bold by its rule, by row and method."""
    columns = (cells[row], cells["method"], cells["mean"], cells["std"], cells["is_bold"], by_rule(cells, row))
    return {
        (name, method): (float(mean), float(std), bool(bold), bool(ruled))
        for name, method, mean, std, bold, ruled in zip(*columns, strict=True)
    }


def bold_note(cells: pd.DataFrame, row: str) -> str:
    """The paper's rule of bold, and how often its cells contradict it."""
    against = int((by_rule(cells, row) != cells["is_bold"]).sum())
    return (
        f"The paper's bold is within 95 % of the best of the row; {against} of its {len(cells)} cells are bold or "
        "plain against that, given its printed means."
    )


def data_note(results: Results, suite: Suite, tasks: Iterable[str]) -> str:
    """Scale, seeds and source of the data, in words that keep local data from being taken for official."""
    sources = sorted({name for task in tasks for name in suite.sources.get(task, ())})
    if not sources:
        return f"Scale: {results.scale}; {theme.NO_RECORDS}."
    local = "local data, generated with this repository and not the official datasets"
    named = " and ".join(local if source == "local" else f"{source} data" for source in sources)
    facts = f"Scale: {results.scale}; {named}; up to {suite.most_seeds} seeds."
    is_comparable = results.scale == PAPER_SCALE and "local" not in sources
    return facts if is_comparable else f"{facts} Not comparable with the paper's scores."


def method_columns(methods: Iterable[str]) -> tuple[Column, ...]:
    """One column per method, headed by its name."""
    return tuple(Column(method, theme.METHODS[method].label) for method in methods)


def domain_tasks(results: Results, tasks: Iterable[str]) -> dict[str, list[str]]:
    """Tasks by domain, in their order."""
    domains: dict[str, list[str]] = {}
    for task in tasks:
        domains.setdefault(domain_of(results, task), []).append(task)
    return domains


def domain_of(results: Results, task: str) -> str:
    """The row of tab:aggregated that a task belongs to: `cube-double-play`, `adroit`, …"""
    known = results.sheets.tasks.get(task)
    own = next((run.domain for run in results.control.runs if run.task == task), task)
    return known.domain if known else own
