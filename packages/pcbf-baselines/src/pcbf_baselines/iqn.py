"""IQN: quantile regression of the return; acts by the best of the proposal's candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_core.agent import GradientAgent
from pcbf_core.learner import LearnerState
from pcbf_core.policy import Proposal, RiskConfig
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class IQNConfig(QuantileCriticConfig, RiskConfig):
    """Settings of IQN; `score` is that of acting, targets take the candidate of highest mean."""


@final
@dataclass(frozen=True)
class IQN(GradientAgent):
    """Implicit quantile network with a cloned proposal."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: IQNConfig
    spec: TaskSpec

    @property
    def critic(self) -> QuantileCritic:
        return QuantileCritic(self.config, self.spec)

    @property
    def proposal(self) -> Proposal:
        return Proposal(self.config, self.spec)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, proposal_key = jax.random.split(key)
        return {"critic": self.critic.init_params(critic_key), "proposal": self.proposal.init_params(proposal_key)}

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Quantile regression with a' the best of K candidates, plus behaviour cloning of the proposal."""
        action_key, critic_key, proposal_key = jax.random.split(key, 3)
        next_action = self.proposal.best_of(
            state.params["proposal"], batch.next_observation, action_key, partial(self.score, state, tail=False)
        )
        critic_loss, _, _ = self.critic.loss(
            params["critic"], state.target_params["critic"], batch, next_action, critic_key
        )
        proposal_loss = self.proposal.loss(params["proposal"], batch.observation, batch.action, proposal_key)
        return critic_loss + proposal_loss, {"critic_loss": critic_loss, "proposal_loss": proposal_loss}

    def score(self, state: LearnerState, observation: Array, action: Array, key: Array, *, tail: bool) -> Array:
        """Mean quantile of each candidate, (*batch, candidates), at levels common to the candidates of a state."""
        level = jax.random.uniform(key, (*action.shape[:-2], 1, self.config.num_levels))
        level = self.config.tail_levels(level) if tail else level
        return jnp.mean(self.critic.quantiles(state.params["critic"], observation, action, level), axis=-1)

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """The best of K candidates by their mean or tail mean."""
        return self.proposal.best_of(state.params["proposal"], observation, key, partial(self.score, state, tail=True))

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels`, (*batch, levels)."""
        return self.critic.quantiles(state.params["critic"], observation, action, levels)

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        """Independent samples of the return, (*batch, samples)."""
        return self.quantiles(state, observation, action, jax.random.uniform(key, (*action.shape[:-1], num_samples)))
