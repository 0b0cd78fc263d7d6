"""What the λ explorer needs: exact and learned laws of every process at every recorded λ, small enough for the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from scipy.special import ndtri

from pcbf_analysis import statistics, theme
from pcbf_analysis.figures.common import common_cells, exact_cdf, thinned
from pcbf_analysis.results import Results, exact_law
from pcbf_core.mrp import MRPS, DiscreteLaw, ReturnLaw
from pcbf_records.arrays import Floats
from pcbf_records.toy import PROCESSES, ToyRecord

PATHS = {"linear": "pcbf", "flow": "pcbf_flow"}
NUM_LEVELS = 64  # of the quantile curves; more are not seen
NUM_CELLS = 26
NUM_STEPS = 50  # of the loss curves
EDGE = 0.06  # of the law's width, beside it
ATOMS_PER_CELL = {"chain": 2}  # its parity makes single atoms alternate


def explorer(results: Results) -> dict[str, Any] | None:
    """The data of all processes that have records on both paths; None without any."""
    views = [view for process in PROCESSES if (view := process_view(results, process)) is not None]
    return {"noise": numbers(ndtri((np.arange(24) + 0.5) / 24)), "processes": views} if views else None


def as_script(data: dict[str, Any]) -> Markup:
    """The data as JSON that can stand in a page."""
    return Markup(json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"))


def process_view(results: Results, process: str) -> dict[str, Any] | None:
    """A process: its states with their exact laws, and what was learned at each λ of each path."""
    records = {path: results.toy(process, method) for path, method in PATHS.items()}
    linear, flow = records["linear"], records["flow"]
    if linear is None or flow is None:
        return None
    states = [int(state) for state in MRPS[process].live_states if linear.state_index(state) is not None]
    exact = [state_view(process, state) for state in states]
    at = thinned(len(linear.levels), NUM_LEVELS)
    return {
        "name": process,
        "label": theme.PROCESSES[process].label,
        "discount": MRPS[process].discount,
        "first": states.index(MRPS[process].evaluation_states[len(MRPS[process].evaluation_states) // 3]),
        "levels": numbers(linear.levels[at]),
        "states": exact,
        "paths": {
            "linear": path_view(linear, [], states, exact, at),
            "flow": path_view(flow, [linear], states, exact, at),
        },
    }


def state_view(process: str, state: int) -> dict[str, Any]:
    """A state: the range shown, the exact distribution function, and its cells with the exact heights."""
    law = exact_law(process, state)
    low, high = shown_range(law)
    values, levels = exact_cdf(law, low, high)
    edges, heights = common_cells(law, low, high, (high - low) / NUM_CELLS, ATOMS_PER_CELL.get(process, 1))
    return {
        "state": state,
        "range": numbers([low, high]),
        "std": float(f"{law.std:.4g}"),
        "exact": {"x": numbers(values), "p": numbers(levels)},
        "cells": numbers(edges),
        "heights": numbers(heights),
    }


def shown_range(law: ReturnLaw) -> tuple[float, float]:
    """Where the law is, with some room beside it; where it ends without atoms, ends of cells lie there too."""
    ends = law.quantile(np.array([0.0, 1.0]))
    if not isinstance(law, DiscreteLaw) and np.isfinite(ends).all():
        room = 2 * float(ends[1] - ends[0]) / (NUM_CELLS - 4)
        return float(ends[0]) - room, float(ends[1]) + room
    low, high = (float(value) for value in law.quantile(np.array([0.002, 0.998])))
    room = EDGE * (high - low) + (0.05 if isinstance(law, DiscreteLaw) else 0.02) * law.std
    return low - room, high + room


def path_view(
    record: ToyRecord,
    before: Sequence[ToyRecord],
    states: Sequence[int],
    exact: Sequence[dict[str, Any]],
    at: np.ndarray[Any, Any],
) -> dict[str, Any]:
    """Every λ of a path; at λ = 0 both paths are one algorithm, whose runs `before` has."""
    found: dict[float, tuple[ToyRecord, int]] = {}
    for source in (*before, record):
        for index, weight in enumerate(source.coefficients):
            if source is record or weight == 0:
                found[float(weight)] = source, index
    weights = sorted(found)
    losses = [loss_view(*found[weight]) for weight in weights]
    stops = [[stop_view(*found[weight], states[k], exact[k], at) for k in range(len(states))] for weight in weights]
    return {"weights": [float(f"{weight:.4g}") for weight in weights], "stops": stops, "losses": losses}


def loss_view(record: ToyRecord, index: int) -> dict[str, Any]:
    """The loss along training at one λ, mean and range over seeds; its floor is the target's variance."""
    at = thinned(record.loss_history.shape[-1], NUM_STEPS)
    curves = record.loss_history[index][:, at]
    late = record.loss_history[index][:, -max(record.loss_history.shape[-1] // 10, 1) :].mean()
    ends = {"mean": curves.mean(axis=0), "lo": curves.min(axis=0), "hi": curves.max(axis=0)}
    steps = (at + 1) / record.loss_history.shape[-1]
    return {
        "at": numbers(steps),
        **{name: numbers(values) for name, values in ends.items()},
        "late": numbers([late])[0],
    }


def stop_view(
    record: ToyRecord, index: int, state: int, exact: dict[str, Any], at: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """What was learned in one state at one λ: quantiles over seeds, heights in the cells, distance and spread."""
    place = record.state_index(state)
    curves = record.quantiles[index, :, place][:, at]
    everything = record.quantiles[index, :, place].ravel()
    edges = np.array(exact["cells"])
    counts, _ = np.histogram(everything, edges)
    distances = record.w1[index, :, place]
    low, high = statistics.student_interval(distances)
    return {
        "q": numbers(curves.mean(axis=0)),
        "lo": numbers(curves.min(axis=0)),
        "hi": numbers(curves.max(axis=0)),
        "h": numbers(counts / everything.size / np.diff(edges)),
        "w1": [None if not np.isfinite(value) else float(f"{value:.4g}") for value in (distances.mean(), low, high)],
        "sd": float(f"{np.std(record.quantiles[index, :, place], axis=1).mean() / exact['std']:.4g}"),
    }


def numbers(values: Sequence[float] | Floats) -> list[float]:
    """Values with four significant digits, which is finer than a pixel."""
    return [float(f"{value:.4g}") for value in np.asarray(values, float)]
