"""IQL: expectile value, then advantage-weighted regression of a Gaussian policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.losses import awr_weight, expectile_loss
from pcbf_baselines.policies import GaussianPolicy
from pcbf_baselines.values import EnsembleConfig, q_role, q_values
from pcbf_core.agent import PlainAgent
from pcbf_core.config import NonNegative, Range
from pcbf_core.flow_critic import Aggregation
from pcbf_core.learner import LearnerState
from pcbf_core.policy import ActorConfig, clip_action
from pcbf_core.roles import Role, make_role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class IQLConfig(EnsembleConfig, ActorConfig):
    """Settings of IQL.

    Attributes:
      expectile: τ of the value's expectile.
      inverse_temperature: α of the policy's weights.
    """

    actor_layer_norm: bool = False
    value_aggregation: Aggregation = "min"
    expectile: Annotated[float, Range(above=0, below=1)] = 0.9
    inverse_temperature: NonNegative = 10.0


@final
@dataclass(frozen=True)
class IQL(PlainAgent):
    """Implicit Q-learning: no action outside the data is ever evaluated."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: IQLConfig
    spec: TaskSpec

    @property
    def critic(self) -> Role:
        return q_role(self.spec, self.config)

    @property
    def value(self) -> Role:
        return make_role(self.spec, self.config, input_dim=0, output_dim=1)

    @property
    def policy(self) -> GaussianPolicy:
        return GaussianPolicy(self.config, self.spec)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, value_key, actor_key = jax.random.split(key, 3)
        return {
            "critic": self.critic.init(critic_key, self.spec),
            "value": self.value.init(value_key, self.spec),
            "actor": self.policy.init_params(actor_key),
        }

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Expectile loss of V towards min Q⁻, TD loss of Q towards R + γ̃ V(s'), weighted regression of the policy.

        The weight of the policy uses the online critics and value as constants.
        """
        config = self.config
        target_q = config.aggregate(self.q(state.target_params["critic"], batch.observation, batch.action))
        value = self.v(params["value"], batch.observation)
        value_loss = jnp.mean(expectile_loss(target_q - value, config.expectile))

        target = batch.reward + config.discount * (1 - batch.terminal) * self.v(
            state.params["value"], batch.next_observation
        )
        q = self.q(params["critic"], batch.observation, batch.action)
        critic_loss = jnp.mean(jnp.sum((q - target) ** 2, axis=0))

        advantage = jax.lax.stop_gradient(config.aggregate(q) - value)
        weight = awr_weight(advantage, config.inverse_temperature)
        log_density = self.policy.log_density(params["actor"], batch.observation, batch.action)
        actor_loss = -jnp.mean(weight * log_density)
        metrics = {"critic_loss": critic_loss, "value_loss": value_loss, "actor_loss": actor_loss}
        return critic_loss + value_loss + actor_loss, metrics

    def q(self, params: PyTree, observation: Array, action: Array) -> Array:
        """Q of every member, (members, *batch)."""
        return q_values(self.critic, params, observation)(action)

    def v(self, params: PyTree, observation: Array) -> Array:
        """V(s), (*batch,)."""
        return self.value.at(params, observation)()[..., 0]

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """The policy's mean, clipped; `key` is not used."""
        return clip_action(self.policy.mean(state.params["actor"], observation))

    def mean_return(self, state: LearnerState, observation: Array, action: Array) -> Array:
        """Q(s, a), (*batch,), the mean of the members."""
        return self.q(state.params["critic"], observation, action).mean(axis=0)
