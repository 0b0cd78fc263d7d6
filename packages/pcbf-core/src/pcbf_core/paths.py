"""The interpolation paths between base noise and returns, as pure functions of one sample.

All arguments broadcast, so the same functions serve one transition and a batch.
"""

from __future__ import annotations

from pcbf_core.types import Real


def successor_point(*, noise: Real, successor_return: Real, flow_time: Real) -> Real:
    """Point of the successor path, Z^{s'}_t = (1-t) X_0 + t X' (eq:succ-path)."""
    return (1 - flow_time) * noise + flow_time * successor_return


def current_point(
    *,
    noise: Real,
    successor_return: Real,
    reward: Real,
    flow_time: Real,
    effective_discount: Real,
) -> Real:
    """Point of the current path, Z^s_t = (1-t) X_0 + t (R + γ̃ X') (eq:current-path)."""
    return (1 - flow_time) * noise + flow_time * (reward + effective_discount * successor_return)


def current_point_from_successor(
    *,
    noise: Real,
    successor_return: Real,
    reward: Real,
    flow_time: Real,
    effective_discount: Real,
) -> Real:
    """The same point written with the successor's, t R + γ̃ Z^{s'}_t + (1-t)(1-γ̃) X_0 (eq:lambda_path_alt)."""
    successor = successor_point(noise=noise, successor_return=successor_return, flow_time=flow_time)
    anchor = (1 - flow_time) * (1 - effective_discount) * noise
    return flow_time * reward + effective_discount * successor + anchor


def flow_path_point(
    *,
    noise: Real,
    successor_noise: Real,
    successor_return: Real,
    flow_point: Real,
    reward: Real,
    flow_time: Real,
    effective_discount: Real,
    control_weight: Real,
) -> Real:
    """Point of the flow path: the share λ of the successor point lies on the successor's own flow Ẑ_t = ψ_t(X_0').

        Z_t = (1-t) X_0 + t (R + γ̃ X') + γ̃ λ (Ẑ_t - Z^{s'}_t)
            = t R + γ̃ [(1-λ) Z^{s'}_t + λ Ẑ_t] + (1-t)(1-γ̃) X_0   under shared noise, X_0' = X_0

    For every λ it starts at X_0 and ends at R + γ̃ X', because Ẑ and Z^{s'} do so alike; λ = 0 is the paper's path.
    """
    linear = successor_point(noise=successor_noise, successor_return=successor_return, flow_time=flow_time)
    point = current_point(
        noise=noise,
        successor_return=successor_return,
        reward=reward,
        flow_time=flow_time,
        effective_discount=effective_discount,
    )
    return point + effective_discount * control_weight * (flow_point - linear)


def uncorrected_point(
    *,
    noise: Real,
    successor_return: Real,
    reward: Real,
    flow_time: Real,
    effective_discount: Real,
) -> Real:
    """Point of the pointwise Bellman path, Z^D_t = R + γ̃ Z'_t (eq:pointwise_uncorrected_path).

    It ends at the Bellman target but starts at R + γ̃ X_0 instead of X_0: no flow-matching path.
    """
    successor = successor_point(noise=noise, successor_return=successor_return, flow_time=flow_time)
    return reward + effective_discount * successor
