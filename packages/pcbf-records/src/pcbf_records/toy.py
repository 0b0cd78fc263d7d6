"""Toy records: what one job on a Markov reward process writes (npz), and the tables collected from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcbf_records.arrays import Floats, check_shapes, read_arrays, read_metadata, write_arrays
from pcbf_records.errors import RecordError
from pcbf_records.files import write_csv
from pcbf_records.layout import TOY_LOSS_STD, TOY_TUNING_W1, TOY_W1, toy_files, toy_run

PAPER_PROCESSES = ("solitaire", "bernoulli", "chain")
PROCESSES = (*PAPER_PROCESSES, "normal", "crossroads")
RESIDUAL_STEPS = (4, 8, 16, 32)  # solver budgets N at which r_corr is recorded
TOY_METHODS = ("pcbf", "pcbf-independent", "value_flows", "pcbf_flow", "flow_iqn", "iqn", "c51")
TUNED_FIRST = ("flow_iqn", "iqn", "c51")  # their grid is of learning rates: reported seeds train at the chosen one only
W1_COLUMNS = ("env", "state", "method", "coefficient", "seed", "w1")
LOSS_STD_COLUMNS = ("env", "method", "coefficient", "seed", "loss_std")

# one letter per axis; equal letters must have equal lengths within one record
SHAPES = {
    "coefficients": "C",
    "seeds": "S",
    "states": "N",
    "levels": "L",
    "quantiles": "CSNL",
    "w1": "CSN",
    "tuning_seeds": "U",
    "tuning_w1": "CUN",
    "loss_history": "CSH",
    "loss_std": "CS",
}
FLOW_SHAPES = {
    "flow_times": "T",
    "flow_paths": "NTP",
    "density_values": "NV",
    "density": "NV",
    "arrow_times": "A",
    "arrow_points": "NZ",
    "arrow_velocity": "NAZ",
}
MODEL_SHAPES = {"flow_coefficient": ""}  # of the model behind flow and residual
RESIDUAL_SHAPES = {
    "residual_steps": "K",
    "residual_times": "KG",
    "residual_shared": "SKG",
    "residual_independent": "SKG",
}


@dataclass(frozen=True, eq=False)
class FlowRecord:
    """The flow of one trained model: particle paths, end density and velocity field, per state."""

    coefficient: float
    times: Floats  # (T+1,)
    paths: Floats  # (N, T+1, P)
    density_values: Floats  # (N, V)
    density: Floats  # (N, V)
    arrow_times: Floats  # (A,)
    arrow_points: Floats  # (N, Z)
    arrow_velocity: Floats  # (N, A, Z)


@dataclass(frozen=True, eq=False)
class ResidualRecord:
    """r_corr(t, N) of eq:rcorr on the grid of each solver budget, nan where a grid has no such point."""

    coefficient: float
    steps: NDArray[np.integer]  # (K,)
    times: Floats  # (K, G)
    shared: Floats  # (S, K, G)
    independent: Floats  # (S, K, G)


@dataclass(frozen=True, eq=False)
class ToyRecord:
    """What one toy job wrote: every coefficient and seed of one method on one process.

    Of a method that is `TUNED_FIRST`, reported seeds have values at the chosen coefficient, and NaN elsewhere.
    """

    process: str
    method: str
    coefficients: Floats  # (C,)
    seeds: NDArray[np.integer]  # (S,)
    states: NDArray[np.integer]  # (N,)
    levels: Floats  # (L,)
    quantiles: Floats  # (C, S, N, L)
    w1: Floats  # (C, S, N)
    tuning_seeds: NDArray[np.integer]  # (U,)
    tuning_w1: Floats  # (C, U, N), of seeds that only choose a coefficient
    loss_history: Floats  # (C, S, H)
    loss_std: Floats  # (C, S)
    metadata: Mapping[str, Any]
    flow: FlowRecord | None
    residual: ResidualRecord | None

    def state_index(self, state: int) -> int | None:
        found = np.flatnonzero(self.states == state)
        return int(found[0]) if found.size else None

    def coefficient_index(self, coefficient: float) -> int | None:
        found = np.flatnonzero(np.isclose(self.coefficients, coefficient, rtol=0, atol=1e-6))
        return int(found[0]) if found.size else None

    def quantile_curves(self, state: int, coefficient: float) -> Floats | None:
        """Quantiles (S, L) of the learned return law, one row per seed; None if they were not recorded."""
        at_state, at_coefficient = self.state_index(state), self.coefficient_index(coefficient)
        if at_state is None or at_coefficient is None:
            return None
        return self.quantiles[at_coefficient, :, at_state]


def num_learners(method: str, num_coefficients: int, num_seeds: int, num_tuning_seeds: int) -> int:
    """How many learners a toy job trains."""
    return (1 if method in TUNED_FIRST else num_coefficients) * num_seeds + num_coefficients * num_tuning_seeds


def save_toy_record(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write the arrays of a toy job, checked as they are when read, with what made them."""
    _check_arrays(path, arrays)
    write_arrays(path, arrays, metadata)


