"""The linear-Gaussian case of app:gaussian_bias: closed forms, orders of κ, and the coupling that is implemented."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import stats

from pcbf_core import theory
from pcbf_experiments.theory import formulas
from pcbf_experiments.theory.formulas import Values, optimal_control_weight
from pcbf_experiments.theory.measures import order, regression_slope
from pcbf_experiments.theory.rows import ROUNDING, at_least, at_most, near
from pcbf_records.theory import CheckRow

LABEL = "app:gaussian_bias"


class GaussianSetting(NamedTuple):
    """Flow time t, discount γ and the standard deviation σ of X'."""

    flow_time: float
    discount: float
    std: float

    def describe(self) -> str:
        return f"t = {self.flow_time:g}, γ = {self.discount:g}, σ = {self.std:g}"


GAUSSIAN_SETTINGS = (GaussianSetting(0.3, 0.9, 1.5), GaussianSetting(0.7, 0.5, 0.6))
CORRELATIONS = (-0.5, 0.0, 0.5, 1.0)


@dataclass(frozen=True)
class GaussianSamples:
    """The linear-Gaussian transition: r = 1/2, X' ~ N(0.7, σ²), noise pair of correlation ρ."""

    setting: GaussianSetting
    noise: Values
    successor_noise: Values
    successor_return: Values

    REWARD = 0.5
    MEAN = 0.7

    @classmethod
    def draw(
        cls,
        rng: Generator,
        num_samples: int,
        setting: GaussianSetting,
        correlation: float,
        *,
        coupled: bool = False,
    ) -> GaussianSamples:
        """`coupled` replaces the independent X' by the implemented one, X' = μ + σ X_0."""
        successor_noise, other, unit = rng.standard_normal((3, num_samples))
        noise = correlation * successor_noise + np.sqrt(1 - correlation**2) * other
        unit = noise if coupled else unit
        return cls(setting, noise, successor_noise, cls.MEAN + setting.std * unit)

    @property
    def current_point(self) -> Values:
        return formulas.current_point(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.REWARD,
            flow_time=self.setting.flow_time,
            effective_discount=self.setting.discount,
        )

    @property
    def successor_point(self) -> Values:
        return formulas.successor_point(
            noise=self.successor_noise, successor_return=self.successor_return, flow_time=self.setting.flow_time
        )

    def control_variate(self, slope: float) -> Values:
        """C with the successor field μ + slope (z' - tμ)."""
        predicted = self.MEAN + slope * (self.successor_point - self.setting.flow_time * self.MEAN)
        return formulas.control_variate(
            noise=self.successor_noise, successor_return=self.successor_return, successor_velocity=predicted
        )

    @property
    def bellman_velocity(self) -> Values:
        return formulas.bellman_velocity(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.REWARD,
            effective_discount=self.setting.discount,
        )

    @property
    def optimal_slope(self) -> float:
        return float(theory.successor_velocity_slope(self.setting.flow_time, successor_std=self.setting.std))


def relative_variance_error(num_samples: int) -> float:
    """Five standard errors of a sample variance relative to the variance, for Gaussian samples."""
    return 5 * np.sqrt(2 / (num_samples - 1))


def density_ratio_use(setting: GaussianSetting) -> Values:
    """|B[C](x)| over its density-ratio bound, for v̄ = v̄* + sin(2(z' - tμ))/2 + 1/5 and shared noise (ρ = 1)."""
    time, discount, successor_std = setting
    noise_variance, return_variance = (1 - time) ** 2, time**2 * successor_std**2
    current, successor = discount**2 * return_variance + noise_variance, return_variance + noise_variance
    covariance = discount * return_variance + noise_variance
    offset = np.linspace(-3, 3, 301) * np.sqrt(current)  # x - E[X_t]
    mean, std = covariance / current * offset, np.sqrt(successor - covariance**2 / current)  # of X'_t given x, centred

    nodes = np.linspace(-8, 8, 1601)
    weight = stats.norm.pdf(nodes) / stats.norm.pdf(nodes).sum()
    error = 0.5 * np.sin(2 * np.sqrt(successor) * nodes) + 0.2
    slope = theory.gaussian_bias_slope(time, discount=discount, successor_std=successor_std)
    posterior_error = 0.5 * np.sin(2 * mean) * np.exp(-2 * std**2) + 0.2
    intrinsic_variance = successor_std**2 / successor - slope**2 * current  # Var(C | X_t); Var C = σ² / D_t
    ratio_norm = theory.gaussian_density_ratio_norm(mean, std, reference_std=float(np.sqrt(successor)))
    bound = ratio_norm * np.sqrt(weight @ error**2) + np.sqrt((slope * offset) ** 2 + intrinsic_variance)
    return np.abs(posterior_error + slope * offset) / bound


