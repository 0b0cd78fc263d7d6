"""The corrected residual r_corr of trained models, read from the toy record of PCBF on Solitaire Dice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pcbf_experiments.theory.formulas import Values
from pcbf_experiments.theory.rows import at_most
from pcbf_records.theory import CheckRow
from pcbf_records.toy import RESIDUAL_STEPS, load_toy_record


def residual_rows(record: Path) -> Iterator[CheckRow]:
    """r_corr with shared against independent noise."""
    steps, times, gap = residual_gaps(record)
    for num_flow_steps in RESIDUAL_STEPS:
        index = steps.index(num_flow_steps)
        later = times[index] > 0  # at t = 0 both are known; nan pads the shorter grids
        yield at_most(
            f"rcorr-n{num_flow_steps:02d}",
            f"Shared noise has the smaller r_corr(t, N) at N = {num_flow_steps} (Solitaire Dice): largest mean over "
            "seeds of shared - independent, t > 0",
            "eq:rcorr",
            gap[index][later].max(),
            0.0,
        )


def residual_gaps(record: Path) -> tuple[list[int], Values, Any]:
    """Numbers of flow steps N, the flow times of each, and r_corr shared - independent there, mean over seeds."""
    command = f"pcbf-toy run solitaire pcbf --settings JSON --output {record}"
    if not record.is_file():
        raise FileNotFoundError(f"{record} is missing; the residual r_corr is read from it. Make it with `{command}`.")
    residual = load_toy_record(record).residual
    if residual is None:
        raise ValueError(f"{record} has no residuals; make it anew with `{command}`.")
    steps = residual.steps.tolist()
    for num_flow_steps in RESIDUAL_STEPS:
        if num_flow_steps not in steps:
            raise ValueError(
                f"{record} has residual_steps {steps}, without {num_flow_steps}; make it anew with `{command}`."
            )
    return steps, np.asarray(residual.times, np.float64), (residual.shared - residual.independent).mean(axis=0)
