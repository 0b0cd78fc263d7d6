"""IQN: quantile regression of the return; acts by the best of the proposal's candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.laws import LawAgent
from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_core.candidates import CandidateConfig
from pcbf_core.learner import LearnerState
from pcbf_core.types import TaskSpec


@final
@dataclass(frozen=True)
class IQNConfig(QuantileCriticConfig, CandidateConfig):
    """Settings of IQN; `score` is that of acting, targets take the candidate of highest mean."""


@final
@dataclass(frozen=True)
class IQN(LawAgent):
    """Implicit quantile network with a cloned proposal."""

    config: IQNConfig
    spec: TaskSpec

    @property
    def critic(self) -> QuantileCritic:
        return QuantileCritic(self.config, self.spec)

    def score(self, state: LearnerState, observation: Array, action: Array, key: Array, *, for_target: bool) -> Array:
        """Mean quantile of each candidate, (*batch, candidates), at levels common to the candidates of a state."""
        level = jax.random.uniform(key, (*action.shape[:-2], 1, self.config.num_levels))
        level = level if for_target else self.config.tail_levels(level)
        return jnp.mean(self.critic.quantile(state.params["critic"], observation, action, level), axis=-1)
