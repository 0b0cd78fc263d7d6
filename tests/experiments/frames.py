"""Recorded images small enough to follow by eye."""

from __future__ import annotations

import numpy as np

from pcbf_experiments.data.pixels import FrameDataset, frame_index
from pcbf_experiments.data.rows import Rows

VISUAL = "visual-cube-double-play-singletask-task1-v0"


def frame_rows(height: int = 64) -> Rows:
    """Two episodes of three and two transitions; every pixel of row i is 10 i."""
    count = 7
    frames = np.broadcast_to(10 * np.arange(count, dtype=np.uint8)[:, None, None, None], (count, height, height, 3))
    return Rows(
        observation=frames.copy(),
        action=np.linspace(-0.9, 0.9, count * 5, dtype=np.float32).reshape(count, 5),
        reward=np.array([-2, -1, 0, -9, -2, -2, -9], np.float32),
        terminal=np.array([0, 0, 1, 0, 0, 0, 0], np.float32),
        is_last=np.array([0, 0, 0, 1, 0, 0, 1], bool),
        has_last_action=True,
    )


def frame_dataset(is_augmented: bool = False) -> FrameDataset:
    rows = frame_rows(8)
    index, first = frame_index(rows.is_last)
    return FrameDataset(rows.observation, index, first, rows.transitions(index, images=True), is_augmented)  # type: ignore[arg-type]
