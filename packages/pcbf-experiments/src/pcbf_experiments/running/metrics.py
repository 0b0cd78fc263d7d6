"""Training metrics as csv files: one per seed, a row per `log_every` steps."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path

from pcbf_records.files import atomic_write


def append_metrics(path: Path, step: int, row: Mapping[str, float]) -> None:
    """Add a row to a metrics file; a new file starts with the names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(row)
    is_new = not path.exists()
    with open(path, "a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(["step", *names])
        writer.writerow([step, *(repr(row[name]) for name in names)])


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Whole rows of a metrics file; a last line that was cut off is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    lines = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))
    if not lines:
        return []
    return [dict(zip(lines[0], map(float, line), strict=True)) for line in lines[1:]]


def trim_metrics(path: Path, step: int) -> None:
    """Drop rows beyond `step`, which the run is about to make again."""
    rows = [row for row in read_metrics(path) if row["step"] <= step]
    if not rows:
        path.unlink(missing_ok=True)
        return
    names = [name for name in rows[0] if name != "step"]
    with atomic_write(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", *names])
        writer.writerows([int(row["step"]), *(repr(row[name]) for name in names)] for row in rows)


def last_metrics(path: Path) -> dict[str, float]:
    """The last row of a metrics file, without its step."""
    rows = read_metrics(path)
    return {name: value for name, value in rows[-1].items() if name != "step" and math.isfinite(value)} if rows else {}
