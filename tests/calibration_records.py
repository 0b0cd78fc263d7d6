"""Arrays of calibration records without training, for tests of whoever writes and reads them."""

from __future__ import annotations

import numpy as np

from pcbf_records.calibration import COVERAGES, MEASURES, NUM_BINS

Arrays = dict[str, np.ndarray]


def calibration_arrays(num_seeds: int = 3, shift: float = 0.0) -> Arrays:
    """Seed j has 0.2 + 0.01 j + `shift` in all measures, coverage as it should be and an even histogram."""
    values = 0.2 + 0.01 * np.arange(num_seeds) + shift
    return {
        "seeds": np.arange(num_seeds),
        "num_states": np.array([7]),
        **dict.fromkeys(MEASURES, values),
        "coverage_levels": np.array(COVERAGES),
        "coverage": np.tile(COVERAGES, (num_seeds, 1)),
        "pit": np.full((num_seeds, NUM_BINS), 1 / NUM_BINS),
    }
