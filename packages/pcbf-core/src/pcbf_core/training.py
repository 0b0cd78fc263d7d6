"""The one training loop: steps by scan, learners (seeds, coefficients) side by side."""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
from flax import struct
from jax import Array

from pcbf_core.agent import BatchSource, Learner
from pcbf_core.learner import LearnerState
from pcbf_core.types import Metrics, Transition


class Dataset(struct.PyTreeNode):
    """Transitions on device, sampled uniformly with replacement."""

    transitions: Transition

    @property
    def size(self) -> int:
        return self.transitions.reward.shape[0]

    def sample(self, key: Array, batch_size: int) -> Transition:
        index = jax.random.randint(key, (batch_size,), 0, self.size)
        return jax.tree.map(lambda x: x[index], self.transitions)


@partial(
    jax.jit,
    static_argnames=("learner", "num_steps", "batch_size", "across"),
    donate_argnames="states",
)
def train_chunk(
    learner: Learner,
    states: LearnerState,
    source: BatchSource,
    keys: Array,
    start_step: int | Array = 0,
    *,
    num_steps: int,
    batch_size: int,
    across: Literal["vmap", "map"] = "vmap",
) -> tuple[LearnerState, Metrics]:
    """`num_steps` updates for every learner in one compiled call; metrics come back as (learner, step).

    Step i draws from `fold_in(key, i)`, so a run cut into chunks of any size is the same run.

    Args:
      states: learner states stacked on axis 0 (see `init_many`); donated.
      source: dataset or process to sample batches from, shared by the learners.
      keys: one key per learner, the same in every chunk of a run.
      start_step: number of updates made before this call.
      across: "vmap" runs the learners in lockstep, "map" one after the other.
    """

    def one_learner(state: LearnerState, key: Array) -> tuple[LearnerState, Metrics]:
        def one_step(state: LearnerState, step: Array) -> tuple[LearnerState, Metrics]:
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            return learner.update(state, source.sample(batch_key, batch_size), update_key)

        return jax.lax.scan(one_step, state, start_step + jax.numpy.arange(num_steps))

    if across == "map":
        return jax.lax.map(lambda pair: one_learner(*pair), (states, keys))
    return jax.vmap(one_learner)(states, keys)


def init_many(learner: Learner, keys: Array) -> LearnerState:
    """Fresh states for several seeds, stacked on axis 0; compiled without optimisation, as it runs once."""
    return jax.jit(jax.vmap(learner.init), compiler_options={"xla_backend_optimization_level": 0})(keys)
