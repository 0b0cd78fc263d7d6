"""What a table is, and how it reads as csv, LaTeX (booktabs) and Markdown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pcbf_analysis import theme
from pcbf_analysis.results import short_task

MISSING = "–"  # how an absent value is shown; in csv the cell is empty
RELATIONS = {"<=": "≤", ">=": "≥", "==": "="}
LARGE = 1000  # decimals of such a number say nothing
LONG_TABLE = 45  # more rows than this do not fit on a page


@dataclass(frozen=True)
class Column:
    """A column: its name in csv, its heading, and how its values are written for readers."""

    name: str
    heading: str
    digits: int | None = None  # decimals; None writes four significant digits
    is_number: bool = True
    share: float | None = None  # of the line's width in LaTeX, for text that may take several lines


@dataclass(frozen=True)
class Score:
    """A cell of a results table: mean ± deviation over the seeds that are there.

    Attributes:
      remark: what a reader must know of the cell, such as "2 of 3" when a seed is missing.
      is_bold: whether it is ahead of the rest of its row.
    """

    mean: float
    std: float = math.nan
    remark: str = ""
    is_bold: bool = False

    def __format__(self, specification: str) -> str:
        return format(self.mean, specification)  # what the cell sorts by

    def __str__(self) -> str:
        mean = MISSING if math.isnan(self.mean) else f"{self.mean:.0f}"
        spread = "" if math.isnan(self.std) else f" ± {self.std:.0f}"
        return f"{mean}{spread}" + (f" ({self.remark})" if self.remark else "")


@dataclass(frozen=True)
class Estimate:
    """A cell that says how sure it is: a mean with its interval, which is nan where it is unknown.

    Attributes:
      is_bold: whether it is ahead of the rest of its column.
    """

    mean: float
    low: float
    high: float
    digits: int
    is_bold: bool = False

    @property
    def values(self) -> tuple[float, float, float, bool]:
        return self.mean, self.low, self.high, self.is_bold

    @property
    def interval(self) -> str:
        """The interval as a reader sees it; nothing where it is unknown."""
        return "" if math.isnan(self.low) else f"({self._shown(self.low)} to {self._shown(self.high)})"

    def _shown(self, value: float) -> str:
        digits = self.digits if abs(value) < LARGE else 0
        return f"{value:.{digits}f}"

    def __format__(self, specification: str) -> str:
        return format(self.mean, specification)  # what the cell sorts by

    def __str__(self) -> str:
        return f"{self._shown(self.mean)} {self.interval}".rstrip()


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as plain values (nan or None where missing) under described columns.

    Attributes:
      note: what the caption adds about these very records.
      details: what the csv holds instead of the rows: the same cells one by one, with more statistics.
      is_dense: many columns, to be set small in LaTeX.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    details: Table | None = None
    is_dense: bool = False

    def column(self, name: str) -> list[Any]:
        """All values of one column."""
        index = [column.name for column in self.columns].index(name)
        return [row[index] for row in self.rows]


def without(details: Table, names: Collection[str], note: str = "") -> Table:
    """The table without some of its columns, which stay in the csv."""
    kept = [index for index, column in enumerate(details.columns) if column.name not in names]
    columns = tuple(details.columns[index] for index in kept)
    rows = tuple(tuple(row[index] for index in kept) for row in details.rows)
    return Table(columns, rows, note, details, is_dense=True)


def is_missing(value: Any) -> bool:
    """Whether there is nothing to show or to sort by."""
    if isinstance(value, Score | Estimate):
        return math.isnan(value.mean)
    return value is None or (isinstance(value, float) and math.isnan(value))


def shown(value: Any, column: Column) -> str:
    """A value as a reader sees it."""
    if isinstance(value, Score):
        return str(value)
    if is_missing(value):
        return MISSING
    if isinstance(value, Estimate):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if column.name == "env":
        return theme.PROCESSES[value].label if value in theme.PROCESSES else str(value)
    if column.name == "method":
        return theme.METHODS[value].label if value in theme.METHODS else str(value)
    if column.name == "task":
        return short_task(value)
    if column.name == "relation":
        return RELATIONS.get(value, str(value))
    if not column.is_number:
        return str(value)
    if isinstance(value, str):  # a csv column that mixes numbers and words
        return value
    return f"{value:.4g}" if column.digits is None else f"{value:.{column.digits}f}"


def shown_rows(table: Table) -> list[list[str]]:
    """All cells as a reader sees them."""
    return [[shown(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]


def is_bold(value: Any) -> bool:
    return isinstance(value, Score | Estimate) and value.is_bold


def full_caption(table: Table, caption: str) -> str:
    """The caption with what these records add to it."""
    return f"{caption} {table.note}".strip()


def to_csv(table: Table) -> str:
    """The table, or its details, as csv: plain names, six significant digits, empty cells where missing."""
    table = table.details or table
    frame = pd.DataFrame(
        {column.name: pd.Series([row[i] for row in table.rows], dtype=object) for i, column in enumerate(table.columns)}
    )
    return frame.map(_csv_value).to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table, *, title: str, caption: str) -> str:
    """The table as a Markdown page: title, pipe table, caption."""
    headings = [_markdown_cell(column.heading) for column in table.columns]
    rules = ["--:" if column.is_number else ":--" for column in table.columns]
    body = [
        [
            f"**{_markdown_cell(text)}**" if is_bold(value) else _markdown_cell(text)
            for text, value in zip(*pair, strict=True)
        ]
        for pair in zip(shown_rows(table), table.rows, strict=True)
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (headings, rules, *body)]
    empty = [] if body else ["", f"*{theme.NO_RECORDS}*"]
    return "\n".join([f"# {title}", "", *lines, *empty, "", full_caption(table, caption), ""])


def to_tex(table: Table, *, label: str, caption: str) -> str:
    """The table as LaTeX that needs `booktabs` (and `longtable` if it has more rows than a page)."""
    columns = table.columns
    specification = "".join(f"p{{{c.share}\\linewidth}}" if c.share else "r" if c.is_number else "l" for c in columns)
    is_small = table.is_dense or any(c.share for c in columns)
    size = [r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"] if is_small else [r"\small"]
    heading = [r"\toprule", _tex_row([c.heading for c in columns], columns), r"\midrule"]
    body = _tex_body(table) or [rf"\multicolumn{{{len(columns)}}}{{c}}{{{theme.NO_RECORDS}}} \\"]
    names = [rf"\caption{{{tex_escape(full_caption(table, caption))}}}", rf"\label{{tab:{label}}}"]
    if len(table.rows) > LONG_TABLE:
        lines = [
            r"\begingroup",
            *size,
            rf"\begin{{longtable}}{{{specification}}}",
            rf"{names[0]} {names[1]} \\",
            *(*heading, r"\endfirsthead"),
            *(*heading, r"\endhead"),
            *(r"\bottomrule", r"\endfoot"),
            *body,
            r"\end{longtable}",
            r"\endgroup",
        ]
    else:
        lines = [
            r"\begin{table*}[t]",
            r"\centering",
            *names,
            *size,
            rf"\begin{{tabular}}{{{specification}}}",
            *heading,
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


_TEX = {
    **{char: rf"\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "–": "--",
    "—": "---",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "∘": r"$\circ$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "≡": r"$\equiv$",
    "∈": r"$\in$",
    "∞": r"$\infty$",
    "→": r"$\to$",
    "←": r"$\leftarrow$",
    "√": r"$\surd$",
    "∂": r"$\partial$",
    "∇": r"$\nabla$",
    "∫": r"$\int$",
    "∑": r"$\sum$",
    "‖": r"$\|$",
    "′": r"$'$",
    "⋆": r"$^\star$",
    "★": r"$^\star$",
    "⁻": r"$^-$",
    "ⁿ": r"$^n$",
    "…": r"\dots{}",
    "½": r"$\frac{1}{2}$",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "\N{NO-BREAK SPACE}": "~",
    **{char: f"$^{digit}$" for digit, char in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{char: f"$_{digit}$" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{char: f"$_{name}$" for char, name in zip("ₜₛₙᵢⱼₖ", "tsnijk", strict=True)},
    **{
        char: rf"$\{name}$"
        for char, name in {
            "α": "alpha",
            "β": "beta",
            "γ": "gamma",
            "δ": "delta",
            "ε": "varepsilon",
            "ζ": "zeta",
            "η": "eta",
            "θ": "theta",
            "κ": "kappa",
            "λ": "lambda",
            "μ": "mu",
            "ν": "nu",
            "ξ": "xi",
            "π": "pi",
            "ρ": "rho",
            "σ": "sigma",
            "τ": "tau",
            "φ": "varphi",
            "χ": "chi",
            "ψ": "psi",
            "ω": "omega",
            "Γ": "Gamma",
            "Δ": "Delta",
            "Θ": "Theta",
            "Λ": "Lambda",
            "Π": "Pi",
            "Σ": "Sigma",
            "Φ": "Phi",
            "Ψ": "Psi",
            "Ω": "Omega",
        }.items()
    },
}


_TEX_ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "bar", "\u0307": "dot"}


def tex_escape(text: str) -> str:
    """`text` for LaTeX: special characters escaped; Greek letters, signs and accented symbols in mathematics."""
    pieces: list[str] = []
    for char in unicodedata.normalize("NFD", text):
        if char in _TEX_ACCENTS and pieces:
            pieces[-1] = rf"$\{_TEX_ACCENTS[char]}{{{pieces[-1].strip('$')}}}$"
        else:
            pieces.append(_TEX.get(char, char))
    return unicodedata.normalize("NFC", "".join(pieces))


def _tex_row(cells: Sequence[str], columns: Sequence[Column], values: Sequence[Any] = ()) -> str:
    """One line of LaTeX; text in a column of limited width may break after an underscore."""
    bold = [is_bold(value) for value in values] or [False] * len(cells)
    escaped = [
        rf"\textbf{{{tex_escape(cell)}}}" if strong else tex_escape(cell)
        for cell, strong in zip(cells, bold, strict=True)
    ]
    broken = [
        cell.replace(r"\_", r"\_\allowbreak{}") if column.share else cell
        for cell, column in zip(escaped, columns, strict=True)
    ]
    return " & ".join(broken) + r" \\"


def _tex_body(table: Table) -> list[str]:
    """LaTeX rows with a little space wherever the first two cells change, if groups have several rows."""
    rows = shown_rows(table)
    keys = [tuple(row[:2]) for row in rows]
    lines = []
    for index, row in enumerate(rows):
        if index and keys[index] != keys[index - 1] and len(set(keys)) < len(keys):
            lines.append(r"\addlinespace")
        lines.append(_tex_row(row, table.columns, table.rows[index]))
    return lines


def _markdown_cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _csv_value(value: Any) -> Any:
    if is_missing(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
