"""What agents with a learned return law share: how it is read, and how it trains when candidates are searched by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax
from jax import Array

from pcbf_core.candidates import CandidateAgent
from pcbf_core.learner import LearnerState, ReturnCritic
from pcbf_core.types import Metrics, PyTree, Transition


class LawReadout(ABC):
    """What an agent with a return law tells of the return."""

    @property
    @abstractmethod
    def critic(self) -> ReturnCritic:
        """The law."""

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels`, (*batch, levels)."""
        return self.critic.quantiles(state, observation, action, levels)

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        """Independent samples of the return, (*batch, samples)."""
        return self.quantiles(state, observation, action, jax.random.uniform(key, (*action.shape[:-1], num_samples)))


@dataclass(frozen=True)
class LawAgent(LawReadout, CandidateAgent):
    """A return law with a cloned proposal; targets take the candidate of highest mean."""

    def init_critic(self, key: Array) -> PyTree:
        return self.critic.init_params(key)

    def choose_next_action(self, state: LearnerState, batch: Transition, key: Array) -> Array:
        """The candidate of highest mean."""
        return self.best_next_action(state, batch, key)

    def critic_loss(self, params: PyTree, state: LearnerState, batch: Transition, key: Array) -> tuple[Array, Metrics]:
        """The law's own loss, with the batch's a'."""
        return self.critic.loss(params, state.target_params["critic"], batch, key, state.coefficients)
