"""The paper's theoretical statements as measurements: the command `pcbf-theory` and its record.

Every check compares a measured number with what the paper says it is, or with the bound it must keep.
A check that fails is written down as failing. Identities are evaluated in double precision, conditional
expectations of finite laws exactly, and where random samples are used the tolerance is five standard errors.
"""

from __future__ import annotations

import argparse
import csv
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from pcbf_core import paths, targets, theory
from pcbf_core.config import check_range, config_from
from pcbf_core.mrp import Bernoulli, DiscreteLaw, MonteCarloChain, SolitaireDice
from pcbf_core.theory import TransitionLaw

Values = NDArray[np.float64]
Relation = Literal["<=", ">=", "≈"]
COLUMNS = ("id", "statement", "label", "measured", "expected", "relation", "margin", "holds")
ROUNDING = 1e-9
RESIDUAL_STEPS = (4, 8, 16, 32)

_Formula = Callable[
    ..., Values
]  # the core's formulas are plain arithmetic: they serve float64 NumPy arrays as they are
current_point = cast(_Formula, paths.current_point)
current_point_from_successor = cast(_Formula, paths.current_point_from_successor)
successor_point = cast(_Formula, paths.successor_point)
uncorrected_point = cast(_Formula, paths.uncorrected_point)
bellman_velocity = cast(_Formula, targets.bellman_velocity)
control_variate = cast(_Formula, targets.control_variate)
velocity_target = cast(_Formula, targets.velocity_target)
optimal_control_weight = cast(_Formula, theory.optimal_control_weight)


# ------------------------------------------------------------------------------------------------ records


