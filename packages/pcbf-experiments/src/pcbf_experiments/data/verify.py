"""Checks of a dataset: is it what learners and tables take it for?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pcbf_experiments.data.checks import MAX_LOOKED_AT, Check
from pcbf_experiments.data.rows import SOURCES, DatasetInfo, Rows
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
from pcbf_records.sheets import Task

MIN_BOUNDARIES = 5  # fewer say nothing of jumps


def verify(task_name: str, data_dir: Path) -> tuple[list[Check], DatasetInfo]:
    """All checks of the dataset of a task, and its info. A file that cannot be read raises before any check."""
    task = find_task(task_name)
    rows, info = suite_of(task).load_rows(task, Path(data_dir))
    return check_rows(task, rows, info, Path(data_dir)), info


def check_rows(task: Task, rows: Rows, info: DatasetInfo, data_dir: Path | None = None) -> list[Check]:
    """The checks of rows in memory, and with `data_dir` of the files they come from."""
    index = rows.transition_rows()
    return [
        Check("source", info.source, " or ".join(SOURCES), info.source in SOURCES),
        *_shape_checks(task, rows),
        _finite("observations finite", rows.observation),
        _finite("actions finite", rows.action),
        _finite("rewards finite", rows.reward[index]),
        *_episode_checks(rows),
        Check("terminal is 0 or 1", _values(rows.terminal), "0, 1", bool(np.isin(rows.terminal, (0, 1)).all())),
        *suite_of(task).checks(task, rows, info, data_dir),
    ]


def _shape_checks(task: Task, rows: Rows) -> list[Check]:
    expected, actions = suite_of(task).shapes(task)
    found = rows.observation.shape[1:]
    dtype = np.uint8 if task.is_pixel else np.float32
    return [
        Check("observation shape", str(found), str(expected), found == expected),
        Check("observation type", str(rows.observation.dtype), np.dtype(dtype).name, rows.observation.dtype == dtype),
        Check("action dimensions", str(rows.action.shape[1]), str(actions), rows.action.shape[1] == actions),
    ]


def _finite(name: str, array: np.ndarray) -> Check:
    bad = 0 if array.dtype == np.uint8 else int((~np.isfinite(array)).sum())
    return Check(name, f"{bad} not finite", "0 not finite", bad == 0)


def _values(array: np.ndarray) -> str:
    return ", ".join(f"{value:g}" for value in np.unique(array)[:5])


def _episode_checks(rows: Rows) -> list[Check]:
    """Episodes close, and observations jump where one ends and the next begins.

    Boundaries that are off by a row show as jumps no larger than those inside.
    """
    checks = [Check("episodes closed", str(bool(rows.is_last[-1])), "True", bool(rows.is_last[-1]))]
    ends = np.flatnonzero(rows.is_last[:-1])
    if len(ends) >= MIN_BOUNDARIES:
        inside = rows.transition_rows()
        within = float(np.median(_jump(rows.observation, inside[:: max(len(inside) // MAX_LOOKED_AT, 1)])))
        across = float(np.median(_jump(rows.observation, ends[:: max(len(ends) // MAX_LOOKED_AT, 1)])))
        text = f"median {within:.3g} within episodes, {across:.3g} across"
        checks.append(Check("jump of observations at boundaries", text, "twice as large across", across > 2 * within))
    return checks


def _jump(observation: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Mean distance of each row's observation from the next row's, over its coordinates."""
    difference = observation[rows + 1].astype(np.float32) - observation[rows].astype(np.float32)
    return np.abs(difference).reshape(len(rows), -1).mean(axis=1)


def table(checks: Sequence[Check]) -> str:
    """The checks as lines of text."""
    cells = [("", "check", "found", "expected"), *((_sign(c), c.name, c.found, c.expected) for c in checks)]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _sign(check: Check) -> str:
    return "ok" if check.holds else "NO"


def failed(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if not check.holds]
