"""Mean against CVaR of exact control, one chart per decision process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from pcbf_analysis.figures.exact_control import drawn_methods
from pcbf_analysis.page.charts import Chart, label, scale_of
from pcbf_analysis.results import Results
from pcbf_analysis.tables.exact import TAIL, by_seed, optimum, risk_levels_of
from pcbf_records.arrays import Floats
from pcbf_records.exact import MEAN, measure_name


def trade_chart(results: Results, mdp: str, only: Sequence[str] | None = None) -> Markup | None:
    """A line per method from acting by the mean (full) through CVaR, α falling (open); None without records."""
    levels = [MEAN, *reversed(risk_levels_of(results, mdp))]
    curves = {
        method: points
        for method in drawn_methods(results, mdp)
        if (only is None or method in only) and len(points := _points(results, mdp, method, levels)[1])
    }
    if not curves:
        return None
    best = np.array([[optimum(results, mdp, level, measure) for measure in _measures()] for level in levels])
    shown = np.concatenate([*curves.values(), best[np.isfinite(best).all(axis=1)]])
    chart = Chart(scale_of(shown[:, 0], "exact mean return"), scale_of(shown[:, 1], f"exact CVaR at {TAIL:g}"), "")
    told = []
    for method, points in curves.items():
        chart.line(map(tuple, points), method)
        known = _points(results, mdp, method, levels)[0]
        for level, (mean, tail) in zip(known, points, strict=True):
            how = "the mean" if level == MEAN else f"CVaR at {level:g}"
            words = f"{label(method)} by {how}: mean {mean:.3f}, CVaR {tail:.3f}"
            chart.mark(mean, tail, method, words, is_hollow=level != MEAN)
        told.append(f"{label(method)}: CVaR {points[0][1]:.2f} by the mean, at best {points[:, 1].max():.2f}")
    for mean, tail in best[np.isfinite(best).all(axis=1)]:
        chart.words(mean, tail, "★", anchor="middle", lift=-4)
    chart.title = f"{mdp}: {'; '.join(told)}. Stars are optima."
    return chart.svg()


def _measures() -> tuple[str, str]:
    return "mean", measure_name(TAIL)


def _points(results: Results, mdp: str, method: str, levels: Sequence[float]) -> tuple[list[float], Floats]:
    """The levels at which a method acts, and mean and CVaR (levels, 2) of what it does, means over seeds."""
    found = {}
    for level in levels:
        seeds = [list(by_seed(results, mdp, method, level, measure).values()) for measure in _measures()]
        if all(seeds):
            found[level] = [float(np.mean(values)) for values in seeds]
    return list(found), np.array(list(found.values())).reshape(len(found), 2)
