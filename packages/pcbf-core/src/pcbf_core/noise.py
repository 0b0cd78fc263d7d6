"""The draws of a flow-matching loss, base noise X_0 and flow time t, and the noise at given quantile levels."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float


def noise_and_times(
    key: Array, batch_size: int, num_times: int = 1, *, stratified: bool = False, time_power: float = 1.0
) -> tuple[Float[Array, "{batch_size} 1"], Float[Array, "{batch_size} {num_times}"]]:
    """One X_0 ~ N(0, 1), (batch, 1), and `num_times` flow times, (batch, times), per transition.

    The times are t = 1 - U^p with U ~ U[0, 1]; p = 1 is the paper's uniform law. Stratified draws are
    a lattice with a random shift: each number keeps its law, together they cover the plane of noise
    and time evenly.
    """
    noise_key, time_key = jax.random.split(key)
    if stratified:
        row, column = jnp.arange(batch_size)[:, None], jnp.arange(num_times)
        golden = (math.sqrt(5) - 1) / 2
        noise = noise_at_levels((row * golden + jax.random.uniform(noise_key)) % 1)
        level = ((row + batch_size * column) / (batch_size * num_times) + jax.random.uniform(time_key)) % 1
    else:
        noise = jax.random.normal(noise_key, (batch_size, 1))
        level = jax.random.uniform(time_key, (batch_size, num_times))
    return noise, 1 - level**time_power


def noise_at_levels(levels: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Standard normal quantiles, kept finite at levels 0 and 1."""
    return jax.scipy.special.ndtri(jnp.clip(levels, 1e-6, 1 - 1e-6))


def check_levels(levels: object) -> None:
    """Raise unless known quantile levels lie in [0, 1]; percent are a common mistake."""
    if isinstance(levels, Tracer):
        return
    known = np.asarray(levels, float)
    if not ((known >= 0) & (known <= 1)).all():
        raise ValueError(f"`levels={known.tolist()}` must lie in [0, 1]; 0.9 is the 90 % quantile.")


def even_levels(num_samples: int) -> Float[Array, " {num_samples}"]:
    """Middles of `num_samples` equal parts of [0, 1]."""
    return (jnp.arange(num_samples) + 0.5) / num_samples
