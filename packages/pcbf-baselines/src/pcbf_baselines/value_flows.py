"""Value Flows: endpoint supervision (BCFM) plus same-time self-consistency (DCFM) of the return flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.losses import bcfm_pair, confidence_weight, dcfm_pair
from pcbf_core.config import check_range
from pcbf_core.critic import AGGREGATIONS, FlowCritic, FlowCriticConfig, noise_and_times
from pcbf_core.flow import Velocity, flow_map
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

    bcfm_weight: float = 1.0
    dcfm_weight: float = 1.0
    confidence_temperature: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("bcfm_weight", self.bcfm_weight, at_least=0)
        check_range("dcfm_weight", self.dcfm_weight, at_least=0)
        if self.confidence_temperature is not None:
            check_range("confidence_temperature", self.confidence_temperature, above=0)


@final
@dataclass(frozen=True)
class ValueFlowsCritic(FlowCritic):
    """Return flow trained by bcfm_weight · L_BCFM + dcfm_weight · L_DCFM (app:dcfm)."""

    config: ValueFlowsCriticConfig
    spec: TaskSpec

    @property
    def coefficients(self) -> dict[str, float]:
        return {"bcfm_weight": self.config.bcfm_weight, "dcfm_weight": self.config.dcfm_weight}

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
        noise, flow_time = noise_and_times(
            key,
            batch.reward.shape[0],
            config.num_flow_times,
            stratified=config.stratified,
            time_power=config.time_sampling_power,
        )
        reward, terminal = batch.reward[:, None], batch.terminal[:, None]
        aggregate = partial(AGGREGATIONS[config.successor_aggregation], axis=0)
        successor = self.ensemble(target_params, batch.next_observation, batch.successor_action, sample_axes=1)
        online = self.ensemble(params, batch.observation, batch.action, sample_axes=1, for_gradient=True)
        members = (config.num_critics, *flow_time.shape)
        start = jnp.broadcast_to(noise, (config.num_critics, *noise.shape))

        successor_return = aggregate(flow_map(successor, start, config.num_flow_steps, **self.flow_options()))
        bellman = {"reward": reward, "terminal": terminal, "discount": config.discount}
        point, target = bcfm_pair(noise=noise, successor_return=successor_return, flow_time=flow_time, **bellman)
        prediction = online(flow_time[None], jnp.broadcast_to(point, members))
        bcfm_error = (prediction - target) ** 2

        time = flow_time[:, :1]
        partial_flow = flow_map(successor, start, config.num_flow_steps, end_time=time[None], **self.flow_options())
        point, target = dcfm_pair(
            lambda t, z: aggregate(successor(t[None], jnp.broadcast_to(z, start.shape))),
            successor_point=aggregate(partial_flow),
            flow_time=time,
            **bellman,
        )
        prediction = online(time[None], jnp.broadcast_to(point, start.shape))
        dcfm_error = (prediction - target) ** 2

        if config.confidence_temperature is not None:
            weight = self.confidence(target_params, batch, jax.random.fold_in(key, 1), config.confidence_temperature)
            bcfm_error, dcfm_error = weight * bcfm_error, weight * dcfm_error
        bcfm, dcfm = jnp.mean(bcfm_error), jnp.mean(dcfm_error)
        loss = coefficients["bcfm_weight"] * bcfm + coefficients["dcfm_weight"] * dcfm
        return loss, {"critic_loss": loss, "bcfm_loss": bcfm, "dcfm_loss": dcfm}

    def confidence(self, target_params: PyTree, batch: Transition, key: Array, temperature: float) -> Array:
        """Weight of each transition, (batch, 1), from the slow flow's spread |∂ψ(ε | s, a)/∂ε| at one noise.

        The clipping of returns is not differentiated, as in the method's own code.
        """
        field = self.ensemble(target_params, batch.observation, batch.action, sample_axes=1)
        noise = jax.random.normal(key, (batch.reward.shape[0], 1))
        start = jnp.broadcast_to(noise, (self.config.num_critics, *noise.shape))
        options = self.flow_options()
        if options["clip_range"] is not None:
            infinite = jnp.full((2, 1, 1, 1), jnp.inf)
            low, high = options["clip_range"]
            options["clip_range"] = ((-infinite).at[0].set(low), infinite.at[0].set(high))
        pair = flow_map(
            with_tangent(field), jnp.stack([start, jnp.ones_like(start)]), self.config.num_flow_steps, **options
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

    confidence_temperature: float | None = 0.3
    score: str = "one_step"
    num_return_samples: int = 1
    num_next_samples: int = 1
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
