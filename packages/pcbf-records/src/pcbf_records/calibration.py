"""Records of calibration: what one critic on one dataset leaves (npz), and the table collected from all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcbf_records.arrays import Floats, load_arrays, save_arrays
from pcbf_records.errors import RecordError
from pcbf_records.files import write_csv
from pcbf_records.layout import CALIBRATION_RESULTS, calibration_files, calibration_run

DATASETS = ("cube", "teleport", "hopper")
CUBE_TASK = "cube-single-play-singletask-task1-v0"  # whose rewards the dataset cube has
MONTE_CARLO, MARGINAL = "monte_carlo", "marginal"  # what the critics are beside: learning from outcomes, not learning
CALIBRATED = ("pcbf_flow", "pcbf", "value_flows", "iqn", "codac", "c51", "gaussian", MONTE_CARLO, MARGINAL)
COVERAGES = (0.5, 0.8, 0.9)  # masses of the central intervals
TAIL = 0.1  # level of the quantile whose pinball loss is told
NUM_BINS = 20  # of a PIT histogram
RESULT_COLUMNS = ("dataset", "method", "seed", "measure", "value")
MEASURES = ("crps", "pit_error", "bias", "rmse", "pinball")

# one letter per axis; equal letters must have equal lengths within one record
SHAPES = {
    "seeds": "S",
    "num_states": "O",
    **dict.fromkeys(MEASURES, "S"),
    "coverage_levels": "C",
    "coverage": "SC",
    "pit": "SB",
}


@dataclass(frozen=True, eq=False)
class CalibrationRecord:
    """One critic on one dataset, all seeds; returns in standard deviations of the training returns.

    Attributes:
      num_states: held-out states that judged.
      crps, pit_error, bias, rmse, pinball: means over those states, see `pcbf_experiments.scoring`.
      coverage: share of returns inside the central intervals of mass `coverage_levels`.
      pit: histogram of the randomised PIT over even parts of [0, 1].
    """

    dataset: str
    method: str
    seeds: NDArray[np.integer]  # (S,)
    num_states: NDArray[np.integer]  # (1,)
    crps: Floats  # (S,)
    pit_error: Floats  # (S,)
    bias: Floats  # (S,)
    rmse: Floats  # (S,)
    pinball: Floats  # (S,)
    coverage_levels: Floats  # (C,)
    coverage: Floats  # (S, C)
    pit: Floats  # (S, bins)
    metadata: Mapping[str, Any]


def save_calibration_record(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write the arrays of a job, checked as they are when read, with what made them."""
    save_arrays(path, arrays, SHAPES, metadata, _remake(path))


def load_calibration_record(path: Path) -> CalibrationRecord:
    """The record at `<dataset>/<method>.npz`, with every array's shape checked."""
    return CalibrationRecord(path.parent.name, path.stem, **load_arrays(path, SHAPES, _remake(path)))


def _remake(path: Path) -> str:
    return f"delete it and run the job again (`pcbf-calibrate run {path.parent.name} {path.stem}`)."


def coverage_name(share: float) -> str:
    """How the table calls the coverage of the central interval of mass `share`."""
    return f"coverage_{share:g}"


def collect_calibration(results: Path) -> None:
    """Write the measures of all records of a folder as one tidy table."""
    records = [load_calibration_record(path) for path in calibration_files(results)]
    if not records:
        raise RecordError(f"{results} has no {calibration_run('*', '*')}; make them with `pcbf-calibrate run`.")
    rows: list[tuple[Any, ...]] = []
    for record in records:
        for i, seed in enumerate(record.seeds):
            place = record.dataset, record.method, seed
            rows += [(*place, name, float(getattr(record, name)[i])) for name in MEASURES]
            covered = zip(record.coverage_levels, record.coverage[i], strict=True)
            rows += [(*place, coverage_name(float(share)), float(value)) for share, value in covered]
    write_csv(results / CALIBRATION_RESULTS, RESULT_COLUMNS, rows)