@dataclass(frozen=True)
class TheorySettings:
    """How many random samples the Monte Carlo checks draw, and from which seed."""

    num_samples: int
    seed: int

    def __post_init__(self) -> None:
        for name, least in (("num_samples", 1000), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise ValueError(f"`{name}={value!r}` is not a whole number; pass an integer >= {least}.")
            check_range(name, value, at_least=least)


@dataclass(frozen=True)
class Row:
    """One measurement beside what it should be; `tolerance` belongs to the relation ≈ only."""

    id: str
    statement: str
    label: str
    measured: float
    expected: float
    relation: Relation
    tolerance: float = 0.0

    @property
    def margin(self) -> float:
        """How far inside the claim the measurement lies; negative where the claim fails."""
        if self.relation == "<=":
            return self.expected - self.measured
        if self.relation == ">=":
            return self.measured - self.expected
        return self.tolerance - abs(self.measured - self.expected)

    @property
    def holds(self) -> bool:
        return bool(self.margin >= 0)  # nan fails

    def cells(self) -> tuple[str, ...]:
        numbers = {name: f"{getattr(self, name) + 0.0:.6g}" for name in ("measured", "expected", "margin")}
        return (
            self.id,
            self.statement,
            self.label,
            numbers["measured"],
            numbers["expected"],
            self.relation,
            numbers["margin"],
            str(self.holds).lower(),
        )


def at_most(id: str, statement: str, label: str, measured: float, expected: float) -> Row:
    return Row(id, statement, label, float(measured), float(expected), "<=")


def at_least(id: str, statement: str, label: str, measured: float, expected: float) -> Row:
    return Row(id, statement, label, float(measured), float(expected), ">=")


def near(id: str, statement: str, label: str, measured: float, expected: float, tolerance: float) -> Row:
    statement = f"{statement} (tolerance {tolerance:.2g})"
    return Row(id, statement, label, float(measured), float(expected), "≈", float(tolerance))


Check = Callable[[Generator, int], Iterable[Row]]
CHECKS: dict[str, Check] = {}


def _check(function: Check) -> Check:
    """Register a check; it is called with its own random generator and the number of samples to draw."""
    CHECKS[function.__name__] = function
    return function


# ---------------------------------------------------------------------------------- what the checks work on

DISCOUNT = 0.8

# Two successor states, both with two modes; the reward depends on the successor state. Far from Gaussian.
EXAMPLE = TransitionLaw(
    probability=np.outer([0.18, 0.12, 0.2, 0.1, 0.08, 0.12, 0.12, 0.08], [0.35, 0.65]).ravel(),
    reward=np.array([[-0.5, 1.0]] * 4 + [[0.25, 1.5]] * 4).ravel(),
    successor_return=np.repeat([-1.5, -1.1, 1.6, 2.2, 0.2, 0.9, 3.0, 3.4], 2),
    successor_state=np.repeat([0, 1], 8),
)
EXAMPLE_TIMES = (0.3, 0.6, 0.85)
GAUSSIAN_SETTINGS = ((0.3, 0.9, 1.5), (0.7, 0.5, 0.6))  # (t, γ, σ)
CORRELATIONS = (-0.5, 0.0, 0.5, 1.0)


def crude_velocity(flow_time: float, point: Values, successor_state: NDArray[np.integer]) -> Values:
    """An imperfect successor field: linear where the optimal one for `EXAMPLE` bends."""
    return 0.6 + 0.8 * np.asarray(successor_state) - (0.9 - flow_time) * (point - flow_time)


def example_velocity(flow_time: float, point: Values) -> Values:
    """The population velocity v*(x, t) of `EXAMPLE`."""
    return theory.posterior_velocity(EXAMPLE, point, flow_time, discount=DISCOUNT)


def best_velocity(flow_time: float, point: Values, successor_state: NDArray[np.integer]) -> Values:
    """The population-optimal successor field of `EXAMPLE`."""
    return theory.optimal_successor_velocity(EXAMPLE, flow_time, point, successor_state)


@dataclass(frozen=True)
class ExampleSamples:
    """Independent draws of noise and transition from `EXAMPLE`."""

    noise: Values
    reward: Values
    successor_return: Values
    successor_state: NDArray[np.integer]

    @classmethod
    def draw(cls, rng: Generator, num_samples: int) -> ExampleSamples:
        outcome = rng.choice(len(EXAMPLE.probability), num_samples, p=EXAMPLE.probability)
        return cls(
            rng.standard_normal(num_samples),
            EXAMPLE.reward[outcome],
            EXAMPLE.successor_return[outcome],
            EXAMPLE.successor_state[outcome],
        )

    def current_point(self, flow_time: float) -> Values:
        return current_point(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.reward,
            flow_time=flow_time,
            effective_discount=DISCOUNT,
        )

    def successor_point(self, flow_time: float) -> Values:
        return successor_point(noise=self.noise, successor_return=self.successor_return, flow_time=flow_time)

    def velocity_target(self, flow_time: float, control_weight: float) -> Values:
        return velocity_target(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.reward,
            successor_velocity=crude_velocity(flow_time, self.successor_point(flow_time), self.successor_state),
            effective_discount=DISCOUNT,
            effective_control_weight=control_weight,
        )


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


def wasserstein1(
    first: Callable[[Values], Values], second: Callable[[Values], Values], low: float, high: float
) -> float:
    """∫ |F - G| between two distribution functions that agree outside [low, high]."""
    grid = np.linspace(low, high, 40001)
    return float(np.trapezoid(np.abs(first(grid) - second(grid)), grid))


# ------------------------------------------------------------------------------------------------ the path


@_check
def path_identities(rng: Generator, num_samples: int) -> Iterator[Row]:
    noise, successor_return, reward = rng.standard_normal((3, num_samples)) * [[1], [3], [2]]
    discount = rng.choice([0.0, 0.5, 0.9, 0.995], num_samples)  # 0: terminal transitions
    time = rng.uniform(size=num_samples)
    noise_and_return: dict[str, Any] = {"noise": noise, "successor_return": successor_return}
    sample = noise_and_return | {"reward": reward, "effective_discount": discount}
    target = reward + discount * successor_return

    def end_to_end(path: _Formula) -> Values:
        return path(**sample, flow_time=time + 0.5) - path(**sample, flow_time=time - 0.5)

    errors = (
        (
            "path-start-current",
            "The current path starts at the noise: largest |Z_0 - X_0|",
            "prop:endpoints_main",
            current_point(**sample, flow_time=0.0) - noise,
        ),
        (
            "path-start-successor",
            "The successor path starts at the same noise: largest |Z'_0 - X_0|",
            "prop:endpoints_main",
            successor_point(**noise_and_return, flow_time=0.0) - noise,
        ),
        (
            "path-end",
            "The current path ends at the Bellman target: largest |Z_1 - (R + γ̃X')|",
            "app:pcfm",
            current_point(**sample, flow_time=1.0) - target,
        ),
        (
            "path-forms",
            "Both forms of the current path agree: largest difference over random t and γ̃",
            "eq:lambda_path_alt",
            current_point(**sample, flow_time=time) - current_point_from_successor(**sample, flow_time=time),
        ),
        (
            "path-velocity",
            "The current path moves with velocity Y = R + γ̃X' - X_0: largest difference",
            "eq:bcfm-target",
            end_to_end(current_point) - bellman_velocity(**sample),
        ),
        (
            "uncorrected-end",
            "The uncorrected path ends at the Bellman target too: largest |Z^D_1 - (R + γ̃X')|",
            "eq:pointwise_uncorrected_path",
            uncorrected_point(**sample, flow_time=1.0) - target,
        ),
        (
            "uncorrected-velocity",
            "The uncorrected path moves with γ̃ times the successor's velocity: largest difference",
            "lem:dcfm_recovery",
            end_to_end(uncorrected_point) - discount * (successor_return - noise),
        ),
    )
    for id, statement, label, error in errors:
        yield at_most(id, statement, label, np.abs(error).max(), ROUNDING)


@_check
def endpoint_laws(rng: Generator, num_samples: int) -> Iterator[Row]:
    point = np.linspace(-6, 6, 2001)
    start = theory.interpolated_density(EXAMPLE, point, 0.0, discount=DISCOUNT)
    yield at_most(
        "law-start",
        "P_{s,a,0} is N(0, 1): largest difference of the densities",
        "prop:endpoints_main",
        np.abs(start - stats.norm.pdf(point)).max(),
        ROUNDING,
    )
    target = EXAMPLE.bellman_target(DISCOUNT)
    increasing = np.argsort(target)
    end_law = DiscreteLaw(target[increasing], EXAMPLE.probability[increasing])
    scale = np.sqrt(2 / np.pi) + EXAMPLE.probability @ np.abs(target)
    for time in (0.9, 0.99, 0.999):
        distance = wasserstein1(
            lambda x, t=time: theory.interpolated_cdf(EXAMPLE, x, t, discount=DISCOUNT), end_law.cdf, -6.0, 8.0
        )
        yield at_most(
            f"law-end-t{time:g}",
            f"P_{{s,a,t}} tends to the law of R + γX': W1 at t = {time:g} is at most (1-t)(E|X_0| + E|R + γX'|)",
            "prop:endpoints_main",
            distance,
            (1 - time) * scale,
        )
    # Bernoulli with its exact return generator: 2Φ(X_0) is uniform on [0, 2]; one noise per level, both rewards.
    levels = (np.arange(num_samples) + 0.5) / num_samples
    reward = np.array([[0.0], [1.0]])
    end = current_point(
        noise=stats.norm.ppf(levels),
        successor_return=2 * levels,
        reward=reward,
        flow_time=1.0,
        effective_discount=Bernoulli.discount,
    )
    yield at_most(
        "law-end-shared",
        "With X' = ψ(X_0) the path's end has law T η: W1 to the return law on Bernoulli, one noise per level",
        "app:pcfm",
        Bernoulli().return_law(0).wasserstein1(end),
        1 / num_samples,
    )


# ------------------------------------------------------------------------------------ posterior velocity


@_check
def posterior_velocity(rng: Generator, num_samples: int) -> Iterator[Row]:
    samples = ExampleSamples.draw(rng, num_samples)
    for time in EXAMPLE_TIMES:
        point = samples.current_point(time)
        residual = samples.velocity_target(time, 0.0) - in_parts(partial(example_velocity, time), point)
        yield at_most(
            f"posterior-velocity-t{time:g}",
            f"v* by Bayes weights is E[R + γX' - X_0 | X_t] at t = {time:g}: largest deviation of bin means in "
            "standard errors",
            "thm:posterior_velocity_main",
            largest_z_score(point, residual),
            5.0,
        )
    for time in EXAMPLE_TIMES:
        yield at_most(
            f"continuity-t{time:g}",
            f"∂_t P + ∂_x(P v*) = 0 at t = {time:g}: largest residual on a grid relative to the largest |∂_t P|",
            "thm:posterior_velocity_main",
            continuity_residual(EXAMPLE, time, discount=DISCOUNT),
            1e-7,
        )
    yield at_most(
        "posterior-transport",
        "The flow of v* carries N(0, 1) to P_{s,a,t} at t = 0.95: largest |F_t(x_t) - Φ(x_0)| along 41 trajectories",
        "thm:posterior_velocity_main",
        transport_error(EXAMPLE, 0.95, discount=DISCOUNT),
        1e-5,
    )


def continuity_residual(law: TransitionLaw, flow_time: float, *, discount: float) -> float:
    """Largest |∂_t P + ∂_x(P v*)| over a grid, by central differences, relative to the largest |∂_t P|."""
    point, step = np.linspace(-5, 6, 1101), 1e-4

    def density(x: Values, t: float) -> Values:
        return theory.interpolated_density(law, x, t, discount=discount)

    def flux(x: Values) -> Values:
        return density(x, flow_time) * theory.posterior_velocity(law, x, flow_time, discount=discount)

    def derivative(function: Callable[[float], Values]) -> Values:  # fourth order
        near_difference, far_difference = function(step) - function(-step), function(2 * step) - function(-2 * step)
        return (8 * near_difference - far_difference) / (12 * step)

    time_derivative = derivative(lambda h: density(point, flow_time + h))
    flux_derivative = derivative(lambda h: flux(point + h))
    return float(np.abs(time_derivative + flux_derivative).max() / np.abs(time_derivative).max())


def transport_error(law: TransitionLaw, end_time: float, *, discount: float, num_steps: int = 400) -> float:
    """Largest |F_t(x_t) - Φ(x_0)| at `end_time` along trajectories of v*, integrated by the classical RK4 rule."""
    levels = np.linspace(0.01, 0.99, 41)
    point, step = stats.norm.ppf(levels), end_time / num_steps

    def velocity(t: float, x: Values) -> Values:
        return theory.posterior_velocity(law, x, t, discount=discount)

    for index in range(num_steps):
        time = index * step
        first = velocity(time, point)
        second = velocity(time + step / 2, point + step / 2 * first)
        third = velocity(time + step / 2, point + step / 2 * second)
        fourth = velocity(time + step, point + step * third)
        point = point + step / 6 * (first + 2 * second + 2 * third + fourth)
    return float(np.abs(theory.interpolated_cdf(law, point, end_time, discount=discount) - levels).max())


# ------------------------------------------------------------------------------------- bias of the λ-target


def control_variate_mean(velocity: theory.SuccessorVelocity, flow_time: float, point: Values) -> Values:
    """B[C_v̄](x, t) for `EXAMPLE`."""

    def residual(noise: Values) -> Values:
        successor = successor_point(noise=noise, successor_return=EXAMPLE.successor_return, flow_time=flow_time)
        predicted = velocity(flow_time, successor, EXAMPLE.successor_state)
        return control_variate(noise=noise, successor_return=EXAMPLE.successor_return, successor_velocity=predicted)

    return theory.posterior_mean(EXAMPLE, residual, point, flow_time, discount=DISCOUNT)


def lambda_bias_norm(flow_time: float, control_weight: float, velocity: theory.SuccessorVelocity) -> float:
    """‖v^(λ) - v*‖ in L2(P_{s,a,t}) for `EXAMPLE`, with v^(λ) = B[u^λ] the regression's minimiser."""

    def target(noise: Values) -> Values:
        successor = successor_point(noise=noise, successor_return=EXAMPLE.successor_return, flow_time=flow_time)
        return velocity_target(
            noise=noise,
            successor_return=EXAMPLE.successor_return,
            reward=EXAMPLE.reward,
            successor_velocity=velocity(flow_time, successor, EXAMPLE.successor_state),
            effective_discount=DISCOUNT,
            effective_control_weight=control_weight,
        )

    def bias(point: Values) -> Values:
        learned = theory.posterior_mean(EXAMPLE, target, point, flow_time, discount=DISCOUNT)
        return learned - example_velocity(flow_time, point)

    return theory.interpolant_norm(EXAMPLE, bias, flow_time, discount=DISCOUNT)


@_check
def lambda_decomposition(rng: Generator, num_samples: int) -> Iterator[Row]:
    samples = ExampleSamples.draw(rng, num_samples)
    for time in EXAMPLE_TIMES:
        point = samples.current_point(time)
        optimum = in_parts(partial(example_velocity, time), point)
        bias = in_parts(partial(control_variate_mean, crude_velocity, time), point)
        for weight in (0.3, 0.8):
            yield at_most(
                f"lambda-decomposition-t{time:g}-lambda{weight:g}",
                f"E[u^λ | X_t] = v* + λ B[C] at t = {time:g}, λ = {weight:g}, imperfect v̄: largest deviation of bin "
                "means in standard errors",
                "eq:lambda_bias_main",
                largest_z_score(point, samples.velocity_target(time, weight) - optimum - weight * bias),
                5.0,
            )
        successor = samples.successor_point(time)
        best = in_parts(partial(best_velocity, time), successor, samples.successor_state)
        residual = best - (samples.successor_return - samples.noise)
        by_state = [
            largest_z_score(successor[samples.successor_state == state], residual[samples.successor_state == state])
            for state in (0, 1)
        ]
        yield at_most(
            f"intrinsic-mean-zero-t{time:g}",
            f"E[E_int | X'_t, S'] = 0 at t = {time:g}: largest deviation of bin means in standard errors",
            "eq:eint_successor_mean_zero",
            max(by_state),
            5.0,
        )


@_check
def lambda_bias_bound(rng: Generator, num_samples: int) -> Iterator[Row]:
    for time in EXAMPLE_TIMES:
        intrinsic = theory.intrinsic_bias(EXAMPLE, time, discount=DISCOUNT)
        approximation = theory.approximation_error(EXAMPLE, time, crude_velocity)
        second_moment = theory.expectation(EXAMPLE, lambda x0, t=time: theory.intrinsic_residual(EXAMPLE, t, x0) ** 2)
        for weight in (0.3, 0.8, 1.2):
            yield at_most(
                f"bias-bound-t{time:g}-lambda{weight:g}",
                f"‖v^(λ) - v*‖ <= |λ|(ε_app + ε_int) at t = {time:g}, λ = {weight:g}: two-mode law, random reward, "
                "imperfect v̄",
                "prop:bias_bound_main",
                lambda_bias_norm(time, weight, crude_velocity),
                weight * (approximation + intrinsic),
            )
        yield near(
            f"bias-perfect-field-t{time:g}",
            f"‖v^(λ) - v*‖ = |λ| ε_int at t = {time:g}, λ = 0.8 when v̄ is optimal",
            "prop:bias_bound_main",
            lambda_bias_norm(time, 0.8, best_velocity),
            0.8 * intrinsic,
            1e-8,
        )
        yield at_most(
            f"intrinsic-rms-t{time:g}",
            f"ε_int is at most the root mean square of E_int at t = {time:g}",
            "eq:intrinsic_rms_bound",
            intrinsic,
            np.sqrt(second_moment),
        )
    yield at_most(
        "bias-zero-weight",
        "λ = 0 is unbiased: ‖v^(0) - v*‖ at t = 0.6 with an imperfect v̄",
        "eq:lambda_bias_main",
        lambda_bias_norm(0.6, 0.0, crude_velocity),
        ROUNDING,
    )


@_check
def pointwise_bounds(rng: Generator, num_samples: int) -> Iterator[Row]:
    def root_posterior_square(function: Callable[[Values], Values], point: Values, time: float) -> Values:
        return np.sqrt(theory.posterior_mean(EXAMPLE, lambda x0: function(x0) ** 2, point, time, discount=DISCOUNT))

    for time in EXAMPLE_TIMES:
        centre = time * EXAMPLE.bellman_target(DISCOUNT)
        point = np.linspace(centre.min() - 4 * (1 - time), centre.max() + 4 * (1 - time), 801)
        approximation = root_posterior_square(
            lambda x0, t=time: theory.approximation_residual(EXAMPLE, t, x0, crude_velocity), point, time
        )
        intrinsic = root_posterior_square(lambda x0, t=time: theory.intrinsic_residual(EXAMPLE, t, x0), point, time)
        ratio = np.abs(control_variate_mean(crude_velocity, time, point)) / (approximation + intrinsic)
        yield at_most(
            f"pointwise-conditional-t{time:g}",
            f"|B[C](x)| <= ‖v̄ - v̄*‖ under μ_x + ρ_int(x) at t = {time:g}: largest ratio over a grid of x",
            "cor:pointwise_conditional_bias",
            ratio.max(),
            1.0,
        )
    for time, discount, std in GAUSSIAN_SETTINGS:
        yield at_most(
            f"pointwise-density-ratio-t{time:g}",
            f"|B[C](x)| <= Ω_x ‖v̄ - v̄*‖ + ρ_int(x), linear-Gaussian, shared noise, γ = {discount:g}, σ = {std:g}, "
            f"t = {time:g}: largest ratio over a grid of x",
            "cor:pointwise_density_ratio_bias",
            gaussian_density_ratio_use(time, discount=discount, successor_std=std).max(),
            1.0,
        )


def gaussian_density_ratio_use(flow_time: float, *, discount: float, successor_std: float) -> Values:
    """|B[C](x)| over its density-ratio bound, for v̄ = v̄* + sin(2(z' - tμ))/2 + 1/5 and shared noise (ρ = 1)."""
    noise_variance, return_variance = (1 - flow_time) ** 2, flow_time**2 * successor_std**2
    current, successor = discount**2 * return_variance + noise_variance, return_variance + noise_variance
    covariance = discount * return_variance + noise_variance
    offset = np.linspace(-3, 3, 301) * np.sqrt(current)  # x - E[X_t]
    mean, std = covariance / current * offset, np.sqrt(successor - covariance**2 / current)  # of X'_t given x, centred

    nodes = np.linspace(-8, 8, 1601)
    weight = stats.norm.pdf(nodes) / stats.norm.pdf(nodes).sum()
    error = 0.5 * np.sin(2 * np.sqrt(successor) * nodes) + 0.2
    slope = theory.gaussian_bias_slope(flow_time, discount=discount, successor_std=successor_std)
    posterior_error = 0.5 * np.sin(2 * mean) * np.exp(-2 * std**2) + 0.2
    intrinsic_variance = successor_std**2 / successor - slope**2 * current  # Var(C | X_t); Var C = σ² / D_t
    ratio_norm = theory.gaussian_density_ratio_norm(mean, std, reference_std=float(np.sqrt(successor)))
    bound = ratio_norm * np.sqrt(weight @ error**2) + np.sqrt((slope * offset) ** 2 + intrinsic_variance)
    return np.abs(posterior_error + slope * offset) / bound


# ----------------------------------------------------------------------------------- linear-Gaussian case


@dataclass(frozen=True)
class GaussianSamples:
    """The linear-Gaussian transition of app:gaussian_bias: r = 1/2, X' ~ N(0.7, σ²), noise pair of correlation ρ.

    `coupled` replaces the independent X' by the implemented one, X' = μ + σ X_0.
    """

    flow_time: float
    discount: float
    std: float
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
        setting: tuple[float, float, float],
        correlation: float,
        *,
        coupled: bool = False,
    ) -> GaussianSamples:
        time, discount, std = setting
        successor_noise, other, unit = rng.standard_normal((3, num_samples))
        noise = correlation * successor_noise + np.sqrt(1 - correlation**2) * other
        unit = noise if coupled else unit
        return cls(time, discount, std, noise, successor_noise, cls.MEAN + std * unit)

    @property
    def current_point(self) -> Values:
        return current_point(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.REWARD,
            flow_time=self.flow_time,
            effective_discount=self.discount,
        )

    @property
    def successor_point(self) -> Values:
        return successor_point(
            noise=self.successor_noise, successor_return=self.successor_return, flow_time=self.flow_time
        )

    def control_variate(self, slope: float) -> Values:
        """C with the successor field μ + slope (z' - tμ)."""
        predicted = self.MEAN + slope * (self.successor_point - self.flow_time * self.MEAN)
        return control_variate(
            noise=self.successor_noise, successor_return=self.successor_return, successor_velocity=predicted
        )

    @property
    def bellman_velocity(self) -> Values:
        return bellman_velocity(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.REWARD,
            effective_discount=self.discount,
        )

    @property
    def optimal_slope(self) -> float:
        return float(theory.successor_velocity_slope(self.flow_time, successor_std=self.std))


