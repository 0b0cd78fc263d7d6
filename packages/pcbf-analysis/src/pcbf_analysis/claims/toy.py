"""Deciding tests on the toy records: W1 distances, spread of the loss, learned laws, residuals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pcbf_analysis import statistics, theme
from pcbf_analysis.claims.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Case,
    Decision,
    Measure,
    Verdict,
    over_cases,
    side,
    student,
    undecided,
    within,
)
from pcbf_analysis.results import (
    Results,
    Setting,
    chosen_coefficient,
    evaluation_settings,
    loss_by_seed,
    recorded_w1,
    reported_w1,
    seed_means,
    select,
)
from pcbf_analysis.tables.scores import paired_differences
from pcbf_records.arrays import Floats

Direction = Literal["falls", "rises"]
CHOSEN = "chosen"  # in place of a coefficient: the one that tuning seeds choose for the process


def _coefficient(results: Results, process: str, method: str, coefficient: float | str) -> float | None:
    return chosen_coefficient(results, process, method) if coefficient == CHOSEN else float(coefficient)


def _name(setting: Setting) -> str:
    return f"{setting.process}, s = {setting.state}" if setting.process == "chain" else setting.process


def trend(places: Floats, values: Floats, direction: Direction) -> tuple[Verdict, Measure]:
    """Whether values (places, seeds) fall or rise all the way, and last over first.

    Holds when the ratio of the ends has its interval on the right side and no step of the mean goes the wrong way;
    fails when the ratio's interval, or that of a step, is on the wrong side.
    """
    kept = np.isfinite(values).all(axis=0)
    if len(places) < 2 or not kept.any():
        return UNDECIDED, Measure(math.nan)
    seeds, sign = values[:, kept], 1 if direction == "falls" else -1
    ratio = student(seeds[-1] / seeds[0])
    steps = [student(sign * (after - before)) for before, after in itertools.pairwise(seeds)]
    change = ratio.minus(1.0)
    whole = side(change if sign == 1 else Measure(-change.value, -change.high, -change.low))
    if whole == FAILS or any(side(step) == FAILS for step in steps):
        return FAILS, ratio
    return (HOLDS if whole == HOLDS and all(step.value <= 0 for step in steps) else UNDECIDED), ratio


def w1_trend(results: Results, *, processes: Sequence[str], method: str, direction: Direction) -> Decision:
    """Whether W1 falls or rises with the coefficient on each process."""
    w1 = results.w1()
    return trend_over({process: seed_means(w1, process, method) for process in processes}, direction, "W1")


def loss_std_trend(results: Results, *, processes: Sequence[str], method: str, direction: Direction) -> Decision:
    """Whether the spread of the loss falls or rises with the coefficient on each process."""
    frame = results.loss_std()
    return trend_over({process: loss_by_seed(frame, process, method) for process in processes}, direction, "loss std")


def trend_over(curves: Mapping[str, tuple[Any, Any]], direction: Direction, quantity: str) -> Decision:
    """The `trend` of each process's (coefficients, values by coefficient and seed), together."""
    cases = []
    for process, curve in curves.items():
        verdict, ratio = trend(*curve, direction)
        cases.append(Case(process, ratio, verdict))
    worst = "largest" if direction == "falls" else "smallest"
    return over_cases(cases, f"{quantity} at the largest coefficient over that at the smallest", worst=worst)


def w1_growth(results: Results, *, processes: Sequence[str], method: str, tolerance: float) -> Decision:
    """Whether W1 grows by at most `tolerance` standard deviations of the law from the smallest to the largest weight.

    Each evaluation state counts in its own deviations, and the growth is that of every seed.
    """
    w1 = results.w1()
    cases = []
    for process in processes:
        _, values = seed_means(w1, process, method, in_deviations=True)
        kept = values[:, np.isfinite(values).all(axis=0)] if len(values) > 1 else np.empty((2, 0))
        measured = student(kept[-1] - kept[0])
        cases.append(Case(process, measured, within(measured, None, tolerance)))
    return over_cases(cases, "growth of W1 from the smallest to the largest coefficient, in standard deviations")


