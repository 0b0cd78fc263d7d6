"""Calibration: PIT histograms of every critic on every dataset, and their CRPS."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures.common import mean_interval
from pcbf_analysis.results import Results
from pcbf_analysis.tables.calibration import by_seed, methods_of
from pcbf_records.calibration import DATASETS, MARGINAL, MONTE_CARLO, CalibrationRecord
from pcbf_records.layout import CALIBRATION_RESULTS, calibration_run

TITLE = "Calibration: where held-out returns fall in the learned laws"
CAPTION = (
    "Top: histograms of the randomised PIT, F(return) under the learned law of each critic, means over seeds; a "
    "calibrated law has the dashed line. Much at both ends says that laws are too narrow, a hill in the middle that "
    "they are too wide, a slope that they lie too high (left) or too low (right); bars are cut at the top. Bottom: "
    "CRPS in standard deviations of the training returns, means over seeds with Student's 95 % interval (less is "
    "better); the grey line is Monte Carlo, a network of the same kind trained on returns-to-go; the label of the axis "
    "tells that of the marginal law, the law of all training returns; a score far beyond it is written instead."
)
INPUTS = (CALIBRATION_RESULTS, calibration_run("hopper", "pcbf_flow"))
TITLES = {"cube": "cube-single-play", "teleport": "pointmaze-teleport", "hopper": "Hopper"}
FAR = 5.0  # times the marginal law's score, beyond which a score is told and not drawn
TOP = 3.0  # of a histogram's axis, in units of the uniform density


def draw(results: Results) -> Figure:
    """The figure: a row of histograms per dataset, then a panel of scores each.

    Margins are given: with two grids the layout that matplotlib finds differs in its last digits from run to run.
    """
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 5.0))
    methods = list(dict.fromkeys(method for dataset in DATASETS for method in methods_of(results, dataset)))
    shape = len(DATASETS), max(len(methods), 1)
    upper = figure.add_gridspec(*shape, left=0.04, right=0.99, bottom=0.49, top=0.93, wspace=0.24, hspace=0.16)
    lower = figure.add_gridspec(1, len(DATASETS), left=0.13, right=0.985, bottom=0.07, top=0.36, wspace=0.62)
    grid = upper.subplots(sharex=True, sharey=True, squeeze=False)
    for row, dataset in zip(grid, DATASETS, strict=True):
        for axes, method in zip(row, methods or [""], strict=True):
            draw_histogram(axes, results.calibration_record(dataset, method), theme.METHODS.get(method))
        row[0].set_ylabel(dataset)
    for axes, method in zip(grid[0], methods, strict=False):
        axes.set_title(theme.method_label(method).replace(", ", ",\n"), fontsize=6)
    figure.text(0.515, 0.425, "F(return) under the learned law", fontsize=7, ha="center")
    panels: Any = lower.subplots()
    for axes, dataset in zip(panels, DATASETS, strict=True):
        draw_scores(axes, results, dataset)
    return figure


def draw_histogram(axes: Axes, record: CalibrationRecord | None, style: theme.Style | None) -> None:
    """The PIT histogram of one critic as a density."""
    axes.set(xlim=(0, 1), ylim=(0, TOP), xticks=[0, 0.5, 1], yticks=[])
    axes.set_xticklabels(["0", "½", "1"])
    axes.grid(visible=False)
    if record is None:
        theme.empty_panel(axes)
        return
    heights = record.pit.mean(axis=0) * record.pit.shape[1]
    edges = np.linspace(0, 1, len(heights) + 1)
    axes.stairs(np.minimum(heights, TOP), edges, fill=True, color=style.colour if style else "#777777", alpha=0.7)
    axes.axhline(1.0, color="#222222", linewidth=0.6, linestyle="--")


def draw_scores(axes: Axes, results: Results, dataset: str) -> None:
    """CRPS of all methods on one dataset, best at the top."""
    found = {
        name: np.array(list(by_seed(results, dataset, name, "crps").values())) for name in methods_of(results, dataset)
    }
    axes.set_title(TITLES[dataset])
    axes.set_xlabel("CRPS")
    limit = np.inf
    if MARGINAL in found:
        marginal = float(found.pop(MARGINAL).mean())
        axes.set_xlabel(f"CRPS (marginal law {marginal:.2f})")
        limit = FAR * marginal
    if not found:
        theme.empty_panel(axes)
        return
    if MONTE_CARLO in found:
        axes.axvline(found.pop(MONTE_CARLO).mean(), color="#888888", linewidth=0.9)
    ranked = sorted(found, key=lambda name: -found[name].mean())
    for height, name in enumerate(ranked):
        style = theme.METHODS.get(name, theme.Style(name, "#777777"))
        mean, half = mean_interval(found[name][None])
        look = {"color": style.colour, "marker": style.marker, "linestyle": "", "elinewidth": 0.7}
        if mean[0] < limit:
            axes.errorbar(mean, [height], xerr=np.nan_to_num(half), **look)
        else:
            axes.text(0.97, height, f"{mean[0]:.2g} →", transform=axes.get_yaxis_transform(), ha="right", va="center")
    axes.set_yticks(range(len(ranked)), [theme.method_label(name) for name in ranked])
    axes.set_ylim(-0.6, len(ranked) - 0.4)