def describe(setting: tuple[float, float, float]) -> str:
    return "t = {:g}, γ = {:g}, σ = {:g}".format(*setting)


@_check
def gaussian_closed_forms(rng: Generator, num_samples: int) -> Iterator[Row]:
    variance_error = 5 * np.sqrt(2 / (num_samples - 1))  # relative, for Gaussian samples
    for setting in GAUSSIAN_SETTINGS:
        time, discount, std = setting
        for correlation in CORRELATIONS:
            name, where = f"rho{correlation:g}-t{time:g}", f"ρ = {correlation:g}, {describe(setting)}"
            known: dict[str, Any] = {
                "discount": discount,
                "successor_std": std,
                "noise_correlation": correlation,
            }
            samples = GaussianSamples.draw(rng, num_samples, setting, correlation)
            correction, velocity = samples.control_variate(samples.optimal_slope), samples.bellman_velocity
            slope, error = regression_slope(samples.current_point, correction)
            yield near(
                f"kappa-{name}",
                f"κ is the slope of C on Z_t: {where}",
                "app:gaussian_bias",
                slope,
                float(theory.gaussian_bias_slope(time, **known)),
                5 * error,
            )
            weight = 0.6 * discount
            variance = float(theory.gaussian_target_variance(time, control_weight=weight, **known))
            yield near(
                f"target-variance-{name}",
                f"Var(u^λ) at λ = {weight:g}: {where}",
                "app:gaussian_bias",
                float(np.var(velocity + weight * correction, ddof=1)),
                variance,
                variance_error * variance,
            )
            slope, error = regression_slope(correction, velocity)
            yield near(
                f"optimal-weight-{name}",
                f"λ* = γ(1-t) + ρt is the λ of least sample variance: {where}",
                "app:gaussian_bias",
                -slope,
                float(optimal_control_weight(time, discount=discount, noise_correlation=correlation)),
                5 * error,
            )
        samples = GaussianSamples.draw(rng, num_samples, setting, 1.0)
        slope, error = regression_slope(samples.successor_point, samples.successor_return - samples.successor_noise)
        yield near(
            f"successor-slope-t{time:g}",
            f"β is the slope of X' - X_0' on Z'_t: {describe(setting)}",
            "app:gaussian_bias",
            slope,
            samples.optimal_slope,
            5 * error,
        )
    weights = optimal_control_weight(np.linspace(0.05, 0.95, 19), discount=0.9, noise_correlation=1.0)
    yield at_least(
        "optimal-weight-range",
        "With shared noise λ*(t) exceeds γ for t > 0, outside the range [0, γ] used in training: least λ* at γ = 0.9",
        "app:gaussian_bias",
        weights.min(),
        0.9,
    )


