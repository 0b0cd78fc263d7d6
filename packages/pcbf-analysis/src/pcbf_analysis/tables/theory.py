"""The table of the theory checks."""

from __future__ import annotations

from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table

THEORY_CAPTION = (
    "Each statement of the paper's theory with the quantity measured, the value or bound it is held against, and the "
    "margin left (negative where the check fails)."
)
THEORY_COLUMNS = (
    Column("id", "Check", is_number=False, share=0.16),
    Column("statement", "Statement", is_number=False, share=0.3),
    Column("label", "In the paper", is_number=False, share=0.16),
    Column("measured", "Measured"),
    Column("relation", "", is_number=False),
    Column("expected", "Bound or value"),
    Column("margin", "Margin"),
    Column("holds", "Holds", is_number=False),
)


def theory_checks(results: Results) -> Table:
    """The recorded theory checks, as they were written."""
    frame = results.theory_checks()
    return Table(THEORY_COLUMNS, tuple(zip(*(frame[column.name] for column in THEORY_COLUMNS), strict=True)))
