"""The velocity targets of the current path, as pure functions of one sample."""

from __future__ import annotations

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


def optimal_control_weight(flow_time: Real, *, discount: float, noise_correlation: float = 1.0) -> Real:
    """The λ of least target variance in the linear-Gaussian case, λ*(t) = γ(1-t) + ρ t (app:gaussian_bias)."""
    return discount * (1 - flow_time) + noise_correlation * flow_time
