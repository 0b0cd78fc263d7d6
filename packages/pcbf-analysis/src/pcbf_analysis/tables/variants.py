"""What each part of PCBF on the flow path is worth: variants against it, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pcbf_analysis import theme
from pcbf_analysis.results import Results
from pcbf_analysis.tables import calibration, exact
from pcbf_analysis.tables.exact import with_interval
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import better_side, paired_differences
from pcbf_records.calibration import DATASETS
from pcbf_records.exact import MDPS
from pcbf_records.layout import CALIBRATION_RESULTS, EXACT_RESULTS
from pcbf_records.variants import base_method, is_variant

# what is changed, in words; any other variant is told by its name
CHANGES = {
    "pcbf_flow-independent": "independent noises",
    "pcbf_flow-independent0": "independent noises at λ = 0",
    "pcbf_flow-weight0": "λ = 0",
    "pcbf_flow-half": "λ = 0.5",
    "pcbf_flow-linear": "linear path at λ = 0.5",
    "pcbf_flow-mean": "mean targets at λ = 0",
    "pcbf_flow-steps1": "1 flow step",
    "pcbf_flow-steps10": "10 flow steps",
    "pcbf_flow-two": "two critics",
}
# what a variant is held against where that is not its method: the two differ in one thing only
AGAINST = {
    "pcbf_flow-linear": "pcbf_flow-half",
    "pcbf_flow-mean": "pcbf_flow-weight0",
    "pcbf_flow-independent0": "pcbf_flow-weight0",
}

EXACT_INPUTS, CALIBRATION_INPUTS = (EXACT_RESULTS,), (CALIBRATION_RESULTS,)
EXACT_TITLE = "Ablations in exact control"
CALIBRATION_TITLE = "Ablations in calibration"
_COMMON = (
    "A variant of PCBF on the flow path minus what it is held against, which differs in one thing, paired by seed, "
    "with Student's 95 % interval. Mean targets put the mean of the successor's law in its place (on the straight "
    "path, as at λ = 0 of either path). `better` names the side that the interval decides for; among so many rows some "
    "do by chance."
)
EXACT_CAPTION = (
    f"{_COMMON} Exact mean return from the start, W1 of the critic's law there, and CVaR at {exact.TAIL:g} when both "
    "act by it."
)
CALIBRATION_CAPTION = f"{_COMMON} Scores of the laws against held-out returns; less is better in all."

Values = Callable[[str], dict[int, float]]  # from the name of a variant to its value by seed


def _columns(place: str, heading: str) -> tuple[Column, ...]:
    return (
        Column(place, heading, is_number=False),
        Column("measure", "Measure", is_number=False),
        Column("variant", "Variant", is_number=False),
        Column("against", "Against", is_number=False),
        Column("num_seeds", "Seeds", digits=0),
        Column("value", "Value", digits=4),
        Column("difference", "Difference", digits=4),
        Column("low", "from", digits=4),
        Column("high", "to", digits=4),
        Column("better", "Better", is_number=False),
    )


def of_exact(results: Results) -> Table:
    """A row per process, measure and variant."""
    frame, rows = results.exact(), []
    for mdp in MDPS:
        found = set(frame[frame["mdp"] == mdp]["method"])
        for measure, level, sign in exact.MEASURES:

            def values(name: str, place: tuple[Any, ...] = (mdp, level, measure)) -> dict[int, float]:
                return exact.by_seed(results, place[0], name, *place[1:])

            rows += _rows((mdp, measure), found, values, sign)
    return Table(_columns("mdp", "Process"), tuple(rows), is_dense=True)


def of_calibration(results: Results) -> Table:
    """A row per dataset, measure and variant."""
    frame, rows = results.calibration, []
    for dataset in DATASETS:
        found = set(frame[frame["dataset"] == dataset]["method"])
        for measure in calibration.MEASURES:

            def values(name: str, place: tuple[str, str] = (dataset, measure)) -> dict[int, float]:
                return calibration.by_seed(results, place[0], name, place[1])

            rows += _rows((dataset, measure), found, values, -1)
    return Table(_columns("dataset", "Dataset"), tuple(rows), is_dense=True)


def _rows(place: tuple[str, str], found: Iterable[str], values: Values, sign: int) -> Iterator[tuple[Any, ...]]:
    order = list(CHANGES)
    names = sorted(filter(is_variant, found), key=lambda name: (order.index(name) if name in order else 99, name))
    for name in names:
        other = AGAINST.get(name, base_method(name))
        ours, theirs = values(name), values(other)
        differences = paired_differences(ours, theirs)
        if len(differences):
            mean, low, high = with_interval(differences)
            said, against = told(name), told(other)
            value = sum(ours.values()) / len(ours)
            decided = better_side((low, high), sign, said, against)
            yield *place, said, against, len(differences), value, mean, low, high, decided


def told(name: str) -> str:
    """A method or variant in words."""
    return CHANGES.get(name, name) if is_variant(name) else theme.method_label(name)
