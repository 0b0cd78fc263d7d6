"""Actors that several baselines share: the one-step policy distilled from a flow, and the Gaussian policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.losses import distillation_loss, gaussian_log_density
from pcbf_core.agent import PlainAgent
from pcbf_core.config import NonNegative
from pcbf_core.learner import LearnerState
from pcbf_core.policy import ActorConfig, Proposal, clip_action
from pcbf_core.proposing import ProposingAgent, ProposingConfig
from pcbf_core.roles import Role, make_role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class DistilledPolicyConfig(ProposingConfig):
    """Settings of a one-step policy distilled from the proposal while it follows a critic.

    Attributes:
      distillation_weight: α, how strongly the one-step policy is held to the proposal.
      clip_distilled: distil the clipped action instead of the raw one.
    """

    distillation_weight: NonNegative = 10.0
    clip_distilled: bool = False


@dataclass(frozen=True)
class DistilledPolicy:
    """π₁(s, n), the role "actor": one network call from noise to action, distilled from the proposal's flow."""

    config: DistilledPolicyConfig
    spec: TaskSpec

    @property
    def proposal(self) -> Proposal:
        return Proposal(self.config, self.spec)

    @property
    def role(self) -> Role:
        """An MLP on [observation, noise]."""
        return make_role(
            self.spec,
            self.config,
            input_dim=self.spec.action_dim,
            output_dim=self.spec.action_dim,
            hidden_sizes=self.config.actor_hidden_sizes,
            layer_norm=self.config.actor_layer_norm,
        )

    def raw_action(self, params: Mapping[str, PyTree], observation: Array, noise: Array) -> Array:
        """π₁(s, n) before clipping; batch axes of the observation broadcast against those of the noise."""
        return self.role.at(params["actor"], observation)(noise)

    def sample(self, params: Mapping[str, PyTree], observation: Array, key: Array) -> Array:
        """One action in [-1, 1] per observation."""
        batch = observation.shape[: observation.ndim - len(self.spec.observation_shape)]
        noise = jax.random.normal(key, (*batch, self.spec.action_dim))
        return clip_action(self.raw_action(params, observation, noise))

    def loss(
        self,
        params: Mapping[str, PyTree],
        proposal_params: PyTree,
        observation: Array,
        action: Array,
        key: Array,
        value: Callable[[Array], Array],
    ) -> tuple[Array, Metrics]:
        """L_BC + α mean (π₁(s, n) - flow(s, n))² - mean value(clip π₁(s, n)); no L_BC if the proposal is given.

        Args:
          proposal_params: constants that the flow's actions are made with.
          value: the critic's opinion of actions (batch, action_dim); its parameters must be constants.
        """
        proposal_key, noise_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, action.shape)
        teacher = self.proposal.flow(proposal_params, observation, noise)
        raw = self.raw_action(params, observation, noise)
        clipped = clip_action(raw)
        distillation = distillation_loss(clipped if self.config.clip_distilled else raw, teacher)
        policy_value = jnp.mean(value(clipped))
        loss = self.config.distillation_weight * distillation - policy_value
        metrics = {"distillation_loss": distillation, "policy_value": policy_value}
        if "proposal" not in params:
            return loss, metrics
        proposal_loss = self.proposal.loss(params["proposal"], observation, action, proposal_key)
        return proposal_loss + loss, {"proposal_loss": proposal_loss, **metrics}


@dataclass(frozen=True)
class DistillingAgent(ProposingAgent, PlainAgent):
    """An agent that acts by a one-step policy distilled from its proposal."""

    config: DistilledPolicyConfig
    spec: TaskSpec

    @property
    def policy(self) -> DistilledPolicy:
        return DistilledPolicy(self.config, self.spec)

    def init_policy(self, key: Array) -> dict[str, PyTree]:
        """Fresh parameters of the policy, and of the proposal if it is trained."""
        proposal_key, actor_key = jax.random.split(key)
        return {**self.trained_proposal(proposal_key), "actor": self.policy.role.init(actor_key, self.spec)}

    def policy_loss(
        self,
        params: Mapping[str, PyTree],
        state: LearnerState,
        batch: Transition,
        key: Array,
        value: Callable[[Array], Array],
    ) -> tuple[Array, Metrics]:
        """The policy's loss on a batch, see `DistilledPolicy.loss`."""
        return self.policy.loss(params, self.proposal_params(state), batch.observation, batch.action, key, value)

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """π₁(s, n) with fresh noise, clipped."""
        return self.policy.sample(state.params, observation, key)


@dataclass(frozen=True)
class GaussianPolicy:
    """N(μ(s), I), the mean unbounded; it acts by its mean, clipped."""

    config: ActorConfig
    spec: TaskSpec

    @property
    def role(self) -> Role:
        return make_role(
            self.spec,
            self.config,
            input_dim=0,
            output_dim=self.spec.action_dim,
            hidden_sizes=self.config.actor_hidden_sizes,
            layer_norm=self.config.actor_layer_norm,
            output_scale=0.01,
        )

    def init_params(self, key: Array) -> PyTree:
        return self.role.init(key, self.spec)

    def mean(self, params: PyTree, observation: Array) -> Array:
        return self.role.at(params, observation)()

    def log_density(self, params: PyTree, observation: Array, action: Array) -> Array:
        """log π(a | s), (*batch,)."""
        return gaussian_log_density(action, self.mean(params, observation))
