"""fig:toy_sen: W1 against the coefficient on Solitaire Dice and the Discrete Monte Carlo chain."""

from __future__ import annotations

from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures import sensitivity
from pcbf_analysis.results import Results

TITLE = "Sensitivity to λ and dcfm on Solitaire Dice and the Discrete MC chain"
CAPTION = sensitivity.CAPTION
INPUTS = sensitivity.INPUTS


def draw(results: Results) -> Figure:
    """The figure: two panels."""
    return sensitivity.draw_processes(results, ("solitaire", "chain"), theme.DOUBLE_COLUMN, 2.9)
