"""The PCBF critic and its loss (alg:pcbf-train)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.config import Share
from pcbf_core.flow import Velocity
from pcbf_core.flow_critic import FlowCritic, ReturnFlow
from pcbf_core.paths import current_point, successor_point
from pcbf_core.released import ReleasedCriticConfig, compiled_pair, first_members
from pcbf_core.targets import optimal_control_weight, velocity_target
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition

ControlWeight = Share | Literal["optimal"] | Callable[[Array], Array | float]


@dataclass(frozen=True)
class PCBFCriticConfig(ReleasedCriticConfig):
    """Settings of the PCBF critic.

    Attributes:
      control_weight: λ of eq:lambda_target: a constant, "optimal" for λ*(t) = γ(1-t) + ρt, or any
        function of flow time.
      shared_noise: True drives successor and current path by one noise (ρ = 1); False is the ablation
        with independent noises (ρ = 0).
    """

    coefficient_names: ClassVar[tuple[str, ...]] = ("control_weight",)

    control_weight: ControlWeight = 0.0
    shared_noise: bool = True


def path_coupled_pair(
    target_velocity: Velocity,
    *,
    noise: Array,
    successor_noise: Array,
    successor_return: Array,
    flow_time: Array,
    reward: Array,
    terminal: Array,
    discount: float,
    control_weight: Array | float,
) -> tuple[Array, Array]:
    """Input and regression target (Z^s_t, u^λ_t) of one transition, as in the loop of alg:pcbf-train.

    `target_velocity(t, z)` is v_{θ⁻}(t, z | s', a'); terminal transitions get γ̃ = λ̃ = 0.
    """
    effective_discount = discount * (1 - terminal)
    effective_control_weight = control_weight * (1 - terminal)
    successor = successor_point(noise=successor_noise, successor_return=successor_return, flow_time=flow_time)
    point = current_point(
        noise=noise,
        successor_return=successor_return,
        reward=reward,
        flow_time=flow_time,
        effective_discount=effective_discount,
    )
    target = velocity_target(
        noise=noise,
        successor_return=successor_return,
        reward=reward,
        successor_velocity=target_velocity(flow_time, successor),
        effective_discount=effective_discount,
        effective_control_weight=effective_control_weight,
        successor_noise=successor_noise,
    )
    return point, target


@final
@dataclass(frozen=True)
class PCBFCritic(FlowCritic):
    """Path-coupled Bellman flow critic (alg:pcbf-train)."""

    config: PCBFCriticConfig
    spec: TaskSpec

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Mean over members, batch and flow times of |v_θ(t, Z^s_t | s, a) - sg(u^λ_t)|² (alg:pcbf-train)."""
        config = self.config
        noise_key, successor_key = jax.random.split(key)
        noise, flow_time = self.draw(noise_key, batch)
        successor_noise = noise if config.shared_noise else self.draw(successor_key, batch)[0]
        successor = self.trained_flow(target_params, batch.next_observation, batch.successor_action)
        coupled_pair = compiled_pair(config, successor) if config.is_compiled_form else path_coupled_pair
        point, target = coupled_pair(
            successor.velocity,
            noise=noise,
            successor_noise=successor_noise,
            successor_return=successor.returns(successor_noise),
            flow_time=flow_time,
            reward=batch.reward[:, None],
            terminal=batch.terminal[:, None],
            discount=config.discount,
            control_weight=self.control_weight(flow_time, coefficients),
        )
        point, target = jax.lax.stop_gradient((point, target))
        current = self.trained_flow(params, batch.observation, batch.action, for_gradient=True)
        loss = jnp.mean((current.member_velocities(flow_time, point) - target) ** 2)
        return loss, {"critic_loss": loss}

    def trained_flow(
        self, params: PyTree, observation: Array, action: Array, *, for_gradient: bool = False
    ) -> ReturnFlow:
        """The flow at (s, a) of the members that are trained, all of them unless `trained_critics` says less."""
        trained = first_members(self.role, params, self.config.trained_critics)
        aggregation = self.config.successor_aggregation
        return self.flow_at(trained, observation, action, aggregation=aggregation, for_gradient=for_gradient)

    def control_weight(self, flow_time: Array, coefficients: Mapping[str, Array]) -> Array | float:
        """λ at a flow time: the constant, λ*(t), or the caller's own function."""
        weight = self.config.control_weight
        if callable(weight):
            return weight(flow_time)
        if weight == "optimal":
            correlation = 1.0 if self.config.shared_noise else 0.0
            return optimal_control_weight(flow_time, discount=self.config.discount, noise_correlation=correlation)
        return coefficients["control_weight"]
