"""Statistics of scores over seeds and tasks.

Scores of a method come as one array of seeds per task, in the same order of tasks everywhere; tasks may have
different numbers of seeds, and a task without any is left out by the caller.

One rule of intervals: Student's over seeds, whose scores are means over their episodes, and for a difference of two
methods Student's over the differences seed by seed, since methods share data, proposals and starts of episodes. Welch's
is for the paper's numbers, which have no seeds to pair with. Interquartile means, probabilities and profiles have no
such formula: there seeds are drawn anew within each task (`scipy.stats.bootstrap`), and below five seeds nothing is
said. Every random draw starts from an explicit seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # takes a second to load scipy.stats, and does so only where it is used
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from pcbf_records.arrays import Floats

Statistic = Callable[..., Any]  # of one array per task, with an `axis`

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000
FEWEST_RESAMPLED = 5  # seeds; three against three cannot have an interval of 95 % by resampling
SEED = 0
BOLD_SHARE = 0.95


class Interval(NamedTuple):
    """A confidence interval, nan where the data say nothing about spread."""

    low: float
    high: float


UNKNOWN = Interval(np.nan, np.nan)


def mean(scores: ArrayLike) -> float:
    """Mean over seeds; nan without any."""
    values = np.asarray(scores, float)
    return float(values.mean()) if values.size else np.nan


def std(scores: ArrayLike) -> float:
    """Sample standard deviation over seeds (divided by n - 1; the paper does not say which); nan below two seeds."""
    values = np.asarray(scores, float)
    return float(values.std(ddof=1)) if values.size > 1 else np.nan


def aggregate(tasks: Sequence[ArrayLike]) -> tuple[float, float]:
    """A domain's mean and ± as in tab:aggregated: the mean of the tasks' means, and the mean of their deviations.

    The ± is nan when a task has fewer than two seeds.
    """
    return mean([mean(scores) for scores in tasks]), mean([std(scores) for scores in tasks])


def interquartile_mean(tasks: Sequence[ArrayLike]) -> float:
    """Mean of the middle half of all runs of all tasks; nan where a task has fewer than five."""
    if not len(tasks) or min(np.size(scores) for scores in tasks) < FEWEST_RESAMPLED:
        return np.nan
    return float(pooled_interquartile_mean(*(np.asarray(scores, float) for scores in tasks)))


def mean_of_means(*tasks: Floats, axis: int = -1) -> Any:
    """Mean over tasks of the mean over seeds."""
    return np.mean([np.mean(scores, axis=axis) for scores in tasks], axis=0)


def pooled_interquartile_mean(*tasks: Floats, axis: int = -1) -> Any:
    """`interquartile_mean` along an axis."""
    return scipy.stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)


def bootstrap_interval(
    tasks: Sequence[ArrayLike],
    statistic: Statistic = mean_of_means,
    *,
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Percentile interval of a statistic when seeds are drawn anew within each task (stratified bootstrap).

    Unknown when a task has fewer than five seeds.
    """
    arrays = [np.asarray(scores, float) for scores in tasks]
    if not arrays or min(array.size for array in arrays) < FEWEST_RESAMPLED:
        return UNKNOWN
    found = scipy.stats.bootstrap(
        arrays,
        statistic,
        n_resamples=num_resamples,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        paired=False,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def performance_profile(tasks: Sequence[ArrayLike], thresholds: ArrayLike) -> Floats:
    """Share of runs that score above each threshold; every task counts the same."""
    levels = np.asarray(thresholds, float)
    shares = [np.mean(np.ravel(scores)[:, None] > levels, axis=0) for scores in tasks]
    return np.mean(shares, axis=0) if shares else np.full(levels.shape, np.nan)


def profile_band(
    tasks: Sequence[ArrayLike], thresholds: ArrayLike, *, num_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> tuple[Floats, Floats]:
    """Lower and upper bound of the profile at each threshold, by the stratified bootstrap; nan where unknown."""
    bounds = [
        bootstrap_interval(
            [np.asarray(scores, float) > level for scores in tasks], num_resamples=num_resamples, seed=seed
        )
        for level in np.asarray(thresholds, float)
    ]
    return np.array([bound.low for bound in bounds]), np.array([bound.high for bound in bounds])


def _superiority(first: Floats, second: Floats, axis: int = -1) -> Any:
    """P(X > Y) + P(X = Y) / 2 of two samples along the last axis."""
    if axis not in (-1, first.ndim - 1):
        raise ValueError(f"`axis={axis}` is not the last one; move it there.")
    left, right = first[..., :, None], second[..., None, :]
    return np.mean((left > right) + 0.5 * (left == right), axis=(-2, -1))


def probability_of_improvement(ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike]) -> float:
    """Probability that a run of ours scores above one of theirs, mean over tasks; a tie counts one half.

    On each task it is the Mann-Whitney statistic over the number of pairs of seeds. Unknown below five seeds.
    """
    pairs = list(zip(ours, theirs, strict=True))
    if min((np.size(seeds) for pair in pairs for seeds in pair), default=0) < FEWEST_RESAMPLED:
        return np.nan
    return mean([_superiority(np.asarray(x, float), np.asarray(y, float)) for x, y in pairs])


def improvement_interval(
    ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike], *, num_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> Interval:
    """Stratified-bootstrap interval of `probability_of_improvement`; both methods are drawn independently."""

    def statistic(*samples: Floats, axis: int = -1) -> Any:
        half = len(samples) // 2
        pairs = zip(samples[:half], samples[half:], strict=True)
        return np.mean([_superiority(x, y, axis) for x, y in pairs], axis=0)

    return bootstrap_interval([*ours, *theirs], statistic, num_resamples=num_resamples, seed=seed)


def difference_interval(
    ours: tuple[float, float, int], theirs: tuple[float, float, int], *, confidence: float = CONFIDENCE
) -> Interval:
    """Welch's interval of the difference of two means, each given as (mean, sample deviation, number of seeds).

    Unknown when either has fewer than two seeds or no deviation.
    """
    (mean_1, std_1, count_1), (mean_2, std_2, count_2) = ours, theirs
    if min(count_1, count_2) < 2 or not np.isfinite([mean_1, mean_2, std_1, std_2]).all():
        return UNKNOWN
    parts = np.array([std_1**2 / count_1, std_2**2 / count_2])
    variance = parts.sum()
    freedom = variance**2 / (parts**2 / [count_1 - 1, count_2 - 1]).sum() if variance > 0 else 1.0
    half = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))
    return Interval(mean_1 - mean_2 - half, mean_1 - mean_2 + half)


