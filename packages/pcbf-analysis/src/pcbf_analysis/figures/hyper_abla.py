"""fig:hyper_abla: W1 against the coefficient on all three toy processes."""

from __future__ import annotations

from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures import sensitivity
from pcbf_analysis.results import Results
from pcbf_records.toy import PAPER_PROCESSES

TITLE = "Sensitivity to λ and dcfm on the three toy processes"
CAPTION = sensitivity.CAPTION
INPUTS = sensitivity.INPUTS


def draw(results: Results) -> Figure:
    """The figure: three panels."""
    return sensitivity.draw_processes(results, PAPER_PROCESSES, theme.DOUBLE_COLUMN, 2.7)