def w1_within(
    results: Results,
    *,
    process: str,
    method: str,
    coefficients: Sequence[float],
    low: float | None = None,
    high: float | None = None,
    in_deviations: bool = False,
) -> Decision:
    """Whether W1, as the mean over the evaluation states, lies between bounds at every coefficient in a range."""
    places, values = seed_means(results.w1(), process, method, in_deviations=in_deviations)
    first, last = coefficients
    cases = []
    for place, seeds in zip(places, values, strict=True):
        if first - 1e-6 <= place <= last + 1e-6:
            measured = student(seeds[np.isfinite(seeds)])
            cases.append(Case(theme.number(place), measured, within(measured, low, high)))
    unit = ", in standard deviations" if in_deviations else ""
    return over_cases(cases, f"W1 at each coefficient{unit}", worst="largest" if high is not None else "smallest")


def w1_rises_after(results: Results, *, process: str, method: str, coefficient: float) -> Decision:
    """Whether W1 at the largest coefficient exceeds that at `coefficient`."""
    places, values = seed_means(results.w1(), process, method)
    at = np.flatnonzero(np.isclose(places, coefficient, atol=1e-6))
    if not at.size or at[0] == len(places) - 1:
        return undecided()
    measured = student(values[at[0]] - values[-1])
    return Decision(side(measured), measured, f"W1 at {coefficient:g} minus W1 at {places[-1]:g}")


def best_is_moderate(results: Results, *, process: str, method: str = "pcbf") -> Decision:
    """Whether the lowest W1 is at a coefficient inside the grid, and below that at its start."""
    places, values = seed_means(results.w1(), process, method)
    if len(places) < 3 or not np.isfinite(values).all():
        return undecided()
    best = int(np.argmin(values.mean(axis=1)))
    if best == 0:
        nearest = int(1 + np.argmin(values[1:-1].mean(axis=1)))
        measured = student(values[nearest] - values[0])
        verdict = FAILS if side(measured) == FAILS else UNDECIDED
        return Decision(verdict, measured, f"W1 at {places[nearest]:g} minus W1 at {places[0]:g}, which is the lowest")
    measured = student(values[best] - values[0])
    verdict = side(measured) if best < len(places) - 1 else UNDECIDED
    return Decision(verdict, measured, f"lowest W1, at {places[best]:g}, minus W1 at {places[0]:g}")


def w1_by_seed(results: Results, setting: Setting, method: str, coefficient: float | str) -> dict[int, float]:
    """W1 of every seed of a method in a setting; empty where nothing was recorded."""
    value, w1 = _coefficient(results, setting.process, method, coefficient), results.w1()
    if value is None:
        return {}
    place = {"env": setting.process, "state": setting.state, "method": method, "coefficient": value}
    seeds, distances = (select(w1, name, **place) for name in ("seed", "w1"))
    return dict(zip(map(int, seeds), map(float, distances), strict=True))


def is_one_algorithm(results: Results, process: str, *entries: tuple[str, float | str]) -> bool:
    """Whether PCBF at λ = 0 is compared with Value Flows at dcfm 0, which is the same regression."""
    return all(
        method in ("pcbf", "value_flows") and _coefficient(results, process, method, value) == 0
        for method, value in entries
    )


def w1_below(
    results: Results,
    *,
    first: tuple[str, float | str],
    second: tuple[str, float | str],
    factor: float = 1.0,
    exceptions: int = 0,
) -> Decision:
    """Whether the first (method, coefficient) has a W1 below `factor` times the second's in each of six settings.

    Differences are paired by seed. Where both are one algorithm, neither is below the other, whatever chance says.
    """
    cases, same = [], []
    for setting in evaluation_settings():
        ours, theirs = (w1_by_seed(results, setting, *entry) for entry in (first, second))
        scaled = {seed: factor * value for seed, value in theirs.items()}
        measured = student(paired_differences(ours, scaled))
        is_same = is_one_algorithm(results, setting.process, first, second)
        same += [_name(setting)] if is_same else []
        cases.append(Case(_name(setting), measured, FAILS if is_same else side(measured)))
    scale = f"{factor:g} times " if factor != 1 else ""
    told = f" ({', '.join(same)}: one algorithm)" if same else ""
    return over_cases(cases, f"W1 of {first[0]} minus {scale}that of {second[0]}{told}", exceptions=exceptions)


def w1_apart(
    results: Results, *, first: tuple[str, float | str], second: tuple[str, float | str], margin: float
) -> Decision:
    """Whether two entries have the same W1 in each setting, up to `margin` standard deviations of the law."""
    cases = []
    for setting in evaluation_settings():
        ours, theirs = (w1_by_seed(results, setting, *entry) for entry in (first, second))
        measured = student(paired_differences(ours, theirs) / setting.law.std)
        cases.append(Case(_name(setting), measured, within(measured, -margin, margin)))
    return over_cases(cases, f"W1 of {first[0]} minus that of {second[0]}, in standard deviations")


