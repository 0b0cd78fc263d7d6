"""What an agent is: the protocols that training and evaluation rely on, and the base of those with one loss.

An agent is a frozen dataclass of its configuration and task: hashable, so that jit takes it as
static. Everything that changes is in the `LearnerState` it is given and returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import jax
from jax import Array

from pcbf_core.learner import LearnerConfig, LearnerState, fresh_state, gradient_step, make_optimizer
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@runtime_checkable
class Learner(Protocol):
    """What the training loop needs."""

    def init(self, key: Array) -> LearnerState: ...

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]: ...


@runtime_checkable
class PreparingLearner(Learner, Protocol):
    """A learner whose costly look at a batch (the choice of a') may serve several steps, see `train_chunk`."""

    @property
    def action_reuse(self) -> int: ...

    def prepare(self, state: LearnerState, batch: Transition, key: Array) -> Transition: ...

    def learn(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]: ...


@runtime_checkable
class Agent(Learner, Protocol):
    """A learner that acts."""

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array: ...


@runtime_checkable
class ReturnSampler(Protocol):
    """A learner with a return distribution; what toys and figures ask for."""

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array: ...


@runtime_checkable
class BatchSource(Protocol):
    """Where batches come from: a dataset on device or a process simulated in JAX. A pytree."""

    def sample(self, key: Array, batch_size: int) -> Transition: ...


@dataclass(frozen=True)
class GradientAgent(ABC):
    """An agent with one joint loss and one optimiser; subclasses say what the loss is and how to act.

    `loss` differentiates through `params` only: what it evaluates with `state.params` or
    `state.target_params` is constant.
    """

    target_roles: ClassVar[tuple[str, ...]] = ()
    """The roles that have a target network."""

    config: LearnerConfig
    spec: TaskSpec

    @abstractmethod
    def init_params(self, key: Array) -> dict[str, PyTree]:
        """Fresh parameters by role."""

    @abstractmethod
    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """One step on a batch of the data."""

    @abstractmethod
    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Training loss of all roles together, and what to log."""

    @abstractmethod
    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """Actions in [-1, 1], (*batch, action_dim), for observations (*batch, *observation_shape)."""

    def init(self, key: Array) -> LearnerState:
        return fresh_state(self.config, self.init_params(key), target_roles=self.target_roles)

    def learn(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """One gradient step of `loss` on a batch that has all it needs."""
        return gradient_step(
            lambda params: self.loss(params, state, batch, key),
            make_optimizer(self.config),
            state,
            polyak_rate=self.config.polyak_rate,
        )


@dataclass(frozen=True)
class PlainAgent(GradientAgent):
    """An agent that learns from the data as it is."""

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """One gradient step of `loss` on the batch."""
        _, loss_key = jax.random.split(key)  # the other key is what `CandidateAgent` chooses a' with
        return self.learn(state, batch, loss_key)


def require_return_range(spec: TaskSpec, method: str) -> tuple[float, float]:
    """The bounds of returns, or an error that says why `method` cannot do without."""
    if spec.return_range is None:
        raise ValueError(f"{method} needs bounds of the return; set `TaskSpec.return_range` to (low, high).")
    return spec.return_range