# --------------------------------------------------------------------------------------------- closed forms


def gaussian_closed_forms(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """κ, Var(u^λ), λ* and β against regressions on samples."""
    for setting in GAUSSIAN_SETTINGS:
        for correlation in CORRELATIONS:
            samples = GaussianSamples.draw(rng, num_samples, setting, correlation)
            yield from closed_forms(samples, correlation)
        samples = GaussianSamples.draw(rng, num_samples, setting, 1.0)
        slope, error = regression_slope(samples.successor_point, samples.successor_return - samples.successor_noise)
        yield near(
            f"successor-slope-t{setting.flow_time:g}",
            f"β is the slope of X' - X_0' on Z'_t: {setting.describe()}",
            LABEL,
            slope,
            samples.optimal_slope,
            5 * error,
        )
    weights = optimal_control_weight(np.linspace(0.05, 0.95, 19), discount=0.9, noise_correlation=1.0)
    yield at_least(
        "optimal-weight-range",
        "With shared noise λ*(t) exceeds γ for t > 0, outside the range [0, γ] used in training: least λ* at γ = 0.9",
        LABEL,
        weights.min(),
        0.9,
    )


def closed_forms(samples: GaussianSamples, correlation: float) -> Iterator[CheckRow]:
    """κ, Var(u^λ) and λ* for samples whose noises have this correlation."""
    time, discount, std = samples.setting
    name, where = f"rho{correlation:g}-t{time:g}", f"ρ = {correlation:g}, {samples.setting.describe()}"
    known: dict[str, Any] = {"discount": discount, "successor_std": std, "noise_correlation": correlation}
    correction, velocity = samples.control_variate(samples.optimal_slope), samples.bellman_velocity
    slope, error = regression_slope(samples.current_point, correction)
    yield near(
        f"kappa-{name}",
        f"κ is the slope of C on Z_t: {where}",
        LABEL,
        slope,
        float(theory.gaussian_bias_slope(time, **known)),
        5 * error,
    )
    weight = 0.6 * discount
    variance = float(theory.gaussian_target_variance(time, control_weight=weight, **known))
    yield near(
        f"target-variance-{name}",
        f"Var(u^λ) at λ = {weight:g}: {where}",
        LABEL,
        float(np.var(velocity + weight * correction, ddof=1)),
        variance,
        relative_variance_error(len(velocity)) * variance,
    )
    slope, error = regression_slope(correction, velocity)
    yield near(
        f"optimal-weight-{name}",
        f"λ* = γ(1-t) + ρt is the λ of least sample variance: {where}",
        LABEL,
        -slope,
        float(optimal_control_weight(time, discount=discount, noise_correlation=correlation)),
        5 * error,
    )


# -------------------------------------------------------------------------------------------- orders of κ


def bias_slope(time: float, discount: float, correlation: float) -> float:
    """κ for σ = 1."""
    return float(theory.gaussian_bias_slope(time, discount=discount, successor_std=1.0, noise_correlation=correlation))


def bias_slope_order(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """How fast κ vanishes towards t = 0, t = 1 and γ = 1, with shared and with independent noise."""
    first_order = {
        "kappa-order-time": (
            "Shared noise, γ = 0.9, σ = 1: κ vanishes with first order in 1 - t (exponent as t -> 1)",
            lambda h: bias_slope(1 - h, 0.9, 1.0),
        ),
        "kappa-order-discount": (
            "Shared noise, t = 0.5, σ = 1: κ vanishes with first order in 1 - γ (exponent as γ -> 1)",
            lambda h: bias_slope(0.5, 1 - h, 1.0),
        ),
        "kappa-order-source": (
            "Shared noise, γ = 0.9, σ = 1: κ vanishes at the source with first order in t (exponent as t -> 0)",
            lambda h: bias_slope(h, 0.9, 1.0),
        ),
        "kappa-independent-factor": (
            "Independent noise, t = 0.5, σ = 1: κ has a factor of first order in γ (exponent as γ -> 0)",
            lambda h: bias_slope(0.5, h, 0.0),
        ),
        "kappa-independent-order-time": (
            "For information: with independent noise κ vanishes with first order in 1 - t as well, so the decay at "
            "t = 1 is not due to sharing",
            lambda h: bias_slope(1 - h, 0.9, 0.0),
        ),
    }
    for id, (statement, function) in first_order.items():
        yield near(id, statement, LABEL, order(function, 1e-4), 1.0, 0.01)
    yield at_least(
        "kappa-independent-remains",
        "Independent noise, t = 0.5, σ = 1: |κ| at γ = 0.999 does not fall below that at γ = 0.5",
        LABEL,
        abs(bias_slope(0.5, 0.999, 0.0)),
        abs(bias_slope(0.5, 0.5, 0.0)),
    )
    yield sharing_crossover()
    yield one_constant_for_all_discounts()


def sharing_crossover() -> CheckRow:
    times, discounts = np.linspace(0.05, 0.95, 19), np.linspace(0.01, 0.99, 99)

    def is_smaller(discount: float) -> bool:
        return all(abs(bias_slope(t, discount, 1.0)) < abs(bias_slope(t, discount, 0.0)) - 1e-12 for t in times)

    return near(
        "kappa-crossover",
        "For information: sharing noise makes |κ| smaller where γ exceeds 1/2 only (least such γ on a grid of 0.01)",
        LABEL,
        min(discount for discount in discounts if is_smaller(discount)),
        0.51,
        1e-6,
    )


def one_constant_for_all_discounts() -> CheckRow:
    def constant(discount: float) -> float:
        grid = np.linspace(0.001, 0.9999, 4001)
        slopes = theory.gaussian_bias_slope(grid, discount=discount, successor_std=1.0)
        return float((slopes / ((1 - discount) * (1 - grid))).max())

    return at_least(
        "kappa-order-all-discounts",
        "For information: κ = O((1-γ)(1-t)) is a limit, no constant serves all γ in (0, 1): exponent in 1/γ of "
        "sup_t κ/((1-γ)(1-t)) as γ -> 0, bounded only if 0",
        LABEL,
        -order(constant, 0.01),
        1.0,
    )


# ---------------------------------------------------------------------------------- the implemented coupling


def implemented_coupling(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """Training makes X' a function of the noise: with the field of that coupling the control variate vanishes."""
    for time in (0.3, 0.7):
        setting = GaussianSetting(time, 0.9, 1.5)
        samples = GaussianSamples.draw(rng, num_samples, setting, 1.0, coupled=True)
        where = f"the implemented coupling X' = μ + σX_0, {setting.describe()}"
        # X' - X_0 - μ = (σ-1) X_0 and Z'_t - tμ = (tσ + 1-t) X_0
        own_slope = (setting.std - 1) / (time * setting.std + 1 - time)
        yield at_most(
            f"implemented-own-field-t{time:g}",
            f"With E[X' - X_0 | X'_t] of {where} the control variate vanishes, and λ changes neither bias nor "
            "variance: largest |C|",
            LABEL,
            np.abs(samples.control_variate(own_slope)).max(),
            ROUNDING,
        )
