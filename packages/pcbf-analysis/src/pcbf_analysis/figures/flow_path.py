"""W1 and target variance against λ, on the paper's path and on the flow path: networks as points, theory as lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pcbf_analysis import theme
from pcbf_analysis.figures.common import draw_mean, legend_lines
from pcbf_analysis.results import Results, seed_means
from pcbf_analysis.theme import Style
from pcbf_core.mrp import MRPS
from pcbf_core.population import finite_process, solve
from pcbf_records.layout import TOY_W1, toy_run
from pcbf_records.toy import PROCESSES, Floats

TITLE = "λ without bias: the flow path beside the paper's"
CAPTION = (
    "Against λ: W1 distance to the exact return law, logarithmic (top), and the mean of the regression loss over the "
    "last tenth of training, which is the target's variance up to what the network misses (bottom). The linear path is "
    "the paper's; at λ = 0 both are one algorithm, and its runs are drawn for both. Points are means over seeds, bars "
    "Student's 95 % interval; for the chain W1 is the mean over the paper's states. Lines without points on Bernoulli "
    "are the fixed point that infinite data and a perfect network would reach (pcbf_core.population)."
)
METHODS = {"linear": "pcbf", "flow": "pcbf_flow"}
INPUTS = (TOY_W1, *(toy_run(process, method) for process in PROCESSES for method in METHODS.values()))
SOLVED = "bernoulli"  # whose law has no atoms, so that the solver converges
SOLVED_WEIGHTS = {"linear": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), "flow": (0.0, 0.25, 0.5, 0.75, 1.0)}
LATE = 0.1  # share of training


def draw(results: Results) -> Figure:
    """The figure: a column per process."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 4.2), layout="constrained")
    w1 = results.w1()
    for column, process in zip(figure.subplots(2, len(PROCESSES), sharex=True).T, PROCESSES, strict=True):
        at_zero = seed_means(w1, process, "pcbf"), late_losses(results, process, "pcbf")
        for path, method in METHODS.items():
            style = Style(path, theme.METHODS[method].colour, theme.METHODS[method].marker, "")
            of_method = seed_means(w1, process, method), late_losses(results, process, method)
            for axes, own, zero in zip(column, of_method, at_zero, strict=True):
                places, values = _with_zero(own, zero)
                if np.isfinite(values).any():
                    draw_mean(axes, style, places, values)
            if process == SOLVED:
                _draw_solved(column, path, style)
        _label(column, process)
    handles = legend_lines(
        [(f"{path} path", Style(path, theme.METHODS[name].colour, theme.METHODS[name].marker, ""))
         for path, name in METHODS.items()],
        markers=True,
    )  # fmt: skip
    line = Line2D([], [], color="#555555", linewidth=0.8, label="population fixed point")
    figure.legend(handles=[*handles, line], loc="outside lower center", ncols=3)
    return figure


def late_losses(results: Results, process: str, method: str) -> tuple[Floats, Floats]:
    """The coefficients of a record, and the mean late loss (coefficients, seeds); empty without a record."""
    record = results.toy(process, method)
    if record is None:
        return np.empty(0), np.empty((0, 0))
    count = max(round(LATE * record.loss_history.shape[-1]), 1)
    return record.coefficients, record.loss_history[..., -count:].mean(axis=-1)


def _with_zero(own: tuple[Floats, Floats], zero: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """A method's values with those of λ = 0 in front, where it has none of its own and the seeds are the same."""
    places, values = own
    first = np.flatnonzero(zero[0] == 0)
    if not places.size or 0 in places or not first.size or zero[1].shape[1] != values.shape[1]:
        return own
    return np.concatenate([[0.0], places]), np.concatenate([zero[1][first], values])


@cache
def solved(path: str, control_weight: float) -> tuple[float, float]:
    """W1 and target variance of the population fixed point."""
    flow = solve(finite_process(MRPS[SOLVED]), path=path, control_weight=control_weight)  # type: ignore[arg-type]
    return float(np.mean(flow.wasserstein1)), float(np.mean(flow.target_variance))


def _draw_solved(column: Iterator[Axes] | Floats, path: str, style: Style) -> None:
    weights = SOLVED_WEIGHTS[path]
    for axes, values in zip(column, zip(*(solved(path, weight) for weight in weights), strict=True), strict=True):
        axes.plot(weights, values, color=style.colour, linewidth=0.8, zorder=1)  # type: ignore[union-attr]


def _label(column: Floats, process: str) -> None:
    distance, loss = column
    distance.set(title=theme.PROCESSES[process].label)
    loss.set(xlabel="λ", xlim=(-0.04, 1.04), xticks=[0, 0.25, 0.5, 0.75, 1])
    for axes, text in ((distance, "W1 to the exact law"), (loss, "mean late loss")):
        if process == PROCESSES[0]:
            axes.set_ylabel(text)
        if not axes.lines:
            theme.empty_panel(axes)
    if distance.lines:
        distance.set_yscale("log")
        theme.plain_log_axis(distance.yaxis)
    if loss.lines:
        loss.set_ylim(0, None)
