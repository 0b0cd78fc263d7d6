"""fig:var-reduction: standard deviation of the training loss against λ."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures.common import draw_mean, legend_lines
from pcbf_analysis.results import Results, loss_by_seed
from pcbf_analysis.theme import Style
from pcbf_records.layout import TOY_LOSS_STD
from pcbf_records.toy import PAPER_PROCESSES

TITLE = "Standard deviation of the training loss against λ"
CAPTION = (
    "Standard deviation of the velocity regression loss over the last tenth of training, against λ. Left: with shared "
    "noise (PCBF), relative to the same seed at the smallest λ of the grid. Right: as measured, on a logarithmic axis, "
    "with shared noise (solid) and with independent noise (dashed). Lines are means over seeds, bars Student's 95 % "
    "interval of the mean. λ ends at the discount γ of each process."
)
INPUTS = (TOY_LOSS_STD,)
NOISE = {"pcbf": ("shared noise", "-"), "pcbf-independent": ("independent noise", "--")}


def draw(results: Results) -> Figure:
    """The figure: relative and raw."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 2.6), layout="constrained")
    relative, raw = figure.subplots(1, 2)
    frame = results.loss_std()
    for process in PAPER_PROCESSES:
        style = theme.PROCESSES[process]
        for method, (_, linestyle) in NOISE.items():
            coefficients, values = loss_by_seed(frame, process, method)
            if values.size:
                line = Style(style.label, style.colour, style.marker, linestyle)
                draw_mean(raw, line, coefficients, values)
                if method == "pcbf":
                    draw_mean(relative, line, coefficients, values / values[:1])
    relative.set(xlabel="λ", ylabel="loss std, relative to the smallest λ", title="Shared noise, relative")
    raw.set(xlabel="λ", ylabel="loss std", title="As measured")
    for axes in (relative, raw):
        axes.set_xlim(-0.03, 1.0)
        if not axes.lines:
            theme.empty_panel(axes)
    if relative.lines:
        relative.axhline(1, color="#999999", linewidth=0.6, zorder=1)
        relative.set_ylim(0, None)
    shown = frame["method"].isin(NOISE) & frame["env"].isin(PAPER_PROCESSES)
    values = frame["loss_std"].to_numpy(dtype=float)[shown.to_numpy()]
    if raw.lines:
        raw.set_yscale("log")
        raw.set_ylim(0.7 * float(np.nanmin(values)), 1.5 * float(np.nanmax(values)))
        theme.plain_log_axis(raw.yaxis)
    processes = legend_lines(
        [(theme.PROCESSES[name].label, theme.PROCESSES[name]) for name in PAPER_PROCESSES], markers=True
    )
    noises = legend_lines([(name, Style(name, "#555555", linestyle=linestyle)) for name, linestyle in NOISE.values()])
    figure.legend(handles=[*processes, *noises], loc="outside lower center", ncols=5)
    return figure
