"""The one training loop: steps by scan, learners (seeds, coefficients) side by side."""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from pcbf_core.agent import BatchSource, Learner, PreparingLearner
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

    A learner with `action_reuse` n > 1 is trained in rounds of n² steps, counted from the start of the call: n batches
    are drawn and prepared together, then each of their transitions serves in n steps. That divides the cost of
    preparing by n; what was prepared is at most n² steps old.

    Args:
      states: learner states stacked on axis 0 (see `init_many`); donated.
      source: dataset or process to sample batches from, shared by the learners.
      keys: one key per learner, the same in every chunk of a run.
      start_step: number of updates made before this call.
      across: "vmap" runs the learners in lockstep, "map" one after the other.
    """

    def one_learner(state: LearnerState, key: Array) -> tuple[LearnerState, Metrics]:
        steps = start_step + jnp.arange(num_steps)
        if isinstance(learner, PreparingLearner) and learner.action_reuse > 1:
            return _train_in_rounds(learner, state, source, key, steps, batch_size)

        def one_step(state: LearnerState, step: Array) -> tuple[LearnerState, Metrics]:
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            return learner.update(state, source.sample(batch_key, batch_size), update_key)

        return jax.lax.scan(one_step, state, steps)

    if across == "map":
        return jax.lax.map(lambda pair: one_learner(*pair), (states, keys))
    return jax.vmap(one_learner)(states, keys)


def _train_in_rounds(
    learner: PreparingLearner, state: LearnerState, source: BatchSource, key: Array, steps: Array, batch_size: int
) -> tuple[LearnerState, Metrics]:
    """Updates at `steps` in rounds of `action_reuse`² steps, the last one shorter; see `train_chunk`."""
    reuse = learner.action_reuse

    def one_round(state: LearnerState, steps: Array) -> tuple[LearnerState, Metrics]:
        round_key, _ = jax.random.split(jax.random.fold_in(key, steps[0]))
        batch_key, order_key = jax.random.split(round_key)

        def one_batch(key: Array) -> Transition:
            batch_key, prepare_key = jax.random.split(key)
            return learner.prepare(state, source.sample(batch_key, batch_size), prepare_key)

        pool = jax.lax.map(one_batch, jax.random.split(batch_key, reuse))  # in turn: a whole pool outgrows caches
        pool = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pool)
        orders = jax.vmap(lambda k: jax.random.permutation(k, reuse * batch_size))(jax.random.split(order_key, reuse))
        batches = orders.reshape(reuse * reuse, batch_size)[: len(steps)]

        def one_step(state: LearnerState, item: tuple[Array, Array]) -> tuple[LearnerState, Metrics]:
            step, index = item
            _, update_key = jax.random.split(jax.random.fold_in(key, step))
            return learner.learn(state, jax.tree.map(lambda x: x[index], pool), update_key)

        return jax.lax.scan(one_step, state, (steps, batches))

    num_rounds, rest = divmod(len(steps), reuse * reuse)
    parts = []
    if num_rounds:
        state, metrics = jax.lax.scan(one_round, state, steps[: len(steps) - rest].reshape(num_rounds, -1))
        parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), metrics))
    if rest:
        state, metrics = one_round(state, steps[len(steps) - rest :])
        parts.append(metrics)
    return state, jax.tree.map(lambda *each: jnp.concatenate(each), *parts)


def init_many(learner: Learner, keys: Array) -> LearnerState:
    """Fresh states for several seeds, stacked on axis 0; compiled without optimisation, as it runs once."""
    return jax.jit(jax.vmap(learner.init), compiler_options={"xla_backend_optimization_level": 0})(keys)