def load_toy_record(path: Path) -> ToyRecord:
    """The toy record at `<process>/<method>.npz`, with every array's shape checked."""
    process, method, arrays = path.parent.name, path.stem, read_arrays(path, _remake(path))
    has_flow, has_residual = _check_arrays(path, arrays)
    flow = residual = None
    if has_flow:
        flow = FlowRecord(
            coefficient=float(arrays["flow_coefficient"]),
            times=arrays["flow_times"],
            paths=arrays["flow_paths"],
            **{name: arrays[name] for name in FLOW_SHAPES if not name.startswith("flow_")},
        )
    if has_residual:
        residual = ResidualRecord(
            coefficient=float(arrays["flow_coefficient"]),
            **{name.removeprefix("residual_"): arrays[name] for name in RESIDUAL_SHAPES},
        )
    plain = {name: arrays[name] for name in SHAPES}
    return ToyRecord(process, method, **plain, metadata=read_metadata(path, arrays), flow=flow, residual=residual)


def _check_arrays(path: Path, arrays: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a record has a flow and residuals; an array that is missing or of a wrong shape raises."""
    sizes: dict[str, int] = {}
    check_shapes(path, arrays, SHAPES, sizes, _remake(path))
    parts = [any(name in arrays for name in shapes) for shapes in (FLOW_SHAPES, RESIDUAL_SHAPES)]
    for is_there, shapes in zip(parts, (FLOW_SHAPES, RESIDUAL_SHAPES), strict=True):
        if is_there:
            check_shapes(path, arrays, MODEL_SHAPES | shapes, sizes, _remake(path))
    return parts[0], parts[1]


def _remake(path: Path) -> str:
    return f"delete it and run the job again (`pcbf-toy run {path.parent.name} {path.stem}`)."


# --- collected ------------------------------------------------------------------------------------------------------


def collect_toys(results: Path) -> None:
    """Write W1 of reported and of tuning seeds, and the loss's spread, from the toy records of a results folder."""
    w1_rows: list[tuple[Any, ...]] = []
    tuning_rows: list[tuple[Any, ...]] = []
    loss_rows: list[tuple[Any, ...]] = []
    records = [load_toy_record(path) for path in toy_files(results)]
    if not records:
        raise RecordError(f"{results} has no {toy_run('*', '*')}; make them with `pcbf-toy run`.")
    for record in records:
        for i, coefficient in enumerate(record.coefficients):
            for j, seed in enumerate(record.seeds):
                if np.isfinite(record.w1[i, j]).all():
                    loss_rows.append((record.process, record.method, coefficient, seed, record.loss_std[i, j]))
        for rows, seeds, w1 in (
            (w1_rows, record.seeds, record.w1),
            (tuning_rows, record.tuning_seeds, record.tuning_w1),
        ):
            for (i, j, k), distance in np.ndenumerate(w1):
                if np.isfinite(distance):
                    place = (record.process, record.states[k], record.method)
                    rows.append((*place, record.coefficients[i], seeds[j], distance))
    write_csv(results / TOY_W1, W1_COLUMNS, w1_rows)
    write_csv(results / TOY_TUNING_W1, W1_COLUMNS, tuning_rows)
    write_csv(results / TOY_LOSS_STD, LOSS_STD_COLUMNS, loss_rows)
