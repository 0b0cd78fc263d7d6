"""Gamble: a chain of rounds in which each may be played safe, by a coin, or for a gain with a rare large loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pcbf_core.mdp.base import EAST, NORTH, WEST, FiniteMDP, Way


@dataclass(frozen=True)
class Gamble(FiniteMDP):
    """Rounds 0, 1, …; after the last one the game is over.

    EAST takes a gain that is with probability `loss_probability` a large loss, which ends the game; NORTH tosses a coin
    between two rewards; WEST takes a small sure gain; SOUTH waits for nothing.
    """

    name: ClassVar[str] = "gamble"
    title: ClassVar[str] = "Gamble"
    num_states: int = 6
    start: int = 0
    discount: float = 0.95
    gain: float = 0.4
    loss: float = -2.0
    loss_probability: float = 0.03
    coin: tuple[float, float] = (0.7, -0.2)
    sure: float = 0.12

    def ways(self, state: int, move: int) -> Sequence[Way]:
        following = state + 1 if state + 1 < self.num_states else None
        if move == EAST:
            lost = self.loss_probability
            return [Way(1 - lost, self.gain, following), Way(lost, self.loss, None)]
        if move == NORTH:
            return [Way(0.5, reward, following) for reward in self.coin]
        return [Way(1.0, self.sure, following)] if move == WEST else [Way(1.0, 0.0, state)]
