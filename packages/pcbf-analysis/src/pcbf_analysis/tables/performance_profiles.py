"""Performance profiles as numbers: the share of runs above a score, per method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcbf_analysis import statistics
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Suite, data_note, load_suite
from pcbf_records.arrays import Floats
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Performance profiles as numbers"
CAPTION = (
    "Share of runs that score above a threshold, every task counting the same. A method that lacks a task of its suite "
    "is left out there, and a suite of fewer than five tasks says too little for a profile. The csv has the whole "
    "curves with their 95 % stratified-bootstrap bands, from five seeds on."
)
INPUTS = (CONTROL_EVALUATIONS,)
SUITES = {"OGBench": "success rate", "Adroit": "normalised return"}
THRESHOLDS = np.linspace(0, 100, 51)
SHOWN = (0, 20, 40, 60, 80, 98)
FEWEST_TASKS = 5
NUM_RESAMPLES = 500  # a band needs no third digit
COLUMNS = (
    Column("suite", "Suite", is_number=False),
    Column("method", "Method", is_number=False),
    *(Column(f"above_{level}", f"> {level}", digits=2) for level in SHOWN),
    Column("num_tasks", "Tasks", digits=0),
    Column("num_runs", "Runs", digits=0),
)
DETAILS = (
    Column("suite", "Suite", is_number=False),
    Column("method", "Method", is_number=False),
    Column("threshold", "Score"),
    Column("share", "Share of runs"),
    Column("low", "95 % low"),
    Column("high", "95 % high"),
)


@dataclass(frozen=True, eq=False)
class Profile:
    """The profile of a method on a suite of tasks, over `THRESHOLDS`."""

    suite: str
    method: str
    share: Floats
    low: Floats
    high: Floats
    num_tasks: int
    num_runs: int


def profiles(suite: Suite) -> list[Profile]:
    """The profiles of all methods that have every task of a suite; low and high are nan below five seeds.

    A suite of fewer than `FEWEST_TASKS` has none: its profiles would be the steps of a few runs.
    """
    found = []
    for name in SUITES:
        tasks = [task for task in suite.tasks if (suite.suites[task] == "adroit") == (name == "Adroit")]
        if len(tasks) < FEWEST_TASKS:
            continue
        for method in suite.methods:
            seeds = [suite.seeds(task, method) for task in tasks]
            if not all(map(len, seeds)):
                continue
            share = statistics.performance_profile(seeds, THRESHOLDS)
            low, high = statistics.profile_band(seeds, THRESHOLDS, num_resamples=NUM_RESAMPLES)
            found.append(Profile(name, method, share, low, high, len(tasks), sum(map(len, seeds))))
    return found


def compute(results: Results) -> Table:
    """One row per suite and method; the csv has one per threshold as well."""
    suite = load_suite(results)
    found = profiles(suite)
    rows = [
        (
            *(profile.suite, profile.method),
            *(float(profile.share[int(np.argmin(np.abs(THRESHOLDS - level)))]) for level in SHOWN),
            *(profile.num_tasks, profile.num_runs),
        )
        for profile in found
    ]
    details = [
        (profile.suite, profile.method, *map(float, values))
        for profile in found
        for values in zip(THRESHOLDS, profile.share, profile.low, profile.high, strict=True)
    ]
    return Table(COLUMNS, tuple(rows), data_note(results, suite, suite.tasks), Table(DETAILS, tuple(details)))