def order(function: Callable[[float], float], small: float) -> float:
    """Exponent p of |f(h)| ~ h^p between h = `small` and 2 `small`."""
    return float(np.log2(abs(function(2 * small)) / abs(function(small))))


@_check
def bias_slope_order(rng: Generator, num_samples: int) -> Iterator[Row]:
    def slope(time: float, discount: float, correlation: float) -> float:
        return float(
            theory.gaussian_bias_slope(time, discount=discount, successor_std=1.0, noise_correlation=correlation)
        )

    label = "app:gaussian_bias"
    first_order = {
        "kappa-order-time": (
            "Shared noise, γ = 0.9, σ = 1: κ vanishes with first order in 1 - t (exponent as t -> 1)",
            lambda h: slope(1 - h, 0.9, 1.0),
        ),
        "kappa-order-discount": (
            "Shared noise, t = 0.5, σ = 1: κ vanishes with first order in 1 - γ (exponent as γ -> 1)",
            lambda h: slope(0.5, 1 - h, 1.0),
        ),
        "kappa-order-source": (
            "Shared noise, γ = 0.9, σ = 1: κ vanishes at the source with first order in t (exponent as t -> 0)",
            lambda h: slope(h, 0.9, 1.0),
        ),
        "kappa-independent-factor": (
            "Independent noise, t = 0.5, σ = 1: κ has a factor of first order in γ (exponent as γ -> 0)",
            lambda h: slope(0.5, h, 0.0),
        ),
        "kappa-independent-order-time": (
            "For information: with independent noise κ vanishes with first order in 1 - t as well, so the decay at "
            "t = 1 is not due to sharing",
            lambda h: slope(1 - h, 0.9, 0.0),
        ),
    }
    for id, (statement, function) in first_order.items():
        yield near(id, statement, label, order(function, 1e-4), 1.0, 0.01)
    yield at_least(
        "kappa-independent-remains",
        "Independent noise, t = 0.5, σ = 1: |κ| at γ = 0.999 does not fall below that at γ = 0.5",
        label,
        abs(slope(0.5, 0.999, 0.0)),
        abs(slope(0.5, 0.5, 0.0)),
    )
    times, discounts = np.linspace(0.05, 0.95, 19), np.linspace(0.01, 0.99, 99)
    smaller = [g for g in discounts if all(abs(slope(t, g, 1.0)) < abs(slope(t, g, 0.0)) - 1e-12 for t in times)]
    yield near(
        "kappa-crossover",
        "For information: sharing noise makes |κ| smaller where γ exceeds 1/2 only (least such γ on a grid of 0.01)",
        label,
        min(smaller),
        0.51,
        1e-6,
    )

    def constant(discount: float) -> float:
        grid = np.linspace(0.001, 0.9999, 4001)
        slopes = theory.gaussian_bias_slope(grid, discount=discount, successor_std=1.0)
        return float((slopes / ((1 - discount) * (1 - grid))).max())

    yield at_most(
        "kappa-order-all-discounts",
        "Reading κ = O((1-γ)(1-t)) with one constant for all γ in (0, 1): exponent in 1/γ of sup_t κ/((1-γ)(1-t)) as "
        "γ -> 0, bounded only if 0",
        label,
        -order(constant, 0.01),
        0.01,
    )


