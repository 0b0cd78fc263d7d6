"""What imitates the code in the paper's repository where it differs from the paper; nothing else lives here.

The repository holds two forms: "released" is its source, "compiled" older code of which it keeps compiled files
only. Each difference is a setting; `VARIANTS` names those of each form, docs/deviations.md says why they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
from jax import Array

from pcbf_core.config import Count, check_range
from pcbf_core.flow import Velocity
from pcbf_core.flow_critic import FlowCriticConfig, ReturnFlow
from pcbf_core.paths import successor_point
from pcbf_core.roles import Role
from pcbf_core.targets import velocity_target
from pcbf_core.types import PyTree, Transition

Path = Literal["flow", "linear", "blended"]
LambdaScale = Literal["paper", "inside_discount"]
DoneSource = Literal["masks", "terminals"]

PAPER: dict[str, Any] = {
    "path": "linear",
    "control_weight": 0.0,
    "polyak_rate": 0.005,
    "solver": "euler",
    "num_flow_steps": 10,
    "stratified": False,
    "score": "mean",
    "score_noise": "shared",
    "num_return_samples": 16,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "released": {
        **PAPER,
        "next_action": "current_action",
        "done_source": "terminals",
        "trained_critics": 1,
        "score": "one_step",
        "num_return_samples": 1,
        "score_noise": "per_candidate",
        "action_clip": "every_step",
        "grad_clip": 1.0,
    },
    "compiled": {
        **PAPER,
        "path": "blended",
        "lambda_scale": "inside_discount",
        "score": "one_step",
        "num_return_samples": 1,
        "score_noise": "per_candidate",
        "next_score": "one_step",
        "num_next_samples": 1,
        "action_clip": "every_step",
    },
}


@dataclass(frozen=True)
class ReleasedCriticConfig(FlowCriticConfig):
    """Where the repository's critics differ from the paper's; the defaults are the paper's.

    Attributes:
      trained_critics: how many members the loss trains and asks for targets; None for all of them. The
        paper's repository trains one of two.
      path: "linear" is the paper's path (eq:current-path); "blended" moves the share λ of the successor
        point onto the integrated flow, as code compiled into the paper's repository does, but keeps the target's
        weight λ; "flow" is that path with the target that belongs to it (see `PCBFCriticConfig`).
      lambda_scale: "paper" weighs the control variate by λ (eq:lambda_target); "inside_discount" writes
        R + γ̃ (X' + λ (c_t - X')) + (λ - 1) X_0, as that compiled code does (biased by λ X_0 at terminals).
    """

    trained_critics: Count | None = None
    path: Path = "linear"
    lambda_scale: LambdaScale = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trained_critics is not None:
            check_range("trained_critics", self.trained_critics, at_least=1, at_most=self.num_critics)

    @property
    def is_compiled_form(self) -> bool:
        """Whether path or target are those of the compiled code."""
        return self.path == "blended" or self.lambda_scale != "paper"


def first_members(role: Role, params: PyTree, num_members: int | None) -> PyTree:
    """The parameters of the first members of the ensemble, with their encoder; None for all members."""
    if num_members is None or num_members == role.members:
        return params
    first = jax.tree.map(lambda leaf: leaf[:num_members], role.network(params))
    return first if role.encoder is None else {**params, "network": first}


def compiled_pair(config: ReleasedCriticConfig, successor: ReturnFlow) -> Callable[..., tuple[Array, Array]]:
    """`blended_pair` as the settings ask for it, with the arguments of `path_coupled_pair`."""

    def pair(
        target_velocity: Velocity, *, successor_noise: Array, flow_time: Array, **others: Any
    ) -> tuple[Array, Array]:
        flow_point = successor.points(successor_noise, flow_time) if config.path == "blended" else None
        return blended_pair(
            target_velocity,
            successor_noise=successor_noise,
            flow_time=flow_time,
            flow_point=flow_point,
            lambda_scale=config.lambda_scale,
            **others,
        )

    return pair


def blended_pair(
    target_velocity: Velocity,
    *,
    noise: Array,
    successor_noise: Array,
    successor_return: Array,
    flow_point: Array | None,
    flow_time: Array,
    reward: Array,
    terminal: Array,
    discount: float,
    control_weight: Array | float,
    lambda_scale: LambdaScale,
) -> tuple[Array, Array]:
    """Input and regression target of the forms compiled into the paper's repository, see `ReleasedCriticConfig`.

    With Ẑ_t = `flow_point`, the successor flow stopped at t (None for the linear path),

        Z = t R + γ̃ (Z^{s'}_t + λ (Ẑ_t - Z^{s'}_t)) + (1-t)(1-γ̃) X_0.
    """
    effective_discount = discount * (1 - terminal)
    linear = successor_point(noise=successor_noise, successor_return=successor_return, flow_time=flow_time)
    successor = linear if flow_point is None else flow_point
    mixed = linear + control_weight * (successor - linear)
    point = flow_time * reward + effective_discount * mixed + (1 - flow_time) * (1 - effective_discount) * noise
    successor_velocity = target_velocity(flow_time, successor)
    if lambda_scale == "paper":
        return point, velocity_target(
            noise=noise,
            successor_return=successor_return,
            reward=reward,
            successor_velocity=successor_velocity,
            effective_discount=effective_discount,
            effective_control_weight=control_weight * (1 - terminal),
            successor_noise=successor_noise,
        )
    mixed_return = successor_return + control_weight * (successor_velocity - successor_return)
    return point, reward + effective_discount * mixed_return + control_weight * successor_noise - noise


def with_terminals_of(done_source: DoneSource, batch: Transition) -> Transition:
    """The batch with d from `done_source`: "masks" keeps the paper's, "terminals" ends where trajectories do."""
    if done_source == "masks":
        return batch
    if batch.trajectory_end is None:
        raise ValueError(
            '`done_source="terminals"` needs `Transition.trajectory_end`, which this data lacks; '
            'fill it in, or use `done_source="masks"`.'
        )
    return batch.replace(terminal=batch.trajectory_end)
