"""Deciding tests on control runs, their cost, the settings, and the paper's own tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pcbf_analysis import statistics, theme
from pcbf_analysis.claims.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Case,
    Decision,
    Measure,
    Verdict,
    exact,
    needs_paper,
    over_cases,
    side,
    student,
    within,
)
from pcbf_analysis.control import Run
from pcbf_analysis.results import Results
from pcbf_analysis.tables.aggregated import recomputed_cells
from pcbf_analysis.tables.cost import is_paper_device, measured_costs
from pcbf_analysis.tables.scores import by_rule, domain_tasks, paired_differences
from pcbf_records import layout
from pcbf_records.errors import RecordError

NEAR_BEST = 0.95  # the paper's rule for bold


Seeds = dict[int, float]


def comparable_scores(results: Results, task: str) -> dict[str, Seeds]:
    """Scores by seed of each method that can speak for the paper: official data and at least its steps."""
    return _comparable(results, task, [(run.method, run) for run in results.control.suite])


def _comparable(results: Results, task: str, runs: Iterable[tuple[Any, Run]]) -> dict[Any, Seeds]:
    """Scores on a task by what stands beside each run, of finished runs on official data with the paper's steps."""
    groups: dict[Any, Seeds] = {}
    for key, run in runs:
        is_fit = run.source != "local" and run.steps >= results.sheets.tasks[task].steps
        if run.task == task and is_fit and math.isfinite(run.score):
            groups.setdefault(key, {})[run.seed] = run.score
    return groups


def domain_comparison(
    results: Results,
    *,
    domain: str,
    method: str,
    relation: Literal["best", "near best", "below"],
    other: str | None = None,
) -> Decision:
    """Whether a method is best, within 95 % of the best, or below another one on a domain of tab:aggregated.

    The number is the margin by which the statement fails, in points of score: at most zero where it holds.
    """
    table = results.paper_table("fullogbench_comparison")
    tasks = domain_tasks(results, dict.fromkeys(table["task"]))[domain]
    printed = table[(table["domain"] == domain) & table["mean"].notna()]
    rivals = [other] if other else [str(name) for name in dict.fromkeys(printed["method"]) if name != method]
    scores = {task: comparable_scores(results, task) for task in tasks}
    wanted = [(name, task) for name in (method, *rivals) for task in tasks]
    enough = max(int(count) for count in printed["num_seeds"])
    present = sum(len(scores[task].get(name, ())) >= enough for name, task in wanted)
    if present < len(wanted):
        return needs_paper(f"{present} of {len(wanted)} cells (method × task) have {enough} seeds on official data")
    seeds = sorted(set.intersection(*(set(scores[task][name]) for name, task in wanted)))
    by_seed = {
        name: np.mean([[scores[task][name][seed] for seed in seeds] for task in tasks], axis=0)
        for name in (method, *rivals)
    }  # the mean over tasks of each seed that all have
    best = max(rivals, key=lambda name: by_seed[name].mean())
    sign, share = -1.0 if relation == "below" else 1.0, NEAR_BEST if relation == "near best" else 1.0
    measured = student(sign * (share * by_seed[best] - by_seed[method]))
    return Decision(side(measured), measured, f"points by which {method} misses being {relation}, seed by seed")


def ablation_best(results: Results, *, task: str, where: Literal["moderate", "zero"]) -> Decision:
    """Whether the best λ on a task is inside the grid and better than both ends, or is zero; seed by seed.

    Only weights with as many seeds as the paper has on the task count.
    """
    table = results.paper_table("fullogbench_comparison")
    enough = max(int(count) for count in table.loc[table["task"] == task, "num_seeds"])
    found = _comparable(results, task, results.control.ablation())
    groups = {weight: seeds for weight, seeds in found.items() if len(seeds) >= enough}
    if len(groups) < 3 or 0.0 not in groups:
        return needs_paper(f"{len(groups)} control weights have {enough} seeds on official data")
    weights = sorted(groups)
    inner = weights[1:-1]
    best = 0.0 if where == "zero" else max(inner, key=lambda weight: statistics.mean(list(groups[weight].values())))
    rivals = weights[1:] if where == "zero" else [weights[0], weights[-1]]
    cases = []
    for weight in rivals:
        measured = student(paired_differences(groups[weight], groups[best]))
        cases.append(Case(f"{weight:g}", measured, side(measured)))
    return over_cases(cases, f"score at another λ minus that at {best:g}, seed by seed")


def cost_ratio(
    results: Results,
    *,
    first: str,
    second: str,
    quantity: Literal["milliseconds", "memory_gb"],
    low: float | None = None,
    high: float | None = None,
) -> Decision:
    """Whether one method costs between `low` and `high` times another, in each group of task, device and seeds.

    Only measurements on the paper's accelerator decide; the interval is their range over groups.
    """
    costs = {(cost.group, cost.method): cost for cost in measured_costs(results.root)}
    ratios = []
    for group in dict.fromkeys(group for group, _ in costs):
        ours, theirs = costs.get((group, first)), costs.get((group, second))
        same_memory = ours and theirs and ours.memory_kind == theirs.memory_kind
        if ours and theirs and (quantity == "milliseconds" or same_memory):
            ratios.append((ours.device, float(getattr(ours, quantity) / getattr(theirs, quantity))))
    fitting = [ratio for device, ratio in ratios if is_paper_device(device)]
    if not fitting:
        note, known = "not measured on an A100", [ratio for _, ratio in ratios]
        measured = Measure(float(np.mean(known)), min(known), max(known)) if known else None
        return needs_paper(f"{note}; elsewhere the ratio is the one shown" if known else note, measured)
    measured = Measure(float(np.mean(fitting)), min(fitting), max(fitting))
    found: set[Verdict] = {within(exact(ratio), low, high) for ratio in fitting}
    return Decision(
        found.pop() if len(found) == 1 else UNDECIDED,
        measured,
        f"{first} over {second}; mean and range of {len(fitting)} measurements",
    )