def w1_ratio_at_state(results: Results, *, process: str, state: int, method: str, low: float) -> Decision:
    """Whether W1 in one state is at the largest coefficient at least `low` times that at the smallest."""
    record = results.toy(process, method)
    index = record.state_index(state) if record else None
    if record is None or index is None or len(record.coefficients) < 2:
        return undecided()
    order = np.argsort(record.coefficients)
    measured = student(record.w1[order[-1], :, index] / record.w1[order[0], :, index])
    return Decision(
        within(measured, low, None), measured, f"W1 at the largest λ over that at the smallest, s = {state}"
    )


def near_lowest_w1(results: Results, *, tolerance: float) -> Decision:
    """Whether PCBF's W1 is at most `tolerance` times the lowest of Value Flows' at dcfm 0, ½ and 1, in each setting."""
    cases = []
    for setting in evaluation_settings():
        ours = w1_by_seed(results, setting, "pcbf", CHOSEN)
        flows = [w1_by_seed(results, setting, "value_flows", dcfm) for dcfm in theme.VALUE_FLOWS_SHADES]
        measured = Measure(math.nan)
        if ours and all(flows):
            lowest = min(flows, key=lambda seeds: statistics.mean(list(seeds.values())))
            measured = student(paired_differences(ours, {seed: tolerance * value for seed, value in lowest.items()}))
        cases.append(Case(_name(setting), measured, side(measured)))
    return over_cases(cases, f"PCBF's W1 minus {tolerance:g} times the lowest of Value Flows, seed by seed")


def w1_below_along(
    results: Results, *, process: str, first: str, second: str, shares: Sequence[float], exceptions: int = 0
) -> Decision:
    """Whether the first method's W1 is below the second's at equal shares of each one's range of coefficients.

    The number is the ratio of geometric means over seeds, which have to be the same; between grid points the logarithm
    is interpolated.
    """
    w1 = results.w1()
    curves = [seed_means(w1, process, method) for method in (first, second)]
    if not all(places.size and np.isfinite(values).all() for places, values in curves):
        return undecided()
    if curves[0][1].shape[1] != curves[1][1].shape[1]:
        return undecided("the methods have other seeds")
    cases = []
    for share in shares:
        logs = [
            np.array([np.interp(share * places[-1], places, np.log(column)) for column in values.T])
            for places, values in curves
        ]
        log = student(logs[0] - logs[1])
        measured = Measure(*np.exp([log.value, log.low, log.high]))
        ends = [share * float(places[-1]) for places, _ in curves]
        is_same = is_one_algorithm(results, process, (first, ends[0]), (second, ends[1]))
        cases.append(Case(f"{share:g} of the range", measured, FAILS if is_same else side(measured.minus(1.0))))
    return over_cases(cases, f"W1 of {first} over that of {second}", exceptions=exceptions)


def w1_at_or_below_paper(results: Results, *, method: str, coefficient: float | str) -> Decision:
    """Whether our W1 is at or below the paper's in each of the six settings: the largest ratio."""
    return _against_paper(results, method, coefficient, None, 1.0, None)


def w1_near_paper(
    results: Results, *, method: str, coefficient: float | str, tolerance: float, settings: Sequence[str] | None = None
) -> Decision:
    """Whether our W1 lies within a relative tolerance of the paper's in each setting."""
    return _against_paper(results, method, coefficient, 1 - tolerance, 1 + tolerance, settings)


def _against_paper(
    results: Results,
    method: str,
    coefficient: float | str,
    low: float | None,
    high: float,
    settings: Sequence[str] | None,
) -> Decision:
    w1, paper = results.w1(), results.paper_w1()
    cases = []
    for setting in evaluation_settings():
        if settings is not None and _name(setting) not in settings:
            continue
        value = _coefficient(results, setting.process, method, coefficient)
        ours, reported = recorded_w1(w1, setting, method, value), reported_w1(paper, setting, method, value)
        measured = student(ours / reported) if len(ours) else Measure(math.nan)
        cases.append(Case(_name(setting), measured, within(measured, low, high)))
    return over_cases(cases, "our W1 over the paper's")


