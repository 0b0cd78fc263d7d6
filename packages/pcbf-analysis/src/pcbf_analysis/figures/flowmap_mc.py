"""fig:flowmap_mc: learned density and flow in every live state of the Discrete Monte Carlo chain."""

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
)
from pcbf_analysis.results import Results
from pcbf_core.mrp import MRPS
from pcbf_records.layout import toy_run
from pcbf_records.toy import FlowRecord

TITLE = "Learned PCBF flows in every live state of the Discrete MC chain"
CAPTION = (
    "Top of each pair: the learned law at t = 1 (blue) and the exact return law (dashed) as histograms in the same "
    "cells of two atoms or more, on a logarithmic axis. Bottom: particle paths from N(0, 1) at t = 0 to the return at "
    "t = 1, coloured by their noise. The chain has n = 20 states, 0 to 19, and both ends are absorbing: only the "
    "states s = 1..18 are non-terminal and have a return law, so there are 18 pairs where the paper writes s = 1 to "
    "s = 20."
)
INPUTS = (toy_run("chain", "pcbf"),)
COLUMNS = 6
MAX_PARTICLES = 15


def draw(results: Results) -> Figure:
    """The figure: for each of the 18 live states a density over a bundle of paths."""
    process, value_range = MRPS["chain"], RETURN_RANGES["chain"]
    record = results.toy("chain", "pcbf")
    flow = record.flow if record else None
    histograms = {
        state: common_cells(process.return_law(state), *value_range, **CELLS["chain"]) for state in process.live_states
    }
    limits = density_limits(np.concatenate([heights for _, heights in histograms.values()]), is_log=True)
    rows = -(-len(histograms) // COLUMNS)
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 2.35 * rows), layout="constrained")
    grid = figure.add_gridspec(2 * rows, COLUMNS, height_ratios=[1, 1.25] * rows)
    for place, (state, (edges, heights)) in enumerate(histograms.items()):
        row, column = divmod(place, COLUMNS)
        top = figure.add_subplot(grid[2 * row, column])
        bottom = figure.add_subplot(grid[2 * row + 1, column], sharex=top)
        for axes in (top, bottom):
            axes.grid(False)  # 36 small panels read better without
        density_outline(top, edges, heights)
        top.set(title=f"s = {state}", xlim=value_range, yscale="log", ylim=limits)
        top.yaxis.set_minor_locator(NullLocator())
        top.tick_params(labelbottom=False, labelleft=column == 0)
        bottom.set(ylim=(0, 1), yticks=[0, 0.5, 1], xticks=[0, 10, 20])
        bottom.tick_params(labelbottom=row == rows - 1, labelleft=column == 0)
        if column == 0:
            top.set_ylabel("density (log)")
            bottom.set_ylabel("flow time t")
        if row == rows - 1:
            bottom.set_xlabel("return")
        index = record.state_index(state) if record else None
        if record is None or flow is None or index is None:
            theme.empty_panel(bottom)
        else:
            density_area(top, edges, learned_heights(record, state, edges))
            draw_paths(bottom, flow, index)
    handles = density_legend(flow.coefficient if flow else None)
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def draw_paths(axes: Axes, flow: FlowRecord, index: int) -> None:
    """Flow time against return, one line per particle."""
    lines = [
        np.stack([returns, times], axis=1) for times, returns in flow_lines(flow, index, MAX_PARTICLES, max_times=11)
    ]
    bundle = LineCollection(lines, colors=theme.particle_colours(len(lines)), linewidths=0.6, alpha=0.9)
    axes.add_collection(bundle, autolim=False)
