"""Deciding tests on the theory checks, on exact laws and on identities of the library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

from pcbf_analysis.claims.verdicts import FAILS, HOLDS, Decision, exact, undecided, within
from pcbf_analysis.results import Results
from pcbf_core.mrp import MRPS, DiscreteLaw
from pcbf_core.targets import velocity_target

NUM_POINTS = 4001


def checks_hold(results: Results, *, checks: Sequence[str]) -> Decision:
    """Whether every recorded check whose id matches one of the patterns holds; the number is the share that does."""
    frame = results.theory_checks()
    chosen = frame[[any(fnmatchcase(name, pattern) for pattern in checks) for name in frame["id"]]]
    unseen = [p for p in checks if not any(fnmatchcase(name, p) for name in frame["id"])]
    if chosen.empty or unseen:
        return undecided(f"no recorded check matches {', '.join(unseen)}" if len(frame) else "no records yet")
    failing = [str(name) for name in chosen.loc[~chosen["holds"].astype(bool), "id"]]
    held = len(chosen) - len(failing)
    note = f"share of checks that hold: {held} of {len(chosen)}" + (f"; not {', '.join(failing)}" if failing else "")
    return Decision(FAILS if failing else HOLDS, exact(held / len(chosen)), note)


def check_measured(
    results: Results, *, check: str, quantity: str, low: float | None = None, high: float | None = None
) -> Decision:
    """Whether what a check measured lies between bounds other than its own."""
    frame = results.theory_checks()
    found = {
        str(name): float(value) for name, value in zip(frame["id"], frame["measured"], strict=True) if name == check
    }
    if not found:
        return undecided()
    measured = exact(found[check])
    return Decision(within(measured, low, high), measured, quantity)


def solitaire_law(results: Results) -> Decision:
    """Whether Solitaire's return is (1 - γ^k)/(1 - γ) with probability (1/6)(5/6)^k: largest gap of the CDFs."""
    law, discount = MRPS["solitaire"].return_law(0), MRPS["solitaire"].discount
    count = np.arange(60)
    atoms = (1 - discount**count) / (1 - discount)
    gap = np.abs(law.cdf(atoms + 1e-9) - (1 - (5 / 6) ** (count + 1))).max()
    return _gap(float(gap), "largest gap between the law of the library and the paper's formula")


def bernoulli_law(results: Results) -> Decision:
    """Whether Bernoulli's return is uniform on [0, 2]: largest gap of the library's law and of a sum of coins."""
    values = np.linspace(-0.5, 2.5, NUM_POINTS)
    uniform = np.clip(values / 2, 0, 1)
    coins = (np.arange(2**12) + 0.0) / 2**11  # all sums of twelve coins, Σ 2^-t R_t, are equally likely
    empirical = np.searchsorted(np.sort(coins), values, side="right") / len(coins)
    gap = max(
        np.abs(MRPS["bernoulli"].return_law(0).cdf(values) - uniform).max(), np.abs(empirical - uniform).max() - 2**-12
    )
    return _gap(float(max(gap, 0.0)), "largest gap to the uniform law, beyond the 12 coins that are summed")


def _gap(gap: float, note: str) -> Decision:
    return Decision(HOLDS if gap < 1e-9 else FAILS, exact(gap), note)


def number_of_live_states(results: Results, *, process: str, expected: int) -> Decision:
    """Whether a process has as many states with a return law as the paper draws."""
    count = len(MRPS[process].live_states)
    return Decision(
        HOLDS if count == expected else FAILS, exact(count), "non-terminal states of the process as defined"
    )


def smallest_return(results: Results, *, process: str, state: int, expected: float) -> Decision:
    """Whether the smallest return from a state is the expected one."""
    law = MRPS[process].return_law(state)
    if not isinstance(law, DiscreteLaw):
        return undecided(f"the law of {process} has no atoms")
    smallest = float(law.atoms[law.weights > 0].min())
    verdict = HOLDS if math.isclose(smallest, expected, abs_tol=1e-9) else FAILS
    return Decision(verdict, exact(smallest), f"smallest possible return from s = {state}")


def target_ignores_successor(results: Results, *, discount: float = 0.9) -> Decision:
    """Whether the target at λ = γ does not depend on X′ for a given successor velocity: largest change with X′."""
    random = np.random.default_rng(0)
    noise, reward, velocity, first, second = random.normal(size=(5, 1000))
    shared = {"noise": noise, "reward": reward, "successor_velocity": velocity}
    weights = {"effective_discount": discount, "effective_control_weight": discount}
    targets = [np.asarray(velocity_target(**shared, successor_return=x, **weights)) for x in (first, second)]  # type: ignore[arg-type]
    change = float(np.abs(targets[0] - targets[1]).max())
    return Decision(HOLDS if change < 1e-5 else FAILS, exact(change), "largest change of the target with X′")
