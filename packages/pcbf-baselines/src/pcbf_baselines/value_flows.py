"""Value Flows: endpoint supervision (BCFM) plus same-time self-consistency (DCFM) of the return flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import final

import jax
import jax.numpy as jnp
from jax import Array
from pcbf_core.config import check_range
from pcbf_core.critic import AGGREGATIONS, FlowCritic, FlowCriticConfig, noise_and_times, path_coupled_pair
from pcbf_core.flow import flow_map
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class ValueFlowsCriticConfig(FlowCriticConfig):
    """Settings of the Value Flows critic.

    Attributes:
      bcfm_weight: weight of the endpoint term (the method's own λ).
      dcfm_weight: weight of the self-consistency term.
    """

    bcfm_weight: float = 1.0
    dcfm_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("bcfm_weight", self.bcfm_weight, at_least=0)
        check_range("dcfm_weight", self.dcfm_weight, at_least=0)


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
        """Sum of both terms, each a mean over members, batch and flow times.

        L_BCFM = |v(t, (1-t) ε + t G) - (G - ε)|², G = R + γ̃ X', X' from the same noise ε: PCBF at λ = 0.
        L_DCFM = |v(t, R + γ̃ Ẑ_t) - v⁻(t, Ẑ_t | s', a')|² with Ẑ_t the target flow stopped at t. The
        successor velocity carries no factor γ, as in the method's own code. This term needs one more
        flow per time, so it is estimated at the first of the transition's flow times.
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
        successor = self.ensemble(target_params, batch.next_observation, batch.next_action, sample_axes=1)
        online = self.ensemble(params, batch.observation, batch.action, sample_axes=1)
        members = (config.num_critics, *flow_time.shape)
        start = jnp.broadcast_to(noise, (config.num_critics, *noise.shape))

        successor_return = aggregate(flow_map(successor, start, config.num_flow_steps, **self.flow_options()))
        point, target = path_coupled_pair(
            lambda t, z: jnp.zeros_like(z),  # without weight at λ = 0
            noise=noise,
            successor_noise=noise,
            successor_return=successor_return,
            flow_time=flow_time,
            reward=reward,
            terminal=terminal,
            discount=config.discount,
            control_weight=jnp.zeros(()),
        )
        prediction = online(flow_time[None], jnp.broadcast_to(point, members))
        bcfm = jnp.mean((prediction - target) ** 2)

        time = flow_time[:, :1]
        partial_flow = flow_map(successor, start, config.num_flow_steps, end_time=time[None], **self.flow_options())
        successor_point = aggregate(partial_flow)
        same_time = aggregate(successor(time[None], jnp.broadcast_to(successor_point, start.shape)))
        bellman_point = reward + config.discount * (1 - terminal) * successor_point
        prediction = online(time[None], jnp.broadcast_to(bellman_point, start.shape))
        dcfm = jnp.mean((prediction - same_time) ** 2)

        loss = coefficients["bcfm_weight"] * bcfm + coefficients["dcfm_weight"] * dcfm
        return loss, {"critic_loss": loss, "bcfm_loss": bcfm, "dcfm_loss": dcfm}
