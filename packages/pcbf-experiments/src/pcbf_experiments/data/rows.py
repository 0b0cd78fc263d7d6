"""The common form of recorded data: rows end to end, one more row than transitions in every episode."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num

from pcbf_core.types import Transition
from pcbf_experiments.data.pixels import frame_index

ACTION_LIMIT = 1 - 1e-5
SOURCES = ("official", "mirror", "user", "found", "local")


@dataclass(frozen=True)
class Rows:
    """Episodes end to end; row t+1 is the successor of row t unless `is_last[t]`.

    Attributes:
      terminal: 1 where the return ends with this row's reward; not the end of a recording.
      is_last: the row that closes an episode: its observation counts, its reward does not.
      has_last_action: whether the action of a closing row was recorded too.
    """

    observation: Num[np.ndarray, "rows *shape"]
    action: Float[np.ndarray, "rows action"]
    reward: Float[np.ndarray, " rows"]
    terminal: Float[np.ndarray, " rows"]
    is_last: Bool[np.ndarray, " rows"]
    has_last_action: bool

    @property
    def num_episodes(self) -> int:
        return int(self.is_last.sum())

    @property
    def num_transitions(self) -> int:
        return int((~self.is_last[:-1]).sum())

    @property
    def episode_lengths(self) -> np.ndarray:
        """Transitions of each episode."""
        return np.diff(np.concatenate([[-1], np.flatnonzero(self.is_last)])) - 1

    def transition_rows(self, *, next_actions: bool = False) -> np.ndarray:
        """Rows that start a transition; with `next_actions` only those whose successor action is recorded or unused."""
        rows, _ = frame_index(self.is_last)
        if next_actions and not self.has_last_action:
            rows = rows[~self.is_last[rows + 1] | (self.terminal[rows] > 0)]
        return rows

    def transitions(self, rows: np.ndarray, *, next_actions: bool = False, images: bool = False) -> Transition:
        """The transitions that start at `rows`, as `transition_rows` gives them; with `images` without observations.

        The last one kept of each episode gets `trajectory_end` = 1, which few ask for and which adds four
        bytes to a transition of hundreds.
        """
        nothing = np.zeros((len(rows), 0), np.uint8)
        fields: dict[str, Any] = {  # NumPy arrays, which the caller moves to the device
            "observation": nothing if images else self.observation[rows],
            "action": self.action[rows],
            "reward": self.reward[rows],
            "next_observation": nothing if images else self.observation[rows + 1],
            "terminal": self.terminal[rows],
            "next_action": self.action[rows + 1] if next_actions else None,
            "trajectory_end": (np.diff(rows, append=len(self.is_last) + 1) > 1).astype(np.float32),
        }
        return Transition(**fields)


@dataclass(frozen=True)
class DatasetInfo:
    """What a run record says of its data.

    Attributes:
      source: one of `SOURCES`; "local" is generated here and never to be taken for official.
      files: SHA-256 of every file.
      success_fraction: share of transitions that end the return.
      details: how local data were made; corrections that were applied; the largest action coordinate before
        clipping.
    """

    name: str
    source: str
    files: dict[str, str]
    num_transitions: int
    num_episodes: int
    reward_range: tuple[float, float]
    success_fraction: float
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.source == "local"

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "reward_range": list(self.reward_range)}


def summarise(name: str, rows: Rows, source: str, files: dict[str, str], details: dict[str, Any]) -> DatasetInfo:
    """The info of `rows`."""
    index = rows.transition_rows()
    if not len(index):
        raise ValueError(f"{name} holds no transition; fetch or make it again.")
    reward = rows.reward[index]
    return DatasetInfo(
        name=name,
        source=source,
        files=files,
        num_transitions=rows.num_transitions,
        num_episodes=rows.num_episodes,
        reward_range=(float(reward.min()), float(reward.max())),
        success_fraction=float((rows.terminal[index] > 0).mean()),
        details=details,
    )


def clip_actions(action: np.ndarray) -> np.ndarray:
    """Actions inside ±(1 - 1e-5), as the published methods train on."""
    return np.clip(action, -ACTION_LIMIT, ACTION_LIMIT).astype(np.float32)
