"""The records of theory: `theory/checks.csv`, one measurement per row, and `theory/population.csv`, one fixed point."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pcbf_records.files import atomic_write, write_csv

Relation = Literal["<=", ">=", "≈"]
CHECK_COLUMNS = ("id", "statement", "label", "measured", "expected", "relation", "margin", "holds")


@dataclass(frozen=True)
class CheckRow:
    """One measurement beside what it should be.

    Attributes:
      id: name of the measurement, unique within a record.
      statement: what is measured, in words.
      label: where the paper states it, such as `prop:endpoints_main`.
      tolerance: largest |measured - expected| that still counts as ≈; without use for the other relations.
    """

    id: str
    statement: str
    label: str
    measured: float
    expected: float
    relation: Relation
    tolerance: float = 0.0

    @property
    def margin(self) -> float:
        """How far inside the claim the measurement lies; negative where the claim fails."""
        if self.relation == "<=":
            return self.expected - self.measured
        if self.relation == ">=":
            return self.measured - self.expected
        return self.tolerance - abs(self.measured - self.expected)

    @property
    def holds(self) -> bool:
        return bool(self.margin >= 0)  # nan fails

    def cells(self) -> tuple[str, ...]:
        """The row as it is written, in the order of `CHECK_COLUMNS`; numbers with six digits."""
        numbers = {name: f"{getattr(self, name) + 0.0:.6g}" for name in ("measured", "expected", "margin")}
        return (
            self.id,
            self.statement,
            self.label,
            numbers["measured"],
            numbers["expected"],
            self.relation,
            numbers["margin"],
            str(self.holds).lower(),
        )


def write_checks(path: Path | str, rows: Iterable[CheckRow]) -> None:
    """Write the record, sorted by id, in one step."""
    ordered = sorted(rows, key=lambda row: row.id)
    repeated = {a.id for a, b in pairwise(ordered) if a.id == b.id}
    if repeated:
        raise ValueError(f"check ids must be unique, got {', '.join(sorted(repeated))} more than once.")
    with atomic_write(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(CHECK_COLUMNS)
        writer.writerows(row.cells() for row in ordered)


@dataclass(frozen=True)
class PopulationRow:
    """The fixed point of one regression problem with infinite data and a perfect network.

    Attributes:
      path, noise, control_weight: the problem: "linear" or "flow", "shared" or "independent", λ.
      w1, relative_w1: distance to the exact return law, as it is and in units of its std; means over states, nan where
        the iteration did not settle.
      std_ratio: learned over exact standard deviation, mean over states.
      target_variance: E Var(u | Z_t, s), mean over flow times and states.
      num_flow_steps, num_points, num_iterations: the solver's grid, and rounds until it stood still.
    """

    process: str
    path: str
    noise: str
    control_weight: float
    num_iterations: int
    num_flow_steps: int = 0
    num_points: int = 0
    w1: float = math.nan
    relative_w1: float = math.nan
    std_ratio: float = math.nan
    target_variance: float = math.nan


POPULATION_COLUMNS = tuple(field.name for field in fields(PopulationRow))


def write_population(path: Path, rows: Iterable[PopulationRow]) -> None:
    """Write the record in one step; numbers have six digits."""
    write_csv(
        path,
        POPULATION_COLUMNS,
        [
            tuple(f"{value:.6g}" if isinstance(value, float) else value for value in asdict(row).values())
            for row in rows
        ],
    )
