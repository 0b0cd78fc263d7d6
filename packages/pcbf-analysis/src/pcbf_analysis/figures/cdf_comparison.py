"""fig:cdf_comparison: CDFs and W1 distances in all six evaluation settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pcbf_analysis import theme
from pcbf_analysis.figures.common import (
    Curve,
    cdf_curves,
    cdf_legend,
    draw_cdfs,
    draw_mean,
    mean_interval,
    panel_title,
)
from pcbf_analysis.figures.toy_cdf_comparison import INPUTS as INPUTS
from pcbf_analysis.results import Results, Setting, evaluation_settings, recorded_w1, reported_w1
from pcbf_analysis.theme import Style

TITLE = "Learned return CDFs and W1 distances in six settings"
CAPTION = (
    "Left of each pair: distribution function of the learned return (average quantile function over seeds, band: range "
    "over seeds) against the exact law (wide grey line). Right: W1 distance to the exact law on a logarithmic axis, "
    "mean over seeds with Student's 95 % interval, one point per seed, the coefficient under the name; "
    "diamonds are the values reported in the paper, which does not state its λ. PCBF is shown at the λ with the lowest "
    "mean W1 of each process."
)
SHORT_NAMES = {"pcbf": "PCBF", "value_flows": "VF"}
DIAMOND: dict[str, Any] = {"markeredgecolor": "black", "markerfacecolor": "white", "markeredgewidth": 0.7}


def draw(results: Results) -> Figure:
    """The figure: three rows of two (CDF, W1) pairs."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 6.6), layout="constrained")
    settings, curves = evaluation_settings(), cdf_curves(results)
    w1, paper = results.w1(), results.paper_w1()
    rows = -(-len(settings) // 2)
    grid = figure.add_gridspec(rows, 5, width_ratios=[1, 0.66, 0.02, 1, 0.66])
    for place, setting in enumerate(settings):
        row, column = divmod(place, 2)
        cdf_axes = figure.add_subplot(grid[row, 3 * column])
        draw_cdfs(cdf_axes, results, setting, curves)
        cdf_axes.set(title=panel_title(setting), xlabel="return" if row == rows - 1 else "")
        cdf_axes.set_ylabel("cumulative probability" if column == 0 else "")
        draw_distances(figure.add_subplot(grid[row, 3 * column + 1]), setting, curves, w1, paper)
    diamond = Line2D([], [], label="paper's W1", color="none", marker="D", **DIAMOND)
    figure.legend(handles=[*cdf_legend(curves), diamond], loc="outside lower center", ncols=3)
    return figure


def draw_distances(axes: Axes, setting: Setting, curves: list[Curve], w1: pd.DataFrame, paper: pd.DataFrame) -> None:
    """W1 of each method: mean with its interval, seeds, number above, and the paper's value."""
    cells = [(curve.method, curve.coefficients.get(setting.process)) for curve in curves]
    ours = [recorded_w1(w1, setting, *cell) for cell in cells]
    theirs = [reported_w1(paper, setting, *cell) for cell in cells]
    known = [float(value) for value in (*np.concatenate(ours), *theirs) if np.isfinite(value)]
    axes.set(yscale="log", title="W1", xlim=(-0.6, len(cells) - 0.4), xticks=range(len(cells)))
    axes.set_ylim(0.5 * min(known, default=0.1), 3.2 * max(known, default=1))
    axes.set_xticklabels([f"{SHORT_NAMES[m]}\n{'λ ?' if value is None else theme.number(value)}" for m, value in cells])
    axes.grid(axis="x", visible=False)
    theme.plain_log_axis(axes.yaxis)
    note: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 5}
    for place, (seeds, reported, curve) in enumerate(zip(ours, theirs, curves, strict=True)):
        if len(seeds):
            look = Style(curve.style.label, curve.style.colour, curve.style.marker, "")
            draw_mean(axes, look, np.array([float(place)]), seeds[None])
            axes.plot(np.full(len(seeds), place + 0.22), seeds, ".", color=curve.style.colour, markersize=2)
            mean, half = mean_interval(seeds[None])
            top = np.nanmax([*seeds, mean[0] + half[0], reported])
            axes.annotate(short_number(seeds.mean()), (place, top), (0, 4), **note)
        else:
            axes.annotate("none", (place, axes.get_ylim()[0]), (0, 3), **note)
        if np.isfinite(reported):
            axes.plot(place - 0.22, reported, "D", markersize=3, **DIAMOND)


def short_number(value: float) -> str:
    """Three decimals below 1, without the leading zero, and two above: .116, 1.02, 12.30."""
    return f"{value:.3f}".removeprefix("0") if value < 1 else f"{value:.2f}"
