"""The report: one self-contained static page with summary, claims, tables, figures, runs and provenance."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from pcbf_analysis import artefacts, claims, tables, theme
from pcbf_analysis.claims.ledger import measured_text
from pcbf_analysis.control import Run
from pcbf_analysis.results import Results, Setting, short_task
from pcbf_analysis.tables import Column, Table
from pcbf_records.canonical import canonical_json, content_hash
from pcbf_records.layout import CLAIMS, REPORT
from pcbf_records.toy import PROCESSES, TOY_METHODS, ToyRecord

NUM_COLOURS = 128  # of the pictures on the page; the files beside it have all
TONES = {"holds": "good", "fails": "bad"}
BESIDE_PAPER = ("toy_w1", "paper_comparison")  # tables that show ours beside the paper's come first
SPARK_SIZE = (72, 18)  # pixels of a learning curve


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
    return artefacts.write_atomically(results.root / REPORT, render(results).encode())


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
    ordered = [*(label for label in BESIDE_PAPER if label in computed), *computed]
    findings = claims.decide(results)
    runs = results.control.suite
    return environment.get_template("report.html").render(
        folder=artefacts.shown_path(results.root),
        verdicts=[(verdict, count, TONES.get(verdict, "open")) for verdict, count in claims.counts(findings).items()],
        claims=[claim_view(results, row) for row in claims.table(findings)],
        claims_command=f"pcbf-claims --results {artefacts.shown_path(results.root)}",
        claims_files=[name for name in CLAIMS if (results.root / name).exists()],
        bars=[w1_bar(computed["toy_w1"]), theory_bar(computed["theory_checks"])],
        chosen=chosen_coefficients(computed["toy_w1"]),
        tables=[table_view(results, artefacts.TABLES[label], computed[label]) for label in dict.fromkeys(ordered)],
        figures=[figure_view(results, artefact) for artefact in artefacts.of_kind("figure").values()],
        runs=[run_view(results, *pair) for pair in toy_pairs(results)],
        tasks=task_views(runs),
        num_runs=len(runs),
        datasets=dataset_views(runs),
        manifest=flattened(results.manifest()),
        missing=tables.MISSING,
        no_records=theme.NO_RECORDS,
    )


def claim_view(results: Results, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the template shows of a claim: the ledger's row, its tone and where its evidence lies."""
    evidence = str(row["evidence"])
    top = results.repository.resolve()
    file = top / evidence[1:] if evidence.startswith("/") else results.root.resolve() / evidence
    is_near = file.exists() and results.root.resolve().is_relative_to(top if evidence.startswith("/") else "/")
    address = os.path.relpath(file, results.root.resolve() / "report") if is_near and not file.is_dir() else ""
    return {
        **row,
        "tone": TONES.get(row["verdict"], "open"),
        "order": claims.VERDICTS.index(row["verdict"]),
        "measured_text": measured_text(row),
        "measured_key": "" if row["measured"] is None else f"{row['measured']:.9g}",
        "evidence": evidence.removeprefix("/"),
        "address": Path(address).as_posix() if address else "",
    }


