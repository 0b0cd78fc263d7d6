"""fig:pcbf-architecture: three ways to pair the flows of a state and of its successor, from real paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pcbf_analysis import theme
from pcbf_analysis.results import Results
from pcbf_core.mrp import MRPS
from pcbf_core.paths import current_point, successor_point, uncorrected_point
from pcbf_records.arrays import Floats
from pcbf_records.layout import toy_run

TITLE = "Path-coupled Bellman geometry"
CAPTION = (
    "Paths of the current (blue) and of the successor return (orange) on the Bernoulli process for R = 1 and γ = 0.5: "
    "the bundle is every recorded particle, the heavy pair one of them. X′ is where the trained flow carries "
    "the noise, and the paths are those of the library. (a) Uncoupled: the successor has a noise of its own, so the "
    "two paths meet the Bellman map at t = 1 only. (b) Source-inconsistent: the Bellman map at every t "
    "(eq:pointwise_uncorrected_path) starts the current path at R + γX₀, which is not N(0, 1); the paper's caption "
    "speaks of the successor there, its equation of the current path. (c) PCBF: one noise drives both, both start at "
    "it, and the end is R + γX′. Shapes at the left are the laws of the source; the grey line links the ends that "
    "Bellman's equation ties."
)
INPUTS = (toy_run("bernoulli", "pcbf"),)
PROCESS = "bernoulli"
REWARD = 1.0
TIMES = np.linspace(0, 1, 41)
SHIFT = 19  # of the particles, to give the uncoupled successor another noise
SHOWN = 0.22  # quantile of the particle that is drawn heavy
CURRENT, SUCCESSOR = "#0072B2", "#D55E00"
VALUE_RANGE = (-2.6, 3.1)


def draw(results: Results) -> Figure:
    """The figure: uncoupled, source-inconsistent and shared noise side by side."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 2.75), layout="constrained")
    record = results.toy(PROCESS, "pcbf")
    flow = record.flow if record else None
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (title, (paths, starts)) in zip(panels, PANELS.items(), strict=True):
        axes.set(title=title, xlim=(-0.34, 1.34), ylim=VALUE_RANGE, xticks=[0, 0.5, 1], xlabel="flow time t")
        axes.set_xticklabels(["0", "0.5", "1"])
        if flow is None:
            theme.empty_panel(axes)
        else:
            order = np.argsort(flow.paths[0, 0])
            current, successor = paths(flow.paths[0, 0, order], flow.paths[0, -1, order])
            draw_pair(axes, current, successor, starts)
            if paths is source_inconsistent:
                draw_source(axes, 0.0, 1.0, SUCCESSOR)
                draw_source(axes, REWARD, MRPS[PROCESS].discount, CURRENT)
            else:
                draw_source(axes, 0.0, 1.0, "#777777")
    panels[0].set_ylabel("return")
    handles = [
        Line2D([], [], color=CURRENT, label="current path"),
        Line2D([], [], color=SUCCESSOR, linestyle="--", label="successor path"),
        Line2D([], [], color="#777777", linestyle=":", label="tied by Bellman's equation: R + γX′ and X′"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


Paths = tuple[Floats, Floats]  # (time, particle), of the current and of the successor return


def uncoupled(noise: Floats, successor_return: Floats) -> Paths:
    """Both paths when the successor is driven by another particle's noise."""
    other, its_return = np.roll(noise, SHIFT), np.roll(successor_return, SHIFT)
    return current_path(noise, its_return), successor_path(other, its_return)


def source_inconsistent(noise: Floats, successor_return: Floats) -> Paths:
    """Both paths when Bellman's map is applied at every flow time (eq:pointwise_uncorrected_path)."""
    current = _over_time(uncorrected_point, noise, successor_return, **_TRANSITION)
    return current, successor_path(noise, successor_return)


def shared_noise(noise: Floats, successor_return: Floats) -> Paths:
    """Both paths as PCBF builds them from one noise (eq:succ-path, eq:current-path)."""
    return current_path(noise, successor_return), successor_path(noise, successor_return)


def current_path(noise: Floats, successor_return: Floats) -> Floats:
    return _over_time(current_point, noise, successor_return, **_TRANSITION)


def successor_path(noise: Floats, successor_return: Floats) -> Floats:
    return _over_time(successor_point, noise, successor_return)


PANELS: dict[str, tuple[Callable[[Floats, Floats], Paths], tuple[str, str]]] = {  # and the names of the two starts
    "(a) uncoupled": (uncoupled, ("X₀", "X₀′")),
    "(b) source-inconsistent": (source_inconsistent, ("R + γX₀", "X₀")),
    "(c) shared noise (PCBF)": (shared_noise, ("X₀", "")),
}
_TRANSITION: dict[str, Any] = {"reward": REWARD, "effective_discount": MRPS[PROCESS].discount}


def _over_time(point: Callable[..., Any], noise: Floats, successor_return: Floats, **transition: Any) -> Floats:
    return np.asarray(
        point(noise=noise, successor_return=successor_return, flow_time=TIMES[:, None], **transition), np.float64
    )


def draw_pair(axes: Axes, current: Floats, successor: Floats, starts: tuple[str, str]) -> None:
    """All paths faintly, one pair heavily, its starts and ends named, its ends tied."""
    place = round(SHOWN * (current.shape[1] - 1))
    ends = ("R + γX′", "X′")
    looks = ((current, CURRENT, "-"), (successor, SUCCESSOR, "--"))
    for (paths, colour, linestyle), start, end in zip(looks, starts, ends, strict=True):
        lines = [np.stack([TIMES, paths[:, particle]], axis=1) for particle in range(paths.shape[1])]
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=0.4, alpha=0.3, zorder=2), autolim=False)
        axes.plot(TIMES, paths[:, place], color=colour, linestyle=linestyle, linewidth=1.8, zorder=4)
        axes.plot([0, 1], paths[[0, -1], place], "o", color=colour, markersize=4, zorder=5)
        name(axes, start, 0, paths[0, place], colour, "right")
        name(axes, end, 1, paths[-1, place], colour, "left")
    top, bottom = current[-1, place], successor[-1, place]
    axes.plot([1, 1], [top, bottom], color="#777777", linestyle=":", linewidth=1.4, zorder=3)


def name(axes: Axes, text: str, time: float, value: float, colour: str, side: str) -> None:
    """Write `text` beside a point, on the side away from the paths."""
    offset = (-5, 0) if side == "right" else (5, 0)
    box: dict[str, Any] = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
    look: dict[str, Any] = {"ha": side, "va": "center", "color": colour, "fontsize": 7, "zorder": 6, "bbox": box}
    axes.annotate(text, (time, value), offset, textcoords="offset points", **look)


def draw_source(axes: Axes, mean: float, std: float, colour: str) -> None:
    """The law N(mean, std²) of a source, on its side at t = 0."""
    values = np.linspace(mean - 3 * std, mean + 3 * std, 121)
    height = 0.26 * np.exp(-(((values - mean) / std) ** 2) / 2) * min(1.0, 0.8 + 0.2 / std)
    axes.fill_betweenx(values, -height, 0, color=colour, alpha=0.22, linewidth=0, zorder=1)
    axes.plot(-height, values, color=colour, linewidth=0.7, zorder=1)
