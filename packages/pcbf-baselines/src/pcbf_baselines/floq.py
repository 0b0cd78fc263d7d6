"""FloQ: a scalar critic computed by a flow from bounded noise to Q, distilled into a plain critic for the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.policies import DistilledPolicyConfig, DistillingAgent
from pcbf_baselines.values import EnsembleConfig, q_role, q_values
from pcbf_core.agent import require_return_range
from pcbf_core.config import Count, NonNegative, Positive, PositiveShare, Range, Sizes
from pcbf_core.flow import Velocity, flow_map
from pcbf_core.learner import LearnerState
from pcbf_core.policy import clip_action
from pcbf_core.roles import Role, make_role, over_candidates
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition

FAR = 4.0  # standard deviations beyond the range of returns at which a point can still be told from one further out


@final
@dataclass(frozen=True)
class FloQConfig(DistilledPolicyConfig, EnsembleConfig):
    """Settings of FloQ.

    Attributes:
      flow_hidden_sizes: hidden layers of the velocity field; None for `hidden_sizes`.
      num_flow_steps: Euler steps from noise to Q.
      num_flow_samples: noises per transition, in targets, flow loss and distillation.
      noise_coverage: the noise is uniform on this share of the range of returns.
      range_margin: reward added at both ends before the range of returns is embedded.
      num_bins, bin_spread: the point z enters as masses of N(z, (spread · width)²) in so many equal bins.
    """

    discount: Annotated[float, Range(above=0, below=1)] = 0.99
    actor_layer_norm: bool = False
    flow_hidden_sizes: Sizes | None = None
    num_flow_steps: Count = 8
    num_flow_samples: Count = 8
    noise_coverage: PositiveShare = 0.1
    range_margin: NonNegative = 0.01
    num_bins: Count = 50
    bin_spread: Positive = 16.0


@final
@dataclass(frozen=True)
class FloQ(DistillingAgent):
    """Flow-matching Q-functions on top of FQL's policy."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: FloQConfig
    spec: TaskSpec

    def __post_init__(self) -> None:
        require_return_range(self.spec, "FloQ")

    @property
    def critic(self) -> Role:
        """The velocity field on [observation, action, embedded point, cos t].

        The flow time enters as cos t, the form behind the method's published results.
        """
        return make_role(
            self.spec,
            self.config,
            extra_context=self.spec.action_dim,
            input_dim=self.config.num_bins + 1,
            output_dim=1,
            members=self.config.num_critics,
            hidden_sizes=self.config.flow_hidden_sizes,
        )

    @property
    def distilled(self) -> Role:
        return q_role(self.spec, self.config)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, distilled_key, policy_key = jax.random.split(key, 3)
        return {
            "critic": self.critic.init(critic_key, self.spec, jnp.zeros(self.spec.action_dim)),
            "distilled": self.distilled.init(distilled_key, self.spec),
            **self.init_policy(policy_key),
        }

    def embed(self, point: Array) -> Array:
        """Masses of a Gaussian around z in equal bins over the range of returns, (*shape, bins), summing to 1.

        A point far outside the range counts as one `FAR` spreads outside, since beyond that all masses round to 0.
        """
        low, high = require_return_range(self.spec, "FloQ")
        margin = self.config.range_margin / (1 - self.config.discount)
        edges = jnp.linspace(low - margin, high + margin, self.config.num_bins + 1)
        spread = self.config.bin_spread * (edges[1] - edges[0])
        point = jnp.clip(point, edges[0] - FAR * spread, edges[-1] + FAR * spread)
        level = jax.scipy.special.erf((edges - point[..., None]) / (jnp.sqrt(2.0) * spread))
        return jnp.diff(level, axis=-1) / (level[..., -1:] - level[..., :1])

    def velocity(self, params: PyTree, observation: Array, action: Array, *, for_gradient: bool = False) -> Velocity:
        """v(t, z | s, a) on points (members, batch, samples); actions (batch, samples or 1, action_dim)."""
        observation = over_candidates(observation, self.spec)
        field = self.critic.at(params, observation, action, own_inputs=True, for_gradient=for_gradient)

        def velocity(flow_time: Array, point: Array) -> Array:
            time = jnp.broadcast_to(jnp.cos(flow_time), point.shape)[..., None]
            return field(self.embed(point), time)[..., 0]

        return velocity

    def flow_values(self, params: PyTree, observation: Array, action: Array, noise: Array) -> Array:
        """Q that the flow makes of `noise` (batch, samples), by member: (members, batch, samples)."""
        start = jnp.broadcast_to(noise, (self.config.num_critics, *noise.shape))
        return flow_map(self.velocity(params, observation, action), start, self.config.num_flow_steps)

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        low, high = require_return_range(self.spec, "FloQ")
        coverage = self.config.noise_coverage
        return jax.random.uniform(key, shape, minval=coverage * low, maxval=coverage * high)

    def target(self, state: LearnerState, batch: Transition, key: Array) -> Array:
        """y = R + γ̃ mean over samples of the target network's Q at (s', π₁(s', n)), (batch,)."""
        action_key, noise_key = jax.random.split(key)
        shape = (batch.reward.shape[0], self.config.num_flow_samples)
        observation = over_candidates(batch.next_observation, self.spec)
        action_noise = jax.random.normal(action_key, (*shape, self.spec.action_dim))
        next_action = clip_action(self.policy.raw_action(state.params, observation, action_noise))
        next_q = self.flow_values(
            state.target_params["critic"], batch.next_observation, next_action, self.noise(noise_key, shape)
        )
        next_q = self.config.aggregate(next_q).mean(axis=-1)
        return batch.reward + self.config.discount * (1 - batch.terminal) * next_q

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Flow matching towards y, distillation of the flow's Q, and the policy's loss, equally weighted."""
        target_key, noise_key, time_key, policy_key = jax.random.split(key, 4)
        target = self.target(state, batch, target_key)[:, None]
        noise = self.noise(noise_key, (batch.reward.shape[0], self.config.num_flow_samples))
        flow_time = jax.random.uniform(time_key, noise.shape)
        point = (1 - flow_time) * noise + flow_time * target
        action = batch.action[:, None]
        members = (self.config.num_critics, *noise.shape)
        online = self.velocity(params["critic"], batch.observation, action, for_gradient=True)
        prediction = online(flow_time[None], jnp.broadcast_to(point, members))
        flow_loss = jnp.mean(jnp.sum((prediction - (target - noise)) ** 2, axis=-1))

        teacher = self.flow_values(state.params["critic"], batch.observation, action, noise).mean(axis=(0, 2))
        q = q_values(self.distilled, params["distilled"], batch.observation)(batch.action)
        distilled_loss = jnp.mean((q - teacher) ** 2)

        value = q_values(self.distilled, state.params["distilled"], batch.observation)
        policy_loss, metrics = self.policy_loss(params, state, batch, policy_key, value)
        metrics = {"critic_loss": flow_loss, "distilled_critic_loss": distilled_loss, **metrics}
        return flow_loss + distilled_loss + policy_loss, metrics

    def mean_return(self, state: LearnerState, observation: Array, action: Array) -> Array:
        """The distilled Q(s, a), (*batch,), the mean of the members."""
        return q_values(self.distilled, state.params["distilled"], observation)(action).mean(axis=0)