def action_dimensions(results: Results, *, tasks: Sequence[str], expected: int) -> Decision:
    """Whether the simulators of the tasks have as many action dimensions as expected."""
    return _spaces(results, tasks, lambda space: space["action_dim"], expected, "action dimensions")


def observation_size(results: Results, *, tasks: Sequence[str], expected: int) -> Decision:
    """Whether the observations of the tasks have as many numbers as expected."""
    return _spaces(results, tasks, lambda s: int(np.prod(s["observation_shape"])), expected, "numbers per observation")


def _spaces(results: Results, tasks: Sequence[str], value: Any, expected: int, what: str) -> Decision:
    cases = []
    for task in tasks:
        path = results.root / layout.spaces(task)
        if not path.exists():
            cases.append(Case(task, Measure(math.nan), UNDECIDED))
            continue
        try:
            found = value(json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RecordError(f"{layout.spaces(task)} cannot be read ({error}); delete it and render again.") from error
        cases.append(Case(f"{task} ({found})", exact(found), HOLDS if found == expected else FAILS))
    return over_cases(cases, what)


# --- settings -----------------------------------------------------------------------------------------------------


def number_of_tasks(results: Results, *, expected: int, domains: Sequence[str] | None = None) -> Decision:
    """Whether the paper's table of all tasks has as many (of some domains) as its text says."""
    tasks = results.paper_table("fullogbench_comparison").drop_duplicates("task")
    count = len(tasks) if domains is None else sum(domain in domains for domain in tasks["domain"])
    return Decision(HOLDS if count == expected else FAILS, exact(count), "rows of tab:fullogbench_comparison")


def weights_within_discount(results: Results) -> Decision:
    """Whether every printed λ lies between 0 and the discount of its row: the largest λ - γ."""
    table = results.paper_table("domain_hyperparameters")
    cases = []
    for name, weight, discount in zip(table["domain"], table["pcbf.lambda"], table["discount"], strict=True):
        verdict = HOLDS if 0 <= float(weight) <= float(discount) else FAILS
        cases.append(Case(str(name), exact(float(weight) - float(discount)), verdict))
    return over_cases(cases, "λ minus γ of each row")


def headings_match(results: Results, *, share: float) -> Decision:
    """Whether each printed column agrees in at least a share of its rows with settings of the method that heads it.

    Settings are those with which the baselines' own repositories publish their results, and the paper's for PCBF.
    """
    table, used = results.paper_table("domain_hyperparameters"), results.method_settings()["domains"]
    cases = []
    for column in [name for name in table.columns if "." in name]:
        method = column.split(".")[0]
        rows = [
            any(math.isclose(float(value), setting) for setting in _numbers(used[domain]["methods"].get(method, {})))
            for domain, value in zip(table["domain"], table[column], strict=True)
            if math.isfinite(float(value))
        ]
        agreeing = exact(sum(rows) / len(rows))
        cases.append(Case(column, agreeing, HOLDS if agreeing.value >= share else FAILS))
    return over_cases(cases, "share of rows that are the heading method's own settings", worst="smallest")


def _numbers(settings: Mapping[str, Any]) -> list[float]:
    return [float(value) for value in settings.values() if isinstance(value, int | float)]


# --- the paper's own tables -----------------------------------------------------------------------------------------


def bold_follows_rule(results: Results, *, table: Literal["aggregated", "fullogbench_comparison"]) -> Decision:
    """Whether the paper's bold marks exactly the values within 95 % of the best of each row: how many do not."""
    cells = results.paper_table(table)
    row = "domain" if table == "aggregated" else "task"
    against = int((by_rule(cells, row) != cells["is_bold"].astype(bool)).sum())
    return Decision(FAILS if against else HOLDS, exact(against), f"cells against the rule, of {len(cells)}")


def domain_means_follow(results: Results, *, tolerance: float) -> Decision:
    """Whether the paper's domain means are the means of its task means, up to rounding: the largest difference."""
    recomputed = recomputed_cells(results)
    printed = results.paper_table("aggregated")
    cases = []
    for domain, method, mean in zip(printed["domain"], printed["method"], printed["mean"], strict=True):
        if math.isfinite(float(mean)) and (domain, method) in recomputed:
            gap = exact(abs(float(mean) - recomputed[domain, method][0]))
            name = f"{theme.METHODS[method].label} on {domain}"
            cases.append(Case(name, gap, side(gap.minus(tolerance))))
    return over_cases(cases, "printed domain mean minus that of its task rows")
