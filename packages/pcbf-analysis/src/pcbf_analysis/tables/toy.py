"""The W1 tables of the Markov reward processes."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from pcbf_analysis import theme
from pcbf_analysis.results import Results, Setting, chosen_coefficient, evaluation_settings, recorded_w1, reported_w1
from pcbf_analysis.tables.form import Column, Table
from pcbf_records.toy import PAPER_PROCESSES

TOY_W1_CAPTION = (
    "W1 distance between the learned and the exact return law: mean and sample standard deviation over seeds. Value "
    "Flows at the paper's three dcfm weights; PCBF at the λ with the lowest mean W1 over other seeds, kept for "
    "tuning, and evaluation states, one per process, and the ablation with independent noise at its own; PCBF on the "
    "flow path at λ = 1, which is not chosen. The paper's values are those of fig:cdf_comparison, where PCBF's λ and "
    "the number of seeds are not stated and W1 is taken between samples. Ratio is ours over the paper's."
)
TOY_W1_SWEEP_CAPTION = (
    "W1 distance between the learned and the exact return law at every recorded coefficient: mean and sample standard "
    "deviation over seeds. The paper's values stand where the coefficient is the paper's; PCBF's λ is not stated "
    "there, so its value stands beside every λ."
)
W1_COLUMNS = (
    Column("env", "Process", is_number=False),
    Column("state", "State", digits=0),
    Column("method", "Method", is_number=False),
    Column("coefficient", "Coefficient"),
    Column("mean", "W1, mean", digits=3),
    Column("std", "± std", digits=3),
    Column("num_seeds", "Seeds", digits=0),
    Column("paper", "Paper", digits=3),
    Column("ratio", "Ratio", digits=2),
    Column("at_or_below", "At or below", is_number=False),
)


def toy_w1(results: Results) -> Table:
    """The comparison with the paper: six rows for each of the six settings of fig:cdf_comparison."""
    w1, paper = results.w1(), results.paper_w1()
    chosen = {
        (process, method): chosen_coefficient(results, process, method)
        for process in PAPER_PROCESSES
        for method in ("pcbf", "pcbf-independent")
    }
    rows = []
    for setting in evaluation_settings():
        cells: list[tuple[str, float | None]] = [
            (method, chosen[setting.process, method]) for method in ("pcbf", "pcbf-independent")
        ]
        cells.insert(1, ("pcbf_flow", 1.0))
        cells += [("value_flows", dcfm) for dcfm in theme.VALUE_FLOWS_SHADES]
        rows += [w1_row(setting, method, coefficient, w1, paper) for method, coefficient in cells]
    return Table(W1_COLUMNS, tuple(rows))


def toy_w1_sweep(results: Results) -> Table:
    """Every recorded coefficient of every method in the six settings."""
    w1, paper = results.w1(), results.paper_w1()
    rows = []
    for setting in evaluation_settings():
        here = w1[(w1["env"] == setting.process) & (w1["state"] == setting.state)]
        for method in ("pcbf", "pcbf_flow", "pcbf-independent", "value_flows"):
            coefficients = sorted({float(value) for value in here.loc[here["method"] == method, "coefficient"]})
            rows += [w1_row(setting, method, value, w1, paper) for value in coefficients or [None]]
    return Table(W1_COLUMNS, tuple(rows))


def w1_row(
    setting: Setting, method: str, coefficient: float | None, w1: pd.DataFrame, paper: pd.DataFrame
) -> tuple[Any, ...]:
    """One row of a W1 table; without records the mean is missing and the number of seeds is 0."""
    seeds = recorded_w1(w1, setting, method, coefficient)
    mean = float(seeds.mean()) if len(seeds) else math.nan
    std = float(seeds.std(ddof=1)) if len(seeds) > 1 else math.nan
    reported = reported_w1(paper, setting, method, coefficient)
    both = len(seeds) > 0 and math.isfinite(reported)
    return (
        setting.process,
        setting.state,
        method,
        math.nan if coefficient is None else coefficient,
        mean,
        std,
        len(seeds),
        reported,
        mean / reported if both else math.nan,
        bool(mean <= reported) if both else None,
    )
