"""The report: one self-contained static page with the summary, tables, figures and provenance of a results folder."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from pcbf_analysis import artefacts, tables, theme
from pcbf_analysis.records import ENVIRONMENTS, TOY_METHODS, Results, Setting, ToyRecord
from pcbf_analysis.tables import Column, Table


@dataclass(frozen=True)
class Bar:
    """A statement of the summary that numbers decide: how many of its cases hold, and which do not."""

    name: str
    held: int
    decided: int
    total: int
    failing: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def verdict(self) -> str:
        if self.decided == 0:
            return "undecided"
        if self.held < self.decided:
            return "fails"
        return "holds" if self.decided == self.total else "partly decided"


def write(results: Results) -> Path:
    """Path of the page written to <results>/report/index.html."""
    return artefacts.write_atomically(results.root / "report" / "index.html", render(results).encode())


def render(results: Results) -> str:
    """The page as HTML; equal records and figures give equal text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pcbf_analysis"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    computed = {label: artefact.compute(results) for label, artefact in artefacts.TABLES.items()}
    return environment.get_template("report.html").render(
        folder=artefacts.shown_path(results.root),
        bars=[w1_bar(computed["toy_w1"]), theory_bar(computed["theory_checks"])],
        chosen=chosen_coefficients(computed["toy_w1"]),
        tables=[table_view(results, artefacts.TABLES[label], table) for label, table in computed.items()],
        figures=[figure_view(results, artefact) for artefact in artefacts.FIGURES.values()],
        runs=[run_view(results, env, method) for env in ENVIRONMENTS for method in TOY_METHODS],
        manifest=flattened(results.manifest()),
        missing=tables.MISSING,
        no_records=theme.NO_RECORDS,
    )


def w1_bar(table: Table) -> Bar:
    """Whether PCBF's mean W1, at one λ per environment, is at or below the paper's in each setting."""
    rows = zip(
        *(table.column(name) for name in ("env", "state", "method", "mean", "paper", "at_or_below")), strict=True
    )
    pcbf = [row for row in rows if row[2] == "pcbf"]
    titles = [Setting(env, state).title for env, state, *_ in pcbf]
    verdicts = [row[-1] for row in pcbf]
    return Bar(
        name="PCBF’s mean W1 is at or below the paper’s in each of the six settings, with one λ per environment",
        held=sum(verdict is True for verdict in verdicts),
        decided=sum(verdict is not None for verdict in verdicts),
        total=len(pcbf),
        failing=tuple(
            f"{title}: {row[3]:.3f}, paper {row[4]:.3f}"
            for title, row, verdict in zip(titles, pcbf, verdicts, strict=True)
            if verdict is False
        ),
        missing=tuple(title for title, verdict in zip(titles, verdicts, strict=True) if verdict is None),
    )


def theory_bar(table: Table) -> Bar:
    """Whether every recorded check of the paper's theory holds."""
    verdicts = dict(zip(table.column("id"), table.column("holds"), strict=True))
    statements = dict(zip(table.column("id"), table.column("statement"), strict=True))
    return Bar(
        name="Every check of the paper’s theory holds",
        held=sum(verdicts.values()),
        decided=len(verdicts),
        total=len(verdicts),
        failing=tuple(f"{name}: {statements[name]}" for name, holds in verdicts.items() if not holds),
        missing=(),
    )


def chosen_coefficients(table: Table) -> list[tuple[str, str]]:
    """Environment and the λ that PCBF is reported at, for those that have records."""
    rows = zip(*(table.column(name) for name in ("env", "method", "coefficient")), strict=True)
    chosen = {env: value for env, method, value in rows if method == "pcbf" and not tables.is_missing(value)}
    return [(theme.ENVIRONMENTS[env].label, theme.number(value)) for env, value in chosen.items()]


def table_view(results: Results, artefact: artefacts.TableArtefact, table: Table) -> dict[str, Any]:
    """What the template shows of a table: cells as text with the value they sort by."""
    rows = [
        [cell_view(value, text, column) for value, text, column in zip(row, texts, table.columns, strict=True)]
        for row, texts in zip(table.rows, tables.shown_rows(table), strict=True)
    ]
    return {
        **_common(results, artefact),
        "columns": table.columns,
        "rows": rows,
        "is_long": len(rows) > tables.LONG_TABLE,
    }


def cell_view(value: Any, text: str, column: Column) -> dict[str, Any]:
    """Text, sorting key and tone of a cell; a missing value has an empty key, which sorts last."""
    truth = isinstance(value, bool | np.bool_)
    if tables.is_missing(value):
        key = ""
    elif truth:
        key = str(int(value))
    elif column.is_number and not isinstance(value, str):
        key = f"{value:.9g}"
    else:
        key = text
    return {"text": text, "key": key, "tone": ("good" if value else "bad") if truth else ""}


def figure_view(results: Results, artefact: artefacts.FigureArtefact) -> dict[str, Any]:
    """What the template shows of a figure: the made png as a data address, or None when it is not made yet."""
    path = artefacts.output_path(results.root, artefact, "png")
    content = path.read_bytes() if path.exists() else None
    width, height = png_size(content) if content else (0, 0)
    image = f"data:image/png;base64,{base64.b64encode(content).decode()}" if content else None
    return {**_common(results, artefact), "image": image, "width": width, "height": height}


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height from the header chunk of a png file."""
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def run_view(results: Results, env: str, method: str) -> dict[str, Any]:
    """What the template shows of one toy job: its coefficients, seeds and metadata, or that it has not run."""
    record: ToyRecord | None = results.toy(env, method)
    names = {"env": theme.ENVIRONMENTS[env].label, "method": theme.METHODS[method].label}
    if record is None:
        return {**names, "present": False}
    return {
        **names,
        "present": True,
        "symbol": theme.COEFFICIENTS[method],
        "coefficients": ", ".join(map(theme.number, record.coefficients)),
        "num_seeds": len(record.seeds),
        "num_states": len(record.states),
        "metadata": json.dumps(record.metadata, indent=2, sort_keys=True, ensure_ascii=False),
    }


def flattened(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Dotted keys and values of nested JSON, in the order of the file."""
    pairs: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            pairs += flattened(value, f"{name} › ")
        else:
            pairs.append((name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return pairs


def _common(results: Results, artefact: artefacts.Artefact) -> dict[str, Any]:
    made = [name for name in artefact.formats if artefacts.output_path(results.root, artefact, name).exists()]
    return {
        "label": artefact.label,
        "title": artefact.title,
        "caption": artefact.caption,
        "command": artefacts.remake_command(results.root, artefact),
        "files": [(name, f"../{artefact.folder}/{artefact.label}.{name}") for name in made],
    }
