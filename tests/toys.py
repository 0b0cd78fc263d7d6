"""Arrays of toy records without training, for tests of whoever writes and reads them."""

from __future__ import annotations

import numpy as np

from pcbf_records.toy import RESIDUAL_STEPS

Arrays = dict[str, np.ndarray]


def toy_arrays(coefficients: tuple[float, ...] = (0.0, 0.5), num_seeds: int = 2, num_states: int = 1) -> Arrays:
    """What every toy record holds; W1 of coefficient i, seed j, state k is i + 0.1 j + 0.01 k."""
    shape = (len(coefficients), num_seeds)
    i, j, k = np.indices((*shape, num_states))
    levels = np.array([0.25, 0.75])
    return {
        "coefficients": np.array(coefficients),
        "seeds": np.arange(num_seeds),
        "states": np.arange(num_states),
        "levels": levels,
        "quantiles": np.broadcast_to(levels, (*shape, num_states, 2)),
        "w1": i + 0.1 * j + 0.01 * k,
        "tuning_seeds": np.array([1000]),
        "tuning_w1": (i + 0.01 * k)[:, :1],
        "loss_history": np.ones((*shape, 3)),
        "loss_std": np.full(shape, 0.5),
    }


def residual_arrays(shared: float = 0.1, independent: float = 0.5) -> Arrays:
    """Residuals `shared`·t and `independent`, the latter larger by 0.2 for the second of two seeds."""
    times = np.full((len(RESIDUAL_STEPS), max(RESIDUAL_STEPS) + 1), np.nan)
    for index, num_steps in enumerate(RESIDUAL_STEPS):
        times[index, : num_steps + 1] = np.arange(num_steps + 1) / num_steps
    padding = np.where(np.isnan(times), np.nan, 1.0)
    return {
        "flow_coefficient": np.array(0.5),
        "residual_steps": np.array(RESIDUAL_STEPS),
        "residual_times": times,
        "residual_shared": np.stack([shared * times] * 2),
        "residual_independent": np.stack([independent * padding, (independent + 0.2) * padding]),
    }