@_check
def implemented_coupling(rng: Generator, num_samples: int) -> Iterator[Row]:
    """The closed forms take X' independent of the noise; training makes it a function of the noise."""
    label = "app:gaussian_bias"
    for time in (0.3, 0.7):
        setting = (time, 0.9, 1.5)
        _, discount, std = setting
        samples = GaussianSamples.draw(rng, num_samples, setting, 1.0, coupled=True)
        correction, velocity = samples.control_variate(samples.optimal_slope), samples.bellman_velocity
        where = f"the implemented coupling X' = μ + σX_0, {describe(setting)}"
        weight = float(optimal_control_weight(time, discount=discount, noise_correlation=1.0))
        variance = float(
            theory.gaussian_target_variance(time, control_weight=weight, discount=discount, successor_std=std)
        )
        yield near(
            f"implemented-variance-t{time:g}",
            f"The closed form of Var(u) at λ* describes {where}",
            label,
            float(np.var(velocity + weight * correction, ddof=1)),
            variance,
            5 * variance * np.sqrt(2 / (num_samples - 1)),
        )
        slope, error = regression_slope(samples.current_point, correction)
        yield near(
            f"implemented-kappa-t{time:g}",
            f"The closed form of κ describes {where}",
            label,
            slope,
            float(theory.gaussian_bias_slope(time, discount=discount, successor_std=std)),
            max(5 * error, ROUNDING),
        )
        slope, error = regression_slope(correction, velocity)
        yield near(
            f"implemented-optimal-weight-t{time:g}",
            f"λ* = γ(1-t) + t minimises the variance under {where}",
            label,
            -slope,
            weight,
            max(5 * error, ROUNDING),
        )
        own_slope = (std - 1) / (time * std + 1 - time)  # X' - X_0 - μ = (σ-1) X_0 and Z'_t - tμ = (tσ + 1-t) X_0
        yield at_most(
            f"implemented-own-field-t{time:g}",
            f"With E[X' - X_0 | X'_t] of {where} the control variate vanishes, and λ changes neither bias nor "
            "variance: largest |C|",
            label,
            np.abs(samples.control_variate(own_slope)).max(),
            ROUNDING,
        )


