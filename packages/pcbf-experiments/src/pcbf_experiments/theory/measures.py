"""What the checks measure with: conditional means in standard errors, slopes, orders, distances between laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcbf_experiments.theory.formulas import Values


def largest_z_score(point: Values, residual: Values) -> float:
    """Largest |mean| in standard errors of `residual` over bins of equal count along `point`, coarse and fine.

    Where E[residual | point] = 0 the bins' means differ from 0 by chance only, whatever the bins' width. A bin
    with less spread than the whole sample is given that of the whole: its own may rest on a few rare outcomes.
    """
    ordered, overall = residual[np.argsort(point, kind="stable")], residual.std(ddof=1)
    finest = int(np.clip(len(point) // 500, 2, 50))
    bins = [part for num_bins in {1, min(8, finest), finest} for part in np.array_split(ordered, num_bins)]
    return max(float(abs(part.mean()) * np.sqrt(len(part)) / max(part.std(ddof=1), overall)) for part in bins)


def in_parts(function: Callable[..., Values], *samples: NDArray[Any], size: int = 100_000) -> Values:
    """`function` of the samples, a part at a time: memory stays bounded however many there are."""
    starts = range(0, len(samples[0]), size)
    return np.concatenate([function(*(values[start : start + size] for values in samples)) for start in starts])


def regression_slope(x: Values, y: Values) -> tuple[float, float]:
    """Least-squares slope of y on x and its standard error."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x @ y) / (x @ x)
    return float(slope), float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / (x @ x)))


def order(function: Callable[[float], float], small: float) -> float:
    """Exponent p of |f(h)| ~ h^p between h = `small` and 2 `small`."""
    return float(np.log2(abs(function(2 * small)) / abs(function(small))))


def wasserstein1(
    first: Callable[[Values], Values], second: Callable[[Values], Values], low: float, high: float
) -> float:
    """∫ |F - G| between two distribution functions that agree outside [low, high]."""
    grid = np.linspace(low, high, 40001)
    return float(np.trapezoid(np.abs(first(grid) - second(grid)), grid))
