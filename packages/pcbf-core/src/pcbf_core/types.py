"""The data that flows from datasets and processes to learners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Float, Float64
from numpy.typing import NDArray

PyTree = Any
"""Arrays in any nesting of containers, such as the parameters of a network."""
Metrics = Mapping[str, Array]
"""What an update tells, by name."""

if TYPE_CHECKING:
    Real = Any
    Values = NDArray[np.float64]
else:  # what a type checker cannot tell apart is checked during tests
    Real = Float[Any, "..."] | float
    """Real numbers in an array of any library, or one number: what a formula works on."""
    Values = Float64[Any, "..."]
    """NumPy's double precision; a result without axes is a scalar."""


class Transition(struct.PyTreeNode):
    """One transition (s, a, r, s', d), or a batch of them along leading axes.

    `terminal` is the paper's d: 1 where the return ends with `reward`, 0 where the successor
    counts. The end of a recorded trajectory alone is not terminal. `next_action` is the
    successor action a'; learners that choose a' themselves leave it None. `trajectory_end` is 1 on the
    last transition of a recorded trajectory; only settings that imitate other code ask for it. `next_candidates`
    are actions at s', (candidates, action_dim), drawn ahead of training from a proposal that no longer changes
    (`draw_candidates`); where they are, a' is chosen among them.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    terminal: Array
    next_action: Array | None = None
    trajectory_end: Array | None = None
    next_candidates: Array | None = None

    @property
    def successor_action(self) -> Array:
        """`next_action`, or an error that says what to do where it is missing."""
        if self.next_action is None:
            raise ValueError("`Transition.next_action` is missing: the critic needs a' ~ π(·|s'); fill it in.")
        return self.next_action


@dataclass(frozen=True)
class TaskSpec:
    """What a learner must know of a task before it sees data.

    Args:
      observation_shape: shape of one observation; `()` for an integer state index.
      action_dim: number of action coordinates; 0 for a Markov reward process.
      num_states: number of discrete states, or None for observations that are vectors or images.
      return_range: bounds outside which no return can lie, or None where they are unknown.
    """

    observation_shape: tuple[int, ...]
    action_dim: int
    num_states: int | None = None
    return_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.action_dim < 0:
            raise ValueError(f"`action_dim={self.action_dim}` is negative; use 0 for a task without actions.")
        if self.num_states is None and not self.observation_shape:
            raise ValueError(
                "`observation_shape=()` means integer states; pass `num_states`, or the shape of one observation."
            )
        if self.num_states is not None and self.num_states < 1:
            raise ValueError(f"`num_states={self.num_states}` leaves no state; pass a positive count.")
        if self.return_range is not None and not self.return_range[0] < self.return_range[1]:
            raise ValueError(f"`return_range={self.return_range}` is empty; pass (low, high) with low < high.")
