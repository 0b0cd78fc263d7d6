"""State of a learner, and the one gradient step that all of them take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import optax
from flax import struct
from jax import Array

from pcbf_core.types import Metrics, PyTree


class LearnerState(struct.PyTreeNode):
    """Everything that changes during training.

    Attributes:
      params: online parameters by role, e.g. {"critic": ..., "proposal": ...}.
      target_params: slow copies, only of the roles that have one.
      opt_state: state of the optimiser.
      coefficients: scalars of the loss (λ and the like) that a sweep may vary over vmapped learners.
    """

    params: Mapping[str, PyTree]
    target_params: Mapping[str, PyTree]
    opt_state: PyTree
    coefficients: Mapping[str, Array] = struct.field(default_factory=dict)


def gradient_step(
    loss: Callable[[PyTree], tuple[Array, Metrics]],
    optimizer: optax.GradientTransformation,
    state: LearnerState,
    *,
    polyak_rate: float,
) -> tuple[LearnerState, Metrics]:
    """Optimiser step on `loss(params) -> (scalar, metrics)`, then θ⁻ ← τθ + (1-τ)θ⁻ (alg:pcbf-train).

    The average uses the parameters after the step, as the algorithm is written.
    """
    grads, metrics = jax.grad(loss, has_aux=True)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params: PyTree = optax.apply_updates(state.params, updates)
    online = {name: params[name] for name in state.target_params}
    target_params = optax.incremental_update(online, state.target_params, polyak_rate)
    return state.replace(params=params, target_params=target_params, opt_state=opt_state), metrics


def held_then_decayed(peak: float, *, num_steps: int | None, hold_fraction: float = 0.5) -> optax.Schedule | float:
    """Learning rate `peak` for the first part of `num_steps`, then a cosine to zero; constant if None."""
    if num_steps is None:
        return peak
    hold = int(hold_fraction * num_steps)
    decay = optax.cosine_decay_schedule(peak, max(num_steps - hold, 1))
    return optax.join_schedules([optax.constant_schedule(peak), decay], [hold])
