"""Records of exact control: what one method on one decision process leaves (npz), and the tables collected from all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcbf_records.arrays import Floats, load_arrays, save_arrays
from pcbf_records.errors import RecordError
from pcbf_records.files import write_csv
from pcbf_records.layout import EXACT_OPTIMA, EXACT_RESULTS, exact_files, exact_run

MDPS = ("cliff", "gamble")
RESULT_COLUMNS = ("mdp", "method", "seed", "risk_level", "measure", "value")
OPTIMUM_COLUMNS = ("mdp", "policy", "risk_level", "measure", "value")
MEAN = 1.0  # the risk level of acting by the mean

# one letter per axis; equal letters must have equal lengths within one record
SHAPES = {
    "seeds": "S",
    "risk_levels": "A",
    "policies": "ASNM",
    "cvar_levels": "C",
    "cvar": "ASC",
    "w1": "SN",
}


@dataclass(frozen=True, eq=False)
class ExactRecord:
    """One method on one decision process, all seeds, acting by its mean and by CVaR where it can.

    Attributes:
      risk_levels: α of the policies; 1 is the mean and stands first.
      policies: probability of each move in each state.
      cvar: exact CVaR of the return from the start under each policy, at `cvar_levels`; at level 1 it is the mean.
      w1: from the critic's law at each state to the exact one of its own policy; nan without a law.
    """

    mdp: str
    method: str
    seeds: NDArray[np.integer]  # (S,)
    risk_levels: Floats  # (A,)
    policies: Floats  # (A, S, states, moves)
    cvar_levels: Floats  # (C,)
    cvar: Floats  # (A, S, C)
    w1: Floats  # (S, states)
    metadata: Mapping[str, Any]


def save_exact_record(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write the arrays of a job, checked as they are when read, with what made them."""
    save_arrays(path, arrays, SHAPES, metadata, _remake(path))


def load_exact_record(path: Path) -> ExactRecord:
    """The record at `<mdp>/<method>.npz`, with every array's shape checked."""
    return ExactRecord(path.parent.name, path.stem, **load_arrays(path, SHAPES, _remake(path)))


def _remake(path: Path) -> str:
    return f"delete it and run the job again (`pcbf-exact run {path.parent.name} {path.stem}`)."


# --- collected ------------------------------------------------------------------------------------------------------


def collect_exact(results: Path, starts: Mapping[str, int], optima: Sequence[tuple[Any, ...]]) -> None:
    """Write the results of all records of a folder as one tidy table, and beside it what no policy can exceed.

    Args:
      starts: the state of each process from which the law of a critic is judged.
      optima: rows of `OPTIMUM_COLUMNS`.
    """
    records = [load_exact_record(path) for path in exact_files(results)]
    if not records:
        raise RecordError(f"{results} has no {exact_run('*', '*')}; make them with `pcbf-exact run`.")
    rows: list[tuple[Any, ...]] = []
    for record in records:
        for (i, j, k), value in np.ndenumerate(record.cvar):
            place = record.mdp, record.method, record.seeds[j], float(record.risk_levels[i])
            rows.append((*place, measure_name(float(record.cvar_levels[k])), float(value)))
        for j, distances in enumerate(record.w1):
            if np.isfinite(distances).all():
                value = float(distances[starts[record.mdp]])
                rows.append((record.mdp, record.method, record.seeds[j], MEAN, "w1", value))
    write_csv(results / EXACT_RESULTS, RESULT_COLUMNS, rows)
    write_csv(results / EXACT_OPTIMA, OPTIMUM_COLUMNS, optima)


def measure_name(level: float) -> str:
    """How tables call CVaR at a level: `mean` at 1, else `cvar_<level>`."""
    return "mean" if level == MEAN else f"cvar_{level:g}"
