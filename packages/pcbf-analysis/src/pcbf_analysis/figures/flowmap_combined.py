"""fig:flowmap_combined: learned flows of the toy processes with end density beside the exact law."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pcbf_analysis import theme
from pcbf_analysis.figures.common import (
    CELLS,
    RETURN_RANGES,
    common_cells,
    density_area,
    density_legend,
    density_limits,
    density_outline,
    flow_lines,
    learned_heights,
    panel_title,
    thinned,
)
from pcbf_analysis.results import Results, Setting
from pcbf_records.arrays import Floats
from pcbf_records.layout import toy_run
from pcbf_records.toy import FlowRecord

TITLE = "Learned PCBF flows on the toy processes"
CAPTION = (
    "Particles drawn from N(0, 1) at t = 0 are carried by the learned velocity field (grey arrows) to the return law "
    "at t = 1; colour orders particles by their noise. Beside each flow: the learned law at t = 1 (blue) and the exact "
    "one (dashed) as histograms in the same cells, which end midway between the exact law's atoms: one atom per cell "
    "for Solitaire, two for the chain, more where atoms lie closer than the cell width; Bernoulli's law has none. One "
    "seed, at the λ named above each panel."
)
INPUTS = (toy_run("solitaire", "pcbf"), toy_run("bernoulli", "pcbf"), toy_run("chain", "pcbf"))
SETTINGS = (Setting("solitaire", 0), Setting("bernoulli", 0), Setting("chain", 5), Setting("chain", 10))
LOG_DENSITY = ("chain",)  # most of its mass lies at the largest return, the rest would not be seen
MAX_PARTICLES = 28
MAX_ARROWS = (12, 16)  # along time and return


def draw(results: Results) -> Figure:
    """The figure: a 2 × 2 grid of (flow, density) pairs."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 4.9), layout="constrained")
    grid = figure.add_gridspec(2, 5, width_ratios=[1, 0.34, 0.04, 1, 0.34])
    for place, setting in enumerate(SETTINGS):
        row, column = divmod(place, 2)
        flow_axes = figure.add_subplot(grid[row, 3 * column])
        density_axes = figure.add_subplot(grid[row, 3 * column + 1], sharey=flow_axes)
        flow_axes.set(xlim=(0, 1), xticks=[0, 0.5, 1], ylim=RETURN_RANGES[setting.process])
        flow_axes.set(xlabel="flow time t" if row == 1 else "", ylabel="return" if column == 0 else "")
        density_axes.tick_params(labelleft=False)
        edges = draw_exact(density_axes, setting)
        record = results.toy(setting.process, "pcbf")
        flow = record.flow if record else None
        index = record.state_index(setting.state) if record else None
        if record is None or flow is None or index is None:
            flow_axes.set_title(panel_title(setting))
            theme.empty_panel(flow_axes)
        else:
            flow_axes.set_title(f"{panel_title(setting)} (λ = {theme.number(flow.coefficient)})")
            draw_arrows(flow_axes, flow, index)
            draw_paths(flow_axes, flow, index)
            density_area(density_axes, edges, learned_heights(record, setting.state, edges), horizontal=True)
    figure.legend(handles=density_legend(), loc="outside lower center", ncols=2)
    return figure


def draw_paths(axes: Axes, flow: FlowRecord, index: int) -> None:
    """Return against flow time, one line per particle."""
    lines = [np.stack(line, axis=1) for line in flow_lines(flow, index, MAX_PARTICLES, max_times=21)]
    colours = theme.particle_colours(len(lines))
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.8, alpha=0.9, zorder=3), autolim=False)


def draw_arrows(axes: Axes, flow: FlowRecord, index: int) -> None:
    """The velocity field as arrows (1, v) of one length; rasterised, as hundreds of shapes fill a vector file."""
    at_times = thinned(len(flow.arrow_times), MAX_ARROWS[0])
    at_points = thinned(flow.arrow_points.shape[1], MAX_ARROWS[1])
    times, points = np.meshgrid(flow.arrow_times[at_times], flow.arrow_points[index, at_points], indexing="ij")
    velocity = flow.arrow_velocity[index][np.ix_(at_times, at_points)]
    length = np.hypot(1, velocity)
    axes.quiver(
        times,
        points,
        1 / length,
        velocity / length,
        angles="xy",
        pivot="mid",
        scale=18,
        width=0.004,
        headwidth=3.5,
        color="#BBBBBB",
        zorder=1,
        rasterized=True,
    )


def draw_exact(axes: Axes, setting: Setting) -> Floats:
    """The edges of the cells; the exact law is drawn in them, lying on its side, with the axis that it needs."""
    edges, heights = common_cells(setting.law, *RETURN_RANGES[setting.process], **CELLS[setting.process])
    density_outline(axes, edges, heights, horizontal=True)
    is_log = setting.process in LOG_DENSITY
    axes.set(xscale="log" if is_log else "linear", xlim=density_limits(heights, is_log=is_log))
    axes.set_xlabel("density (log)" if is_log else "density")
    if is_log:
        axes.set_xticks([1e-3, 1e-1])
        axes.xaxis.set_minor_locator(NullLocator())
    return edges
