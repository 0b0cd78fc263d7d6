"""W1 and target variance against λ, on the paper's path and on the flow path: networks as points, theory as lines."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pcbf_analysis import theme
from pcbf_analysis.figures.common import draw_mean, legend_lines
from pcbf_analysis.results import Results, late_losses, seed_means
from pcbf_analysis.theme import Style
from pcbf_records.arrays import Floats
from pcbf_records.layout import THEORY_POPULATION, TOY_W1, toy_run
from pcbf_records.toy import PROCESSES

TITLE = "λ without bias: the flow path beside the paper's"
CAPTION = (
    "Against λ: W1 distance to the exact return law (top), and the mean of the regression loss over the last tenth of "
    "training, which is the target's variance up to what the network misses (bottom), both logarithmic. The linear "
    "path is the paper's; at λ = 0 both paths are one algorithm, whose runs are drawn for both. Points are networks, "
    "means over seeds with Student's 95 % interval; W1 is the mean over the evaluation states. Lines are the fixed "
    "points that infinite data and a perfect network would reach, W1 only where the law has no atoms and one state, "
    "since elsewhere the solver's own error is larger. Independent noise (the ablation) is in the variance only."
)
SERIES = {  # name: method, path and noise of the population
    "linear path": ("pcbf", "linear", "shared"),
    "flow path": ("pcbf_flow", "flow", "shared"),
    "independent noise": ("pcbf-independent", "linear", "independent"),
}
INPUTS = (
    TOY_W1,
    THEORY_POPULATION,
    *(toy_run(process, method) for process in PROCESSES for method, *_ in SERIES.values()),
)
SMOOTH = ("bernoulli", "normal")


def draw(results: Results) -> Figure:
    """The figure: a column per process."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 3.8), layout="constrained")
    w1, population = results.w1(), results.population()
    for column, process in zip(figure.subplots(2, len(PROCESSES), sharex=True).T, PROCESSES, strict=True):
        distance, loss = column
        at_zero = seed_means(w1, process, "pcbf"), late_losses(results, process, "pcbf")
        for method, path, noise in SERIES.values():
            style = Style(method, theme.METHODS[method].colour, theme.METHODS[method].marker, "")
            distances, losses = seed_means(w1, process, method), late_losses(results, process, method)
            if path == "flow":
                distances, losses = with_zero(distances, at_zero[0]), with_zero(losses, at_zero[1])
            weights, w1_line, variance = fixed_points(population, process, path, noise)
            if noise == "shared":
                _draw(distance, style, distances, weights, w1_line if process in SMOOTH else w1_line[:0])
            _draw(loss, style, losses, weights, variance)
        distance.set(title=theme.PROCESSES[process].label)
        loss.set(xlabel="λ", xlim=(-0.06, 1.06), xticks=[0, 0.5, 1])
        for axes, text in ((distance, "W1 to the exact law"), (loss, "mean late loss")):
            if process == PROCESSES[0]:
                axes.set_ylabel(text)
            if not axes.lines:
                theme.empty_panel(axes)
                continue
            axes.set_yscale("log")
            theme.plain_log_axis(axes.yaxis)
    handles = legend_lines(
        [(name, Style(name, theme.METHODS[method].colour, theme.METHODS[method].marker, ""))
         for name, (method, *_) in SERIES.items()],
        markers=True,
    )  # fmt: skip
    line = Line2D([], [], color="#555555", linewidth=0.8, label="population fixed point")
    figure.legend(handles=[*handles, line], loc="outside lower center", ncols=4)
    return figure


def fixed_points(population: pd.DataFrame, process: str, path: str, noise: str) -> Floats:
    """λ, W1 and target variance (3, λ) of fixed points on one line; the flow path begins where the linear one does."""
    of_path = (population["path"] == path) | ((population["control_weight"] == 0) & (population["path"] == "linear"))
    kept = (population["process"] == process) & of_path & (population["noise"] == noise)
    columns = (population[name] for name in ("control_weight", "w1", "target_variance"))
    values = np.stack([column.to_numpy(dtype=float)[kept.to_numpy(dtype=bool)] for column in columns])
    values = values[:, np.isfinite(values).all(axis=0)]
    return values[:, np.argsort(values[0])]


def with_zero(own: tuple[Floats, Floats], zero: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """A method's values with those of λ = 0 in front, where it has none of its own and the seeds are the same."""
    places, values = own
    first = np.flatnonzero(zero[0] == 0)
    if not places.size or 0 in places or not first.size or zero[1].shape[1] != values.shape[1]:
        return own
    return np.concatenate([[0.0], places]), np.concatenate([zero[1][first], values])


def _draw(axes: Axes, style: Style, networks: tuple[Floats, Floats], weights: Floats, line: Floats) -> None:
    """Networks as points with intervals, the population as a line (a dash where there is one λ only)."""
    if np.isfinite(networks[1]).any():
        draw_mean(axes, style, *networks)
    if len(line):
        marker = "_" if len(line) == 1 else ""
        axes.plot(weights[: len(line)], line, color=style.colour, linewidth=0.8, marker=marker, zorder=1)
