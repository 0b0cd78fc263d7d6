"""The velocity targets of the current path, as pure functions of one sample."""

from __future__ import annotations

from pcbf_core.paths import successor_point
from pcbf_core.types import Real


def bellman_velocity(
    *,
    noise: Real,
    successor_return: Real,
    reward: Real,
    effective_discount: Real,
) -> Real:
    """Velocity of the current path, Y = R + γ̃ X' - X_0 (eq:bcfm-target)."""
    return reward + effective_discount * successor_return - noise


def control_variate(
    *,
    noise: Real,
    successor_return: Real,
    successor_velocity: Real,
) -> Real:
    """Predicted minus sampled successor velocity, C_t = c_t - (X' - X_0).

    `noise` is the noise that drives the successor path: X_0 itself when it is shared.
    """
    return successor_velocity - (successor_return - noise)


def velocity_target(
    *,
    noise: Real,
    successor_return: Real,
    reward: Real,
    successor_velocity: Real,
    effective_discount: Real,
    effective_control_weight: Real,
    successor_noise: Real | None = None,
) -> Real:
    """The regression target u^λ_t = Y + λ̃ C_t (eq:lambda_target).

    `successor_noise` is X_0' of the independent-noise ablation; None means shared noise, X_0' = X_0.
    """
    velocity = bellman_velocity(
        noise=noise, successor_return=successor_return, reward=reward, effective_discount=effective_discount
    )
    correction = control_variate(
        noise=noise if successor_noise is None else successor_noise,
        successor_return=successor_return,
        successor_velocity=successor_velocity,
    )
    return velocity + effective_control_weight * correction


def flow_path_velocity(
    *,
    noise: Real,
    successor_noise: Real,
    successor_return: Real,
    flow_point: Real,
    flow_velocity: Real,
    reward: Real,
    flow_time: Real,
    effective_discount: Real,
    control_weight: Real,
    control_weight_slope: Real = 0.0,
) -> Real:
    """Velocity of `flow_path_point`, with `flow_velocity` dẐ/dt = v⁻(t, Ẑ_t | s', a') and `control_weight_slope` λ'(t).

        dZ/dt = R + γ̃ X' - X_0 + γ̃ λ (v⁻(t, Ẑ_t) - (X' - X_0')) + γ̃ λ'(t) (Ẑ_t - Z^{s'}_t)

    It *is* the velocity of the path, so flow matching applies and the learned field carries the noise to the law of
    R + γ̃ X' at every λ. For a constant λ it is u^λ of eq:lambda_target with C_t on the flow and γ̃ λ for λ̃.
    """
    velocity = velocity_target(
        noise=noise,
        successor_return=successor_return,
        reward=reward,
        successor_velocity=flow_velocity,
        effective_discount=effective_discount,
        effective_control_weight=effective_discount * control_weight,
        successor_noise=successor_noise,
    )
    linear = successor_point(noise=successor_noise, successor_return=successor_return, flow_time=flow_time)
    return velocity + effective_discount * control_weight_slope * (flow_point - linear)


def optimal_control_weight(flow_time: Real, *, discount: float, noise_correlation: float = 1.0) -> Real:
    """The λ of least target variance in the linear-Gaussian case, λ*(t) = γ(1-t) + ρ t (app:gaussian_bias)."""
    return discount * (1 - flow_time) + noise_correlation * flow_time
