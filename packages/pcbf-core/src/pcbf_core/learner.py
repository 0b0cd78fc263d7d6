"""State of a learner, and the one gradient step that all of them take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

from pcbf_core.config import Count, OneOf, Positive, PositiveShare, Share, Sizes, tidy
from pcbf_core.networks import ACTIVATIONS
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class LearnerConfig:
    """Settings common to all learners; defaults from tab:hyperparameters.

    Attributes:
      discount: γ.
      hidden_sizes, activation, layer_norm: the MLPs.
      state_features: size of the embedding of discrete states.
      encoder_channels, encoder_features: stacks and output size of the image encoder.
      learning_rate, polyak_rate: Adam and the target network.
      decay_steps: if given, the learning rate is held for `hold_fraction` of so many steps, then decays
        to zero on a cosine.
      grad_clip: if given, largest global norm of a gradient, all networks together.
    """

    coefficient_names: ClassVar[tuple[str, ...]] = ()
    """The settings that scale the loss."""

    discount: PositiveShare = 0.99
    hidden_sizes: Sizes = (512, 512, 512, 512)
    activation: Annotated[str, OneOf(tuple(ACTIVATIONS))] = "gelu"
    layer_norm: bool = True
    state_features: Count = 16
    encoder_channels: Sizes = (16, 32, 32)
    encoder_features: Count = 512
    learning_rate: Positive = 3e-4
    polyak_rate: PositiveShare = 0.005
    decay_steps: Count | None = None
    hold_fraction: Share = 0.5
    grad_clip: Positive | None = None

    def __post_init__(self) -> None:
        tidy(self)

    @property
    def coefficients(self) -> dict[str, float]:
        """Scalars of the loss that a sweep may vary without compiling again: `coefficient_names` that are numbers."""
        values = {name: getattr(self, name) for name in self.coefficient_names}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}


def make_optimizer(config: LearnerConfig) -> optax.GradientTransformation:
    """Adam with the schedule and the gradient clipping of `config`."""
    schedule = held_then_decayed(config.learning_rate, num_steps=config.decay_steps, hold_fraction=config.hold_fraction)
    if config.grad_clip is None:
        return optax.adam(schedule)
    return optax.chain(optax.clip_by_global_norm(config.grad_clip), optax.adam(schedule))


class LearnerState(struct.PyTreeNode):
    """Everything that changes during training.

    Attributes:
      params: online parameters by role, e.g. {"critic": ..., "proposal": ...}.
      target_params: target networks, only of the roles that have one.
      opt_state: state of the optimiser.
      coefficients: scalars of the loss (λ and the like) that a sweep may vary over vmapped learners.
      frozen: parameters by role that were trained before and stay as they are; no optimiser knows them.
    """

    params: Mapping[str, PyTree]
    target_params: Mapping[str, PyTree]
    opt_state: PyTree
    coefficients: Mapping[str, Array] = struct.field(default_factory=dict)
    frozen: Mapping[str, PyTree] = struct.field(default_factory=dict)


def fresh_state(config: LearnerConfig, params: Mapping[str, PyTree], *, target_roles: tuple[str, ...]) -> LearnerState:
    """The state in which training begins: the target networks are copies, the optimiser has seen nothing."""
    target_params = {name: jax.tree.map(jnp.copy, params[name]) for name in target_roles}
    coefficients = {name: jnp.asarray(value, jnp.float32) for name, value in config.coefficients.items()}
    return LearnerState(params, target_params, make_optimizer(config).init(params), coefficients)


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


@dataclass(frozen=True)
class ReturnCritic(ABC):
    """A learned law of the return at (s, a), trained on transitions that name a'; subclasses say how."""

    config: LearnerConfig
    spec: TaskSpec

    @abstractmethod
    def init_params(self, key: Array) -> PyTree:
        """Fresh parameters of the law."""

    @abstractmethod
    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Training loss and what to log."""

    @abstractmethod
    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels` in (0, 1), (*batch, levels)."""

    def init(self, key: Array) -> LearnerState:
        return fresh_state(self.config, {"critic": self.init_params(key)}, target_roles=("critic",))

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """One step of alg:pcbf-train: gradient, Adam, then the target network."""
        return gradient_step(
            lambda params: self.loss(params["critic"], state.target_params["critic"], batch, key, state.coefficients),
            make_optimizer(self.config),
            state,
            polyak_rate=self.config.polyak_rate,
        )


def held_then_decayed(peak: float, *, num_steps: int | None, hold_fraction: float = 0.5) -> optax.Schedule | float:
    """Learning rate `peak` for the first part of `num_steps`, then a cosine to zero; constant if None."""
    if num_steps is None:
        return peak
    hold = int(hold_fraction * num_steps)
    decay = optax.cosine_decay_schedule(peak, max(num_steps - hold, 1))
    return optax.join_schedules([optax.constant_schedule(peak), decay], [hold])
