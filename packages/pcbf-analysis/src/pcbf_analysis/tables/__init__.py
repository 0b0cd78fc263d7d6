"""The tables, one module per label; `pcbf_analysis.artefacts` lists them."""

from pcbf_analysis.tables.form import (
    LONG_TABLE,
    MISSING,
    Column,
    Estimate,
    Score,
    Table,
    full_caption,
    is_bold,
    is_missing,
    shown,
    shown_rows,
    tex_escape,
    to_csv,
    to_markdown,
    to_tex,
)
from pcbf_analysis.tables.theory import THEORY_CAPTION, theory_checks
from pcbf_analysis.tables.toy import TOY_W1_CAPTION, TOY_W1_SWEEP_CAPTION, toy_w1, toy_w1_sweep, w1_row

__all__ = [
    "LONG_TABLE",
    "MISSING",
    "THEORY_CAPTION",
    "TOY_W1_CAPTION",
    "TOY_W1_SWEEP_CAPTION",
    "Column",
    "Estimate",
    "Score",
    "Table",
    "full_caption",
    "is_bold",
    "is_missing",
    "shown",
    "shown_rows",
    "tex_escape",
    "theory_checks",
    "to_csv",
    "to_markdown",
    "to_tex",
    "toy_w1",
    "toy_w1_sweep",
    "w1_row",
]
