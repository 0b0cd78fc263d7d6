"""Bias of the λ-target: its decomposition, the bound by ε_app and ε_int, and the bounds point by point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.random import Generator

from pcbf_core import theory
from pcbf_experiments.theory.example import (
    DISCOUNT,
    EXAMPLE,
    EXAMPLE_TIMES,
    ExampleSamples,
    best_velocity,
    crude_velocity,
    example_velocity,
)
from pcbf_experiments.theory.formulas import Values, control_variate, successor_point, velocity_target
from pcbf_experiments.theory.gaussian import GAUSSIAN_SETTINGS, density_ratio_use
from pcbf_experiments.theory.measures import in_parts, largest_z_score
from pcbf_experiments.theory.rows import ROUNDING, at_most, near
from pcbf_records.theory import CheckRow


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


# -------------------------------------------------------------------------------------------- decomposition


def lambda_decomposition(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """E[u^λ | X_t] = v* + λ B[C], and E_int has mean 0 given the successor's point and state."""
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
        yield at_most(
            f"intrinsic-mean-zero-t{time:g}",
            f"E[E_int | X'_t, S'] = 0 at t = {time:g}: largest deviation of bin means in standard errors",
            "eq:eint_successor_mean_zero",
            intrinsic_z_score(samples, time),
            5.0,
        )


def intrinsic_z_score(samples: ExampleSamples, flow_time: float) -> float:
    """Largest deviation of E[E_int | X'_t, S'] from 0, in standard errors."""
    successor = samples.successor_point(flow_time)
    best = in_parts(partial(best_velocity, flow_time), successor, samples.successor_state)
    residual = best - (samples.successor_return - samples.noise)
    return max(
        largest_z_score(successor[samples.successor_state == state], residual[samples.successor_state == state])
        for state in (0, 1)
    )


# --------------------------------------------------------------------------------------------------- bounds


def lambda_bias_bound(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """‖v^(λ) - v*‖ <= |λ|(ε_app + ε_int), with equality for the optimal field."""
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


def pointwise_bounds(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """|B[C](x)| against its conditional bound (`EXAMPLE`) and its density-ratio bound (linear-Gaussian)."""
    for time in EXAMPLE_TIMES:
        yield at_most(
            f"pointwise-conditional-t{time:g}",
            f"|B[C](x)| <= ‖v̄ - v̄*‖ under μ_x + ρ_int(x) at t = {time:g}: largest ratio over a grid of x",
            "cor:pointwise_conditional_bias",
            conditional_bound_use(time).max(),
            1.0,
        )
    for setting in GAUSSIAN_SETTINGS:
        yield at_most(
            f"pointwise-density-ratio-t{setting.flow_time:g}",
            f"|B[C](x)| <= Ω_x ‖v̄ - v̄*‖ + ρ_int(x), linear-Gaussian, shared noise, γ = {setting.discount:g}, "
            f"σ = {setting.std:g}, t = {setting.flow_time:g}: largest ratio over a grid of x",
            "cor:pointwise_density_ratio_bias",
            density_ratio_use(setting).max(),
            1.0,
        )


def conditional_bound_use(flow_time: float) -> Values:
    """|B[C](x)| over ‖v̄ - v̄*‖ under μ_x + ρ_int(x), on a grid of x, for `EXAMPLE` and `crude_velocity`."""
    centre = flow_time * EXAMPLE.bellman_target(DISCOUNT)
    point = np.linspace(centre.min() - 4 * (1 - flow_time), centre.max() + 4 * (1 - flow_time), 801)

    def root_posterior_square(function: Callable[[Values], Values]) -> Values:
        square = theory.posterior_mean(EXAMPLE, lambda x0: function(x0) ** 2, point, flow_time, discount=DISCOUNT)
        return np.sqrt(square)

    approximation = root_posterior_square(
        lambda x0: theory.approximation_residual(EXAMPLE, flow_time, x0, crude_velocity)
    )
    intrinsic = root_posterior_square(lambda x0: theory.intrinsic_residual(EXAMPLE, flow_time, x0))
    return np.abs(control_variate_mean(crude_velocity, flow_time, point)) / (approximation + intrinsic)
