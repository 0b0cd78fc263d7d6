"""How well laws of returns, given by samples or even quantiles, fit the returns that came out."""

from __future__ import annotations

from typing import Any

import numpy as np
import scoringrules
from numpy.typing import ArrayLike

from pcbf_records.arrays import Floats
from pcbf_records.calibration import COVERAGES, NUM_BINS, TAIL


def randomised_pit(samples: Floats, returns: Floats, uniform: Floats, tolerance: float = 0.0) -> Floats:
    """F(y-) + V (F(y) - F(y-)) with V ~ U[0, 1], F the law of `samples` (cases, samples), y the return of each case.

    It is uniform if the law is right, atoms or not. A sample nearer to y than `tolerance` counts as equal to it, and
    the return itself as one more of them, as in a rank histogram.
    """
    below = (samples < returns[:, None] - tolerance).sum(axis=-1)
    up_to = (samples <= returns[:, None] + tolerance).sum(axis=-1)
    return (below + uniform * (up_to - below + 1)) / (samples.shape[-1] + 1)


def pit_error(pit: Floats) -> float:
    """W1 from the law of the PIT values to the uniform one, ∫ |F(u) - u| du; 0 if calibrated, ½ if always outside."""
    ordered = np.sort(pit)
    return float(np.abs(ordered - (np.arange(len(pit)) + 0.5) / len(pit)).mean())


def coverage(pit: Floats, share: float) -> float:
    """How often a return lies in the central interval of mass `share`; at atoms with the chance of their part in it."""
    return float((np.abs(pit - 0.5) <= share / 2).mean())


def pit_histogram(pit: Floats, num_bins: int = NUM_BINS) -> Floats:
    """Share of cases in each of `num_bins` even parts of [0, 1]."""
    return np.histogram(pit, bins=num_bins, range=(0.0, 1.0))[0] / len(pit)


def scores(samples: ArrayLike, returns: ArrayLike, uniform: Floats, tolerance: float) -> dict[str, Floats]:
    """All measures of one law per case, with equally likely `samples` (cases, samples): means over the cases.

    `crps` is E|X - y| - ½ E|X - X'|, `pinball` that of the quantile at level 0.1, `bias` predicted minus observed mean,
    `rmse` the root of the mean square of the predicted mean's distance from the return.
    """
    law, seen = np.asarray(samples, np.float64), np.asarray(returns, np.float64)
    pit = randomised_pit(law, seen, uniform, tolerance)
    error = law.mean(axis=-1) - seen
    crps: Any = scoringrules.crps_ensemble(seen, law)
    tail: Any = scoringrules.quantile_score(seen, np.quantile(law, TAIL, axis=-1), TAIL)
    return {
        "crps": np.asarray(np.mean(crps)),
        "pinball": np.asarray(np.mean(tail)),
        "bias": np.asarray(error.mean()),
        "rmse": np.sqrt((error**2).mean()),
        "pit_error": np.asarray(pit_error(pit)),
        "coverage": np.array([coverage(pit, share) for share in COVERAGES]),
        "pit": pit_histogram(pit),
    }
