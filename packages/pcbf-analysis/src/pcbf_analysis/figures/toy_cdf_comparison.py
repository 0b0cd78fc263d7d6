"""fig:toy_cdf_comparison: learned return CDFs of PCBF and Value Flows beside the exact law."""

from __future__ import annotations

from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures.common import cdf_curves, cdf_legend, draw_cdfs, panel_title
from pcbf_analysis.results import Results, Setting
from pcbf_records.layout import TOY_W1, toy_run
from pcbf_records.toy import PAPER_PROCESSES

TITLE = "Learned return CDFs of PCBF and Value Flows"
CAPTION = (
    "Distribution function of the learned return: PCBF at the λ with the lowest mean W1 of each process (named in "
    "the legend) and Value Flows at dcfm 0, 0.5 and 1, against the exact law (wide grey line). Lines are quantile "
    "functions averaged over seeds, bands the range over seeds."
)
INPUTS = (
    TOY_W1,
    *(toy_run(process, method) for process in PAPER_PROCESSES for method in ("pcbf", "value_flows")),
)
SETTINGS = (Setting("solitaire", 0), Setting("bernoulli", 0), Setting("chain", 5))


def draw(results: Results) -> Figure:
    """The figure: one panel per process."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 2.5), layout="constrained")
    curves = cdf_curves(results)
    for axes, setting in zip(figure.subplots(1, len(SETTINGS)), SETTINGS, strict=True):
        draw_cdfs(axes, results, setting, curves)
        axes.set(title=panel_title(setting), xlabel="return")
    figure.axes[0].set_ylabel("cumulative probability")
    figure.legend(handles=cdf_legend(curves), loc="outside lower center", ncols=3)
    return figure