def student_interval(values: ArrayLike, *, confidence: float = CONFIDENCE) -> Interval:
    """Student's interval of the mean of independent values; unknown below two."""
    sample = np.asarray(values, float)
    if sample.size < 2 or not np.isfinite(sample).all():
        return UNKNOWN
    half = float(stdtrit(sample.size - 1, (1 + confidence) / 2) * sample.std(ddof=1) / np.sqrt(sample.size))
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)


def seeds_needed(deviation: float, half_width: float, *, confidence: float = CONFIDENCE) -> int | None:
    """The fewest seeds whose Student interval is ± `half_width` at most, were `deviation` the true one."""
    if not np.isfinite(deviation):
        return None
    counts = np.arange(2, 10_000)
    widths = stdtrit(counts - 1, (1 + confidence) / 2) * deviation / np.sqrt(counts)
    return int(counts[np.argmax(widths <= half_width)]) if widths[-1] <= half_width else None


def within_best(means: Sequence[float], share: float = BOLD_SHARE) -> list[bool]:
    """Which means are bold by the paper's rule: at least 95 % of the best one, and none where the best is missing.

    For a best mean below zero, where 95 % of it would lie above it, only the best itself counts.
    """
    known = [value for value in means if np.isfinite(value)]
    if not known:
        return [False for _ in means]
    best = max(known)
    bound = share * best if best >= 0 else best
    return [bool(np.isfinite(value) and value >= bound) for value in means]
