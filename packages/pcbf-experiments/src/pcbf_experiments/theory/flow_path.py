"""The flow path: its ends, its velocity, the law it leads to, and which weights of velocities keep the contraction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.random import Generator

from pcbf_core.mrp import Bernoulli
from pcbf_core.population import regress, resting_flow
from pcbf_experiments.theory.formulas import Values, flow_path_point, flow_path_velocity, successor_point
from pcbf_experiments.theory.measures import order
from pcbf_experiments.theory.rows import ROUNDING, at_least, at_most, near
from pcbf_records.theory import CheckRow

LABEL = "beyond:flow-path"
Field = tuple[Values, Values]  # slope and level of affine velocities a z + b, whose flows are known


def flow_path(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """Facts of the flow path on random affine successor fields, and of one round of its regression."""
    field = (rng.uniform(-1.5, 1.5, num_samples), 2 * rng.standard_normal(num_samples))
    noise = rng.standard_normal(num_samples)
    given = {
        "noise": noise,
        "successor_noise": noise,
        "successor_return": exact_flow(field, noise, 1.0),
        "reward": 2 * rng.standard_normal(num_samples),
        "effective_discount": rng.choice([0.0, 0.5, 0.9, 0.995], num_samples),
        "control_weight": rng.choice([0.0, 0.3, 1.0], num_samples),
    }
    time = rng.uniform(0.01, 0.99, num_samples)
    yield from ends(field, given)
    yield from velocity(field, given, time)
    yield solver_order(field, noise, time)
    yield from law_after_one_round()
    yield no_internal_error(rng)
    yield from velocity_weights()


def exact_flow(field: Field, noise: Values, time: Values | float) -> Values:
    """ψ_t of dz/dt = a z + b."""
    slope, level = field
    return noise + (slope * noise + level) * np.expm1(slope * time) / slope


def ends(field: Field, given: dict[str, Values]) -> Iterator[CheckRow]:
    bellman = given["reward"] + given["effective_discount"] * given["successor_return"]
    for name, time, end, words in (
        ("start", 0.0, given["noise"], "starts at the noise, |Z_0 - X_0|"),
        ("end", 1.0, bellman, "ends at the Bellman target, |Z_1 - (R + γ̃X')|"),
    ):
        point = flow_path_point(**given, flow_point=exact_flow(field, given["noise"], time), flow_time=time)
        yield at_most(
            f"flow-path-{name}",
            f"The flow path {words}: largest over random fields, λ, γ and terminals",
            LABEL,
            np.abs(point - end).max(),
            ROUNDING,
        )


def velocity(field: Field, given: dict[str, Values], time: Values) -> Iterator[CheckRow]:
    def point(at: Values) -> Values:
        return flow_path_point(**given, flow_point=exact_flow(field, given["noise"], at), flow_time=at)

    here = exact_flow(field, given["noise"], time)
    step = 1e-4
    slope = (8 * (point(time + step) - point(time - step)) - point(time + 2 * step) + point(time - 2 * step)) / (
        12 * step
    )
    target = flow_path_velocity(**given, flow_point=here, flow_velocity=field[0] * here + field[1], flow_time=time)
    yield at_most(
        "flow-path-velocity",
        "The target is the velocity of the flow path: largest difference to a difference quotient of fourth order",
        LABEL,
        np.abs(target - slope).max(),
        1e-8,
    )
    terminal = {**given, "effective_discount": np.zeros_like(time)}
    stopped = flow_path_velocity(**terminal, flow_point=here, flow_velocity=here, flow_time=time)
    yield at_most(
        "flow-path-terminal",
        "At terminals the flow path is straight to R whatever the successor's field: largest |u - (R - X_0)|",
        LABEL,
        np.abs(stopped - (given["reward"] - given["noise"])).max(),
        ROUNDING,
    )


def solver_order(field: Field, noise: Values, time: Values) -> CheckRow:
    """How fast v(t, Ẑ_t) on the midpoint rule's polygon tends to the true velocity."""
    slope, level = field
    exact = slope * exact_flow(field, noise, time) + level

    def error(step: float) -> float:
        count = round(1 / step)
        nodes = [noise]
        for _ in range(count):
            middle = nodes[-1] + (slope * nodes[-1] + level) * step / 2
            nodes.append(nodes[-1] + (slope * middle + level) * step)
        cell = np.minimum((time * count).astype(int), count - 1)
        points, rows, share = np.stack(nodes), np.arange(len(noise)), time * count - cell
        on_polygon = points[cell, rows] * (1 - share) + points[cell + 1, rows] * share
        return float(np.abs(slope * on_polygon + level - exact).mean())

    return near(
        "flow-path-order",
        "v(t, Ẑ_t) on the polygon of the midpoint rule is of second order: measured order from N = 16 to 32",
        LABEL,
        order(error, 1 / 32),
        2.0,
        0.1,
    )


