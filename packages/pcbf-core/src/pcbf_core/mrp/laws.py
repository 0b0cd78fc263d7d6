"""Exact return laws: moments, distribution function, quantiles and Wasserstein-1 distance to samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import scipy  # takes a second to load scipy.stats, and does so only where it is used
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from pcbf_core.types import Values


@runtime_checkable
class ReturnLaw(Protocol):
    """A probability law on the line that is known exactly, or up to `truncation_error` in W1."""

    @property
    def truncation_error(self) -> float: ...

    @property
    def mean(self) -> float: ...

    @property
    def std(self) -> float: ...

    def cdf(self, values: ArrayLike) -> Values: ...

    def quantile(self, levels: ArrayLike) -> Values: ...

    def wasserstein1(self, samples: ArrayLike) -> float:
        """W1 between this law and the empirical law of `samples`, without sampling error of this law."""
        ...


@dataclass(frozen=True, eq=False)
class DiscreteLaw:
    """Atoms with weights; `truncation_error` bounds the W1 distance to the law it stands for."""

    atoms: Values
    weights: Values
    truncation_error: float = 0.0

    def __post_init__(self) -> None:
        if abs(self.weights.sum() - 1) > 1e-9 or (self.weights < 0).any():
            raise ValueError(f"`weights` must be nonnegative and sum to 1, got sum {self.weights.sum()!r}.")
        if (np.diff(self.atoms) <= 0).any():
            raise ValueError("`atoms` must increase strictly; merge equal values and sort them.")

    @property
    def mean(self) -> float:
        return float(self.weights @ self.atoms)

    @property
    def std(self) -> float:
        return float(np.sqrt(self.weights @ (self.atoms - self.mean) ** 2))

    def cdf(self, values: ArrayLike) -> Values:
        cumulative = np.concatenate([[0.0], np.cumsum(self.weights)])
        return cumulative[np.searchsorted(self.atoms, values, side="right")]

    def quantile(self, levels: ArrayLike) -> Values:
        index = np.searchsorted(np.cumsum(self.weights), levels, side="left")
        return self.atoms[np.minimum(index, len(self.atoms) - 1)]

    def cvar(self, level: float) -> float:
        """Mean of the worst `level` share of returns, CVaR_α(G); level 1 is the mean."""
        before = np.cumsum(self.weights) - self.weights
        return float(np.clip(level - before, 0.0, self.weights) @ self.atoms / level)

    def wasserstein1(self, samples: ArrayLike) -> float:
        return float(scipy.stats.wasserstein_distance(samples, self.atoms, v_weights=self.weights))


def reward_count_law(probabilities: Values, *, discount: float) -> DiscreteLaw:
    """Law of 1 + γ + … + γ^(K-1) = (1-γ^K)/(1-γ) when P(K = k) is `probabilities[k]`.

    The mass that `probabilities` leaves out belongs to larger K and is put on the last atom.
    """
    counts = np.arange(len(probabilities))
    atoms = (1 - discount**counts) / (1 - discount)
    beyond = max(1 - probabilities.sum(), 0.0)
    weights = probabilities / (probabilities.sum() + beyond)
    weights[-1] += beyond
    distinct = np.concatenate([[True], np.diff(atoms) > 0])  # far atoms meet in floating point
    merged = np.bincount(np.cumsum(distinct) - 1, weights).astype(np.float64)
    return DiscreteLaw(
        atoms[distinct].astype(np.float64), merged, truncation_error=float(beyond * (1 / (1 - discount) - atoms[-1]))
    )


@dataclass(frozen=True)
class UniformLaw:
    """Uniform on [low, high]."""

    low: float
    high: float
    truncation_error: float = 0.0

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def std(self) -> float:
        return (self.high - self.low) / np.sqrt(12)

    def cdf(self, values: ArrayLike) -> Values:
        return np.clip((np.asarray(values, float) - self.low) / (self.high - self.low), 0, 1)

    def quantile(self, levels: ArrayLike) -> Values:
        return self.low + (self.high - self.low) * np.asarray(levels, float)

    def wasserstein1(self, samples: ArrayLike) -> float:
        """∑_i ∫ |x_(i) - Q(u)| du over the i-th of n equal level intervals, each in closed form."""
        ordered = np.sort(np.asarray(samples, float).ravel())
        edges = self.quantile(np.linspace(0, 1, len(ordered) + 1))

        def primitive(x: Values) -> Values:  # of |x - sample|
            return 0.5 * (x - ordered) * np.abs(x - ordered)

        return float((primitive(edges[1:]) - primitive(edges[:-1])).sum() / (self.high - self.low))


@dataclass(frozen=True)
class NormalLaw:
    """N(mean, std²)."""

    mean: float
    std: float
    truncation_error: float = 0.0

    def cdf(self, values: ArrayLike) -> Values:
        return ndtr((np.asarray(values, float) - self.mean) / self.std)

    def quantile(self, levels: ArrayLike) -> Values:
        return self.mean + self.std * ndtri(levels)

    def wasserstein1(self, samples: ArrayLike) -> float:
        return normal_mixture(((1.0, self.mean, self.std),)).wasserstein1(samples)


@dataclass(frozen=True, eq=False)
class NormalMixtureLaw:
    """∑ w_i N(m_i, s_i²)."""

    weights: Values
    means: Values
    stds: Values
    truncation_error: float = 0.0

    def __post_init__(self) -> None:
        if abs(self.weights.sum() - 1) > 1e-9 or (self.weights < 0).any() or (self.stds <= 0).any():
            raise ValueError("`weights` must be nonnegative and sum to 1, and `stds` be positive.")

    @property
    def mean(self) -> float:
        return float(self.weights @ self.means)

    @property
    def std(self) -> float:
        return float(np.sqrt(self.weights @ (self.stds**2 + (self.means - self.mean) ** 2)))

    def cdf(self, values: ArrayLike) -> Values:
        return ndtr(self._standardised(values)) @ self.weights

    def quantile(self, levels: ArrayLike) -> Values:
        """By bisection, to rounding; infinite at levels 0 and 1."""
        wanted = np.asarray(levels, float)
        ends = np.stack([m + s * ndtri(wanted) for m, s in zip(self.means, self.stds, strict=True)])
        low, high = ends.min(axis=0), ends.max(axis=0)  # a mixture's quantile lies between those of its parts
        with np.errstate(invalid="ignore"):
            for _ in range(64):
                middle = (low + high) / 2
                below = self.cdf(middle) < wanted
                low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where((wanted > 0) & (wanted < 1), (low + high) / 2, ends[0])

    def wasserstein1(self, samples: ArrayLike) -> float:
        """∫ |F - F_n| in closed form: between two samples F_n is constant, and F crosses it at most once."""
        ordered = np.sort(np.asarray(samples, float).ravel())
        height = np.arange(1, len(ordered)) / len(ordered)
        left, right = ordered[:-1], ordered[1:]
        split = np.clip(self.quantile(height), left, right)
        below, area, above = self._area(left), self._area(split), self._area(right)
        between = height * (split - left) - (area - below) + (above - area) - height * (right - split)
        beyond = self._area(ordered[-1:]) - (ordered[-1] - self.mean)  # ∫ (1 - F) from the last sample on
        return float(self._area(ordered[:1])[0] + between.sum() + beyond[0])

    def _standardised(self, values: ArrayLike) -> Values:
        return (np.asarray(values, float)[..., None] - self.means) / self.stds

    def _area(self, values: Values) -> Values:
        """∫ F up to each value."""
        z = self._standardised(values)
        return (self.stds * (z * ndtr(z) + normal_density(z))) @ self.weights


def normal_density(values: Values) -> Values:
    """That of N(0, 1)."""
    return np.exp(-(values**2) / 2) / np.sqrt(2 * np.pi)


def normal_mixture(parts: Iterable[tuple[float, float, float]]) -> NormalMixtureLaw:
    """The mixture of `parts`, each (weight, mean, std)."""
    return NormalMixtureLaw(*np.array(list(parts), float).T)