# -------------------------------------------------------------------------------------------- contraction


@dataclass(frozen=True)
class FiniteMDP:
    """A random MDP with a policy: P(s'|s,a), R(s,a,s'), π(a'|s'); pairs (s,a) are numbered row by row."""

    successor_weight: Values  # (pairs, pairs): P(s'|s,a) π(a'|s')
    reward: Values  # (pairs, pairs)
    discount: float

    @classmethod
    def draw(cls, rng: Generator, *, discount: float, num_states: int = 4, num_actions: int = 2) -> FiniteMDP:
        transition = rng.dirichlet(np.full(num_states, 0.5), (num_states, num_actions))
        policy = rng.dirichlet(np.ones(num_actions), num_states)
        reward = rng.standard_normal((num_states, num_actions, num_states))
        pairs = num_states * num_actions
        weight = (transition[..., None] * policy).reshape(pairs, pairs)
        return cls(weight, np.repeat(reward.reshape(pairs, num_states), num_actions, axis=1), discount)

    def update(self, generator: Values) -> Values:
        """T_pc of generator values (pairs, seeds): values (pairs, successor pairs × seeds)."""
        updated = self.reward[:, :, None] + self.discount * generator[None]
        return updated.reshape(len(generator), -1)

    def update_weight(self, seed_weight: Values) -> Values:
        """Probabilities of the columns of `update`."""
        return (self.successor_weight[:, :, None] * seed_weight).reshape(len(self.successor_weight), -1)


def random_generator(rng: Generator, seeds: Values, num_pairs: int) -> Values:
    """Smooth random functions of the seed, one row per state-action pair."""
    level, slope, height, frequency, phase = rng.standard_normal((5, num_pairs, 1))
    return level + slope * seeds + height * np.sin(2 * frequency * seeds + phase)


@_check
def shared_noise_contraction(rng: Generator, num_samples: int) -> Iterator[Row]:
    label, num_pairs = "prop:shared_noise_contraction", 8
    seeds = np.linspace(-6, 6, 201)
    seed_weight = stats.norm.pdf(seeds) / stats.norm.pdf(seeds).sum()
    for discount in (0.5, 0.95):
        mdp = FiniteMDP.draw(rng, discount=discount)
        weight, noise = mdp.update_weight(seed_weight), np.tile(seeds, num_pairs)
        pairs = [(random_generator(rng, seeds, num_pairs), random_generator(rng, seeds, num_pairs)) for _ in range(25)]
        for power in (1, 2):
            for time in (0.25, 0.75, 1.0):
                ratios = []
                for first, second in pairs:
                    before = theory.shared_noise_distance(first, second, weight=seed_weight, power=power)
                    ends = ((1 - time) * noise + time * mdp.update(values) for values in (first, second))
                    ratios.append(theory.shared_noise_distance(*ends, weight=weight, power=power) / before)
                factor = "γ" if time == 1 else f"tγ at t = {time:g}"
                yield at_most(
                    f"contraction-gamma{discount:g}-p{power}-t{time:g}",
                    f"With shared noise D_{power} shrinks by {factor}, γ = {discount:g}: largest ratio over 25 pairs "
                    "of generators on a random MDP",
                    label,
                    max(ratios),
                    time * discount,
                )
    yield from independent_coupling(rng)


def independent_coupling(rng: Generator) -> Iterator[Row]:
    """The same distance when the two sides draw their successor seeds independently."""
    num_pairs, discount = 8, 0.95
    seeds = np.linspace(-5, 5, 61)
    seed_weight = stats.norm.pdf(seeds) / stats.norm.pdf(seeds).sum()
    mdp = FiniteMDP.draw(rng, discount=discount)
    generator = random_generator(rng, seeds, num_pairs)
    shifted = generator + 0.1
    both = np.outer(seed_weight, seed_weight).ravel()
    first, second = np.repeat(generator, len(seeds), axis=1), np.tile(shifted, len(seeds))
    for power in (1, 2):
        before = theory.shared_noise_distance(generator, shifted, weight=seed_weight, power=power)
        after = theory.shared_noise_distance(
            mdp.update(first), mdp.update(second), weight=mdp.update_weight(both), power=power
        )
        yield at_least(
            f"contraction-independent-p{power}",
            f"For information: with independent successor seeds D_{power} need not shrink (ratio for H = G + 0.1 "
            f"exceeds γ = {discount:g})",
            "prop:shared_noise_contraction",
            after / before,
            discount,
        )


# ------------------------------------------------------------------------------------------ Euler endpoint


@_check
def euler_endpoint(rng: Generator, num_samples: int) -> Iterator[Row]:
    label, discount = "prop:euler-lambda", 0.9
    noise, successor_return, reward = rng.standard_normal((3, num_samples)) * [[1], [2], [1]]
    time = rng.uniform(size=num_samples)
    error = rng.uniform(0.05, 1, num_samples) * rng.choice([-1, 1], num_samples)

    def target_change(ending: Values, error: Values, weight: float, lipschitz: float) -> Values:
        def target(end: Values) -> Values:
            successor = successor_point(noise=noise, successor_return=end, flow_time=time)
            return velocity_target(
                noise=noise,
                successor_return=end,
                reward=reward,
                successor_velocity=lipschitz * np.sin(successor),
                effective_discount=discount,
                effective_control_weight=weight,
            )

        return np.abs(target(ending + error) - target(ending))

    def bound(error: Values, weight: float, lipschitz: float) -> Values:
        return theory.euler_target_bound(
            discount=discount, control_weight=weight, lipschitz=lipschitz, flow_time=time, endpoint_error=error
        )

    for lipschitz in (0.5, 3.0):
        for weight in (0.0, 0.3, 0.6, 0.9, 1.2):
            ratio = target_change(successor_return, error, weight, lipschitz) / bound(error, weight, lipschitz)
            yield at_most(
                f"euler-bound-L{lipschitz:g}-lambda{weight:g}",
                f"|û - u| <= (|γ-λ| + λ L t)|δ| for v̄ = L sin z, γ = 0.9, L = {lipschitz:g}, λ = {weight:g}: largest "
                "ratio over random δ, up to rounding",
                label,
                ratio.max(),
                1 + ROUNDING,
            )
    # dz/dt = sin z is solved by 2 arctan(e^t tan(z_0 / 2)); ten Euler steps miss that end by δ.
    estimate = noise
    for _ in range(10):
        estimate = estimate + 0.1 * np.sin(estimate)
    exact = 2 * np.arctan(np.e * np.tan(noise / 2)) + 2 * np.pi * np.round(noise / (2 * np.pi))
    solver_error = estimate - exact
    seen = np.abs(solver_error) > 1e-4  # below, the ratio is rounding
    change = target_change(exact, solver_error, 0.6, 1.0)
    yield at_most(
        "euler-bound-solver",
        "The same with δ the error of ten Euler steps on dz/dt = sin z, λ = 0.6: largest ratio",
        label,
        (change[seen] / bound(solver_error, 0.6, 1.0)[seen]).max(),
        1 + ROUNDING,
    )
    literal = (abs(discount + 0.5) - 0.5 * 0.5 * time) * np.abs(error)
    yield at_most(
        "euler-bound-negative-lambda",
        "The bound as printed, with λ and not |λ| before L t, for λ = -0.5 and L = 0.5: largest ratio",
        label,
        (target_change(successor_return, error, -0.5, 0.5) / literal).max(),
        1 + ROUNDING,
    )


