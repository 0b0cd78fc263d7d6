"""A question put to a dataset, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_LOOKED_AT = 2000  # rows whose observations are compared


@dataclass(frozen=True)
class Check:
    """One question put to a dataset, the answer, and what would be right."""

    name: str
    found: str
    expected: str
    holds: bool


def told(name: str, found: str) -> Check:
    """A fact that readers should know and that nothing can judge."""
    return Check(name, found, "told, not judged", True)


def fraction(name: str, value: float) -> Check:
    return told(name, f"{value:.5f}")


def largest_action(largest: float, *, is_judged: bool) -> Check:
    """Loading clips actions; what lies beyond the simulator's limits on OGBench is a fault, in D4RL it happens."""
    name, found = "largest action coordinate", f"{largest:.6g}"
    if is_judged:
        return Check(name, found, "at most 1", largest <= 1 + 1e-6)
    return Check(name, found, "told, not judged (clipped to 1)", bool(np.isfinite(largest)))


def episode_lengths(lengths: np.ndarray, *, is_even: bool) -> Check:
    """Episodes have a step each, and with `is_even` all the same number of them."""
    found = f"{len(lengths)} of {lengths.min()} to {lengths.max()} steps" if len(lengths) else "none"
    is_long = bool(len(lengths) and lengths.min() >= 1)
    if is_even:
        is_same = bool(is_long and lengths.min() == lengths.max())
        return Check("episode lengths", found, "all the same, at least 1 step", is_same)
    return Check("episode lengths", found, "at least 1 step each", is_long)
