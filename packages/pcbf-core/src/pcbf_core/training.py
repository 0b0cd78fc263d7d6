"""The one training loop: steps by scan, learners (seeds, coefficients) side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from pcbf_core.agent import BatchSource, Learner, PreparingLearner
from pcbf_core.config import check_choice, check_whole
from pcbf_core.dataset import Dataset, check_candidates, check_fits
from pcbf_core.learner import LearnerState
from pcbf_core.precision import Precision, products_in
from pcbf_core.types import Metrics, PyTree, Transition


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
    count: int | None = None,
    candidates: Array | None = None,
    precision: Precision = "float32",
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
      across: "vmap" runs the learners in lockstep, "map" one after the other; a single one has no axis of its own.
      count: make only so many of the `num_steps` updates; the compiled program is the same for every count, so that
        calls can be made as short as one likes. Metrics come back for these only.
      candidates: what each learner chooses a' among at every s' of the dataset, (learner, transitions, candidates,
        action_dim), drawn with `draw_candidates` from its proposal; None leaves the drawing to the learner.
      precision: of the products inside networks, "float32" or "bfloat16".
    """
    check_whole("num_steps", num_steps)
    count = num_steps if count is None else count
    check_whole("count", count)
    if count > num_steps:
        raise ValueError(f"`count={count}` is more than `num_steps={num_steps}`.")
    check_whole("batch_size", batch_size)
    check_choice("across", across, ("vmap", "map"))
    check_choice("precision", precision, get_args(Precision))
    check_fits(getattr(learner, "spec", None), source)
    if candidates is not None:
        check_candidates(candidates, source, len(keys))
    sizes: dict[str, Any] = {"num_steps": num_steps, "batch_size": batch_size, "across": across, "precision": precision}
    states, metrics = _train_chunk(learner, states, source, keys, start_step, count, candidates, **sizes)
    return states, jax.tree.map(lambda history: history[:, :count], metrics)


@partial(
    jax.jit,
    static_argnames=("learner", "num_steps", "batch_size", "across", "precision"),
    donate_argnames="states",
)
def _train_chunk(
    learner: Learner,
    states: LearnerState,
    source: BatchSource,
    keys: Array,
    start_step: int | Array,
    count: int | Array,
    candidates: Array | None,
    *,
    num_steps: int,
    batch_size: int,
    across: Literal["vmap", "map"],
    precision: Precision,
) -> tuple[LearnerState, Metrics]:
    """`train_chunk`, compiled; metrics beyond `count` are zero."""

    def one_learner(state: LearnerState, key: Array, own: Array | None) -> tuple[LearnerState, Metrics]:
        data = source.with_candidates(own) if own is not None and isinstance(source, Dataset) else source
        if isinstance(learner, PreparingLearner) and learner.action_reuse > 1:
            return _train_in_rounds(learner, state, data, key, start_step, count, num_steps, batch_size)

        def one_step(state: LearnerState, index: Array) -> tuple[LearnerState, Metrics]:
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, start_step + index))
            return learner.update(state, data.sample(batch_key, batch_size), update_key)

        return counted_scan(one_step, state, count, num_steps)

    with products_in(precision):
        if across == "map" or len(keys) == 1:  # an axis for one alone costs time, to compile and to run
            return jax.lax.map(lambda item: one_learner(*item), (states, keys, candidates))
        return jax.vmap(one_learner)(states, keys, candidates)


def compile_chunk(
    learner: Learner,
    states: LearnerState,
    source: BatchSource,
    keys: Array,
    *,
    num_steps: int,
    batch_size: int,
    across: Literal["vmap", "map"] = "vmap",
    precision: Precision = "float32",
) -> jax.stages.Compiled:
    """The program that `train_chunk` runs on arguments like these, compiled and not run: it can be asked what it takes.

    `states`, `source` and `keys` may be shapes (`jax.eval_shape`).
    """
    sizes: dict[str, Any] = {"num_steps": num_steps, "batch_size": batch_size, "across": across, "precision": precision}
    return _train_chunk.lower(learner, states, source, keys, 0, num_steps, None, **sizes).compile()


