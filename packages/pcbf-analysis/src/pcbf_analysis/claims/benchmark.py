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
    difference,
    exact,
    needs_paper,
    over_cases,
    side,
    student,
    undecided,
    within,
)
from pcbf_analysis.control import Run
from pcbf_analysis.results import Results
from pcbf_analysis.tables.aggregated import recomputed_cells
from pcbf_analysis.tables.cost import is_paper_device, measured_costs
from pcbf_analysis.tables.scores import by_rule, domain_tasks
from pcbf_records import layout
from pcbf_records.errors import RecordError
from pcbf_records.toy import Floats

NEAR_BEST = 0.95  # the paper's rule for bold


def comparable_scores(results: Results, task: str) -> dict[str, Floats]:
    """Scores of the seeds of each method that can speak for the paper: official data and at least its steps."""
    return _comparable(results, task, [(run.method, run) for run in results.control.suite])


def _comparable(results: Results, task: str, runs: Iterable[tuple[Any, Run]]) -> dict[Any, Floats]:
    """Scores on a task by what stands beside each run, of finished runs on official data with the paper's steps."""
    groups: dict[Any, list[float]] = {}
    for key, run in runs:
        is_fit = run.source != "local" and run.steps >= results.sheets.tasks[task].steps
        if run.task == task and is_fit and math.isfinite(run.score):
            groups.setdefault(key, []).append(run.score)
    return {key: np.array(scores) for key, scores in groups.items()}


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
    by_seed = {
        name: np.mean([scores[task][name][:enough] for task in tasks], axis=0) for name in (method, *rivals)
    }  # the mean over tasks of each seed
    best = max(rivals, key=lambda name: by_seed[name].mean())
    sign, share = -1.0 if relation == "below" else 1.0, NEAR_BEST if relation == "near best" else 1.0
    measured = student(sign * (share * by_seed[best] - by_seed[method]))
    return Decision(side(measured), measured, f"points by which {method} misses being {relation}, seed by seed")


def ablation_best(results: Results, *, task: str, where: Literal["moderate", "zero"]) -> Decision:
    """Whether the best λ on a task is inside the grid and better than both ends, or is zero."""
    groups = _comparable(results, task, results.control.ablation())
    if len(groups) < 3 or 0.0 not in groups:
        return needs_paper(f"{len(groups)} control weights have runs on official data")
    weights = sorted(groups)
    if where == "zero":
        rivals = [Case(f"{w:g}", difference(groups[w], groups[0.0]), UNDECIDED) for w in weights[1:]]
        cases = [Case(case.name, case.measured, side(case.measured)) for case in rivals]
        return over_cases(cases, "score at λ minus score at 0")
    best = max(weights[1:-1], key=lambda weight: statistics.mean(groups[weight]))
    ends = [Case(f"{w:g}", difference(groups[w], groups[best]), UNDECIDED) for w in (weights[0], weights[-1])]
    return over_cases(
        [Case(c.name, c.measured, side(c.measured)) for c in ends], f"score at an end minus that at {best:g}"
    )


def cost_ratio(
    results: Results,
    *,
    first: str,
    second: str,
    quantity: Literal["milliseconds", "memory_gb"],
    low: float | None = None,
    high: float | None = None,
    paper_device: bool = False,
) -> Decision:
    """Whether one method costs between `low` and `high` times another, in each group of task, device and seeds.

    The interval is the range over groups; with `paper_device` only measurements on the paper's accelerator decide.
    """
    costs = {(cost.group, cost.method): cost for cost in measured_costs(results.root)}
    ratios = []
    for group in dict.fromkeys(group for group, _ in costs):
        ours, theirs = costs.get((group, first)), costs.get((group, second))
        same_memory = ours and theirs and ours.memory_kind == theirs.memory_kind
        if ours and theirs and (quantity == "milliseconds" or same_memory):
            ratios.append((ours.device, float(getattr(ours, quantity) / getattr(theirs, quantity))))
    fitting = [ratio for device, ratio in ratios if not paper_device or is_paper_device(device)]
    if not fitting:
        note = "not measured on an A100"
        if paper_device:
            known = [ratio for _, ratio in ratios]
            measured = Measure(float(np.mean(known)), min(known), max(known)) if known else None
            return needs_paper(f"{note}; elsewhere the ratio is the one shown" if known else note, measured)
        return undecided()
    measured = Measure(float(np.mean(fitting)), min(fitting), max(fitting))
    found: set[Verdict] = {within(exact(ratio), low, high) for ratio in fitting}
    return Decision(
        found.pop() if len(found) == 1 else UNDECIDED,
        measured,
        f"{first} over {second}; mean and range of {len(fitting)} measurements",
    )


def recorded_setting(results: Results, *, method: str, setting: str, differs_from: float) -> Decision:
    """Whether the recorded runs of a method use another value of a setting than `differs_from`."""
    values = [run.setting(setting) for run in results.control.suite if run.method == method]
    known = [float(value) for value in values if isinstance(value, int | float)]
    if not known:
        return undecided()
    other = sum(not math.isclose(value, differs_from) for value in known)
    verdict = HOLDS if other == len(known) else FAILS if other == 0 else UNDECIDED
    return Decision(verdict, exact(known[0]), f"{setting} of {len(known)} recorded runs; {differs_from:g} is uniform")


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


def _domains(results: Results) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    content = results.method_settings()
    return content["domains"], content["headings"]


def number_of_tasks(results: Results, *, expected: int, observations: str | None = None) -> Decision:
    """Whether the task sheet has as many tasks (with observations of a kind: state or pixel) as the paper says."""
    tasks = [results.sheets.tasks[name] for name in results.sheets.paper_tasks]
    count = sum(observations in (None, task.observations) for task in tasks)
    return Decision(HOLDS if count == expected else FAILS, exact(count), "tasks in config/tasks.tsv")


def weights_within_discount(results: Results) -> Decision:
    """Whether every domain's λ lies between 0 and its discount: the largest λ - γ."""
    domains, _ = _domains(results)
    cases = []
    for name, domain in domains.items():
        weight, discount = domain["methods"].get("pcbf", {}).get("control_weight", 0.0), domain["discount"]
        cases.append(Case(name, exact(weight - discount), HOLDS if 0 <= weight <= discount else FAILS))
    return over_cases(cases, "λ minus γ of each domain")


def headings_match(results: Results) -> Decision:
    """Whether the columns of tab:domain_hyperparameters hold settings of the method that heads them."""
    _, headings = _domains(results)
    right = sum(printed.split(".")[0] == used.split(".")[0] for printed, used in headings.items())
    verdict = HOLDS if right == len(headings) else FAILS
    wrong = [
        f"{printed} is {used}" for printed, used in headings.items() if printed.split(".")[0] != used.split(".")[0]
    ]
    note = f"columns under their own method: {right} of {len(headings)}" + (f"; {', '.join(wrong)}" if wrong else "")
    return Decision(verdict, exact(right / len(headings)), note)


def one_architecture(results: Results, *, settings: Sequence[str]) -> Decision:
    """Whether no published setting of any method changes the network: how many do."""
    domains, _ = _domains(results)
    other = [
        f"{method} on {name}"
        for name, domain in domains.items()
        for method, values in domain["methods"].items()
        if any(setting in values for setting in settings)
    ]
    note = "settings that change the network" + (f": {', '.join(other)}" if other else "")
    return Decision(FAILS if other else HOLDS, exact(len(other)), note)


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
