"""The paths: their ends and velocities, the laws at both ends, and the source that the uncorrected path misses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator
from scipy import stats

from pcbf_core import theory
from pcbf_core.mrp import Bernoulli, DiscreteLaw
from pcbf_experiments.theory.example import DISCOUNT, EXAMPLE
from pcbf_experiments.theory.formulas import (
    Formula,
    Values,
    bellman_velocity,
    current_point,
    current_point_from_successor,
    successor_point,
    uncorrected_point,
)
from pcbf_experiments.theory.measures import wasserstein1
from pcbf_experiments.theory.rows import ROUNDING, at_least, at_most, near
from pcbf_records.theory import CheckRow

Transition = dict[str, Values]  # noise, successor return, reward and effective discount, by the formulas' names
Identity = tuple[str, str, str, Values]  # id, statement, label and what differs from 0 by rounding only


# -------------------------------------------------------------------------------------- both paths, path by path


def path_identities(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """Where the paths start, end and how they move, on random transitions; a discount of 0 is a terminal one."""
    noise, successor_return, reward = rng.standard_normal((3, num_samples)) * [[1], [3], [2]]
    discount = rng.choice([0.0, 0.5, 0.9, 0.995], num_samples)
    time = rng.uniform(size=num_samples)
    transition: Transition = {
        "noise": noise,
        "successor_return": successor_return,
        "reward": reward,
        "effective_discount": discount,
    }
    for identities in (end_identities, current_path_identities, uncorrected_path_identities):
        for id, statement, label, error in identities(transition, time):
            yield at_most(id, statement, label, np.abs(error).max(), ROUNDING)


def bellman_target(transition: Transition) -> Values:
    """R + γ̃X'."""
    return transition["reward"] + transition["effective_discount"] * transition["successor_return"]


def end_to_end(path: Formula, transition: Transition, time: Values) -> Values:
    """How far a path moves in one unit of time around `time`: its velocity, where the path is straight."""
    return path(**transition, flow_time=time + 0.5) - path(**transition, flow_time=time - 0.5)


def end_identities(transition: Transition, time: Values) -> Iterator[Identity]:
    noise = transition["noise"]
    yield (
        "path-start-current",
        "The current path starts at the noise: largest |Z_0 - X_0|",
        "prop:endpoints_main",
        current_point(**transition, flow_time=0.0) - noise,
    )
    yield (
        "path-start-successor",
        "The successor path starts at the same noise: largest |Z'_0 - X_0|",
        "prop:endpoints_main",
        successor_point(noise=noise, successor_return=transition["successor_return"], flow_time=0.0) - noise,
    )
    yield (
        "path-end",
        "The current path ends at the Bellman target: largest |Z_1 - (R + γ̃X')|",
        "app:pcfm",
        current_point(**transition, flow_time=1.0) - bellman_target(transition),
    )


def current_path_identities(transition: Transition, time: Values) -> Iterator[Identity]:
    yield (
        "path-forms",
        "Both forms of the current path agree: largest difference over random t and γ̃",
        "eq:lambda_path_alt",
        current_point(**transition, flow_time=time) - current_point_from_successor(**transition, flow_time=time),
    )
    yield (
        "path-velocity",
        "The current path moves with velocity Y = R + γ̃X' - X_0: largest difference",
        "eq:bcfm-target",
        end_to_end(current_point, transition, time) - bellman_velocity(**transition),
    )


def uncorrected_path_identities(transition: Transition, time: Values) -> Iterator[Identity]:
    velocity = transition["effective_discount"] * (transition["successor_return"] - transition["noise"])
    yield (
        "uncorrected-end",
        "The uncorrected path ends at the Bellman target too: largest |Z^D_1 - (R + γ̃X')|",
        "eq:pointwise_uncorrected_path",
        uncorrected_point(**transition, flow_time=1.0) - bellman_target(transition),
    )
    yield (
        "uncorrected-velocity",
        "The uncorrected path moves with γ̃ times the successor's velocity: largest difference",
        "lem:dcfm_recovery",
        end_to_end(uncorrected_point, transition, time) - velocity,
    )


# ------------------------------------------------------------------------------------------- laws at both ends


def endpoint_laws(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """P_{s,a,t} leads from N(0, 1) to the law of the Bellman target."""
    point = np.linspace(-6, 6, 2001)
    start = theory.interpolated_density(EXAMPLE, point, 0.0, discount=DISCOUNT)
    yield at_most(
        "law-start",
        "P_{s,a,0} is N(0, 1): largest difference of the densities",
        "prop:endpoints_main",
        np.abs(start - stats.norm.pdf(point)).max(),
        ROUNDING,
    )
    yield from approach_to_the_end()
    yield shared_noise_end(num_samples)


def approach_to_the_end() -> Iterator[CheckRow]:
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


def shared_noise_end(num_samples: int) -> CheckRow:
    """Bernoulli with its exact return generator: 2Φ(X_0) is uniform on [0, 2]; one noise per level, both rewards."""
    levels = (np.arange(num_samples) + 0.5) / num_samples
    reward = np.array([[0.0], [1.0]])
    end = current_point(
        noise=stats.norm.ppf(levels),
        successor_return=2 * levels,
        reward=reward,
        flow_time=1.0,
        effective_discount=Bernoulli.discount,
    )
    return at_most(
        "law-end-shared",
        "With X' = ψ(X_0) the path's end has law T η: W1 to the return law on Bernoulli, one noise per level",
        "app:pcfm",
        Bernoulli().return_law(0).wasserstein1(end),
        1 / num_samples,
    )


# -------------------------------------------------------------------------------- source of the uncorrected path


def source_mismatch(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """The uncorrected path does not start at the base noise."""
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
        yield from start_moments(name, start, discount=discount, values=values, share=share)
        yield start_distance(name, discount=discount, values=values, share=share)


def start_moments(name: str, start: Values, *, discount: float, values: Values, share: Values) -> Iterator[CheckRow]:
    """Mean and standard deviation of the samples `start` of Z^D_0, for rewards `values` of probabilities `share`."""
    label, where, num_samples = "eq:pointwise_uncorrected_path", f"{name}, γ = {discount:g}", len(start)
    mean = float(share @ values)
    std = float(np.sqrt(discount**2 + share @ (values - mean) ** 2))
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


def start_distance(name: str, *, discount: float, values: Values, share: Values) -> CheckRow:
    def start_cdf(x: Values) -> Values:
        return (share * stats.norm.cdf((x[:, None] - values) / discount)).sum(-1)

    return at_least(
        f"uncorrected-start-w1-{name}",
        f"It does not start at the base noise: W1 of Z^D_0 to N(0, 1) is at least |E[R]|, less 1e-6 for quadrature "
        f"({name}, γ = {discount:g})",
        "eq:pointwise_uncorrected_path",
        wasserstein1(start_cdf, stats.norm.cdf, -9.0, 9.0),
        float(share @ values) - 1e-6,
    )
