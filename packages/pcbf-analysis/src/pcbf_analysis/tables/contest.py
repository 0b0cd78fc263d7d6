"""The toys as a contest: how far each method's law is from the exact one, and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from pcbf_analysis import statistics
from pcbf_analysis.results import Results, chosen_coefficient, exact_law
from pcbf_analysis.tables.form import Column, Table
from pcbf_core.mrp import MRPS
from pcbf_records.arrays import Floats
from pcbf_records.layout import TOY_TUNING_W1, TOY_W1, toy_run
from pcbf_records.toy import PROCESSES, TOY_METHODS, ToyRecord

OURS = ("pcbf_flow", 1.0)  # the method that has nothing to tune
INPUTS = (TOY_W1, TOY_TUNING_W1, *(toy_run(process, method) for process in PROCESSES for method in TOY_METHODS))

Measure = Callable[[Floats, Floats], Floats]  # of learned (seeds, levels) and exact (levels,) quantiles


def _tail(quantiles: Floats) -> Floats:
    """CVaR at 0.1 from even quantiles: the mean of the lowest tenth."""
    return quantiles[..., : max(round(0.1 * quantiles.shape[-1]), 1)].mean(axis=-1)


def _top(quantiles: Floats) -> Floats:
    return quantiles[..., -max(round(0.1 * quantiles.shape[-1]), 1) :]


MEASURES: dict[str, tuple[str, Measure]] = {
    "mean": ("|mean|", lambda learned, exact: np.abs(learned.mean(axis=-1) - exact.mean())),
    "std": ("|std|", lambda learned, exact: np.abs(learned.std(axis=-1) - exact.std())),
    "cvar": ("|CVaR 0.1|", lambda learned, exact: np.abs(_tail(learned) - _tail(exact))),
    "high": ("quantiles > 0.9", lambda learned, exact: np.abs(_top(learned) - _top(exact)).mean(axis=-1)),
}


def entry(results: Results, process: str, method: str) -> tuple[ToyRecord, int] | None:
    """A method's record and the index of its coefficient: ours is fixed, all others choose theirs on tuning seeds."""
    record = results.toy(process, method)
    chosen = OURS[1] if method == OURS[0] else chosen_coefficient(results, process, method)
    if record is None or chosen is None:
        return None
    index = record.coefficient_index(chosen)
    return None if index is None else (record, index)


def relative_w1(record: ToyRecord, index: int) -> Floats:
    """W1 of every seed in units of the law's standard deviation, mean over the live states."""
    return _over_states(record, lambda place, law: record.w1[index, :, place] / law.std)


def error(record: ToyRecord, index: int, measure: Measure) -> Floats:
    """An error of every seed in units of the law's standard deviation, from as many quantiles of either law."""

    levels = tuple(record.levels.tolist())

    def of_state(place: int, law: Any) -> Floats:
        return measure(record.quantiles[index, :, place], _quantiles(law, levels)) / law.std

    return _over_states(record, of_state)


@lru_cache(maxsize=128)
def _quantiles(law: Any, levels: tuple[float, ...]) -> Floats:
    """The quantiles of a law; those of a mixture are searched, and every method asks for them."""
    return law.quantile(np.array(levels))


def _over_states(record: ToyRecord, of_state: Callable[[int, Any], Floats]) -> Floats:
    process = MRPS[record.process]
    places = [(record.state_index(state), exact_law(record.process, state)) for state in process.live_states]
    return np.mean([of_state(place, law) for place, law in places if place is not None], axis=0)


# --- how far from the exact law ------------------------------------------------------------------------------------

CONTEST_TITLE = "How far each method's return law is from the exact one"
CONTEST_CAPTION = (
    "Errors of the learned law in units of the exact law's standard deviation, mean over live states and seeds: W1 "
    "with Student's 95 % interval over seeds, then the size of the error of mean, standard deviation, CVaR at 0.1 and "
    "of the quantiles above 0.9. PCBF on the flow path has λ = 1 everywhere; every other method has the coefficient "
    "with the lowest W1 on tuning seeds, which are not reported; `tried` says among how many. All share network, "
    "learning rate schedule, steps, batches and target rate."
)
CONTEST_COLUMNS = (
    Column("env", "Process", is_number=False),
    Column("method", "Method", is_number=False),
    Column("coefficient", "Coefficient"),
    Column("tried", "Tried", digits=0),
    Column("num_seeds", "Seeds", digits=0),
    Column("w1", "W1 / std", digits=4),
    Column("low", "from", digits=4),
    Column("high_w1", "to", digits=4),
    *(Column(name, heading, digits=4) for name, (heading, _) in MEASURES.items()),
)


def contest(results: Results) -> Table:
    """A row per process and method, best W1 first."""
    rows: list[tuple[Any, ...]] = []
    for process in PROCESSES:
        found = [(method, entry(results, process, method)) for method in TOY_METHODS]
        rows += sorted((_contest_row(process, method, *pair) for method, pair in found if pair), key=lambda row: row[5])
    return Table(CONTEST_COLUMNS, tuple(rows), is_dense=True)


def _contest_row(process: str, method: str, record: ToyRecord, index: int) -> tuple[Any, ...]:
    seeds = relative_w1(record, index)
    tried = 1 if method == OURS[0] else len(record.coefficients)
    errors = [float(error(record, index, measure).mean()) for _, measure in MEASURES.values()]
    place = process, method, float(record.coefficients[index]), tried, len(seeds)
    return *place, float(seeds.mean()), *statistics.student_interval(seeds), *errors


# --- paired differences ---------------------------------------------------------------------------------------------

PAIRED_TITLE = "PCBF on the flow path against each method, seed by seed"
PAIRED_CAPTION = (
    "W1 of PCBF on the flow path at λ = 1 minus that of the other method at its own coefficient (chosen on tuning "
    "seeds), in the units of the return, mean over live states and over the reported seeds, paired, with Student's 95 "
    "% interval. Below zero the flow path is nearer to the exact law; `decides` says whether the interval excludes "
    "zero."
)
PAIRED_COLUMNS = (
    Column("env", "Process", is_number=False),
    Column("method", "Against", is_number=False),
    Column("coefficient", "Its coefficient"),
    Column("num_seeds", "Seeds", digits=0),
    Column("difference", "Difference", digits=4),
    Column("low", "from", digits=4),
    Column("high", "to", digits=4),
    Column("decides", "Decides", is_number=False),
)


def paired(results: Results) -> Table:
    """A row per process and other method."""
    return Table(PAIRED_COLUMNS, tuple(_paired_rows(results)))


def _paired_rows(results: Results) -> Iterator[tuple[Any, ...]]:
    for process in PROCESSES:
        ours = entry(results, process, OURS[0])
        for method in TOY_METHODS:
            theirs = entry(results, process, method)
            if method == OURS[0] or ours is None or theirs is None:
                continue
            seeds = np.intersect1d(ours[0].seeds, theirs[0].seeds)
            first, second = (
                record.w1[index].mean(axis=-1)[np.searchsorted(record.seeds, seeds)] for record, index in (ours, theirs)
            )
            low, high = statistics.student_interval(first - second)
            decided = "flow path" if high < 0 else theirs[0].method if low > 0 else "no"
            difference = float((first - second).mean()) if len(seeds) else math.nan
            coefficient = float(theirs[0].coefficients[theirs[1]])
            yield process, method, coefficient, len(seeds), difference, low, high, decided
