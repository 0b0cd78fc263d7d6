"""Exact control as tables: regret, the critic's law, what acting by CVaR buys, and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pcbf_analysis import statistics, theme
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import better_side, paired_differences
from pcbf_records.arrays import Floats
from pcbf_records.exact import MDPS, MEAN, measure_name
from pcbf_records.layout import EXACT_OPTIMA, EXACT_RESULTS
from pcbf_records.variants import is_variant

OURS = "pcbf_flow"
TAIL = 0.1  # α of the tail in the main table
INPUTS = (EXACT_RESULTS, EXACT_OPTIMA)
OPTIMUM, EXACT_CRITIC = "optimum", "exact critic"


def by_seed(results: Results, mdp: str, method: str, risk_level: float, measure: str) -> dict[int, float]:
    """A measure of every seed of a method that acts at a risk level; empty where there is none."""
    rows = results.exact_cells.get((mdp, method, measure), [])
    return {int(seed): float(value) for level, seed, value in rows if _is_close(level, risk_level)}


def _is_close(level: float, wanted: float) -> bool:
    return math.isclose(float(level), wanted, rel_tol=1e-5, abs_tol=1e-8)


def optimum(results: Results, mdp: str, risk_level: float, measure: str, policy: str = OPTIMUM) -> float:
    """A measure of the policy that is best at a risk level, or of a perfect critic; nan where it was not recorded."""
    frame = results.exact_optima()
    place = (frame["mdp"] == mdp) & (frame["measure"] == measure) & (frame["policy"] == policy)
    found = frame[place & np.isclose(frame["risk_level"].astype(float), risk_level)]
    return float(np.asarray(found["value"])[0]) if len(found) else math.nan


def methods_of(results: Results, mdp: str) -> list[str]:
    """The methods with records on a process, in the order of all tables; variants have a table of their own."""
    frame = results.exact()
    return theme.in_order(name for name in set(frame[frame["mdp"] == mdp]["method"]) if not is_variant(name))


def risk_levels_of(results: Results, mdp: str) -> list[float]:
    """The levels at which optima were searched, without the mean's."""
    frame = results.exact_optima()
    found = {float(level) for level in frame[frame["mdp"] == mdp]["risk_level"]}
    return sorted(level for level in found if level != MEAN)


def with_interval(values: Floats) -> tuple[float, float, float]:
    """Mean and Student's interval over seeds; all nan without values."""
    if not len(values):
        return math.nan, math.nan, math.nan
    low, high = statistics.student_interval(values)
    return float(values.mean()), low, high


# --- one row per method ---------------------------------------------------------------------------------------------

CONTROL_TITLE = "Exact control: which critics have the right law, which act best, what acting by CVaR buys"
CONTROL_CAPTION = (
    "Small decision processes, where the law of the return of any policy is exact. Means over seeds with "
    "Student's 95 % interval: the regret of the learned policy in mean return; W1 from the critic's law at the "
    f"start to the exact law of its own policy; the exact CVaR at {TAIL:g} when it acts by the mean, and how much "
    f"acting by CVaR at {TAIL:g} with the same critic adds to it, paired by seed. The optimum adds what the best "
    "policy with memory adds, the exact critic what acting by CVaR adds if the law of the best mean policy is "
    "known exactly. Methods without a law act by their value alone; CODAC has a law and acts by its actor."
)
CONTROL_COLUMNS = (
    Column("mdp", "Process", is_number=False),
    Column("method", "Method", is_number=False),
    Column("num_seeds", "Seeds", digits=0),
    Column("regret", "Regret", digits=3),
    Column("regret_low", "from", digits=3),
    Column("regret_high", "to", digits=3),
    Column("w1", "W1", digits=3),
    Column("w1_low", "from", digits=3),
    Column("w1_high", "to", digits=3),
    Column("cvar", f"CVaR {TAIL:g}", digits=3),
    Column("gain", "CVaR acting adds", digits=3),
    Column("gain_low", "from", digits=3),
    Column("gain_high", "to", digits=3),
)


def control(results: Results) -> Table:
    """A row per process and method, least regret first, the optimum before all."""
    rows: list[tuple[Any, ...]] = []
    for mdp in MDPS:
        found = [_control_row(results, mdp, method) for method in methods_of(results, mdp)]
        rows += [*_best_rows(results, mdp), *sorted(found, key=lambda row: row[3])]
    return Table(CONTROL_COLUMNS, tuple(rows), is_dense=True)


def _best_rows(results: Results, mdp: str) -> Iterator[tuple[Any, ...]]:
    tail, none = optimum(results, mdp, MEAN, measure_name(TAIL)), (math.nan, math.nan)
    for policy in (OPTIMUM, EXACT_CRITIC):
        gain = optimum(results, mdp, TAIL, measure_name(TAIL), policy) - tail
        if math.isfinite(gain):
            w1 = 0.0 if policy == EXACT_CRITIC else math.nan
            yield mdp, policy, None, 0.0, *none, w1, *none, tail, gain, *none