def counted_scan(
    step: Callable[[Any, Array], tuple[Any, PyTree]], carry: Any, count: int | Array, capacity: int
) -> tuple[Any, PyTree]:
    """`jax.lax.scan` of `step(carry, index)` over index 0 … count - 1, where `count` need not be known to compile.

    What `step` gives besides is stacked on an axis of length `capacity` ≥ count, zero beyond `count`.
    """
    program, (_, blank) = jax.make_jaxpr(step, return_shape=True)(carry, jnp.zeros((), jnp.int32))
    traced_step = jaxpr_as_fun(program)  # tracing an update takes seconds: the loop takes this trace
    both_parts = jax.tree.structure((carry, blank))
    history = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), blank)

    def one(index: Array, both: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
        given = jax.tree.leaves((both[0], index.astype(jnp.int32)))
        carry, values = jax.tree.unflatten(both_parts, traced_step(*given))
        return carry, jax.tree.map(lambda rows, value: rows.at[index].set(value), both[1], values)

    return jax.lax.fori_loop(0, count, one, (carry, history))


def _train_in_rounds(
    learner: PreparingLearner,
    state: LearnerState,
    source: BatchSource,
    key: Array,
    start_step: int | Array,
    count: int | Array,
    num_steps: int,
    batch_size: int,
) -> tuple[LearnerState, Metrics]:
    """`count` updates in rounds of `action_reuse`² steps, the last one shorter; see `train_chunk`."""
    reuse = learner.action_reuse
    size = reuse * reuse

    def one_round(state: LearnerState, number: Array) -> tuple[LearnerState, Metrics]:
        first = start_step + number * size
        round_key, _ = jax.random.split(jax.random.fold_in(key, first))
        batch_key, order_key = jax.random.split(round_key)

        def one_batch(key: Array) -> Transition:
            batch_key, prepare_key = jax.random.split(key)
            return learner.prepare(state, source.sample(batch_key, batch_size), prepare_key)

        pool = jax.lax.map(one_batch, jax.random.split(batch_key, reuse))  # in turn: a whole pool outgrows caches
        pool = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pool)
        orders = jax.vmap(lambda k: jax.random.permutation(k, reuse * batch_size))(jax.random.split(order_key, reuse))
        batches = orders.reshape(size, batch_size)

        def one_step(state: LearnerState, index: Array) -> tuple[LearnerState, Metrics]:
            _, update_key = jax.random.split(jax.random.fold_in(key, first + index))
            return learner.learn(state, jax.tree.map(lambda x: x[batches[index]], pool), update_key)

        return counted_scan(one_step, state, jnp.minimum(size, count - number * size), size)

    num_rounds, capacity = (count + size - 1) // size, -(-num_steps // size)
    state, metrics = counted_scan(one_round, state, num_rounds, capacity)
    return state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_steps], metrics)


def init_many(learner: Learner, keys: Array) -> LearnerState:
    """Fresh states for several seeds, stacked on axis 0; compiled without optimisation, as it runs once."""
    return jax.jit(jax.vmap(learner.init), compiler_options={"xla_backend_optimization_level": 0})(keys)


def first_divergence(metrics: Mapping[str, Any], limit: float = 1e12) -> dict[int, tuple[int, str]]:
    """When and why learners of `train_chunk`'s metrics are lost, by index: the first metric that is no finite number.

    A metric beyond `limit` counts as well. The step counts from 1 in the call.

    Empty while all is well, so `if first_divergence(metrics): …` is the check to make after a call.
    """
    found: dict[int, tuple[int, str]] = {}
    for name, values in metrics.items():
        history = np.asarray(values, np.float64)
        for index in range(len(history)):
            bad = np.flatnonzero(~(np.abs(history[index]) < limit))
            if len(bad) and (index not in found or bad[0] < found[index][0]):
                found[index] = int(bad[0]), f"{name} became {history[index][bad[0]]}"
    return {index: (step + 1, reason) for index, (step, reason) in sorted(found.items())}
