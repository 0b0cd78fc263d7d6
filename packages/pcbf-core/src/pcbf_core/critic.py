"""The PCBF critic and its loss (alg:pcbf-train)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.config import LATER, Count, PositiveShare, Share
from pcbf_core.flow import Solver, Velocity
from pcbf_core.flow_critic import FlowCritic, FlowPath, ReturnFlow
from pcbf_core.noise import even_levels, noise_at_levels
from pcbf_core.paths import current_point, flow_path_point, successor_point
from pcbf_core.released import Path, ReleasedCriticConfig, compiled_pair, first_members
from pcbf_core.targets import flow_path_velocity, optimal_control_weight, velocity_target
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition

ControlWeight = Share | Literal["optimal"] | Callable[[Array], Array | float]
Bootstrap = Literal["law", "mean"]
NUM_MEAN_SAMPLES = 4  # evenly spread noises whose returns give the mean of the successor


@dataclass(frozen=True)
class PCBFCriticConfig(ReleasedCriticConfig):
    """Settings of the PCBF critic; the defaults are the best we know, `PCBFConfig.variant("paper")` has the paper's.

    Attributes:
      path: "flow" puts the share λ of the successor point on the successor's own flow, which leaves no bias at any λ
        (docs/flow-path.md); "linear" is the paper's (eq:current-path), where λ buys variance with bias.
      control_weight: λ: a constant, a function of flow time or, on the linear path, "optimal" for
        λ*(t) = γ(1-t) + ρt; None is 1 on the flow path and 0 on the linear one.
      shared_noise: True drives successor and current path by one noise (ρ = 1); False is the ablation
        with independent noises (ρ = 0).
      bootstrap: "law" carries each noise to its own X'; "mean" puts Q̂(s', a') in the place of every X', as a critic
        of expected values does (the ablation). A point has no path of its own, so it needs the linear one at λ = 0.
    """

    coefficient_names: ClassVar[tuple[str, ...]] = ("control_weight",)

    polyak_rate: PositiveShare = 0.01
    num_flow_steps: Count = 5
    solver: Solver = "midpoint"
    stratified: bool = True
    path: Path = "flow"
    control_weight: ControlWeight | None = None
    shared_noise: bool = True
    bootstrap: Bootstrap = field(default="law", metadata=LATER)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.control_weight is None:
            object.__setattr__(self, "control_weight", 1.0 if self.path == "flow" else 0.0)
        if self.path == "flow" and (self.control_weight == "optimal" or self.lambda_scale != "paper"):
            raise ValueError(
                f"`control_weight={self.control_weight!r}`, `lambda_scale={self.lambda_scale!r}` are of another path; "
                'on `path="flow"` pass a number in [0, 1] or a function of flow time, or choose `path="linear"`.'
            )
        if self.bootstrap == "mean" and (self.path, self.control_weight) != ("linear", 0):
            raise ValueError(
                f'`bootstrap="mean"` with `path={self.path!r}`, `control_weight={self.control_weight!r}` has no '
                'successor path to follow; pass `path="linear"` and `control_weight=0`.'
            )


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


def flow_path_pair(
    successor: FlowPath,
    *,
    noise: Array,
    successor_noise: Array,
    flow_time: Array,
    reward: Array,
    terminal: Array,
    discount: float,
    control_weight: Array | float,
    control_weight_slope: Array | float,
) -> tuple[Array, Array]:
    """Input and regression target (Z_t, dZ_t/dt) of one transition on the flow path; at terminals γ̃ = 0."""
    flow_point, flow_velocity = successor.at(flow_time)
    shared: dict[str, Any] = dict(
        noise=noise,
        successor_noise=successor_noise,
        successor_return=successor.returns,
        flow_point=flow_point,
        reward=reward,
        flow_time=flow_time,
        effective_discount=discount * (1 - terminal),
        control_weight=control_weight,
    )
    point = flow_path_point(**shared)
    return point, flow_path_velocity(**shared, flow_velocity=flow_velocity, control_weight_slope=control_weight_slope)


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
        given: dict[str, Any] = dict(
            noise=noise,
            successor_noise=successor_noise,
            flow_time=flow_time,
            reward=batch.reward[:, None],
            terminal=batch.terminal[:, None],
            discount=config.discount,
            control_weight=self.control_weight(flow_time, coefficients),
        )
        if config.path == "flow":
            slope = self.control_weight_slope(flow_time)
            pair = flow_path_pair(successor.path(successor_noise), **given, control_weight_slope=slope)
        else:
            coupled_pair = compiled_pair(config, successor) if config.is_compiled_form else path_coupled_pair
            successor_return = self.successor_return(successor, successor_noise)
            pair = coupled_pair(successor.velocity, **given, successor_return=successor_return)
        point, target = jax.lax.stop_gradient(pair)
        current = self.trained_flow(params, batch.observation, batch.action, for_gradient=True)
        loss = jnp.mean((current.member_velocities(flow_time, point) - target) ** 2)
        return loss, {"critic_loss": loss}

    def successor_return(self, successor: ReturnFlow, noise: Array) -> Array:
        """X' = ψ¹(X₀) of every noise; with `bootstrap="mean"` Q̂(s', a') in the place of each."""
        if self.config.bootstrap == "law":
            return successor.returns(noise)
        return successor.returns(noise_at_levels(even_levels(NUM_MEAN_SAMPLES))).mean(axis=-1, keepdims=True)

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

    def control_weight_slope(self, flow_time: Array) -> Array | float:
        """dλ/dt: of the caller's own function, zero for a constant."""
        weight = self.config.control_weight
        if not callable(weight):
            return 0.0
        return jax.jvp(lambda time: jnp.asarray(weight(time), time.dtype), (flow_time,), (jnp.ones_like(flow_time),))[1]
