"""Deciding tests on what we found beyond the paper, and on what published sources do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pcbf_analysis import statistics, theme
from pcbf_analysis.claims.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Case,
    Decision,
    Measure,
    exact,
    over_cases,
    side,
    student,
    undecided,
    within,
)
from pcbf_analysis.results import Results, late_losses, seed_means
from pcbf_analysis.tables.contest import OURS, entry, paired, relative_w1
from pcbf_analysis.tables.exact import by_seed, optimum
from pcbf_analysis.tables.scores import paired_differences
from pcbf_records.exact import MDPS, MEAN, measure_name
from pcbf_records.toy import PROCESSES, TOY_METHODS

BESIDE = ("pcbf-independent",)  # ablations, which are no rivals


def _relative(results: Results, process: str, method: str) -> dict[int, float]:
    """W1 of every seed in standard deviations of the law, mean over live states; empty without records."""
    found = entry(results, process, method)
    if found is None:
        return {}
    return dict(zip(map(int, found[0].seeds), map(float, relative_w1(*found)), strict=True))


def _paired(first: dict[int, float], second: dict[int, float]) -> Measure:
    return student(paired_differences(first, second))


# --- laws -----------------------------------------------------------------------------------------------------------


def flow_path_within(results: Results, *, against: str, margin: float) -> Decision:
    """Whether the flow path at λ = 1 is at most `margin` standard deviations further from the law, seed by seed."""
    cases = []
    for process in PROCESSES:
        measured = _paired(_relative(results, process, OURS[0]), _relative(results, process, against))
        cases.append(Case(process, measured, side(measured.minus(margin))))
    return over_cases(cases, f"W1 of the flow path minus that of {against}, in standard deviations, seed by seed")


def flow_path_ahead(results: Results, *, process: str, against: str) -> Decision:
    """Whether the flow path at λ = 1 is nearer to the law on a process: the row of the table of paired differences."""
    table = paired(results)
    rows = zip(*(table.column(name) for name in ("env", "method", "difference", "low", "high")), strict=True)
    found = {(env, method): Measure(*numbers) for env, method, *numbers in rows}
    if (process, against) not in found:
        return undecided()
    measured = found[process, against]
    return Decision(side(measured), measured, f"W1 of the flow path minus that of {against}, seed by seed")


def networks_at_fixed_point(results: Results, *, places: Sequence[tuple[str, float]], tolerance: float) -> Decision:
    """Whether networks have the W1 of the population's fixed point, within a relative tolerance, at each place."""
    population, w1 = results.population(), results.w1()
    rows = population[(population["path"] == "linear") & (population["noise"] == "shared")]
    fixed = {
        (process, float(weight)): float(value)
        for process, weight, value in zip(rows["process"], rows["control_weight"], rows["w1"], strict=True)
    }
    cases = []
    for process, weight in places:
        weights, values = seed_means(w1, process, "pcbf")
        at = np.flatnonzero(np.isclose(weights, weight, atol=1e-6))
        is_known = at.size > 0 and (process, weight) in fixed
        measured = student(values[at[0]] / fixed[process, weight]) if is_known else Measure(math.nan)
        cases.append(Case(f"{process}, λ = {weight:g}", measured, within(measured, 1 - tolerance, 1 + tolerance)))
    return over_cases(cases, "W1 of networks over that of the fixed point")


def variance_ratio(results: Results, *, first: str, second: str, low: float) -> Decision:
    """Whether the first method's mean late loss at λ = 0 is at least `low` times the second's on each process."""
    cases = []
    for process in PROCESSES:
        pair = [_at_zero(*late_losses(results, process, method)) for method in (first, second)]
        measured = student(pair[0] / pair[1]) if pair[0].size and pair[0].size == pair[1].size else Measure(math.nan)
        cases.append(Case(process, measured, within(measured, low, None)))
    return over_cases(cases, f"mean late loss of {first} over that of {second}", worst="smallest")


def _at_zero(weights: np.ndarray, losses: np.ndarray) -> np.ndarray:
    at = np.flatnonzero(weights == 0)
    return losses[at[0]] if at.size else np.empty(0)


