"""Cliff: a short way over slippery ground beside a cliff, and a long one around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pcbf_core.mdp.base import SOUTH, FiniteMDP, Way

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # columns and rows of EAST, NORTH, WEST, SOUTH


@dataclass(frozen=True)
class Cliff(FiniteMDP):
    """A walk from S to G on a map: `.` ground, `~` slippery ground, `^` a ledge, `x` the cliff, `#` a wall.

    A move succeeds with probability 1 - `stumble`, otherwise the walker stays; so he does at walls and borders. On
    slippery ground he first slides one cell south with probability `slip`; from a ledge no move leads back south, so
    that who has chosen the long way is on it. Every step costs `step_cost`; reaching G or falling ends the walk with
    `goal_reward` or `-fall_cost` besides.
    """

    name: ClassVar[str] = "cliff"
    title: ClassVar[str] = "Cliff"
    rows: tuple[str, ...] = (
        "......",
        "^####.",
        "S~~~~G",
        "#xxxx#",
    )  # north first
    discount: float = 0.95
    step_cost: float = 0.1
    goal_reward: float = 1.5
    fall_cost: float = 1.0
    slip: float = 0.05
    stumble: float = 0.1

    cells: tuple[tuple[int, int], ...] = field(init=False)  # column and row, from the south, of every state
    num_states: int = field(init=False)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        height = len(self.rows)
        places = [(x, height - 1 - y) for y, row in enumerate(self.rows) for x in range(len(row))]
        cells = tuple(place for place in places if self.ground(place) in ".~^S")
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "num_states", len(cells))
        object.__setattr__(self, "start", next(s for s, cell in enumerate(cells) if self.ground(cell) == "S"))

    def ground(self, cell: tuple[int, int]) -> str:
        """What the map shows in a cell (column, row from the south); a wall beyond its borders."""
        x, y = cell
        inside = 0 <= y < len(self.rows) and 0 <= x < len(self.rows[0])
        return self.rows[len(self.rows) - 1 - y][x] if inside else "#"

    def ways(self, state: int, move: int) -> Sequence[Way]:
        x, y = self.cells[state]
        slip = self.slip if self.ground((x, y)) == "~" else 0.0
        step = (0, 0) if move == SOUTH and self.ground((x, y)) == "^" else STEPS[move]
        return [
            self._arrival(slip, (x, y - 1), state),
            self._arrival((1 - slip) * (1 - self.stumble), (x + step[0], y + step[1]), state),
            Way((1 - slip) * self.stumble, -self.step_cost, state),
        ]

    def _arrival(self, probability: float, cell: tuple[int, int], state: int) -> Way:
        ground = self.ground(cell)
        if ground == "x":
            return Way(probability, -self.step_cost - self.fall_cost, None)
        if ground == "G":
            return Way(probability, -self.step_cost + self.goal_reward, None)
        return Way(probability, -self.step_cost, state if ground == "#" else self.cells.index(cell))
