"""Checks of a dataset: is it what learners and tables take it for?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcbf_baselines.datasets import load_rows
from pcbf_baselines.datasets.rows import DatasetInfo, Rows
from pcbf_baselines.datasets.tasks import Task, find_task

# (observation dimensions, action dimensions) of the official files
STATE_SHAPES = {
    "cube-single": (28, 5),
    "cube-double": (37, 5),
    "cube-triple": (46, 5),
    "scene": (40, 5),
    "puzzle-4x4": (83, 5),
    "pointmaze": (2, 2),
    "antmaze": (29, 8),
    "pen": (45, 24),
    "door": (39, 28),
    "hammer": (46, 26),
    "relocate": (39, 30),
}
LOWEST_REWARD = {"cube-single": -1, "cube-double": -2, "cube-triple": -3, "scene": -5, "puzzle-4x4": -16, "maze": -1}


@dataclass(frozen=True)
class Check:
    """One question put to a dataset, the answer, and what would be right."""

    name: str
    found: str
    expected: str
    holds: bool


def verify(task_name: str, data_dir: Path) -> tuple[list[Check], DatasetInfo]:
    """All checks of the dataset of a task, and its info. A file that cannot be read raises before any check."""
    task = find_task(task_name)
    rows, info = load_rows(task, Path(data_dir))
    return check_rows(task, rows, info), info


def check_rows(task: Task, rows: Rows, info: DatasetInfo) -> list[Check]:
    """The checks of rows in memory."""
    index = rows.transition_rows()
    checks = [
        Check("source", info.source, "official, mirror, user, found or local", bool(info.source)),
        *_shape_checks(task, rows),
        _finite("observations finite", rows.observation),
        _finite("actions finite", rows.action),
        _finite("rewards finite", rows.reward[index]),
        Check(
            "actions within [-1, 1]",
            f"[{rows.action.min():.3f}, {rows.action.max():.3f}]",
            "[-1, 1]",
            bool(np.abs(rows.action).max() <= 1),
        ),
        *_episode_checks(rows),
        Check("terminal is 0 or 1", _values(rows.terminal), "0, 1", bool(np.isin(rows.terminal, (0, 1)).all())),
    ]
    return checks + (_adroit_checks(task, rows) if task.kind == "adroit" else _ogbench_checks(task, rows))


def _shape_checks(task: Task, rows: Rows) -> list[Check]:
    name = task.name.removeprefix("visual-")
    dims, actions = next(shape for prefix, shape in STATE_SHAPES.items() if name.startswith(prefix))
    expected: tuple[int, ...] = (64, 64, 3) if task.kind == "pixel" else (dims,)
    found = rows.observation.shape[1:]
    dtype = np.uint8 if task.kind == "pixel" else np.float32
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
    """Episodes close, hold at least one transition, and neighbouring rows inside them are nearer than across them."""
    lengths = np.diff(np.concatenate([[-1], np.flatnonzero(rows.is_last)])) - 1
    found = f"{len(lengths)} of {lengths.min()} to {lengths.max()} steps" if len(lengths) else "none"
    checks = [
        Check("episodes closed", str(bool(rows.is_last[-1])), "True", bool(rows.is_last[-1])),
        Check("episode lengths", found, "at least 1 step each", bool(len(lengths) and lengths.min() >= 1)),
    ]
    if len(lengths) > 1:
        flat = rows.observation.reshape(len(rows.is_last), -1)
        ends = np.flatnonzero(rows.is_last[:-1])
        inside = rows.transition_rows()[:: max(rows.num_transitions // 2000, 1)]
        within = float(np.median(_jump(flat, inside)))
        across = float(np.median(_jump(flat, ends[:2000])))
        text = f"{within:.3g} within, {across:.3g} across"
        checks.append(Check("jump of observations at boundaries", text, "not smaller across", across >= within))
    return checks


def _jump(flat: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.abs(flat[rows + 1].astype(np.float32) - flat[rows].astype(np.float32)).mean(axis=1)


def _ogbench_checks(task: Task, rows: Rows) -> list[Check]:
    index = rows.transition_rows()
    reward, terminal = rows.reward[index], rows.terminal[index]
    lowest = next(value for part, value in LOWEST_REWARD.items() if part in task.name)
    return [
        Check(
            "reward range",
            f"[{reward.min():g}, {reward.max():g}]",
            f"integers in [{lowest}, 0]",
            bool((reward >= lowest).all() and (reward <= 0).all() and (reward == np.round(reward)).all()),
        ),
        Check(
            "terminal exactly at success",
            f"{int(((reward == 0) != (terminal == 1)).sum())} differ",
            "0 differ",
            bool(((reward == 0) == (terminal == 1)).all()),
        ),
        _fraction("transitions at success", float(terminal.mean())),
    ]


def _adroit_checks(task: Task, rows: Rows) -> list[Check]:
    index = rows.transition_rows()
    terminal = rows.terminal[index] > 0
    inside = int((terminal & ~rows.is_last[index + 1]).sum())
    reward = rows.reward[index]
    text = f"[{reward.min():.4g}, {reward.max():.4g}]"
    return [
        Check("reward range", text, "within [-100, 200]", bool(reward.min() >= -100 and reward.max() <= 200)),
        Check("terminal only closes episodes", f"{inside} inside", "0 inside", inside == 0),
        Check(
            "terminal transitions",
            f"{int(terminal.sum())}",
            "only the pen's" if task.name.startswith("pen") else "0",
            task.name.startswith("pen") or not terminal.any(),
        ),
        _fraction("transitions with reward above 5", float((reward > 5).mean())),
    ]


def _fraction(name: str, value: float) -> Check:
    return Check(name, f"{value:.5f}", "told, not judged", True)


def table(checks: Sequence[Check]) -> str:
    """The checks as lines of text."""
    cells = [("", "check", "found", "expected"), *((_sign(c), c.name, c.found, c.expected) for c in checks)]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _sign(check: Check) -> str:
    return "ok" if check.holds else "NO"


def failed(checks: Sequence[Check]) -> list[Any]:
    return [check for check in checks if not check.holds]
