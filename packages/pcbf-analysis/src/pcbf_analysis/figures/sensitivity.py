"""W1 against λ or dcfm, shared by fig:toy_sen and fig:hyper_abla."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pcbf_analysis import theme
from pcbf_analysis.figures.common import draw_mean, legend_lines, mean_interval
from pcbf_analysis.results import Results, Setting, chosen_coefficient, reported_w1, seed_means
from pcbf_analysis.theme import Style
from pcbf_core.mrp import MRPS
from pcbf_records.arrays import Floats
from pcbf_records.layout import TOY_TUNING_W1, TOY_W1

CAPTION = (
    "W1 distance to the exact return law (logarithmic axis) against the coefficient: λ in [0, γ] for PCBF with shared "
    "and with independent noise, λ in (0, 1] for PCBF on the flow path, dcfm in [0, 1] for Value Flows. Points are "
    "seeds, lines their mean, bars Student's 95 % interval of the mean; for the chain each seed's value is the mean "
    "over the paper's states s = 1, 5, 10, 18. A bar that leaves the panel below reaches zero, a line that leaves it "
    "above goes to the number written there (independent noise diverges); methods are drawn a little apart. "
    "The star marks the λ with the lowest mean W1 on tuning seeds; diamonds and the dotted line are the "
    "values reported in the paper."
)
INPUTS = (TOY_W1, TOY_TUNING_W1)
# to keep points at equal coefficients apart
SHIFTS = {"pcbf-independent": 0.012, "value_flows": -0.012, "pcbf_flow": 0.006}
ABLATION = "pcbf-independent"
STAR: dict[str, Any] = {
    "color": theme.METHODS["pcbf"].colour,
    "markeredgecolor": "black",
    "markeredgewidth": 0.5,
}
DIAMOND: dict[str, Any] = {"markeredgecolor": theme.METHODS["value_flows"].colour, "markerfacecolor": "white"}
DOTTED: dict[str, Any] = {"color": theme.METHODS["pcbf"].colour, "linestyle": ":", "linewidth": 0.9}


METHODS = ("pcbf", "pcbf-independent", "value_flows", "pcbf_flow")  # those with a weight to vary
FAR = 3.0  # times the largest value of the other methods: what the ablation has above it leaves the panel


def draw_processes(results: Results, processes: tuple[str, ...], width: float, height: float) -> Figure:
    """One panel of W1 against the coefficient per process."""
    figure = Figure(figsize=(width, height), layout="constrained")
    for axes, process in zip(figure.subplots(1, len(processes)), processes, strict=True):
        draw_panel(axes, process, results)
    figure.axes[0].set_ylabel("W1 to the exact law")
    handles = legend_lines([(theme.METHODS[name].label, theme.METHODS[name]) for name in METHODS], markers=True)
    star = Line2D([], [], linestyle="", marker="*", markersize=7, label="chosen λ", **STAR)
    diamond = Line2D([], [], linestyle="", marker="D", label="Value Flows in the paper", **DIAMOND)
    dotted = Line2D([], [], label="PCBF in the paper (λ not stated)", **DOTTED)
    figure.legend(handles=[*handles, star, diamond, dotted], loc="outside lower center", ncols=3)
    return figure


def draw_panel(axes: Axes, process: str, results: Results) -> None:
    """W1 of all methods on one process, and the paper's values."""
    w1 = results.w1()
    states = MRPS[process].evaluation_states
    over_states = f", s = {', '.join(map(str, states))}" if len(states) > 1 else ""
    axes.set(title=theme.PROCESSES[process].label + over_states, xlabel="λ (PCBF) or dcfm (Value Flows)")
    axes.set(xlim=(-0.04, 1.04), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_xticklabels(["0", "0.25", "0.5", "0.75", "1"])
    means = {method: seed_means(w1, process, method) for method in METHODS}
    present = {method: pair for method, pair in means.items() if np.isfinite(pair[1]).any()}
    if not present:
        axes.set_yticks([])
        theme.empty_panel(axes)
        return
    axes.set_yscale("log")
    for method, (coefficients, values) in present.items():
        draw_method(axes, theme.METHODS[method], coefficients + SHIFTS.get(method, 0.0), values)
    reported = draw_paper(axes, process, results.paper_w1())
    draw_choice(axes, process, results)
    set_range(axes, present, reported)
    theme.plain_log_axis(axes.yaxis)


def set_range(axes: Axes, present: Mapping[str, tuple[Floats, Floats]], reported: Floats) -> None:
    """The range that shows all methods, but not an ablation that diverges: its means are written at the top instead."""
    others = [values.ravel() for method, (_, values) in present.items() if method != ABLATION]
    top = float(np.nanmax(np.concatenate([reported, *others])))
    places, values = present.get(ABLATION, (np.empty(0), np.empty((0, 1))))
    near = values[values <= FAR * top]
    shown = np.concatenate([reported, near, *others])
    limit = 1.4 * float(np.nanmax(shown))
    axes.set_ylim(0.7 * float(np.nanmin(shown)), limit)
    for place, mean in zip(places, mean_interval(values)[0], strict=True):
        if mean > limit:
            look: dict[str, Any] = {"color": theme.METHODS[ABLATION].colour, "ha": "right", "va": "top", "fontsize": 6}
            axes.annotate(f"to {mean:.0f} ↑", (place, limit), (-1, -1), textcoords="offset points", **look)


def draw_method(axes: Axes, style: Style, coefficients: Floats, values: Floats) -> None:
    """Seeds, mean and interval of one method."""
    axes.plot(np.repeat(coefficients, values.shape[1]), values.ravel(), ".", color=style.colour, markersize=2)
    draw_mean(axes, style, coefficients, values)


def draw_choice(axes: Axes, process: str, results: Results) -> None:
    """A star on PCBF's chosen λ."""
    best = chosen_coefficient(results, process)
    if best is None:
        return
    coefficients, values = seed_means(results.w1(), process, "pcbf")
    mean, _ = mean_interval(values)
    axes.plot(best, mean[np.argmin(np.abs(coefficients - best))], "*", markersize=8, zorder=6, **STAR)


def draw_paper(axes: Axes, process: str, paper: pd.DataFrame) -> Floats:
    """The paper's values, drawn: Value Flows as diamonds, PCBF as a dotted line."""
    flows = [paper_mean(paper, process, "value_flows", dcfm) for dcfm in theme.VALUE_FLOWS_SHADES]
    axes.plot(list(theme.VALUE_FLOWS_SHADES), flows, "D", markersize=4, zorder=5, **DIAMOND)
    pcbf = paper_mean(paper, process, "pcbf", None)
    axes.axhline(pcbf, zorder=1, **DOTTED)
    return np.array([*flows, pcbf])


def paper_mean(paper: pd.DataFrame, process: str, method: str, coefficient: float | None) -> float:
    """The paper's W1 as the mean over the evaluation states of a process."""
    states = MRPS[process].evaluation_states
    return float(np.mean([reported_w1(paper, Setting(process, state), method, coefficient) for state in states]))
