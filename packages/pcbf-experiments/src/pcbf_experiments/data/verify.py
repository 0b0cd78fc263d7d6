"""Checks of a dataset: is it what learners and tables take it for?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcbf_baselines.datasets import load_rows, ogbench
from pcbf_baselines.datasets.adroit import hand_of
from pcbf_baselines.datasets.download import describe
from pcbf_baselines.datasets.rows import SOURCES, DatasetInfo, Rows
from pcbf_baselines.datasets.tasks import Task, find_task
from pcbf_baselines.wrappers import make_environment

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
LOWEST_ADROIT_REWARD = -100.0  # costs of distance and speed: no sharp bound
HIGHEST_ADROIT_REWARD = {"pen": 61.0, "door": 20.0, "hammer": 102.0, "relocate": 31.0}  # every bonus, no cost
MIN_BOUNDARIES = 5  # fewer say nothing of jumps
MAX_LOOKED_AT = 2000  # rows whose observations are compared


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
    checks = check_rows(task, rows, info)
    if not task.is_minari:
        checks.append(_validation_check(*ogbench.dataset_files(task, Path(data_dir))))
    return checks, info


def check_rows(task: Task, rows: Rows, info: DatasetInfo) -> list[Check]:
    """The checks of rows in memory."""
    index = rows.transition_rows()
    checks = [
        Check("source", info.source, " or ".join(SOURCES), info.source in SOURCES),
        *_shape_checks(task, rows),
        _finite("observations finite", rows.observation),
        _finite("actions finite", rows.action),
        _finite("rewards finite", rows.reward[index]),
        _action_check(task, info),
        *_episode_checks(task, rows),
        Check("terminal is 0 or 1", _values(rows.terminal), "0, 1", bool(np.isin(rows.terminal, (0, 1)).all())),
    ]
    return checks + (_minari_checks(task, rows) if task.is_minari else _ogbench_checks(task, rows))


def expected_shapes(task: Task) -> tuple[tuple[int, ...], int]:
    """Shape of one observation and number of action coordinates: the official ones, or those of an own simulator."""
    if task.kind == "minari":
        env = make_environment(ogbench.environment_spec(task))
        try:
            shapes = env.observation_space.shape, env.action_space.shape
        finally:
            env.close()
        return tuple(shapes[0] or ()), int(np.prod(shapes[1] or ()))
    name = task.name.removeprefix("visual-")
    dims, actions = next(shape for prefix, shape in STATE_SHAPES.items() if name.startswith(prefix))
    return (64, 64, 3) if task.kind == "pixel" else (dims,), actions


def _action_check(task: Task, info: DatasetInfo) -> Check:
    """Loading clips actions; what lies beyond the simulator's limits on OGBench is a fault, in D4RL it happens."""
    largest = float(info.details.get("largest_action", np.nan))
    name, found = "largest action coordinate", f"{largest:.6g}"
    if task.is_minari:
        return Check(name, found, "told, not judged (clipped to 1)", bool(np.isfinite(largest)))
    return Check(name, found, "at most 1", largest <= 1 + 1e-6)


def _shape_checks(task: Task, rows: Rows) -> list[Check]:
    expected, actions = expected_shapes(task)
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


def _episode_checks(task: Task, rows: Rows) -> list[Check]:
    """Episodes close, have the lengths they should, and observations jump where one ends and the next begins.

    Boundaries that are off by a row show as jumps no larger than those inside.
    """
    lengths = np.diff(np.concatenate([[-1], np.flatnonzero(rows.is_last)])) - 1
    found = f"{len(lengths)} of {lengths.min()} to {lengths.max()} steps" if len(lengths) else "none"
    is_long = bool(len(lengths) and lengths.min() >= 1)
    checks = [Check("episodes closed", str(bool(rows.is_last[-1])), "True", bool(rows.is_last[-1]))]
    if task.is_minari:
        checks.append(Check("episode lengths", found, "at least 1 step each", is_long))
    else:
        is_even = bool(is_long and lengths.min() == lengths.max())
        checks.append(Check("episode lengths", found, "all the same, at least 1 step", is_even))
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


def _validation_check(train: Path, validation: Path) -> Check:
    """Whether the validation file holds the same arrays as the training file, whatever their number of rows."""
    left, right = (
        {name: (entry["dtype"], *entry["shape"][1:]) for name, entry in describe(file).items() if entry["shape"]}
        for file in (train, validation)
    )
    different = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    return Check("arrays of the validation file", ", ".join(different) or "the same", "the same", not different)


def _image_check(rows: Rows) -> Check:
    """A renderer that fails leaves frames of one colour."""
    looked_at = rows.observation[:: max(len(rows.observation) // MAX_LOOKED_AT, 1)]
    flat = looked_at.reshape(len(looked_at), -1, looked_at.shape[-1])
    blank = int((flat.min(axis=1) == flat.max(axis=1)).all(axis=-1).sum())
    return Check("blank images", f"{blank} of {len(flat)} looked at", "0", blank == 0)


def _ogbench_checks(task: Task, rows: Rows) -> list[Check]:
    index = rows.transition_rows()
    reward, terminal = rows.reward[index], rows.terminal[index]
    lowest = next(value for part, value in LOWEST_REWARD.items() if part in task.name)
    return [
        *([_image_check(rows)] if task.kind == "pixel" else []),
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


def _minari_checks(task: Task, rows: Rows) -> list[Check]:
    index = rows.transition_rows()
    terminal = rows.terminal[index] > 0
    inside = int((terminal & ~rows.is_last[index + 1]).sum())
    checks = [Check("terminal only closes episodes", f"{inside} inside", "0 inside", inside == 0)]
    reward = rows.reward[index]
    text = f"[{reward.min():.4g}, {reward.max():.4g}]"
    if task.kind == "minari":
        return [
            *checks,
            Check("reward range", text, "told, not judged", True),
            _fraction("transitions that end the return", float(terminal.mean())),
        ]
    hand = hand_of(task)
    low, high = LOWEST_ADROIT_REWARD, HIGHEST_ADROIT_REWARD[hand]
    return [
        *checks,
        Check("reward range", text, f"within [{low:g}, {high:g}]", bool(reward.min() >= low and reward.max() <= high)),
        Check(
            "terminal transitions",
            f"{int(terminal.sum())}",
            "only the pen's" if hand == "pen" else "0",
            hand == "pen" or not terminal.any(),
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