def w1_bar(table: Table) -> Bar:
    """Whether PCBF's mean W1, at one λ per process, is at or below the paper's in each setting."""
    rows = zip(
        *(table.column(name) for name in ("env", "state", "method", "mean", "paper", "at_or_below")), strict=True
    )
    pcbf = [row for row in rows if row[2] == "pcbf"]
    titles = [Setting(process, state).title for process, state, *_ in pcbf]
    verdicts = [row[-1] for row in pcbf]
    return Bar(
        name="PCBF’s mean W1 is at or below the paper’s in each of the six settings, with one λ per process",
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
    """Process and the λ that PCBF is reported at, for those that have records."""
    rows = zip(*(table.column(name) for name in ("env", "method", "coefficient")), strict=True)
    chosen = {process: value for process, method, value in rows if method == "pcbf" and not tables.is_missing(value)}
    return [(theme.PROCESSES[process].label, theme.number(value)) for process, value in chosen.items()]


def table_view(results: Results, artefact: artefacts.TableArtefact, table: Table) -> dict[str, Any]:
    """What the template shows of a table: cells as text with the value they sort by."""
    rows = [
        [cell_view(value, text, column) for value, text, column in zip(row, texts, table.columns, strict=True)]
        for row, texts in zip(table.rows, tables.shown_rows(table), strict=True)
    ]
    return {
        **_common(results, artefact),
        "caption": tables.full_caption(table, artefact.caption),
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
    tone = ("good" if value else "bad") if truth else "best" if tables.is_bold(value) else ""
    return {"text": text, "key": key, "tone": tone}


def figure_view(results: Results, artefact: artefacts.Artefact) -> dict[str, Any]:
    """What the template shows of a figure: the made picture as a data address, or None when it is not made yet."""
    file_format = "png" if "png" in artefact.formats else artefact.formats[0]
    path = artefacts.output_path(results.root, artefact, file_format)
    content = path.read_bytes() if path.exists() else None
    width, height = picture_size(content) if content else (0, 0)
    image = None
    if content:
        light = light_png(content) if file_format == "png" else content
        image = f"data:image/{file_format};base64,{base64.b64encode(light).decode()}"
    return {**_common(results, artefact), "image": image, "width": width, "height": height}


def picture_size(content: bytes) -> tuple[int, int]:
    """Width and height of a picture."""
    with Image.open(io.BytesIO(content)) as picture:
        return picture.size


def light_png(content: bytes) -> bytes:
    """The picture in few colours, which is a third of the size and looks the same on a screen."""
    with Image.open(io.BytesIO(content)) as picture:
        few = picture.convert("RGB").quantize(NUM_COLOURS, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, format="png", optimize=True)
    return min(content, buffer.getvalue(), key=len)


def task_views(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What the template shows of the control runs: by task, then method, every seed."""
    views = []
    for task, group in itertools.groupby(sorted(runs, key=lambda run: run.task), key=lambda run: run.task):
        members = sorted(group, key=lambda run: (theme.method_order(run.method), run.method, run.seed))
        methods = [
            method_view(name, list(seeds)) for name, seeds in itertools.groupby(members, key=lambda run: run.method)
        ]
        sources = sorted({run.source for run in members})
        named = {"name": task, "title": short_task(task), "num_runs": len(members), "sources": ", ".join(sources)}
        views.append({**named, "methods": methods})
    return views


def method_view(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """All seeds of one method on one task, and the settings they share."""
    label = theme.METHODS[name].label if name in theme.METHODS else name
    configs = [{key: value for key, value in run.config.items() if key != "seeds"} for run in runs]
    distinct = list({canonical_json(config): config for config in configs}.values())
    text = json.dumps(distinct[0] if len(distinct) == 1 else distinct, indent=1, sort_keys=True, ensure_ascii=False)
    return {"name": label, "seeds": [seed_view(run) for run in runs], "config": text}


def seed_view(run: Run) -> dict[str, Any]:
    """One run: score, learning curve, the episodes behind the score, and the hashes of what it was made from."""
    has_score = math.isfinite(run.score)
    return {
        "seed": run.seed,
        "score": f"{run.score:.1f}" if has_score else tables.MISSING,
        "key": f"{run.score:.9g}" if has_score else "",
        "status": run.status,
        "message": run.message,
        "steps": run.steps,
        "curve": curve_points([evaluation.mean for evaluation in run.evaluations]),
        "curve_text": "; ".join(f"{evaluation.step}: {evaluation.mean:.1f}" for evaluation in run.evaluations),
        "episodes": " | ".join(" ".join(f"{score:.0f}" for score in evaluation.scores) for evaluation in run.final),
        "num_episodes": len(run.episodes),
        "config_hash": run.config_hash[:12],
        "dataset": run.dataset.get("name", ""),
        "dataset_hash": dataset_hash(run.dataset)[:12],
    }


def curve_points(values: Sequence[float]) -> str:
    """A learning curve as points of an SVG line, scaled to its own range from zero."""
    if len(values) < 2:
        return ""
    width, height = SPARK_SIZE
    low, high = min(0.0, *values), max(1.0, *values)
    places = np.linspace(2, width - 2, len(values))
    return " ".join(
        f"{x:.1f},{height - 2 - (height - 4) * (y - low) / (high - low):.1f}"
        for x, y in zip(places, values, strict=True)
    )


def dataset_hash(dataset: Mapping[str, Any]) -> str:
    """A hash over the SHA-256 of all files of a dataset; empty when a record names none."""
    files = dataset.get("files") or {}
    return content_hash(files) if files else ""


def dataset_views(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The datasets behind the runs, each once: where they come from and the SHA-256 of their files."""
    distinct = {canonical_json(run.dataset): run.dataset for run in runs}
    ordered = sorted(distinct.items(), key=lambda item: (str(item[1].get("name")), item[0]))
    return [
        {"name": d.get("name", "unnamed"), "source": d.get("source", "unknown"), "facts": flattened(d)}
        for _, d in ordered
    ]


def toy_pairs(results: Results) -> list[tuple[str, str]]:
    """Processes and methods of the toys that the folder's settings ask for; all there are without a manifest."""
    asked = results.manifest().get("config", {}).get("settings", {}).get("toy", {})
    processes, methods = asked.get("processes", PROCESSES), asked.get("methods", TOY_METHODS)
    return [(process, method) for process in processes for method in methods]


def run_view(results: Results, process: str, method: str) -> dict[str, Any]:
    """What the template shows of one toy job: its coefficients, seeds and metadata, or that it has not run."""
    record: ToyRecord | None = results.toy(process, method)
    names = {"process": theme.PROCESSES[process].label, "method": theme.METHODS[method].label}
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
