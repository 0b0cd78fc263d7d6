"""Fixed points: the fields that the DCFM condition leaves, and the return laws that T leaves as they are (app:dcfm)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.random import Generator
from scipy import stats

from pcbf_core import theory
from pcbf_core.mrp import Bernoulli, DiscreteLaw, MonteCarloChain, SolitaireDice
from pcbf_experiments.theory.formulas import Values
from pcbf_experiments.theory.measures import wasserstein1
from pcbf_experiments.theory.rows import ROUNDING, at_least, at_most, near
from pcbf_records.theory import CheckRow

LABEL = "app:dcfm"
DEGREE = 8  # of the polynomial fields


# -------------------------------------------------------------------------------- what the DCFM condition leaves


def dcfm_degeneracy(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """The DCFM condition alone leaves constant fields, which cannot carry the source to a return law."""
    for discount in (0.5, 0.9):
        for name, rewards in (("zero-reward", (0.0,)), ("coin-reward", (0.0, 1.0))):
            yield from unscaled_fields(name, discount, rewards)
            yield from scaled_fields(name, discount, rewards)
    yield continuous_field(rng)
    yield constant_field()


def describe_fields(discount: float, rewards: Sequence[float]) -> str:
    return f"γ = {discount:g}, rewards {', '.join(f'{r:g}' for r in rewards)}, polynomials of degree {DEGREE}"


def unscaled_fields(name: str, discount: float, rewards: Sequence[float]) -> Iterator[CheckRow]:
    where = describe_fields(discount, rewards)
    unscaled = theory.dcfm_null_space(discount=discount, rewards=rewards, degree=DEGREE, scaled=False)
    yield near(
        f"dcfm-unscaled-{name}-gamma{discount:g}",
        f"v(R + γz) = v(z) leaves one dimension of fields ({where})",
        LABEL,
        unscaled.shape[1],
        1.0,
        0.0,
    )
    yield at_most(
        f"dcfm-unscaled-constant-{name}-gamma{discount:g}",
        f"and that field is constant in z: largest other coefficient ({where})",
        LABEL,
        np.abs(unscaled[1:]).max(),
        ROUNDING,
    )


def scaled_fields(name: str, discount: float, rewards: Sequence[float]) -> Iterator[CheckRow]:
    where = describe_fields(discount, rewards)
    scaled = theory.dcfm_null_space(discount=discount, rewards=rewards, degree=DEGREE, scaled=True)
    remaining = 1.0 if tuple(rewards) == (0.0,) else 0.0
    kind = "the linear field alone" if remaining else "no field but 0, for random rewards"
    yield near(
        f"dcfm-scaled-{name}-gamma{discount:g}",
        f"v(R + γz) = γ v(z) leaves {kind}: dimension ({where})",
        LABEL,
        scaled.shape[1],
        remaining,
        0.0,
    )
    if remaining:
        yield at_most(
            f"dcfm-scaled-linear-gamma{discount:g}",
            f"the field of the scaled condition is linear in z: largest other coefficient ({where})",
            LABEL,
            np.abs(np.delete(scaled, 1, axis=0)).max(),
            ROUNDING,
        )


def continuous_field(rng: Generator) -> CheckRow:
    frequency, phase, height = rng.standard_normal((3, 64)) * [[2], [3], [1 / 8]]
    point, applications = np.linspace(-3, 3, 601), 40

    def field(z: Values) -> Values:
        return np.sin(z[:, None] * frequency + phase) @ height

    return at_most(
        "dcfm-unscaled-continuous",
        "A continuous field with v(γz) = v(z) equals v(γⁿz) -> v(0): spread over [-3, 3] of a random smooth field "
        "after n = 40 applications, γ = 0.5, against 6Lγⁿ",
        LABEL,
        np.ptp(field(0.5**applications * point)),
        6 * (np.abs(height) @ np.abs(frequency)) * 0.5**applications,
    )


def constant_field() -> CheckRow:
    law = Bernoulli().return_law(0)
    distances = [wasserstein1(stats.norm(shift).cdf, law.cdf, -8.0, 10.0) for shift in np.linspace(0, 2, 41)]
    return near(
        "dcfm-constant-field-w1",
        "A field constant in z only translates the source: least W1 of N(c, 1) to Bernoulli's return law is "
        "E|X_0| - E|G - 1| = (2/π)^½ - 1/2",
        LABEL,
        min(distances),
        np.sqrt(2 / np.pi) - 0.5,
        1e-6,
    )


# ------------------------------------------------------------------------------------------ fixed points of T


def fixed_points(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """The exact return laws are fixed points of T, the source is none, and T leads from it to the return law."""
    yield from bernoulli_fixed_point()
    for name, distance in {**solitaire_distance(), **chain_distances()}.items():
        yield at_most(
            f"fixed-point-{name}",
            f"The exact return law is a fixed point of T ({name}): W1 between T η and η",
            LABEL,
            distance,
            1e-6,
        )


def source(x: Values) -> Values:
    """Distribution function of N(0, 1)."""
    return np.asarray(stats.norm.cdf(x))


def bernoulli_update(cdf: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """T F(x) = (F(x/γ) + F((x-1)/γ))/2, γ = 1/2."""
    return lambda x: (cdf(2 * x) + cdf(2 * x - 2)) / 2


def bernoulli_fixed_point() -> Iterator[CheckRow]:
    law = Bernoulli().return_law(0)
    yield at_least(
        "fixed-point-source",
        "N(0, 1) is no fixed point of T on Bernoulli: W1 from T N(0, 1) to N(0, 1) is at least the gap of means, 1/2",
        LABEL,
        wasserstein1(bernoulli_update(source), source, -9.0, 9.0),
        0.5,
    )
    yield at_most(
        "fixed-point-bernoulli",
        "Bernoulli's return law is a fixed point of T: W1 between T η and η",
        LABEL,
        wasserstein1(bernoulli_update(law.cdf), law.cdf, -1.0, 3.0),
        ROUNDING,
    )
    iterate, start = source, wasserstein1(source, law.cdf, -9.0, 9.0)
    for _ in range(6):
        iterate = bernoulli_update(iterate)
    yield at_most(
        "fixed-point-unique",
        "T leads from N(0, 1) to the return law: W1(T⁶N(0, 1), η) on Bernoulli is at most γ⁶ W1(N(0, 1), η)",
        LABEL,
        wasserstein1(iterate, law.cdf, -9.0, 9.0),
        0.5**6 * start,
    )


def solitaire_distance() -> dict[str, float]:
    dice = SolitaireDice()
    play, stop = dice.return_law(0), dice.stop_probability
    successors = [(stop, 0.0, None), (1 - stop, 1.0, play)]
    return {"solitaire": fixed_point_distance(play, successors, discount=dice.discount)}


def chain_distances() -> dict[str, float]:
    chain = MonteCarloChain()
    laws = {state: chain.return_law(state) for state in chain.live_states}
    distances = {}
    for state in chain.evaluation_states:
        moves = zip((state - 1, state, state + 1), chain.move_probabilities()[state], strict=True)
        successors = [(float(p), float(s in laws), laws.get(s)) for s, p in moves]  # reward 1 unless the walk ends
        distances[f"chain-s{state:02d}"] = fixed_point_distance(laws[state], successors, discount=chain.discount)
    return distances


def fixed_point_distance(
    law: DiscreteLaw, successors: Iterable[tuple[float, float, DiscreteLaw | None]], *, discount: float
) -> float:
    """W1 between `law` and the mixture of R + γX' over (probability, R, law of X'; None where the process ends)."""
    atoms, weights = [], []
    for probability, reward, successor in successors:
        atoms.append(np.array([reward]) if successor is None else reward + discount * successor.atoms)
        weights.append(probability * (np.ones(1) if successor is None else successor.weights))
    return float(stats.wasserstein_distance(np.concatenate(atoms), law.atoms, np.concatenate(weights), law.weights))
