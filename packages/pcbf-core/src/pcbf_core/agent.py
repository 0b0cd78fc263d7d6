"""The protocols that training, evaluation and analysis rely on.

An agent is a frozen dataclass of its configuration and task: hashable, so that jit takes it as
static. Everything that changes is in the `LearnerState` it is given and returns.
"""

from __future__ import annotations

from typing import Protocol

from jax import Array

from pcbf_core.learner import LearnerState
from pcbf_core.types import Metrics, Transition


class Learner(Protocol):
    """What the training loop needs."""

    def init(self, key: Array) -> LearnerState: ...

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]: ...


class Agent(Learner, Protocol):
    """A learner that acts."""

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array: ...


class ReturnSampler(Protocol):
    """A learner with a return distribution; what toys and figures ask for."""

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array: ...


class BatchSource(Protocol):
    """Where batches come from: a dataset on device or a process simulated in JAX. A pytree."""

    def sample(self, key: Array, batch_size: int) -> Transition: ...
