"""Calibration as tables: scores of every critic's law against held-out returns, and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pcbf_analysis import theme
from pcbf_analysis.results import Results
from pcbf_analysis.tables.exact import OURS, with_interval
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import better_side, paired_differences
from pcbf_records.calibration import COVERAGES, DATASETS, MARGINAL, MONTE_CARLO, coverage_name
from pcbf_records.layout import CALIBRATION_RESULTS
from pcbf_records.variants import is_variant

INPUTS = (CALIBRATION_RESULTS,)
REFERENCES = (MARGINAL, MONTE_CARLO)  # what the critics are beside, in this order before them
TITLE = "Calibration: is the learned law the law of returns?"
CAPTION = (
    "Critics evaluate the behaviour that made the data; their laws are held against the returns-to-go of episodes "
    "that were left out. In standard deviations of the training returns, means over seeds with Student's 95 % "
    "interval; lower is better but for coverage. CRPS scores a law as a whole. PIT error is W1 from the law of "
    "F(return) to the uniform one, 0 for a calibrated law. Coverage is how often a return lies in the central interval "
    "of that mass. Bias is the mean of the law minus the return, RMSE its distance, which no law brings to zero; "
    "pinball is the loss of the quantile at 0.1. Marginal is the law of all training returns whatever the state; Monte "
    "Carlo is the network of PCBF trained on returns-to-go, without bootstrapping."
)
COLUMNS = (
    Column("dataset", "Dataset", is_number=False),
    Column("method", "Method", is_number=False),
    Column("num_seeds", "Seeds", digits=0),
    Column("crps", "CRPS", digits=3),
    Column("crps_low", "from", digits=3),
    Column("crps_high", "to", digits=3),
    Column("pit_error", "PIT error", digits=3),
    Column("pit_error_low", "from", digits=3),
    Column("pit_error_high", "to", digits=3),
    *(Column(coverage_name(share), f"in {share:.0%}", digits=2) for share in COVERAGES),
    Column("bias", "Bias", digits=3),
    Column("rmse", "RMSE", digits=3),
    Column("pinball", "Pinball 0.1", digits=3),
)


def by_seed(results: Results, dataset: str, method: str, measure: str) -> dict[int, float]:
    """A measure of every seed of a method; empty where there is none."""
    rows = results.calibration_cells.get((dataset, method, measure), [])
    return {int(seed): float(value) for seed, value in rows}


def methods_of(results: Results, dataset: str) -> list[str]:
    """The methods with records on a dataset, references first; variants have a table of their own."""
    frame = results.calibration
    found = {name for name in frame[frame["dataset"] == dataset]["method"] if not is_variant(name)}
    return [*(name for name in REFERENCES if name in found), *theme.in_order(found - {*REFERENCES})]


def compute(results: Results) -> Table:
    """A row per dataset and method, least CRPS first, the references before all."""
    rows: list[tuple[Any, ...]] = []
    for dataset in DATASETS:
        found = [_row(results, dataset, method) for method in methods_of(results, dataset)]
        rows += sorted(found, key=lambda row: (row[1] not in REFERENCES, row[3]))
    return Table(COLUMNS, tuple(rows), is_dense=True)


def _row(results: Results, dataset: str, method: str) -> tuple[Any, ...]:
    def values(measure: str) -> np.ndarray:
        return np.array(list(by_seed(results, dataset, method, measure).values()))

    crps = values("crps")
    plain = [values(name) for name in (*map(coverage_name, COVERAGES), "bias", "rmse", "pinball")]
    means = [float(each.mean()) if len(each) else math.nan for each in plain]
    return dataset, method, len(crps), *with_interval(crps), *with_interval(values("pit_error")), *means


# --- paired differences ---------------------------------------------------------------------------------------------

PAIRED_TITLE = "PCBF on the flow path against each critic in calibration, seed by seed"
PAIRED_CAPTION = (
    "Value of PCBF on the flow path minus that of the other critic, paired by seed, with Student's 95 % interval, in "
    "standard deviations of the training returns. `better` names the side that the interval decides for: less is "
    "better in all measures. The seeds share data, split and states: intervals are those of learning, given the data."
)
PAIRED_COLUMNS = (
    Column("dataset", "Dataset", is_number=False),
    Column("measure", "Measure", is_number=False),
    Column("method", "Against", is_number=False),
    Column("num_seeds", "Seeds", digits=0),
    Column("difference", "Difference", digits=4),
    Column("low", "from", digits=4),
    Column("high", "to", digits=4),
    Column("better", "Better", is_number=False),
)
MEASURES = ("crps", "pit_error", "rmse", "pinball")  # of all of which less is better


def paired(results: Results) -> Table:
    """A row per dataset, measure and other method."""
    return Table(PAIRED_COLUMNS, tuple(_paired_rows(results)))


def _paired_rows(results: Results) -> Iterator[tuple[Any, ...]]:
    for dataset in DATASETS:
        for measure in MEASURES:
            ours = by_seed(results, dataset, OURS, measure)
            for method in methods_of(results, dataset):
                found = paired_differences(ours, by_seed(results, dataset, method, measure))
                if method == OURS or not len(found):
                    continue
                mean, low, high = with_interval(found)
                decided = better_side((low, high), -1, "flow path", theme.method_label(method))
                yield dataset, measure, method, len(found), mean, low, high, decided
