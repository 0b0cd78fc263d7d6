"""Tables of the analysis: what they hold, and how they read as csv, LaTeX (booktabs) and Markdown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pcbf_analysis import theme
from pcbf_analysis.records import (
    ENVIRONMENTS,
    Results,
    Setting,
    chosen_coefficient,
    evaluation_settings,
    recorded_w1,
    reported_w1,
)

MISSING = "–"  # how an absent value is shown; in csv the cell is empty
RELATIONS = {"<=": "≤", ">=": "≥", "==": "="}
LONG_TABLE = 45  # more rows than this do not fit on a page

TOY_W1_CAPTION = (
    "W1 distance between the learned and the exact return law: mean and sample standard deviation over seeds. Value "
    "Flows at the paper's three dcfm weights; PCBF at the λ with the lowest mean W1 over seeds and evaluation states, "
    "one per environment, and the ablation with independent noise at its own. The paper's values are those of "
    "fig:cdf_comparison, where PCBF's λ and the number of seeds are not stated and W1 is taken between samples. Ratio "
    "is ours over the paper's."
)
TOY_W1_SWEEP_CAPTION = (
    "W1 distance between the learned and the exact return law at every recorded coefficient: mean and sample standard "
    "deviation over seeds. The paper's values stand where the coefficient is the paper's; PCBF's λ is not stated "
    "there, so its value stands beside every λ."
)
THEORY_CAPTION = (
    "Each statement of the paper's theory with the quantity measured, the value or bound it is held against, and the "
    "margin left (negative where the check fails)."
)


@dataclass(frozen=True)
class Column:
    """A column: its name in csv, its heading, and how its values are written for readers."""

    name: str
    heading: str
    digits: int | None = None  # decimals; None writes four significant digits
    is_number: bool = True
    share: float | None = None  # of the line's width in LaTeX, for text that may take several lines


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as plain values (nan or None where missing) under described columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]

    def column(self, name: str) -> list[Any]:
        """All values of one column."""
        index = [column.name for column in self.columns].index(name)
        return [row[index] for row in self.rows]


W1_COLUMNS = (
    Column("env", "Environment", is_number=False),
    Column("state", "State", digits=0),
    Column("method", "Method", is_number=False),
    Column("coefficient", "Coefficient"),
    Column("mean", "W1, mean", digits=3),
    Column("std", "± std", digits=3),
    Column("num_seeds", "Seeds", digits=0),
    Column("paper", "Paper", digits=3),
    Column("ratio", "Ratio", digits=2),
    Column("at_or_below", "At or below", is_number=False),
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


def toy_w1(results: Results) -> Table:
    """The comparison with the paper: five rows for each of the six settings of fig:cdf_comparison."""
    w1, paper = results.w1(), results.paper_w1()
    chosen = {
        (env, method): chosen_coefficient(w1, env, method)
        for env in ENVIRONMENTS
        for method in ("pcbf", "pcbf-independent")
    }
    rows = []
    for setting in evaluation_settings():
        cells: list[tuple[str, float | None]] = [
            (method, chosen[setting.env, method]) for method in ("pcbf", "pcbf-independent")
        ]
        cells += [("value_flows", dcfm) for dcfm in theme.VALUE_FLOWS_SHADES]
        rows += [w1_row(setting, method, coefficient, w1, paper) for method, coefficient in cells]
    return Table(W1_COLUMNS, tuple(rows))


def toy_w1_sweep(results: Results) -> Table:
    """Every recorded coefficient of every method in the six settings."""
    w1, paper = results.w1(), results.paper_w1()
    rows = []
    for setting in evaluation_settings():
        here = w1[(w1["env"] == setting.env) & (w1["state"] == setting.state)]
        for method in ("pcbf", "pcbf-independent", "value_flows"):
            coefficients = sorted({float(value) for value in here.loc[here["method"] == method, "coefficient"]})
            rows += [w1_row(setting, method, value, w1, paper) for value in coefficients or [None]]
    return Table(W1_COLUMNS, tuple(rows))


def theory_checks(results: Results) -> Table:
    """The recorded theory checks, as they were written."""
    frame = results.theory_checks()
    return Table(THEORY_COLUMNS, tuple(zip(*(frame[column.name] for column in THEORY_COLUMNS), strict=True)))


def w1_row(
    setting: Setting, method: str, coefficient: float | None, w1: pd.DataFrame, paper: pd.DataFrame
) -> tuple[Any, ...]:
    """One row of a W1 table; without records the mean is missing and the number of seeds is 0."""
    seeds = recorded_w1(w1, setting, method, coefficient)
    mean = float(seeds.mean()) if len(seeds) else math.nan
    std = float(seeds.std(ddof=1)) if len(seeds) > 1 else math.nan
    reported = reported_w1(paper, setting, method, coefficient)
    both = len(seeds) > 0 and math.isfinite(reported)
    return (
        setting.env,
        setting.state,
        method,
        math.nan if coefficient is None else coefficient,
        mean,
        std,
        len(seeds),
        reported,
        mean / reported if both else math.nan,
        bool(mean <= reported) if both else None,
    )


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def shown(value: Any, column: Column) -> str:
    """A value as a reader sees it."""
    if is_missing(value):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if column.name == "env":
        return theme.ENVIRONMENTS[value].label if value in theme.ENVIRONMENTS else str(value)
    if column.name == "method":
        return theme.METHODS[value].label if value in theme.METHODS else str(value)
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


def to_csv(table: Table) -> str:
    """The table as csv: plain names, six significant digits, empty cells where missing."""
    frame = pd.DataFrame(
        {column.name: pd.Series([row[i] for row in table.rows], dtype=object) for i, column in enumerate(table.columns)}
    )
    return frame.map(_csv_value).to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table, *, title: str, caption: str) -> str:
    """The table as a Markdown page: title, pipe table, caption."""
    headings = [_markdown_cell(column.heading) for column in table.columns]
    rules = ["--:" if column.is_number else ":--" for column in table.columns]
    body = [[_markdown_cell(cell) for cell in row] for row in shown_rows(table)]
    lines = ["| " + " | ".join(row) + " |" for row in (headings, rules, *body)]
    empty = [] if body else ["", f"*{theme.NO_RECORDS}*"]
    return "\n".join([f"# {title}", "", *lines, *empty, "", caption, ""])


def to_tex(table: Table, *, label: str, caption: str) -> str:
    """The table as LaTeX that needs `booktabs` (and `longtable` if it has more rows than a page)."""
    columns = table.columns
    specification = "".join(f"p{{{c.share}\\linewidth}}" if c.share else "r" if c.is_number else "l" for c in columns)
    size = [r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"] if any(c.share for c in columns) else [r"\small"]
    heading = [r"\toprule", _tex_row([c.heading for c in columns], columns), r"\midrule"]
    body = _tex_body(table) or [rf"\multicolumn{{{len(columns)}}}{{c}}{{{theme.NO_RECORDS}}} \\"]
    names = [rf"\caption{{{tex_escape(caption)}}}", rf"\label{{tab:{label}}}"]
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


def _tex_row(cells: Sequence[str], columns: Sequence[Column]) -> str:
    """One line of LaTeX; text in a column of limited width may break after an underscore."""
    escaped = [tex_escape(cell) for cell in cells]
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
        lines.append(_tex_row(row, table.columns))
    return lines


def _markdown_cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _csv_value(value: Any) -> Any:
    if is_missing(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
