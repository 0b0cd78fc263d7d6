"""The report: one self-contained static page; findings first, then what can be explored, then every record."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from pcbf_analysis import artefacts, claims, tables, theme
from pcbf_analysis.claims.ledger import KINDS, measured_text
from pcbf_analysis.control import Run
from pcbf_analysis.figures.exact_control import drawn_methods
from pcbf_analysis.page import charts, findings
from pcbf_analysis.page.agents import agent_views
from pcbf_analysis.page.curves import curve_views
from pcbf_analysis.page.explorer import as_script, explorer
from pcbf_analysis.page.runs import task_views
from pcbf_analysis.page.trade import trade_chart
from pcbf_analysis.page.workflow import workflow_view
from pcbf_analysis.results import Results
from pcbf_analysis.tables import Column, Table
from pcbf_core.mdp import MDPS
from pcbf_records.canonical import canonical_json
from pcbf_records.layout import CLAIMS, REPORT
from pcbf_records.toy import PROCESSES, TOY_METHODS, ToyRecord

NUM_THREADS = 2  # make pictures light; Pillow lets go of Python meanwhile
NUM_COLOURS = 64  # of the pictures on the page; the files beside it have all
TONES = {"holds": "good", "fails": "bad"}
COUNTED = {"holds": "hold", "fails": "fail", "undecided at this scale": "open", "needs paper scale": "need paper scale"}
BESIDE_PAPER = ("toy_w1", "paper_comparison")  # tables that show ours beside the paper's come first
PHOTOGRAPHS = ("ogbench",)  # pictures that keep their colours in the dark
MOST_PANELS = 6  # of learning curves before a press: five tasks and their mean
PROFILES = "performance_profiles"
OVERVIEW = "overview"  # the table that stands right below the findings
CALIBRATION = "calibration"  # what begins so has a section of its own as soon as it has records


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
    decided = claims.decide(results)
    runs, explored = results.control.suite, explorer(results)
    return environment.get_template("report.html").render(
        folder=artefacts.shown_path(results.root),
        colours=charts.colour_style(),
        cards=findings.cards(results, decided),
        explorer=as_script(explored) if explored else None,
        curves=curve_views(runs),
        most_panels=MOST_PANELS,
        trades=trade_views(results),
        agents=agent_views(results),
        workflow=workflow_view(results),
        **ledger_views(results, decided),
        **artefact_views(results),
        runs=[run_view(results, *pair) for pair in toy_pairs(results)],
        tasks=task_views(runs),
        num_runs=len(runs),
        datasets=dataset_views(runs),
        manifest=flattened(results.manifest()),
        missing=tables.MISSING,
        no_records=theme.NO_RECORDS,
    )


def ledger_views(results: Results, decided: Sequence[claims.Finding]) -> dict[str, Any]:
    """What the template shows of the ledger: counts of the paper's main claims and of all, and every row."""
    paper = claims.of_paper(decided)
    main = [finding for finding in paper if finding.claim.importance == claims.MAIN]
    return {
        "counts": [(verdict, count, TONES.get(verdict, "open")) for verdict, count in claims.counts(main).items()],
        "words": COUNTED,
        "num_main": len(main),
        "num_paper": len(paper),
        "verdicts": claims.counts(decided),
        "claims": [claim_view(results, row) for row in claims.table(decided)],
        "claims_command": f"pcbf-claims --results {artefacts.shown_path(results.root)}",
        "claims_files": [name for name in CLAIMS if (results.root / name).exists()],
    }


def artefact_views(results: Results) -> dict[str, Any]:
    """What the template shows of tables and figures; the overview and those about calibration come by themselves."""
    computed = {label: artefact.compute(results) for label, artefact in artefacts.TABLES.items()}
    ordered = dict.fromkeys([*(label for label in BESIDE_PAPER if label in computed), *computed])
    shown = [table_view(results, artefacts.TABLES[label], computed[label]) for label in ordered]
    drawn = [
        artefact
        for label, artefact in artefacts.of_kind("figure").items()
        if label != PROFILES or computed[PROFILES].rows  # too few tasks say nothing
    ]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        pictures = list(pool.map(lambda artefact: figure_view(results, artefact), drawn))

    has_any = any(table.rows for label, table in computed.items() if label.startswith(CALIBRATION))

    def is_calibration(view: Mapping[str, Any]) -> bool:
        return has_any and str(view["label"]).startswith(CALIBRATION)

    return {
        "overview": next(view for view in shown if view["label"] == OVERVIEW) | {"note": computed[OVERVIEW].note},
        "tables": [view for view in shown if not is_calibration(view) and view["label"] != OVERVIEW],
        "figures": [view for view in pictures if not is_calibration(view)],
        "calibration_tables": [view for view in shown if is_calibration(view)],
        "calibration_figures": [view for view in pictures if is_calibration(view)],
    }


def trade_views(results: Results) -> list[dict[str, Any]]:
    """A chart of mean against CVaR per decision process that has records."""
    made = [(MDPS[name].title, trade_chart(results, name), name) for name in MDPS]
    marks = charts.legend({method for _, _, name in made for method in drawn_methods(results, name)})
    return [{"title": title, "chart": chart, "legend": marks} for title, chart, _ in made if chart is not None]


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
        "part": KINDS[row["kind"]],
        "origin": "beyond" if row["kind"] == claims.BEYOND else "paper",
        "order": claims.VERDICTS.index(row["verdict"]),
        "measured_text": measured_text(row),
        "measured_key": "" if row["measured"] is None else f"{row['measured']:.9g}",
        "evidence": evidence.removeprefix("/"),
        "address": Path(address).as_posix() if address else "",
    }


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
    """Text, interval, sorting key and tone of a cell; a missing value has an empty key, which sorts last."""
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
    interval = value.interval if isinstance(value, tables.Estimate) else ""
    return {"text": text.removesuffix(interval).rstrip(), "interval": interval, "key": key, "tone": tone}


def figure_view(results: Results, artefact: artefacts.Artefact) -> dict[str, Any]:
    """What the template shows of a figure: the made picture as a data address, or None when it is not made yet."""
    file_format = "png" if "png" in artefact.formats else artefact.formats[0]
    path = artefacts.output_path(results.root, artefact, file_format)
    content = path.read_bytes() if path.exists() else None
    width, height = picture_size(content) if content else (0, 0)
    image = None
    if content:
        kind, light = ("webp", light_picture(content)) if file_format == "png" else (file_format, content)
        image = f"data:image/{kind};base64,{base64.b64encode(light).decode()}"
    look = "photo" if artefact.label in PHOTOGRAPHS else "plot"
    return {**_common(results, artefact), "image": image, "width": width, "height": height, "look": look}


def picture_size(content: bytes) -> tuple[int, int]:
    """Width and height of a picture."""
    with Image.open(io.BytesIO(content)) as picture:
        return picture.size


def light_picture(content: bytes) -> bytes:
    """The picture in few colours as WebP, which is a quarter of the size and looks the same on a screen."""
    with Image.open(io.BytesIO(content)) as picture:
        few = picture.convert("RGB").quantize(NUM_COLOURS, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.convert("RGB").save(buffer, format="webp", lossless=True, method=4)
    return buffer.getvalue()


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