def every_method_is_beaten(results: Results) -> Decision:
    """Whether each method is further from the law than another on at least one process, by paired intervals.

    The number of a method is its clearest defeat: another's W1 minus its own, in standard deviations.
    """
    methods = [method for method in TOY_METHODS if method not in BESIDE]
    laws = {(process, method): _relative(results, process, method) for process in PROCESSES for method in methods}
    cases = []
    for method in methods:
        defeats = [
            _paired(laws[process, other], laws[process, method])
            for process in PROCESSES
            for other in methods
            if other != method and laws[process, other] and laws[process, method]
        ]
        worst = min(defeats, key=lambda defeat: defeat.high if math.isfinite(defeat.high) else math.inf, default=None)
        measured = worst or Measure(math.nan)
        cases.append(Case(theme.METHODS[method].label, measured, HOLDS if measured.high < 0 else UNDECIDED))
    return over_cases(cases, "another's W1 minus its own where it is most clearly behind, in standard deviations")


# --- exact control --------------------------------------------------------------------------------------------------


def cvar_gain_share(results: Results, *, mdp: str, method: str, level: float, low: float) -> Decision:
    """Whether acting by CVaR gains at least the share `low` of what the best policy gains over acting by the mean."""
    tail = measure_name(level)
    best = optimum(results, mdp, level, tail) - optimum(results, mdp, MEAN, tail)
    gained = paired_differences(*(by_seed(results, mdp, method, risk, tail) for risk in (level, MEAN)))
    if not gained.size or not best > 0:
        return undecided()
    measured = student(gained / best)
    return Decision(within(measured, low, None), measured, f"share of the {best:.3g} in CVaR that can be gained")


def regret_at_most(results: Results, *, first: str, second: str, margin: float) -> Decision:
    """Whether the first method's exact regret exceeds the second's by at most `margin` on each process."""
    cases = []
    for mdp in MDPS:
        ours, theirs = (by_seed(results, mdp, method, MEAN, "mean") for method in (first, second))
        measured = _paired(theirs, ours)  # a higher mean is a lower regret
        cases.append(Case(mdp, measured, side(measured.minus(margin))))
    return over_cases(cases, f"regret of {first} minus that of {second}, seed by seed")


# --- published sources ------------------------------------------------------------------------------------------------


def source_agrees(results: Results, *, facts: Sequence[str]) -> Decision:
    """Whether published code does what the paper says, fact by fact of data/paper/sources.csv: how many do not."""
    departing, note = _departures(results, facts)
    return Decision(FAILS if departing else HOLDS, exact(departing), note)


def source_departs(results: Results, *, facts: Sequence[str]) -> Decision:
    """Whether published code does otherwise than the paper says in each of the facts: in how many."""
    departing, note = _departures(results, facts)
    return Decision(HOLDS if departing == len(facts) else FAILS, exact(departing), note)


def _departures(results: Results, facts: Sequence[str]) -> tuple[int, str]:
    table = results.paper_table("sources").astype(str).set_index("id")
    rows = table.loc[list(facts)]
    apart = rows[rows["paper"] != rows["source"]]
    told = [f"{row['quantity']}: {row['source']}, not {row['paper']}" for _, row in apart.iterrows()]
    places = ", ".join(dict.fromkeys(f"{row['repository']} at {row['commit']}" for _, row in rows.iterrows()))
    return len(apart), f"points out of {len(rows)} in which {places} departs" + (f": {'; '.join(told)}" if told else "")


def rerun_below_paper(results: Results, *, aggregation: str, at_least: int) -> Decision:
    """Whether the authors' later scores are below the paper's in at least so many domains, by Welch's interval.

    The ± of a domain is the mean of its tasks' deviations, which makes the interval wider than it need be.
    """
    printed = results.paper_table("aggregated")
    ours = printed[printed["method"] == "pcbf"].set_index("domain")
    table = results.paper_table("rerun")
    rows = table[table["aggregation"] == aggregation]
    cases = []
    for domain, mean, std, num_seeds in zip(
        *(rows[name] for name in ("domain", "mean", "std", "num_seeds")), strict=True
    ):
        later = float(mean), float(std), int(num_seeds)
        first = float(ours.loc[domain, "mean"]), float(ours.loc[domain, "std"]), later[2]  # type: ignore[arg-type]
        measured = Measure(later[0] - first[0], *statistics.difference_interval(later, first))
        cases.append(Case(str(domain), measured, side(measured)))
    return over_cases(cases, "later score minus the paper's", exceptions=len(cases) - at_least, worst="smallest")
