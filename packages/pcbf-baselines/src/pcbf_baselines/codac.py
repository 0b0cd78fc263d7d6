"""CODAC: quantile regression with a penalty on the values of actions outside the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.laws import LawReadout
from pcbf_baselines.losses import conservative_penalty, gaussian_log_density
from pcbf_baselines.policies import DistilledPolicy, DistilledPolicyConfig
from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_core.agent import PlainAgent
from pcbf_core.config import Count, NonNegative
from pcbf_core.learner import LearnerState
from pcbf_core.policy import clip_action
from pcbf_core.roles import over_candidates
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class CODACConfig(DistilledPolicyConfig, QuantileCriticConfig):
    """Settings of CODAC.

    Attributes:
      penalty_weight: weight of the conservative penalty.
      num_penalty_actions: uniform actions, and as many of the policy's, in the penalty.
      masked_target: stop bootstrapping at terminals; the published code does not.
    """

    clip_distilled: bool = True
    penalty_weight: NonNegative = 0.1
    num_penalty_actions: Count = 10
    masked_target: bool = True


@final
@dataclass(frozen=True)
class CODAC(LawReadout, PlainAgent):
    """Conservative offline distributional actor-critic with a one-step policy distilled from the cloned flow."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: CODACConfig
    spec: TaskSpec

    @property
    def critic(self) -> QuantileCritic:
        return QuantileCritic(self.config, self.spec)

    @property
    def policy(self) -> DistilledPolicy:
        return DistilledPolicy(self.config, self.spec)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, policy_key = jax.random.split(key)
        return {"critic": self.critic.init_params(critic_key), **self.policy.init_params(policy_key)}

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Quantile regression with a' = π₁(s', n), the penalty, and the policy's loss."""
        action_key, critic_key, penalty_key, policy_key, level_key = jax.random.split(key, 5)
        next_action = self.policy.sample(state.params, batch.next_observation, action_key)
        target_batch = batch.replace(next_action=next_action)
        if not self.config.masked_target:
            target_batch = target_batch.replace(terminal=jnp.zeros_like(batch.terminal))
        critic_loss, level, quantile = self.critic.regression(
            params["critic"], state.target_params["critic"], target_batch, critic_key
        )
        penalty = self.penalty(params["critic"], state, batch.observation, level, quantile.mean(axis=-1), penalty_key)

        level = jax.random.uniform(level_key, level.shape)

        def value(action: Array) -> Array:
            quantiles = self.critic.quantile(
                state.params["critic"], batch.observation, action, level, for_gradient=True
            )
            return quantiles.mean(axis=-1)

        policy_loss, metrics = self.policy.loss(
            params, state.params, batch.observation, batch.action, policy_key, value
        )
        loss = critic_loss + self.config.penalty_weight * penalty + policy_loss
        return loss, {"critic_loss": critic_loss, "penalty": penalty, **metrics}

    def penalty(
        self, params: PyTree, state: LearnerState, observation: Array, level: Array, data_value: Array, key: Array
    ) -> Array:
        """Mean conservative penalty at one of each transition's levels, over uniform and policy actions.

        `data_value` (members, batch) is the mean of the quantiles at the data's actions.
        """
        pick_key, uniform_key, policy_key = jax.random.split(key, 3)
        batch_size, num_levels = level.shape
        pick = jax.random.randint(pick_key, (batch_size, 1), 0, num_levels)
        level = jnp.take_along_axis(level, pick, axis=1)[:, None]  # (batch, 1, 1)

        dim, count = self.spec.action_dim, self.config.num_penalty_actions
        uniform = jax.random.uniform(uniform_key, (batch_size, count, dim), minval=-1.0, maxval=1.0)
        uniform_density = jnp.full((batch_size, count), -dim * jnp.log(2.0))
        observation = over_candidates(observation, self.spec)
        own, own_density = self.policy_actions(state.params, observation, (batch_size, count), policy_key)
        action = jnp.concatenate([uniform, own], axis=1)
        log_density = jnp.concatenate([uniform_density, own_density], axis=1)
        value = self.critic.quantile(params, observation, action, level, for_gradient=True)[..., 0]
        return jnp.mean(conservative_penalty(value, log_density, data_value))

    def policy_actions(
        self, params: Mapping[str, PyTree], observation: Array, shape: tuple[int, ...], key: Array
    ) -> tuple[Array, Array]:
        """Actions π₁(s, n), clipped, and the log-density of the unclipped ones as the method estimates it.

        The density is log N(n; 0, I) - ñᵀ (∂π₁/∂n) ñ with one Gaussian probe ñ: an unbiased estimate of
        the trace of the Jacobian, where the change of variables has its log-determinant. The two agree to
        first order about ∂π₁/∂n = I, up to the action's dimension, which is the same for all actions.
        """
        noise_key, probe_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (*shape, self.spec.action_dim))
        probe = jax.random.normal(probe_key, noise.shape)
        network = self.policy.role.at(params["actor"], observation)
        action, change = jax.jvp(network, (noise,), (probe,))
        return clip_action(action), gaussian_log_density(noise) - jnp.sum(probe * change, axis=-1)

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """π₁(s, n) with fresh noise, clipped."""
        return self.policy.sample(state.params, observation, key)
