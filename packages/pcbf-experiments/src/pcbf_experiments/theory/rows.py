"""A measurement as a row of the record: at most, at least or near what the paper says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from numpy.random import Generator

from pcbf_records.theory import CheckRow

Check = Callable[[Generator, int], Iterable[CheckRow]]  # its own random generator, the number of samples to draw
ROUNDING = 1e-9  # what an identity may miss in double precision


def at_most(id: str, statement: str, label: str, measured: float, expected: float) -> CheckRow:
    return CheckRow(id, statement, label, float(measured), float(expected), "<=")


def at_least(id: str, statement: str, label: str, measured: float, expected: float) -> CheckRow:
    return CheckRow(id, statement, label, float(measured), float(expected), ">=")


def near(id: str, statement: str, label: str, measured: float, expected: float, tolerance: float) -> CheckRow:
    statement = f"{statement} (tolerance {tolerance:.2g})"
    return CheckRow(id, statement, label, float(measured), float(expected), "≈", float(tolerance))
