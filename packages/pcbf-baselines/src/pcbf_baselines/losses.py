"""The loss terms of the baselines, as pure functions; all arguments broadcast."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.critic import path_coupled_pair
from pcbf_core.flow import Velocity


def expectile_loss(difference: Array, expectile: float) -> Array:
    """|τ - 1[δ < 0]| δ², least at the expectile τ of what `difference` is measured from (IQL)."""
    weight = jnp.where(difference < 0, 1 - expectile, expectile)
    return weight * difference**2


def awr_weight(advantage: Array, inverse_temperature: float, max_weight: float = 100.0) -> Array:
    """min(exp(α A), 100), the weight of a data action in advantage-weighted regression (IQL)."""
    return jnp.minimum(jnp.exp(inverse_temperature * advantage), max_weight)


def gaussian_log_density(value: Array, mean: Array | float = 0.0) -> Array:
    """log N(value; mean, I) over the last axis."""
    return -0.5 * jnp.sum((value - mean) ** 2 + jnp.log(2 * jnp.pi), axis=-1)


def quantile_huber_loss(difference: Array, quantile_level: Array, huber_threshold: float) -> Array:
    """|τ - 1[δ < 0]| H_κ(δ) / κ with δ = target - prediction and H_κ the Huber function (IQN, CODAC)."""
    size = jnp.abs(difference)
    inner = jnp.minimum(size, huber_threshold)
    huber = 0.5 * inner**2 + huber_threshold * (size - inner)
    return jnp.abs(quantile_level - (difference < 0)) * huber / huber_threshold


def quantile_regression_loss(prediction: Array, level: Array, target: Array, huber_threshold: float) -> Array:
    """Mean over all but the predictions' last axis, which is summed, of the quantile Huber loss.

    Args:
      prediction: quantiles (members, batch, N) at `level` (batch, N).
      target: target samples (batch, N').
    """
    difference = target[:, None, :] - prediction[..., None]  # (members, batch, N, N')
    loss = quantile_huber_loss(difference, level[..., None], huber_threshold)
    return jnp.mean(jnp.sum(loss, axis=-2))


def gaussian_bellman_loss(mean: Array, deviation: Array, target_mean: Array, target_deviation: Array | float) -> Array:
    """E[-log N(Y; μ, σ²)] of Y ~ N(m, d²) up to a constant: log σ + ((m - μ)² + d²) / (2 σ²).

    With m = R + γ̃ μ' and d = γ̃ σ' its average over transitions is least where μ and σ² are mean and variance of
    R + γ̃ X', X' ~ N(μ', σ'²): likelihood of sampled Bellman targets with the sampling done exactly.
    """
    return jnp.log(deviation) + ((target_mean - mean) ** 2 + target_deviation**2) / (2 * deviation**2)


def conservative_penalty(sampled_value: Array, log_density: Array, data_value: Array) -> Array:
    """log Σ_k exp(Z(s, a_k) - log μ(a_k)) - Z(s, a): values of actions a_k ~ μ (last axis) pushed down, the data's up.

    The number of actions is not divided out, which shifts the penalty by a constant (CODAC).
    """
    return jax.nn.logsumexp(sampled_value - log_density, axis=-1) - data_value


def bcfm_pair(
    *, noise: Array, successor_return: Array, flow_time: Array, reward: Array, terminal: Array, discount: float
) -> tuple[Array, Array]:
    """Input (1-t) ε + t G and target G - ε of endpoint supervision, G = R + γ̃ X': PCBF's at λ = 0 (Value Flows)."""
    return path_coupled_pair(
        lambda t, z: jnp.zeros_like(z),  # without weight at λ = 0
        noise=noise,
        successor_noise=noise,
        successor_return=successor_return,
        flow_time=flow_time,
        reward=reward,
        terminal=terminal,
        discount=discount,
        control_weight=jnp.zeros(()),
    )


def dcfm_pair(
    target_velocity: Velocity,
    *,
    successor_point: Array,
    flow_time: Array,
    reward: Array,
    terminal: Array,
    discount: float,
) -> tuple[Array, Array]:
    """Input R + γ̃ Ẑ_t and target v⁻(t, Ẑ_t | s', a') of same-time self-consistency (Value Flows, app:dcfm).

    The successor velocity carries no factor γ, as in the method's own code.
    """
    return reward + discount * (1 - terminal) * successor_point, target_velocity(flow_time, successor_point)


def confidence_weight(spread: Array, temperature: float) -> Array:
    """sigmoid(-τ / σ) + ½ in (½, 1), near 1 where the return is uncertain (Value Flows)."""
    return jax.nn.sigmoid(-temperature / jnp.maximum(spread, 1e-6)) + 0.5


def distillation_loss(student: Array, teacher: Array) -> Array:
    """Mean squared distance of the student's actions from the teacher's (FQL)."""
    return jnp.mean((student - teacher) ** 2)


def categorical_projection(support: Array, value: Array, probability: Array) -> Array:
    """Probabilities (*batch, atoms) on the even grid `support` of a law with masses `probability` at `value`.

    A mass between two atoms is shared between them by nearness; beyond the ends it goes to the end (C51).
    """
    spacing = support[1] - support[0]
    value = jnp.clip(value, support[0], support[-1])
    nearness = jnp.clip(1 - jnp.abs(value[..., None, :] - support[:, None]) / spacing, 0.0, 1.0)
    return jnp.sum(nearness * probability[..., None, :], axis=-1)


def cross_entropy(logits: Array, probability: Array) -> Array:
    """-Σ p log softmax(logits) over the last axis."""
    return -jnp.sum(probability * jax.nn.log_softmax(logits), axis=-1)
