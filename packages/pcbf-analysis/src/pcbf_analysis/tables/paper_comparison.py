"""Ours minus the paper's, cell by cell, with a verdict for each.

A verdict is by the 95 % interval of the difference, widened by the rounding of the printed number. Scores are compared
only when they come from official data at the paper's scale; the laws of the Markov reward processes are exact, so that
their W1 distances always are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from pcbf_analysis import statistics
from pcbf_analysis.figures.common import panel_title
from pcbf_analysis.results import Results, Setting, chosen_coefficient, recorded_w1, short_task
from pcbf_analysis.statistics import UNKNOWN, Interval
from pcbf_analysis.tables.cost import (
    PAPER_TASK,
    REFERENCE,
    is_paper_device,
    measured_costs,
    paper_costs,
    relative_memory,
    relative_time,
)
from pcbf_analysis.tables.form import Column, Table, without
from pcbf_analysis.tables.scores import PAPER_SCALE, Suite, load_suite
from pcbf_records.layout import CONTROL_EVALUATIONS, TOY_W1

TITLE = "Ours minus the paper's, cell by cell"
CAPTION = (
    "Our value, the paper's and their difference with its 95 % interval, widened by half a unit of the paper's last "
    "printed digit. Consistent: the interval holds zero; higher or lower: ours is, beyond the interval. Spread on the "
    "paper's side is its printed ± (Welch's interval for tasks, the normal one for domains); for W1 the paper gives "
    "one number, taken as one seed with the spread of ours. It is a distance between samples, which is never quite "
    "zero, and our PCBF is at the λ with the lowest W1 of these very seeds: both favour us. Scores from local data or "
    "at a smaller scale are not comparable, nor is cost on another device. The table lists the cells that we have; the "
    "csv all of the paper's."
)
INPUTS = (TOY_W1, CONTROL_EVALUATIONS, "cost")
VERDICTS = ("consistent", "higher", "lower", "undecided", "not comparable", "missing")
DETAILS = (
    Column("table", "Table", is_number=False),
    Column("row", "Row", is_number=False),
    Column("method", "Method", is_number=False),
    Column("coefficient", "λ or dcfm"),
    Column("ours", "Ours"),
    Column("ours_std", "± std"),
    Column("num_seeds", "Seeds", digits=0),
    Column("paper", "Paper"),
    Column("paper_std", "± std"),
    Column("difference", "Difference"),
    Column("low", "95 % low"),
    Column("high", "95 % high"),
    Column("verdict", "Verdict", is_number=False),
    Column("reason", "Why", is_number=False),
)
LEFT_TO_CSV = ("table", "ours_std", "num_seeds", "paper_std", "reason")


@dataclass(frozen=True)
class Comparison:
    """One cell of the paper and ours.

    Attributes:
      interval: of our mean minus the paper's, unknown where one of them has no spread.
      rounding: half a unit of the paper's last digit.
      obstacle: why the two are not comparable; empty if they are.
    """

    table: str
    row: str
    method: str
    paper: float
    rounding: float
    coefficient: float = math.nan
    ours: float = math.nan
    ours_std: float = math.nan
    num_seeds: int = 0
    paper_std: float = math.nan
    interval: Interval = UNKNOWN
    obstacle: str = ""

    @property
    def difference(self) -> float:
        return self.ours - self.paper

    @property
    def widened(self) -> Interval:
        return Interval(self.interval.low - self.rounding, self.interval.high + self.rounding)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if math.isnan(self.ours):
            return "missing"
        if self.obstacle:
            return "not comparable"
        if abs(self.difference) <= self.rounding:
            return "consistent"
        if math.isnan(self.interval.low):
            return "undecided"
        low, high = self.widened
        return "consistent" if low <= 0 <= high else "higher" if low > 0 else "lower"

    @property
    def reason(self) -> str | None:
        """What stands in the way of a verdict."""
        if self.verdict == "undecided":
            return "no spread is known on one side"
        return self.obstacle if self.verdict == "not comparable" else None

    def values(self) -> tuple[object, ...]:
        low, high = UNKNOWN if self.obstacle else self.widened
        return (
            *(self.table, self.row, self.method, self.coefficient, self.ours, self.ours_std, self.num_seeds),
            *(self.paper, self.paper_std, self.difference, low, high, self.verdict, self.reason),
        )


def compute(results: Results) -> Table:
    """Rows for the cells that we have; the csv has all cells of the paper."""
    found = comparisons(results)
    present = Table(DETAILS, tuple(comparison.values() for comparison in found if comparison.verdict != "missing"))
    note = f"Scale: {results.scale}. Of {len(found)} cells: {counted(found)}."
    details = Table(DETAILS, tuple(comparison.values() for comparison in found))
    return replace(without(present, LEFT_TO_CSV, note), details=details)


def counted(cells: Sequence[Comparison]) -> str:
    """How many cells have each verdict, and why those without one have none."""
    counts = Counter(cell.verdict for cell in cells)
    reasons = Counter((cell.verdict, cell.reason) for cell in cells if cell.reason)
    parts = []
    for verdict in filter(counts.__getitem__, VERDICTS):
        why = "; ".join(f"{number} for {reason}" for (name, reason), number in reasons.items() if name == verdict)
        parts.append(f"{counts[verdict]} {verdict}" + (f" ({why})" if why else ""))
    return ", ".join(parts)


def comparisons(results: Results) -> list[Comparison]:
    """Every cell of the paper's results: W1 distances, domains, tasks, cost."""
    suite = load_suite(results)
    return [
        *toy_comparisons(results),
        *domain_comparisons(results, suite),
        *task_comparisons(results, suite),
        *cost_comparisons(results),
    ]


