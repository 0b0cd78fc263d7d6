"""Value Flows: endpoint supervision (BCFM) plus same-time self-consistency (DCFM) of the return flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.losses import bcfm_pair, confidence_weight, dcfm_pair
from pcbf_core.config import Count, NonNegative, OneOf, Positive
from pcbf_core.flow import Velocity, flow_map
from pcbf_core.flow_critic import AGGREGATIONS, FlowCritic, FlowCriticConfig
from pcbf_core.pcbf import FlowAgent, FlowAgentConfig, ScoreNoise
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class ValueFlowsCriticConfig(FlowCriticConfig):
    """Settings of the Value Flows critic.

    Attributes:
      bcfm_weight: weight of the endpoint term (the method's own λ).
      dcfm_weight: weight of the self-consistency term.
      confidence_temperature: τ of the weights that favour uncertain returns, see `confidence_weight`;
        None weighs all transitions alike.
    """

    coefficient_names: ClassVar[tuple[str, ...]] = ("bcfm_weight", "dcfm_weight")

    bcfm_weight: NonNegative = 1.0
    dcfm_weight: NonNegative = 1.0
    confidence_temperature: Positive | None = None


@final
@dataclass(frozen=True)
class ValueFlowsCritic(FlowCritic):
    """Return flow trained by bcfm_weight · L_BCFM + dcfm_weight · L_DCFM (app:dcfm)."""

    config: ValueFlowsCriticConfig
    spec: TaskSpec

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Sum of both terms, each a mean over members, batch and flow times, weighed by confidence if asked.

        L_BCFM = |v(t, (1-t) ε + t G) - (G - ε)|², G = R + γ̃ X', X' from the same noise ε: PCBF at λ = 0.
        L_DCFM = |v(t, R + γ̃ Ẑ_t) - v⁻(t, Ẑ_t | s', a')|² with Ẑ_t the target flow stopped at t. This
        term needs one more flow per time, so it is estimated at the first of the transition's flow times.
        """
        config = self.config
        target_params = jax.lax.stop_gradient(target_params)
        noise, flow_time = self.draw(key, batch)
        aggregation = config.successor_aggregation
        successor = self.flow_at(target_params, batch.next_observation, batch.successor_action, aggregation=aggregation)
        current = self.flow_at(params, batch.observation, batch.action, aggregation=aggregation, for_gradient=True)
        reward, terminal = batch.reward[:, None], batch.terminal[:, None]

        point, target = bcfm_pair(
            noise=noise,
            successor_return=successor.returns(noise),
            flow_time=flow_time,
            reward=reward,
            terminal=terminal,
            discount=config.discount,
        )
        bcfm_error = (current.member_velocities(flow_time, point) - target) ** 2

        time = flow_time[:, :1]
        point, target = dcfm_pair(
            successor.velocity,
            successor_point=successor.points(noise, time),
            flow_time=time,
            reward=reward,
            terminal=terminal,
            discount=config.discount,
        )
        dcfm_error = (current.member_velocities(time, point) - target) ** 2

        if config.confidence_temperature is not None:
            weight = self.confidence(target_params, batch, jax.random.fold_in(key, 1), config.confidence_temperature)
            bcfm_error, dcfm_error = weight * bcfm_error, weight * dcfm_error
        bcfm, dcfm = jnp.mean(bcfm_error), jnp.mean(dcfm_error)
        loss = coefficients["bcfm_weight"] * bcfm + coefficients["dcfm_weight"] * dcfm
        return loss, {"critic_loss": loss, "bcfm_loss": bcfm, "dcfm_loss": dcfm}

    def confidence(self, target_params: PyTree, batch: Transition, key: Array, temperature: float) -> Array:
        """Weight of each transition, (batch, 1), from the target flow's spread |∂ψ(ε | s, a)/∂ε| at one noise.

        The clipping of returns is not differentiated, as in the method's own code.
        """
        field = self.ensemble(target_params, batch.observation, batch.action, sample_axes=1)
        noise = jax.random.normal(key, (batch.reward.shape[0], 1))
        start = jnp.broadcast_to(noise, (self.config.num_critics, *noise.shape))
        clip_range = self.clip_range
        if clip_range is not None:
            infinite = jnp.full((2, 1, 1, 1), jnp.inf)
            low, high = clip_range
            clip_range = ((-infinite).at[0].set(low), infinite.at[0].set(high))
        pair = flow_map(
            with_tangent(field),
            jnp.stack([start, jnp.ones_like(start)]),
            self.config.num_flow_steps,
            solver=self.config.solver,
            time_power=self.config.time_power,
            clip_range=clip_range,
        )
        spread = AGGREGATIONS[self.config.return_aggregation](jnp.abs(pair[1]), axis=0)
        return jax.lax.stop_gradient(confidence_weight(spread, temperature))


def with_tangent(velocity: Velocity) -> Velocity:
    """The velocity of a point and of the derivative of its flow, stacked on axis 0."""

    def both(flow_time: Array, pair: Array) -> Array:
        return jnp.stack(jax.jvp(lambda z: velocity(flow_time, z), (pair[0],), (pair[1],)))

    return both


@final
@dataclass(frozen=True)
class ValueFlowsConfig(FlowAgentConfig, ValueFlowsCriticConfig):
    """Settings of Value Flows; candidates are scored as in the method's own code, by one Euler step each.

    `successor_aggregation` and `return_aggregation` are its `ret_agg` and `q_agg`.
    """

    confidence_temperature: Positive | None = 0.3
    score: Annotated[str, OneOf("scores")] = "one_step"
    num_return_samples: Count = 1
    num_next_samples: Count = 1
    score_noise: ScoreNoise = "per_candidate"


@final
@dataclass(frozen=True)
class ValueFlows(FlowAgent):
    """Value Flows with its offline policy, the best of the proposal's candidates.

    The one-step actor of the method's code serves online fine-tuning only and is left out.
    """

    config: ValueFlowsConfig
    spec: TaskSpec

    @property
    def critic(self) -> ValueFlowsCritic:
        return ValueFlowsCritic(self.config, self.spec)