# ----------------------------------------------------------- pointwise Bellman paths, DCFM, fixed points


@_check
def source_mismatch(rng: Generator, num_samples: int) -> Iterator[Row]:
    label = "eq:pointwise_uncorrected_path"
    noise = rng.standard_normal(num_samples)
    rewards = {
        "solitaire": (0.9, np.array([1.0]), np.array([1.0])),  # a transition that goes on
        "bernoulli": (0.5, np.array([0.0, 1.0]), np.array([0.5, 0.5])),
    }
    for name, (discount, values, share) in rewards.items():
        start = uncorrected_point(
            noise=noise,
            successor_return=noise,
            reward=rng.choice(values, num_samples, p=share),
            flow_time=0.0,
            effective_discount=discount,
        )
        mean = float(share @ values)
        std = float(np.sqrt(discount**2 + share @ (values - mean) ** 2))
        where = f"{name}, γ = {discount:g}"
        yield near(
            f"uncorrected-start-mean-{name}",
            f"The uncorrected path starts around E[R], not 0: mean of Z^D_0 ({where})",
            label,
            start.mean(),
            mean,
            5 * std / np.sqrt(num_samples),
        )
        yield near(
            f"uncorrected-start-std-{name}",
            f"It starts with standard deviation (γ² + Var R)^½, not 1: std of Z^D_0 ({where})",
            label,
            start.std(ddof=1),
            std,
            5 * ((start - mean) ** 2).std(ddof=1) / np.sqrt(num_samples) / (2 * std),
        )

        def start_cdf(x: Values, v: Values = values, p: Values = share, g: float = discount) -> Values:
            return (p * stats.norm.cdf((x[:, None] - v) / g)).sum(-1)

        yield at_least(
            f"uncorrected-start-w1-{name}",
            f"It does not start at the base noise: W1 of Z^D_0 to N(0, 1) is at least |E[R]|, less 1e-6 for quadrature "
            f"({where})",
            label,
            wasserstein1(start_cdf, stats.norm.cdf, -9.0, 9.0),
            mean - 1e-6,
        )


@_check
def dcfm_degeneracy(rng: Generator, num_samples: int) -> Iterator[Row]:
    label, degree = "app:dcfm", 8
    for discount in (0.5, 0.9):
        for name, rewards in (("zero-reward", (0.0,)), ("coin-reward", (0.0, 1.0))):
            where = f"γ = {discount:g}, rewards {', '.join(f'{r:g}' for r in rewards)}, polynomials of degree {degree}"
            unscaled = theory.dcfm_null_space(discount=discount, rewards=rewards, degree=degree, scaled=False)
            scaled = theory.dcfm_null_space(discount=discount, rewards=rewards, degree=degree, scaled=True)
            yield near(
                f"dcfm-unscaled-{name}-gamma{discount:g}",
                f"v(R + γz) = v(z) leaves one dimension of fields ({where})",
                label,
                unscaled.shape[1],
                1.0,
                0.0,
            )
            yield at_most(
                f"dcfm-unscaled-constant-{name}-gamma{discount:g}",
                f"and that field is constant in z: largest other coefficient ({where})",
                label,
                np.abs(unscaled[1:]).max(),
                ROUNDING,
            )
            remaining = 1.0 if rewards == (0.0,) else 0.0
            kind = "the linear field alone" if remaining else "no field but 0, for random rewards"
            yield near(
                f"dcfm-scaled-{name}-gamma{discount:g}",
                f"v(R + γz) = γ v(z) leaves {kind}: dimension ({where})",
                label,
                scaled.shape[1],
                remaining,
                0.0,
            )
            if remaining:
                yield at_most(
                    f"dcfm-scaled-linear-gamma{discount:g}",
                    f"the field of the scaled condition is linear in z: largest other coefficient ({where})",
                    label,
                    np.abs(np.delete(scaled, 1, axis=0)).max(),
                    ROUNDING,
                )
    frequency, phase, height = rng.standard_normal((3, 64)) * [[2], [3], [1 / 8]]
    point, applications = np.linspace(-3, 3, 601), 40

    def field(z: Values) -> Values:
        return np.sin(z[:, None] * frequency + phase) @ height

    yield at_most(
        "dcfm-unscaled-continuous",
        "A continuous field with v(γz) = v(z) equals v(γⁿz) -> v(0): spread over [-3, 3] of a random smooth field "
        "after n = 40 applications, γ = 0.5, against 6Lγⁿ",
        label,
        np.ptp(field(0.5**applications * point)),
        6 * (np.abs(height) @ np.abs(frequency)) * 0.5**applications,
    )
    law = Bernoulli().return_law(0)
    distances = [wasserstein1(stats.norm(shift).cdf, law.cdf, -8.0, 10.0) for shift in np.linspace(0, 2, 41)]
    yield near(
        "dcfm-constant-field-w1",
        "A field constant in z only translates the source: least W1 of N(c, 1) to Bernoulli's return law is "
        "E|X_0| - E|G - 1| = (2/π)^½ - 1/2",
        label,
        min(distances),
        np.sqrt(2 / np.pi) - 0.5,
        1e-6,
    )


def fixed_point_distance(
    law: DiscreteLaw, successors: Iterable[tuple[float, float, DiscreteLaw | None]], *, discount: float
) -> float:
    """W1 between `law` and the mixture of R + γX' over (probability, R, law of X'; None where the process ends)."""
    atoms, weights = [], []
    for probability, reward, successor in successors:
        atoms.append(np.array([reward]) if successor is None else reward + discount * successor.atoms)
        weights.append(probability * (np.ones(1) if successor is None else successor.weights))
    return float(stats.wasserstein_distance(np.concatenate(atoms), law.atoms, np.concatenate(weights), law.weights))


