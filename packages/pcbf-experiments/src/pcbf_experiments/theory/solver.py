"""How far an error of the successor's flow, δ in the endpoint X', moves the λ-target (prop:euler-lambda)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from pcbf_core import theory
from pcbf_experiments.theory.formulas import Values, successor_point, velocity_target
from pcbf_experiments.theory.rows import ROUNDING, at_least, at_most
from pcbf_records.theory import CheckRow

LABEL = "prop:euler-lambda"
DISCOUNT = 0.9


@dataclass(frozen=True)
class SineField:
    """Random transitions whose successor field is v̄ = L sin z, of Lipschitz constant L."""

    noise: Values
    reward: Values
    flow_time: Values

    def target(self, ending: Values, weight: float, lipschitz: float) -> Values:
        """u^λ for the endpoint X' = `ending`."""
        successor = successor_point(noise=self.noise, successor_return=ending, flow_time=self.flow_time)
        return velocity_target(
            noise=self.noise,
            successor_return=ending,
            reward=self.reward,
            successor_velocity=lipschitz * np.sin(successor),
            effective_discount=DISCOUNT,
            effective_control_weight=weight,
        )

    def target_change(self, ending: Values, error: Values, weight: float, lipschitz: float) -> Values:
        """|û - u| when the endpoint is off by `error`."""
        return np.abs(self.target(ending + error, weight, lipschitz) - self.target(ending, weight, lipschitz))

    def bound(self, error: Values, weight: float, lipschitz: float) -> Values:
        """(|γ-λ| + λ L t)|δ|."""
        return theory.euler_target_bound(
            discount=DISCOUNT,
            control_weight=weight,
            lipschitz=lipschitz,
            flow_time=self.flow_time,
            endpoint_error=error,
        )


def euler_endpoint(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """|û - u| <= (|γ-λ| + λ L t)|δ| for random δ, for a solver's δ, and as printed for a negative λ."""
    noise, successor_return, reward = rng.standard_normal((3, num_samples)) * [[1], [2], [1]]
    field = SineField(noise, reward, rng.uniform(size=num_samples))
    error = rng.uniform(0.05, 1, num_samples) * rng.choice([-1, 1], num_samples)
    for lipschitz in (0.5, 3.0):
        for weight in (0.0, 0.3, 0.6, 0.9, 1.2):
            change = field.target_change(successor_return, error, weight, lipschitz)
            yield at_most(
                f"euler-bound-L{lipschitz:g}-lambda{weight:g}",
                f"|û - u| <= (|γ-λ| + λ L t)|δ| for v̄ = L sin z, γ = 0.9, L = {lipschitz:g}, λ = {weight:g}: largest "
                "ratio over random δ, up to rounding",
                LABEL,
                (change / field.bound(error, weight, lipschitz)).max(),
                1 + ROUNDING,
            )
    yield error_of_ten_steps(field)
    literal = (abs(DISCOUNT + 0.5) - 0.5 * 0.5 * field.flow_time) * np.abs(error)
    yield at_least(
        "euler-bound-negative-lambda",
        "For information: the bound, printed with λ and not |λ| before L t, needs λ >= 0; for λ = -0.5 and L = 0.5 the "
        "largest ratio exceeds it",
        LABEL,
        (field.target_change(successor_return, error, -0.5, 0.5) / literal).max(),
        1 + ROUNDING,
    )


def error_of_ten_steps(field: SineField) -> CheckRow:
    """dz/dt = sin z is solved by 2 arctan(e^t tan(z_0 / 2)); ten Euler steps miss that end by δ."""
    noise = estimate = field.noise
    for _ in range(10):
        estimate = estimate + 0.1 * np.sin(estimate)
    exact = 2 * np.arctan(np.e * np.tan(noise / 2)) + 2 * np.pi * np.round(noise / (2 * np.pi))
    solver_error = estimate - exact
    seen = np.abs(solver_error) > 1e-4  # below, the ratio is rounding
    change = field.target_change(exact, solver_error, 0.6, 1.0)
    return at_most(
        "euler-bound-solver",
        "The same with δ the error of ten Euler steps on dz/dt = sin z, λ = 0.6: largest ratio",
        LABEL,
        (change[seen] / field.bound(solver_error, 0.6, 1.0)[seen]).max(),
        1 + ROUNDING,
    )
