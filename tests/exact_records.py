"""Arrays of records of exact control without training, for tests of whoever writes and reads them."""

from __future__ import annotations

import numpy as np

Arrays = dict[str, np.ndarray]


def exact_arrays(levels: tuple[float, ...] = (1.0, 0.1), num_seeds: int = 3, num_states: int = 13) -> Arrays:
    """A policy of even moves; CVaR at level k of acting i by seed j is 10 i - k + 0.1 j, W1 0.3 + 0.01 j everywhere."""
    i, j, k = np.indices((len(levels), num_seeds, len(levels)))
    return {
        "seeds": np.arange(num_seeds),
        "risk_levels": np.array(levels),
        "policies": np.full((len(levels), num_seeds, num_states, 4), 0.25, np.float32),
        "cvar_levels": np.array(levels),
        "cvar": 10 * i - k + 0.1 * j,
        "w1": np.repeat(0.3 + 0.01 * np.arange(num_seeds)[:, None], num_states, axis=1),
    }
