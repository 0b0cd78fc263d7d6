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
from pcbf_baselines.policies import DistilledPolicyConfig, DistillingAgent
from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_core.config import Count, NonNegative
from pcbf_core.learner import LearnerState, ReturnCritic
from pcbf_core.policy import clip_action
from pcbf_core.roles import over_candidates
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class ConservativeCriticConfig(QuantileCriticConfig):
    """Settings of CODAC's critic alone, see `CODACConfig`."""

    penalty_weight: NonNegative = 0.1
    num_penalty_actions: Count = 10


@final
@dataclass(frozen=True)
class ConservativeCritic(ReturnCritic):
    """CODAC's critic where a given policy is evaluated: IQN's critic and the penalty.

    Without the penalty it is IQN's. There is no actor, whose place the data's actions take: the penalty asks uniform
    actions only.
    """

    config: ConservativeCriticConfig
    spec: TaskSpec

    @property
    def law(self) -> QuantileCritic:
        return QuantileCritic(self.config, self.spec)

    def init_params(self, key: Array) -> PyTree:
        return self.law.init_params(key)

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Quantile regression with the batch's a', and the penalty at one of each transition's levels."""
        critic_key, pick_key, uniform_key = jax.random.split(key, 3)
        critic_loss, level, quantile = self.law.regression(params, target_params, batch, critic_key)
        level = picked_level(level, pick_key)
        action, log_density = uniform_actions(self.spec, level.shape[0], self.config.num_penalty_actions, uniform_key)
        observation = over_candidates(batch.observation, self.spec)
        value = self.law.quantile(params, observation, action, level, for_gradient=True)[..., 0]
        penalty = jnp.mean(conservative_penalty(value, log_density, quantile.mean(axis=-1)))
        return critic_loss + self.config.penalty_weight * penalty, {"critic_loss": critic_loss, "penalty": penalty}

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels`, (*batch, levels)."""
        return self.law.quantiles(state, observation, action, levels)


def picked_level(level: Array, key: Array) -> Array:
    """One of each transition's levels (batch, levels), to stand beside several actions: (batch, 1, 1)."""
    pick = jax.random.randint(key, (level.shape[0], 1), 0, level.shape[1])
    return jnp.take_along_axis(level, pick, axis=1)[:, None]


def uniform_actions(spec: TaskSpec, batch_size: int, count: int, key: Array) -> tuple[Array, Array]:
    """Actions from all of [-1, 1]ⁿ, (batch, count, action_dim), and their log-density, (batch, count)."""
    action = jax.random.uniform(key, (batch_size, count, spec.action_dim), minval=-1.0, maxval=1.0)
    return action, jnp.full((batch_size, count), -spec.action_dim * jnp.log(2.0))


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
class CODAC(LawReadout, DistillingAgent):
    """Conservative offline distributional actor-critic with a one-step policy distilled from the cloned flow."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: CODACConfig
    spec: TaskSpec

    @property
    def critic(self) -> QuantileCritic:
        return QuantileCritic(self.config, self.spec)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, policy_key = jax.random.split(key)
        return {"critic": self.critic.init_params(critic_key), **self.init_policy(policy_key)}

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

        policy_loss, metrics = self.policy_loss(params, state, batch, policy_key, value)
        loss = critic_loss + self.config.penalty_weight * penalty + policy_loss
        return loss, {"critic_loss": critic_loss, "penalty": penalty, **metrics}

    def penalty(
        self, params: PyTree, state: LearnerState, observation: Array, level: Array, data_value: Array, key: Array
    ) -> Array:
        """Mean conservative penalty at one of each transition's levels, over uniform and policy actions.

        `data_value` (members, batch) is the mean of the quantiles at the data's actions.
        """
        pick_key, uniform_key, policy_key = jax.random.split(key, 3)
        batch_size, count = level.shape[0], self.config.num_penalty_actions
        level = picked_level(level, pick_key)
        uniform, uniform_density = uniform_actions(self.spec, batch_size, count, uniform_key)
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
