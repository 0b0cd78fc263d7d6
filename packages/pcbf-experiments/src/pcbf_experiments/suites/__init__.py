"""Suites: where the data, the simulator and the score of a task come from. Adding one is one file."""

from __future__ import annotations

from pcbf_core.config import check_choice
from pcbf_experiments.suites.adroit import Adroit
from pcbf_experiments.suites.base import Suite
from pcbf_experiments.suites.minari import Minari
from pcbf_experiments.suites.ogbench import OGBench
from pcbf_records.sheets import Task

__all__ = ["SUITES", "Suite", "register_suite", "suite_of"]

SUITES: dict[str, Suite] = {suite.name: suite for suite in (OGBench(), Adroit(), Minari())}
"""The suites by name."""


def register_suite(suite: Suite) -> Suite:
    """`suite`, which tasks may name from now on; the name of another suite raises."""
    if type(SUITES.setdefault(suite.name, suite)) is not type(suite):
        raise ValueError(f"a suite called {suite.name!r} exists; choose another name.")
    return suite


def suite_of(task: Task) -> Suite:
    """The suite that a task names."""
    check_choice("suite", task.suite, SUITES)
    return SUITES[task.suite]
