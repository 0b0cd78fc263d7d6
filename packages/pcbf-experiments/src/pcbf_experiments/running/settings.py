"""What a run does, besides the method's own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from pcbf_core.config import check_choice, check_range
from pcbf_experiments.data.pixels import Across
from pcbf_records.runs import steps_to_judge


@dataclass(frozen=True)
class RunSettings:
    """What a run does, besides the method's own settings.

    Attributes:
      steps, batch_size: gradient steps, and transitions per step.
      eval_every: steps between snapshots, which evaluation judges; the last step always has one.
      eval_from: steps before which there is none.
      log_every: steps per compiled call and per row of the metrics file.
      standardise: observations to zero mean and unit deviation, by statistics of the data.
      reward_scale: factor on every reward.
      return_width: choose that factor so that the return range has this width.
      across: train the seeds in lockstep ("vmap") or one after the other inside a call ("map").
    """

    steps: int = 1_000_000
    batch_size: int = 256
    eval_every: int = 100_000
    eval_from: int = 0
    log_every: int = 1000
    standardise: bool = False
    reward_scale: float = 1.0
    return_width: float | None = None
    across: Across = "vmap"

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "eval_every", "log_every"):
            check_range(name, getattr(self, name), at_least=1)
        if self.eval_every % self.log_every:
            raise ValueError(
                f"`eval_every={self.eval_every}` is not a multiple of `log_every={self.log_every}`; "
                "snapshots are taken between compiled calls."
            )
        check_range("reward_scale", self.reward_scale, above=0)
        if self.return_width is not None:
            check_range("return_width", self.return_width, above=0)
        check_choice("across", self.across, get_args(Across))

    @property
    def snapshot_steps(self) -> tuple[int, ...]:
        """The steps after which a snapshot is left, ascending."""
        return steps_to_judge(self.steps, self.eval_every, self.eval_from)
