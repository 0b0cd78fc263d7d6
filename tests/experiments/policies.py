"""Adroit policies for data that nobody learns from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcbf_experiments.suites.adroit import SHAPES


def random_weights(folder: Path) -> Path:
    """Folder with policies of random weights, in the form of trained ones; enough to make data."""
    rng = np.random.default_rng(0)
    for hand in ("pen", "door", "hammer", "relocate"):
        dims, actions = SHAPES[hand]
        sizes = {"w0": (8, dims), "b0": 8, "w1": (8, 8), "b1": 8, "w2": (actions, 8), "b2": actions}
        arrays = {name: 0.3 * rng.standard_normal(size) for name, size in sizes.items()}
        scales = {"in_shift": np.zeros(dims), "in_scale": np.ones(dims)}
        scales |= {"out_shift": np.zeros(actions), "out_scale": np.ones(actions), "log_std": np.full(actions, -2.0)}
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{hand}.npz", allow_pickle=False, **arrays, **scales)
    return folder