@_check
def fixed_points(rng: Generator, num_samples: int) -> Iterator[Row]:
    label = "app:dcfm"

    def bernoulli_update(cdf: Callable[[Values], Values]) -> Callable[[Values], Values]:
        """T F(x) = (F(x/γ) + F((x-1)/γ))/2, γ = 1/2."""
        return lambda x: (cdf(2 * x) + cdf(2 * x - 2)) / 2

    def source(x: Values) -> Values:
        return np.asarray(stats.norm.cdf(x))

    law = Bernoulli().return_law(0)
    yield at_least(
        "fixed-point-source",
        "N(0, 1) is no fixed point of T on Bernoulli: W1 from T N(0, 1) to N(0, 1) is at least the gap of means, 1/2",
        label,
        wasserstein1(bernoulli_update(source), source, -9.0, 9.0),
        0.5,
    )
    yield at_most(
        "fixed-point-bernoulli",
        "Bernoulli's return law is a fixed point of T: W1 between T η and η",
        label,
        wasserstein1(bernoulli_update(law.cdf), law.cdf, -1.0, 3.0),
        ROUNDING,
    )
    iterate, start = source, wasserstein1(source, law.cdf, -9.0, 9.0)
    for _ in range(6):
        iterate = bernoulli_update(iterate)
    yield at_most(
        "fixed-point-unique",
        "T leads from N(0, 1) to the return law: W1(T⁶N(0, 1), η) on Bernoulli is at most γ⁶ W1(N(0, 1), η)",
        label,
        wasserstein1(iterate, law.cdf, -9.0, 9.0),
        0.5**6 * start,
    )
    dice, chain = SolitaireDice(), MonteCarloChain()
    play, stop = dice.return_law(0), dice.stop_probability
    distances = {
        "solitaire": fixed_point_distance(play, [(stop, 0.0, None), (1 - stop, 1.0, play)], discount=dice.discount)
    }
    laws = {state: chain.return_law(state) for state in chain.live_states}
    for state in chain.evaluation_states:
        moves = zip((state - 1, state, state + 1), chain.move_probabilities()[state], strict=True)
        successors = [(float(p), float(s in laws), laws.get(s)) for s, p in moves]  # reward 1 unless the walk ends
        distances[f"chain-s{state:02d}"] = fixed_point_distance(laws[state], successors, discount=chain.discount)
    for name, distance in distances.items():
        yield at_most(
            f"fixed-point-{name}",
            f"The exact return law is a fixed point of T ({name}): W1 between T η and η",
            label,
            distance,
            1e-6,
        )


# ------------------------------------------------------------------------------- residual of trained models


def residual_rows(record: Path) -> Iterator[Row]:
    """r_corr with shared against independent noise, from the toy record of PCBF on Solitaire Dice."""
    command = f"pcbf-toy run solitaire pcbf --settings JSON --output {record}"
    if not record.is_file():
        raise FileNotFoundError(f"{record} is missing; the residual r_corr is read from it. Make it with `{command}`.")
    with np.load(record, allow_pickle=False) as arrays:
        missing = {"residual_steps", "residual_times", "residual_shared", "residual_independent"} - set(arrays.files)
        if missing:
            raise ValueError(f"{record} has no {', '.join(sorted(missing))}; make it anew with `{command}`.")
        steps, times = arrays["residual_steps"].tolist(), arrays["residual_times"]
        gap = (arrays["residual_shared"] - arrays["residual_independent"]).mean(axis=0)
    for num_flow_steps in RESIDUAL_STEPS:
        if num_flow_steps not in steps:
            raise ValueError(
                f"{record} has residual_steps {steps}, without {num_flow_steps}; make it anew with `{command}`."
            )
        index = steps.index(num_flow_steps)
        later = times[index] > 0  # at t = 0 both are known; nan pads the shorter grids
        yield at_most(
            f"rcorr-n{num_flow_steps:02d}",
            f"Shared noise has the smaller r_corr(t, N) at N = {num_flow_steps} (Solitaire Dice): largest mean over "
            "seeds of shared - independent, t > 0",
            "eq:rcorr",
            gap[index][later].max(),
            0.0,
        )


# ------------------------------------------------------------------------------------------------ command


def run_checks(settings: TheorySettings) -> list[Row]:
    """Rows of all checks that need no training; each check draws from its own stream of `settings.seed`."""
    rows: list[Row] = []
    for name, check in CHECKS.items():
        rng = np.random.default_rng([settings.seed, zlib.crc32(name.encode())])
        rows.extend(check(rng, settings.num_samples))
    return rows


def write_rows(rows: Iterable[Row], file: Path) -> None:
    """Write the record, sorted by id, in one step."""
    ordered = sorted(rows, key=lambda row: row.id)
    repeated = {a.id for a, b in pairwise(ordered) if a.id == b.id}
    if repeated:
        raise ValueError(f"check ids must be unique, got {', '.join(sorted(repeated))} more than once.")
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.tmp")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.cells() for row in ordered)
    partial.replace(file)


def parse_settings(text: str) -> TheorySettings:
    """Settings from JSON text; the error names what is wrong and what is allowed."""
    example = '{"num_samples": 200000, "seed": 0}'
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"`--settings {text}` is no JSON ({error}); pass for example '{example}'.") from None
    if not isinstance(values, dict) or not {"num_samples", "seed"} <= set(values):
        raise ValueError(f"`--settings {text}` must name `num_samples` and `seed`; pass for example '{example}'.")
    return config_from(TheorySettings, values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `pcbf-theory`."""
    parser = argparse.ArgumentParser(
        prog="pcbf-theory",
        description="Check the paper's theoretical statements numerically and write <results>/theory/checks.csv. "
        "A check that fails is recorded as failing; it does not make the command fail.",
    )
    parser.add_argument(
        "--results",
        type=Path,
        required=True,
        metavar="DIR",
        help="results of one scale, such as results/laptop; toy/runs/solitaire/pcbf.npz is read from it",
    )
    parser.add_argument(
        "--settings",
        required=True,
        metavar="JSON",
        help="JSON text with `num_samples` (>= 1000, draws per Monte Carlo check) and `seed`, such as "
        '\'{"num_samples": 200000, "seed": 0}\'',
    )
    options = parser.parse_args(arguments)
    try:
        settings = parse_settings(options.settings)
        residuals = list(residual_rows(options.results / "toy" / "runs" / "solitaire" / "pcbf.npz"))
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f"pcbf-theory: {error}") from None
    rows = run_checks(settings) + residuals
    file = options.results / "theory" / "checks.csv"
    write_rows(rows, file)
    failing = sorted(row.id for row in rows if not row.holds)
    print(f"{file}: {len(rows)} checks, {len(rows) - len(failing)} hold, {len(failing)} fail")
    for name in failing:
        print(f"  fails: {name}")


if __name__ == "__main__":
    main()
