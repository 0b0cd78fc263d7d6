"""FQL: a scalar critic whose gradient trains a one-step policy distilled from the cloned flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.policies import DistilledPolicyConfig, DistillingAgent
from pcbf_baselines.values import EnsembleConfig, q_role, q_values
from pcbf_core.learner import LearnerState
from pcbf_core.roles import Role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class FQLConfig(DistilledPolicyConfig, EnsembleConfig):
    """Settings of FQL; the actors have no LayerNorm, as in the method's own code."""

    actor_layer_norm: bool = False


@final
@dataclass(frozen=True)
class FQL(DistillingAgent):
    """Flow Q-learning."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: FQLConfig
    spec: TaskSpec

    @property
    def critic(self) -> Role:
        return q_role(self.spec, self.config)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, policy_key = jax.random.split(key)
        return {"critic": self.critic.init(critic_key, self.spec), **self.init_policy(policy_key)}

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """TD loss towards R + γ̃ Q⁻(s', π₁(s', n)), plus the policy's loss."""
        action_key, policy_key = jax.random.split(key)
        next_action = self.policy.sample(state.params, batch.next_observation, action_key)
        next_q = q_values(self.critic, state.target_params["critic"], batch.next_observation)(next_action)
        target = batch.reward + self.config.discount * (1 - batch.terminal) * self.config.aggregate(next_q)
        q = q_values(self.critic, params["critic"], batch.observation)(batch.action)
        critic_loss = jnp.mean((q - target) ** 2)

        value = q_values(self.critic, state.params["critic"], batch.observation)
        policy_loss, metrics = self.policy_loss(params, state, batch, policy_key, value)
        return critic_loss + policy_loss, {"critic_loss": critic_loss, **metrics}

    def mean_return(self, state: LearnerState, observation: Array, action: Array) -> Array:
        """Q(s, a), (*batch,), the mean of the members."""
        return q_values(self.critic, state.params["critic"], observation)(action).mean(axis=0)
