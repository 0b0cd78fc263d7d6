"""Learning curves of the control suite: a panel per task, and one of their mean where there are several."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from pcbf_analysis import statistics
from pcbf_analysis.control import Run
from pcbf_analysis.page.charts import Chart, interval_words, label, legend, scale_of
from pcbf_analysis.page.runs import by_task
from pcbf_analysis.results import short_task
from pcbf_records.arrays import Floats

FIRST = ("pcbf_flow", "pcbf", "value_flows", "iql", "bc")  # curves shown before any press; all at once hide each other
EARLY = 0.5  # share of training; where the first evaluation comes before it the axis begins at step 0

Seeds = Mapping[int, Mapping[int, float]]  # scores by seed and step
Methods = Mapping[str, Seeds]


class Curve(NamedTuple):
    """Steps that every seed was evaluated at, the mean over seeds, and Student's interval, nan for one seed."""

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats


def learning_curve(seeds: Seeds) -> Curve:
    """The curve of a method from the scores of its seeds."""
    steps = sorted(set.intersection(*map(set, seeds.values()))) if seeds else []
    scores = [[seed[step] for seed in seeds.values()] for step in steps]
    bounds = np.array([statistics.student_interval(values) for values in scores]).reshape(len(steps), 2)
    return Curve(np.array(steps, float), np.array([statistics.mean(values) for values in scores]), *bounds.T)


def scores_of(runs: Sequence[Run]) -> dict[str, dict[int, dict[int, float]]]:
    """Scores of one task by method, seed and step; a seed that diverged has no curve, as it has no score."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    for run in runs:
        if run.status == "finished" and run.evaluations:
            found.setdefault(run.method, {})[run.seed] = {judged.step: judged.mean for judged in run.evaluations}
    return found


def over_tasks(tasks: Sequence[Methods]) -> dict[str, dict[int, dict[int, float]]]:
    """Mean over tasks of each seed at each step, for the methods, seeds and steps that all tasks have."""

    def shared(parts: Sequence[Mapping[Any, Any]]) -> list[Any]:
        return [key for key in parts[0] if all(key in part for part in parts)]

    means: dict[str, dict[int, dict[int, float]]] = {}
    for method in shared(tasks):
        of_method = [task[method] for task in tasks]
        for seed in shared(of_method):
            of_seed = [seeds[seed] for seeds in of_method]
            steps = {step: float(np.mean([scores[step] for scores in of_seed])) for step in shared(of_seed)}
            means.setdefault(method, {})[seed] = steps
    return means


def curve_views(runs: Sequence[Run]) -> dict[str, Any]:
    """What the template shows: panels, the mean over tasks first, and the marks that all of them share."""
    tasks = {short_task(task): scores_of(members) for task, members in by_task(runs)}
    if len(tasks) > 1:
        tasks = {f"Mean over {len(tasks)} tasks": over_tasks(list(tasks.values())), **tasks}
    panels = {title: with_curves(methods) for title, methods in tasks.items()}
    names = set(itertools.chain.from_iterable(panels.values()))
    hidden = names - set(FIRST) if names & set(FIRST) else set()
    return {
        "panels": [{"title": title, "chart": panel(shown)} for title, shown in panels.items() if shown],
        "legend": legend(names, hidden),
    }


def with_curves(methods: Methods) -> dict[str, Seeds]:
    """The methods that were evaluated more than once; one evaluation is no curve."""
    return {name: seeds for name, seeds in methods.items() if len(learning_curve(seeds).steps) > 1}


def panel(methods: Methods) -> Markup:
    """The curves of all methods; bands are cut where no seed has a score, so that a wide one flattens nothing."""
    curves = {name: learning_curve(seeds) for name, seeds in methods.items()}
    steps = np.concatenate([curve.steps for curve in curves.values()])
    scores = [score for seeds in methods.values() for seed in seeds.values() for score in seed.values()]
    x = scale_of(steps, "gradient steps", zero=bool(steps.min() <= EARLY * steps.max()))
    chart = Chart(x, scale_of(scores, "score", zero=True), "")
    for name, curve in curves.items():
        chart.band(curve.steps, curve.low, curve.high, name)
        chart.line(zip(curve.steps, curve.mean, strict=True), name)
        for step, mean, low, high in zip(*curve, strict=True):
            chart.mark(step, mean, name, f"{label(name)}, step {step:.0f}: {mean:.1f}{interval_words(low, high)}")
    chart.title = "; ".join(f"{label(name)} ends at {curve.mean[-1]:.1f}" for name, curve in curves.items())
    return chart.svg()
