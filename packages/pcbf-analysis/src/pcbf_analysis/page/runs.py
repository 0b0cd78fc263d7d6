"""The control runs: every task, method and seed down to its episodes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pcbf_analysis import statistics, tables, theme
from pcbf_analysis.control import Run
from pcbf_analysis.page.charts import interval_words, label
from pcbf_analysis.results import short_task
from pcbf_records.canonical import canonical_json, content_hash

SPARK_SIZE = (72, 18)  # pixels of a learning curve in a row


def by_task(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """The runs of each task by method, ours first, and seed."""
    ordered = sorted(runs, key=lambda run: (run.task, -theme.method_order(run.method), run.method, run.seed))
    return [(task, list(group)) for task, group in itertools.groupby(ordered, key=lambda run: run.task)]


def _by_method(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    return [(name, list(group)) for name, group in itertools.groupby(runs, key=lambda run: run.method)]


def task_views(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What the template shows of the control runs: by task, then method, every seed."""
    views = []
    for task, members in by_task(runs):
        sources = sorted({run.source for run in members})
        named = {"name": task, "title": short_task(task), "num_runs": len(members), "sources": ", ".join(sources)}
        views.append({**named, "methods": [method_view(name, seeds) for name, seeds in _by_method(members)]})
    return views


def method_view(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """All seeds of one method on one task, their mean with its interval, and the settings they share."""
    configs = [{key: value for key, value in run.config.items() if key != "seeds"} for run in runs]
    distinct = list({canonical_json(config): config for config in configs}.values())
    text = json.dumps(distinct[0] if len(distinct) == 1 else distinct, indent=1, sort_keys=True, ensure_ascii=False)
    scores = [run.score for run in runs if math.isfinite(run.score)]
    low, high = statistics.student_interval(scores)
    return {
        "name": label(name),
        "score": f"{np.mean(scores):.1f}{interval_words(low, high)}" if scores else tables.MISSING,
        "seeds": [seed_view(run) for run in runs],
        "config": text,
    }


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
