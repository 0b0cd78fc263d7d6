"""The posterior velocity v*: a conditional mean, the continuity equation, transport of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.random import Generator
from scipy import stats

from pcbf_core import theory
from pcbf_core.theory import TransitionLaw
from pcbf_experiments.theory.example import DISCOUNT, EXAMPLE, EXAMPLE_TIMES, ExampleSamples, example_velocity
from pcbf_experiments.theory.formulas import Values
from pcbf_experiments.theory.measures import in_parts, largest_z_score
from pcbf_experiments.theory.rows import at_most
from pcbf_records.theory import CheckRow


def posterior_velocity(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """v* is E[R + γX' - X_0 | X_t] and moves the law of X_t."""
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
