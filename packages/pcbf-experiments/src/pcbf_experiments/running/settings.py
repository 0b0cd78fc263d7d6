"""What a run does, besides the method's own settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import jax

from pcbf_core.config import LATER, Count, Positive, Range, tidy
from pcbf_core.precision import Precision
from pcbf_experiments.data.pixels import Across
from pcbf_records.runs import steps_to_judge


def across_on(platform: str | None = None) -> Across:
    """How seeds share a call fastest on a platform, JAX's own if none is named: in turn on a CPU, else in lockstep."""
    return "map" if (platform or jax.default_backend()) == "cpu" else "vmap"


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
      redraw_every: with a frozen proposal, candidates at every s' of the data are drawn ahead, and anew after so many
        steps; None draws them at every choice, as do images, whatever this says.
      precision: of the products inside networks while training; parameters and the rest stay float32.
      deterministic: a GPU repeats a run to the bit, at some cost, as a CPU does anyway; commands see to it before JAX
        starts.
    """

    steps: Count = 1_000_000
    batch_size: Count = 256
    eval_every: Count = 100_000
    eval_from: Annotated[int, Range(at_least=0)] = 0
    log_every: Count = 1000
    standardise: bool = False
    reward_scale: Positive = 1.0
    return_width: Positive | None = None
    across: Across = "vmap"
    redraw_every: Count | None = field(default=None, metadata=LATER)
    precision: Precision = field(default="float32", metadata=LATER)
    deterministic: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        tidy(self)
        if self.eval_every % self.log_every:
            raise ValueError(
                f"`eval_every={self.eval_every}` is not a multiple of `log_every={self.log_every}`; "
                "snapshots are taken between compiled calls."
            )
        if self.redraw_every is not None and self.redraw_every % self.log_every:
            raise ValueError(
                f"`redraw_every={self.redraw_every}` is not a multiple of `log_every={self.log_every}`; "
                "candidates are drawn between compiled calls."
            )

    @property
    def snapshot_steps(self) -> tuple[int, ...]:
        """The steps after which a snapshot is left, ascending."""
        return steps_to_judge(self.steps, self.eval_every, self.eval_from)