def paper_w1_within(
    results: Results, *, process: str, method: str, coefficient: float, low: float, high: float
) -> Decision:
    """Whether the paper's own W1 of fig:cdf_comparison, as the mean over states, lies within bounds."""
    paper = results.paper_w1()
    settings = [setting for setting in evaluation_settings() if setting.process == process]
    value = float(np.mean([reported_w1(paper, setting, method, coefficient) for setting in settings]))
    measured = Measure(value, value, value)
    return Decision(within(measured, low, high), measured, "mean over states of the W1 printed in fig:cdf_comparison")


def spread_below_exact(results: Results, *, method: str, coefficient: float | str, exceptions: int = 0) -> Decision:
    """Whether the learned law has a smaller standard deviation than the exact one in each setting."""
    cases = []
    for setting in evaluation_settings():
        levels, learned = learned_quantiles(results, setting, method, coefficient)
        measured = student(learned.std(axis=1) / setting.law.quantile(levels).std())
        cases.append(Case(_name(setting), measured, side(measured.minus(1.0))))
    return over_cases(cases, "learned over exact standard deviation", exceptions=exceptions)


def tail_nearer(
    results: Results,
    *,
    first: tuple[str, float | str],
    second: str,
    coefficients: Sequence[float],
    level: float,
) -> Decision:
    """Whether quantiles above `level` are nearer to the exact ones than the second method's, in each setting.

    The number is the difference of the mean errors in standard deviations of the law, seed by seed.
    """
    cases = []
    for setting in evaluation_settings():
        ours = tail_errors(results, setting, *first, level)
        for coefficient in coefficients:
            theirs = tail_errors(results, setting, second, coefficient, level)
            measured = student(ours - theirs) if len(ours) == len(theirs) else Measure(math.nan)
            cases.append(Case(f"{_name(setting)}, {coefficient:g}", measured, side(measured)))
    return over_cases(cases, f"error of quantiles above {level:g}, {first[0]} minus {second}, in standard deviations")


def tail_errors(results: Results, setting: Setting, method: str, coefficient: float | str, level: float) -> Floats:
    """Mean error of every seed's quantiles above `level`, in standard deviations of the law."""
    levels, learned = learned_quantiles(results, setting, method, coefficient)
    tail = levels >= level
    return np.abs(learned[:, tail] - setting.law.quantile(levels[tail])).mean(axis=1) / setting.law.std


def learned_quantiles(
    results: Results, setting: Setting, method: str, coefficient: float | str
) -> tuple[Floats, Floats]:
    """Levels (L,) and every seed's quantiles (S, L) of the learned law; no seeds without records."""
    record = results.toy(setting.process, method)
    value = _coefficient(results, setting.process, method, coefficient)
    learned = record.quantile_curves(setting.state, value) if record and value is not None else None
    if record is None or learned is None:
        return np.linspace(0.05, 0.95, 10), np.empty((0, 10))
    return record.levels, learned


def residual_smaller(results: Results, *, independent: str) -> Decision:
    """Whether shared noise has the smaller residual at every (t > 0, N) than the `independent` record's ablation."""
    shared, other = results.toy("solitaire", "pcbf"), results.toy("solitaire", independent)
    if not shared or not other or shared.residual is None or other.residual is None:
        return undecided()
    if not np.array_equal(shared.seeds, other.seeds):
        return undecided("the methods have other seeds")
    cases = []
    for row, steps in enumerate(shared.residual.steps):
        for column, time in enumerate(shared.residual.times[row]):
            if np.isfinite(time) and time > 0:
                ours, theirs = shared.residual.shared[:, row, column], other.residual.independent[:, row, column]
                measured = student(ours - theirs)
                cases.append(Case(f"N = {steps}, t = {time:.3g}", measured, side(measured)))
    return over_cases(cases, "residual with shared minus with independent noise")


def residual_gap_is_discretisation(results: Results, *, share: float) -> Decision:
    """Whether the gap of independent to shared noise at t = 1 shrinks to `share` from the fewest to the most steps."""
    record = results.toy("solitaire", "pcbf")
    if record is None or record.residual is None:
        return undecided()
    residual = record.residual
    ends = [int(np.flatnonzero(np.isfinite(times))[-1]) for times in residual.times]
    gaps = [
        residual.independent[:, row, ends[row]] - residual.shared[:, row, ends[row]]
        for row in np.argsort(residual.steps)
    ]
    measured = student(gaps[-1] / gaps[0])
    steps = np.sort(residual.steps)
    return Decision(
        within(measured, None, share), measured, f"gap at N = {steps[-1]} over gap at N = {steps[0]}, t = 1"
    )