def _control_row(results: Results, mdp: str, method: str) -> tuple[Any, ...]:
    mean, w1 = (by_seed(results, mdp, method, MEAN, name) for name in ("mean", "w1"))
    tail, risky = (by_seed(results, mdp, method, level, measure_name(TAIL)) for level in (MEAN, TAIL))
    regret = optimum(results, mdp, MEAN, "mean") - np.array(list(mean.values()))
    parts = with_interval(regret), with_interval(np.array(list(w1.values())))
    low, high = (cell for part in parts for cell in part), with_interval(paired_differences(risky, tail))
    return mdp, method, len(mean), *low, float(np.mean(list(tail.values()))) if tail else math.nan, *high


# --- one row per level ----------------------------------------------------------------------------------------------

RISK_TITLE = "Acting by CVaR with a critic trained for the mean"
RISK_CAPTION = (
    "For each α: exact mean and exact CVaR at α of the policy that acts by the critic's CVaR at α, with Student's 95 % "
    "interval over seeds, beside those of the policy with the best CVaR at α among all policies with memory, and of "
    "acting by CVaR with the exact law of the policy of highest mean; `adds` is the CVaR at α less that of the same "
    "critic acting by the mean, paired by seed."
)
RISK_COLUMNS = (
    Column("mdp", "Process", is_number=False),
    Column("risk_level", "α"),
    Column("method", "Method", is_number=False),
    Column("num_seeds", "Seeds", digits=0),
    Column("mean", "Mean", digits=3),
    Column("mean_low", "from", digits=3),
    Column("mean_high", "to", digits=3),
    Column("cvar", "CVaR at α", digits=3),
    Column("cvar_low", "from", digits=3),
    Column("cvar_high", "to", digits=3),
    Column("gain", "adds", digits=3),
    Column("gain_low", "from", digits=3),
    Column("gain_high", "to", digits=3),
)


def risk(results: Results) -> Table:
    """A row per process, level and method that acts by CVaR, highest CVaR first, the optimum before all."""
    rows: list[tuple[Any, ...]] = []
    for mdp in MDPS:
        for level in risk_levels_of(results, mdp):
            rows += [_best_at(results, mdp, level, policy) for policy in (OPTIMUM, EXACT_CRITIC)]
            found = [_risk_row(results, mdp, level, method) for method in methods_of(results, mdp)]
            rows += sorted((row for row in found if row[3]), key=lambda row: -row[7])
    return Table(RISK_COLUMNS, tuple(rows), is_dense=True)


def _best_at(results: Results, mdp: str, level: float, policy: str) -> tuple[Any, ...]:
    mean, tail = (optimum(results, mdp, level, name, policy) for name in ("mean", measure_name(level)))
    gain, none = tail - optimum(results, mdp, MEAN, measure_name(level)), (math.nan, math.nan)
    return mdp, level, policy, None, mean, *none, tail, *none, gain, *none


def _risk_row(results: Results, mdp: str, level: float, method: str) -> tuple[Any, ...]:
    name = measure_name(level)
    mean, tail = (by_seed(results, mdp, method, level, measure) for measure in ("mean", name))
    gain = paired_differences(tail, by_seed(results, mdp, method, MEAN, name))
    cells = [cell for values in (mean, tail) for cell in with_interval(np.array(list(values.values())))]
    return mdp, level, method, len(mean), *cells, *with_interval(gain)


# --- paired differences ---------------------------------------------------------------------------------------------

PAIRED_TITLE = "PCBF on the flow path against each method in exact control, seed by seed"
PAIRED_CAPTION = (
    "Value of PCBF on the flow path minus that of the other method, paired by seed, with Student's 95 % interval: mean "
    f"return, W1 of the critic's law at the start, and CVaR at {TAIL:g} when both act by it. `better` names the side "
    "that the interval decides for: higher returns and lower W1 are better."
)
PAIRED_COLUMNS = (
    Column("mdp", "Process", is_number=False),
    Column("measure", "Measure", is_number=False),
    Column("method", "Against", is_number=False),
    Column("num_seeds", "Seeds", digits=0),
    Column("difference", "Difference", digits=3),
    Column("low", "from", digits=3),
    Column("high", "to", digits=3),
    Column("better", "Better", is_number=False),
)
MEASURES = (("mean", MEAN, 1), ("w1", MEAN, -1), (measure_name(TAIL), TAIL, 1))  # name, risk level, sign of better


def paired(results: Results) -> Table:
    """A row per process, measure and other method that has it."""
    return Table(PAIRED_COLUMNS, tuple(_paired_rows(results)))


def _paired_rows(results: Results) -> Iterator[tuple[Any, ...]]:
    for mdp in MDPS:
        for measure, level, sign in MEASURES:
            ours = by_seed(results, mdp, OURS, level, measure)
            for method in methods_of(results, mdp):
                found = paired_differences(ours, by_seed(results, mdp, method, level, measure))
                if method == OURS or not len(found):
                    continue
                mean, low, high = with_interval(found)
                decided = better_side((low, high), sign, "flow path", theme.method_label(method))
                yield mdp, measure, method, len(found), mean, low, high, decided
