"""The workflow as a graph: its stages, how many jobs each had and what they took, as far as records tell."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from pcbf_analysis.results import Results
from pcbf_records import layout

BOX, GAP = (104, 54), (30, 12)
COLUMNS = (  # stages from left to right; each follows those that `ARROWS` name
    ("data", "toys", "exact", "theory"),
    ("train",),
    ("evaluate",),
    ("collect",),
    ("artefacts",),
    ("report",),
)
ARROWS = (
    *(("data", "train"), ("train", "evaluate"), ("evaluate", "collect"), ("collect", "artefacts")),
    *(("toys", "artefacts"), ("exact", "artefacts"), ("theory", "artefacts"), ("artefacts", "report")),
)
NAMES = {
    "data": "datasets",
    "toys": "toy laws",
    "exact": "exact control",
    "theory": "theory checks",
    "train": "training",
    "evaluate": "evaluation",
    "collect": "one table",
    "artefacts": "tables, figures",
    "report": "this page",
}


@dataclass(frozen=True)
class Stage:
    """How many pieces a stage left, and the seconds that they took; nan where nothing tells."""

    count: int
    what: str
    seconds: float = math.nan

    @property
    def took(self) -> str:
        return "" if math.isnan(self.seconds) else duration(self.seconds)

    @property
    def words(self) -> str:
        return ", ".join(filter(None, [f"{self.count} {self.what}", self.took]))


def duration(seconds: float) -> str:
    """Seconds as a reader says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def stages(results: Results) -> dict[str, Stage]:
    """What is known of every stage from the records of a results folder and of its ablations."""
    folders = [results.root, *layout.ablation_folders(results.root)]
    costs = [path for folder in folders for path in layout.cost_files(folder)]

    def took(stage: str, in_costs: str = "") -> float:
        measured = [path for folder in folders for path in layout.benchmark_files(folder, stage)]
        return (
            _total(_seconds(path, "s") for path in measured)
            if measured
            else _total(_seconds(path, in_costs) for path in costs)
        )

    runs = results.control.runs
    episodes = sum(len(evaluation.scores) for run in runs for evaluation in run.evaluations)
    return {
        "data": Stage(len({run.dataset.get("name") for run in runs}), "used"),
        "toys": Stage(len(layout.toy_files(results.root)), "jobs", took("toy")),
        "exact": Stage(len(layout.exact_files(results.root)), "jobs", took("exact")),
        "theory": Stage(len(results.theory_checks()), "checks", took("theory")),
        "train": Stage(len(runs), "runs", took("train", "train_seconds")),
        "evaluate": Stage(episodes, "episodes", took("evaluate", "evaluate_seconds")),
        "collect": Stage(sum(len(run.evaluations) for run in runs), "rows"),
        "artefacts": Stage(len(list(results.root.glob(layout.figure("*", "png")))), "figures"),
        "report": Stage(1, "page"),
    }


def _seconds(path: Path, name: str) -> float:
    """A number of a cost record, or the sum over the lines of a benchmark; nan where there is none."""
    lines = [path.read_text(encoding="utf-8")] if path.suffix == ".json" else path.read_text("utf-8").splitlines()
    values = [json.loads(line).get(name) for line in lines if line.strip()]
    return _total(float(value) for value in values if isinstance(value, int | float))


def _total(seconds: Iterable[float]) -> float:
    known = [value for value in seconds if math.isfinite(value)]
    return sum(known) if known else math.nan


def graph(found: dict[str, Stage]) -> Markup:
    """The graph as SVG; the same words stand in a list for those who cannot see it."""
    places = {
        name: (x * (BOX[0] + GAP[0]), y * (BOX[1] + GAP[1]))
        for x, column in enumerate(COLUMNS)
        for y, name in enumerate(column)
    }
    width = len(COLUMNS) * (BOX[0] + GAP[0]) - GAP[0]
    height = max(len(column) for column in COLUMNS) * (BOX[1] + GAP[1])
    told = "; ".join(f"{NAMES[name]}: {stage.words}" for name, stage in found.items())
    parts = [f'<svg class="chart graph" viewBox="-2 -2 {width + 4} {height}" role="img" aria-label="{escape(told)}">']
    for first, second in ARROWS:
        (x1, y1), (x2, y2) = places[first], places[second]
        start, end = (x1 + BOX[0], y1 + BOX[1] / 2), (x2, y2 + BOX[1] / 2)
        bend = (start[0] + GAP[0] / 2) if first != "toys" and y1 == y2 else end[0] - GAP[0] / 2
        parts.append(f'<path class="arrow" d="M{start[0]} {start[1]}H{bend}V{end[1]}H{end[0] - 5}"/>')
        parts.append(f'<path class="head" d="M{end[0] - 1} {end[1]}l-6-3.5v7z"/>')
    for name, (x, y) in places.items():
        parts.append(f'<rect class="stage" x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="5"/>')
        stage = found[name]
        lines = ((NAMES[name], "tick strong"), (f"{stage.count} {stage.what}", "tick"), (stage.took, "tick"))
        for line, (text, look) in enumerate(lines):
            middle = f'x="{x + BOX[0] / 2}" y="{y + 17 + 14 * line}"'
            parts.append(f'<text class="{look} small" {middle} text-anchor="middle">{escape(text)}</text>')
    return Markup("".join([*parts, "</svg>"]))


def workflow_view(results: Results) -> dict[str, Any]:
    """What the template shows: the graph and the same in words."""
    found = stages(results)
    return {"graph": graph(found), "stages": [(NAMES[name], stage.words) for name, stage in found.items()]}