def law_after_one_round() -> Iterator[CheckRow]:
    """From a successor flow that is no fixed point, one regression must give the law of R + γX'."""
    process, grid = Bernoulli(), {"num_flow_steps": 100, "num_points": 401}
    successor = regress(process, resting_flow(process, **grid), path="linear", control_weight=0.0)
    levels = (np.arange(20000) + 0.5) / 20000
    bellman = np.sort(np.concatenate([r + process.discount * successor.quantile(levels)[0] for r in (0.0, 1.0)]))
    exact = np.interp((np.arange(2000) + 0.5) / 2000, (np.arange(bellman.size) + 0.5) / bellman.size, bellman)
    for weight in (0.0, 0.5, 1.0):
        learned = regress(process, successor, path="flow", control_weight=weight)
        distance = np.abs(learned.quantile((np.arange(2000) + 0.5) / 2000)[0] - exact).mean()
        yield at_most(
            f"flow-path-law-lambda{weight:g}",
            f"The conditional mean field carries N(0, 1) to the law of R + γX' at λ = {weight:g}: W1 / std, Bernoulli, "
            "from a successor flow that is no fixed point",
            LABEL,
            distance / bellman.std(),
            2e-4,
        )


def no_internal_error(rng: Generator) -> CheckRow:
    """E_int compares E[X' - X_0 | Z'_t] with X' - X_0; under shared noise Z'_t determines X_0."""
    noise = np.linspace(-5, 5, 2001)
    smallest = np.inf
    for _ in range(50):
        steps = rng.exponential(size=noise.size)  # a random increasing map
        returns = np.cumsum(steps) * (noise[1] - noise[0]) * rng.uniform(0.01, 3)
        for time in (0.0, 0.1, 0.5, 0.9, 0.999):
            straight = successor_point(noise=noise, successor_return=returns, flow_time=time)
            smallest = min(smallest, float(np.diff(straight).min()))
    return at_least(
        "internal-error-is-zero",
        "E_int ≡ 0 under the implemented coupling: straight lines from X_0 to an increasing ψ(X_0) never meet before "
        "t = 1, so that Z'_t determines X_0; least distance of neighbours over random ψ and t",
        "eq:lambda_target",
        smallest,
        np.finfo(float).tiny,
    )


def velocity_weights(discount: float = 0.95, num_steps: int = 12) -> Iterator[CheckRow]:
    """At λ = 1 an error of the velocity along a path passes from round to round through u = … + γ v̂ alone.

    v̂ is linear in the successor's velocities at the nodes and middles of the midpoint rule's steps; where its weights
    are convex the recursion contracts by γ.
    """
    for name, weights in INTERPOLANTS.items():
        radius = discount * np.abs(np.linalg.eigvals(velocity_matrix(weights, num_steps))).max()
        words = f"{INTERPOLANT_WORDS[name]}: spectral radius of the recursion, γ = {discount:g}"
        if name == "hermite":
            yield at_least("contraction-velocity-hermite", f"Velocities do not contract by {words}", LABEL, radius, 1.0)
        else:
            yield at_most(
                f"contraction-velocity-{name}", f"Velocities contract by {words}", LABEL, radius, discount + ROUNDING
            )


def hermite(place: float) -> Values:
    """Weights of start, middle and end velocity in the derivative of the Hermite interpolant, at a place of a step."""
    return np.array([1 - 4 * place + 3 * place**2, 6 * place * (1 - place), 3 * place**2 - 2 * place])


INTERPOLANTS: dict[str, Callable[[float], Values]] = {
    "evaluation": lambda place: np.eye(3)[round(2 * place)],
    "slope": lambda place: np.eye(3)[1],
    "hermite": hermite,
}
INTERPOLANT_WORDS = {
    "evaluation": "v⁻(t, Ẑ_t), one evaluation",
    "slope": "the slope of the polygon, which is the middle velocity",
    "hermite": "the derivative of the cubic Hermite interpolant through the same nodes",
}


def velocity_matrix(weights: Callable[[float], Values], num_steps: int) -> Values:
    """v̂ at the nodes and middles of the steps (rows) from the velocities there (columns)."""
    matrix = np.zeros((2 * num_steps + 1, 2 * num_steps + 1))
    for row in range(len(matrix)):
        step = min(row // 2, num_steps - 1)
        matrix[row, 2 * step : 2 * step + 3] = weights(row / 2 - step)
    return matrix