def toy_comparisons(results: Results) -> Iterator[Comparison]:
    """fig:cdf_comparison: Value Flows at the printed dcfm weights, PCBF at the λ chosen for each process."""
    w1, paper = results.w1(), results.paper_w1()
    columns = (paper[name] for name in ("env", "state", "method", "coefficient", "w1"))
    for process, state, method, printed, value in zip(*columns, strict=True):
        coefficient = chosen_coefficient(results, process) if method == "pcbf" else float(printed)
        setting = Setting(process, int(state))
        seeds = recorded_w1(w1, setting, method, coefficient)
        yield Comparison(
            "cdf_comparison",
            panel_title(setting),
            method,
            float(value),
            rounding=0.0005,
            coefficient=math.nan if coefficient is None else coefficient,
            ours=statistics.mean(seeds),
            ours_std=statistics.std(seeds),
            num_seeds=len(seeds),
            interval=against_one(seeds, float(value)),
        )


def against_one(seeds: np.ndarray, value: float) -> Interval:
    """Interval of our mean minus one further draw that has the spread of our seeds: t s √(1 + 1/n) to each side."""
    if len(seeds) < 2:
        return UNKNOWN
    half = stdtrit(len(seeds) - 1, 0.975) * statistics.std(seeds) * math.sqrt(1 + 1 / len(seeds))
    difference = statistics.mean(seeds) - value
    return Interval(float(difference - half), float(difference + half))


def task_comparisons(results: Results, suite: Suite) -> Iterator[Comparison]:
    """tab:fullogbench_comparison; cells that the paper leaves open are left out."""
    paper = results.paper_table("fullogbench_comparison").dropna(subset=["mean"])
    columns = (paper[name] for name in ("task", "method", "mean", "std", "num_seeds"))
    for task, method, mean, std, num_seeds in zip(*columns, strict=True):
        seeds = suite.seeds(task, method)
        ours = statistics.mean(seeds), statistics.std(seeds), len(seeds)
        yield Comparison(
            "fullogbench_comparison",
            task,
            method,
            float(mean),
            rounding=0.5,
            ours=ours[0],
            ours_std=ours[1],
            num_seeds=ours[2],
            paper_std=float(std),
            interval=statistics.difference_interval(ours, (float(mean), float(std), int(num_seeds))),
            obstacle=score_obstacle(results, suite, [task]),
        )


def domain_comparisons(results: Results, suite: Suite) -> Iterator[Comparison]:
    """tab:aggregated; a domain of which we lack a task is not comparable."""
    paper = results.paper_table("aggregated").dropna(subset=["mean"])
    tasks = results.paper_table("fullogbench_comparison")
    columns = (paper[name] for name in ("domain", "method", "mean", "std"))
    for domain, method, mean, std in zip(*columns, strict=True):
        theirs = tasks[(tasks["domain"] == domain) & (tasks["method"] == method)]
        names = list(theirs["task"])
        ours = [seeds for task in names if len(seeds := suite.seeds(task, method))]
        lacking = f"{len(ours)} of {len(names)} tasks" if len(ours) < len(names) else ""
        spread = aggregate_error([(statistics.std(seeds), len(seeds)) for seeds in ours])
        printed = aggregate_error(list(zip(theirs["std"], theirs["num_seeds"], strict=True)))
        aggregate = statistics.aggregate(ours)
        half = 1.96 * math.hypot(spread, printed)
        difference = aggregate[0] - float(mean)
        yield Comparison(
            "aggregated",
            str(domain),
            method,
            float(mean),
            rounding=0.5,
            ours=aggregate[0],
            ours_std=aggregate[1],
            num_seeds=min(map(len, ours), default=0),
            paper_std=float(std),
            interval=UNKNOWN if math.isnan(half) else Interval(difference - half, difference + half),
            obstacle=score_obstacle(results, suite, names) or lacking,
        )


def aggregate_error(tasks: list[tuple[float, int]]) -> float:
    """Standard error of a mean of task means, from each task's deviation and number of seeds; nan if one is unknown."""
    return math.sqrt(sum(std**2 / count for std, count in tasks)) / len(tasks) if tasks else math.nan


def score_obstacle(results: Results, suite: Suite, tasks: list[str]) -> str:
    """Why scores on these tasks cannot be held against the paper's; empty if they can."""
    sources = {source for task in tasks for source in suite.sources.get(task, ())}
    local = "local data" if "local" in sources else ""
    scale = "" if results.scale == PAPER_SCALE else f"scale {results.scale}"
    return ", ".join(filter(None, [local, scale]))


def cost_comparisons(results: Results) -> Iterator[Comparison]:
    """tab:cost: time and memory relative to IQL on the paper's task, or on the first one that was measured."""
    costs = measured_costs(results.root)
    measured = {cost.method: cost for cost in costs if cost.group == costs[0].group}
    base = measured.get(REFERENCE)
    for method, (time, memory) in paper_costs(results).items():
        cost = measured.get(method)
        for row, relative, paper, rounding in (
            ("time relative to IQL", relative_time, time, 0.05),
            ("memory relative to IQL", relative_memory, memory, 0.05 * memory),
        ):
            yield Comparison(
                *("cost", row, method, paper, rounding),
                ours=relative(cost, base) if cost else math.nan,
                num_seeds=cost.num_seeds if cost else 0,
                obstacle=cost_obstacle(cost.device, cost.task) if cost else "",
            )


def cost_obstacle(device: str, task: str) -> str:
    """Why a measured cost cannot be held against the paper's; empty if it can."""
    other_device = "" if is_paper_device(device) else f"device {device}"
    other_task = "" if task == PAPER_TASK else f"task {short_task(task)}"
    return ", ".join(filter(None, [other_device, other_task]))
