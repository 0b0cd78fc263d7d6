"""Scores of laws against numbers worked by hand, and against laws that are right."""

from __future__ import annotations

import numpy as np
import pytest

from pcbf_core.noise import even_levels
from pcbf_experiments.scoring import coverage, pit_error, pit_histogram, randomised_pit, scores
from pcbf_records.calibration import COVERAGES


def test_crps_pinball_and_the_mean_by_hand():
    law, returns = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, 2.0]]), np.array([2.0, 5.0])
    found = scores(law, returns, np.zeros(2), 0.0)
    # E|X - 2| = (2 + 1 + 3)/3 = 2, E|X - X'| = 2 (1 + 5 + 4)/9 = 20/9, so 2 - 10/9 = 8/9; a point at 2 is 3 from 5
    assert found["crps"] == pytest.approx((8 / 9 + 3) / 2)
    # quantiles at 0.1 are 0.2 and 2; below the return by 1.8 and 3, each times 0.1
    assert found["pinball"] == pytest.approx((0.18 + 0.3) / 2)
    assert found["bias"] == pytest.approx((0 - 3) / 2)
    assert found["rmse"] == pytest.approx(np.sqrt(9 / 2))


def test_pit_by_hand():
    law = np.array([[1.0, 2.0, 2.0, 4.0]])
    # one below 2, two at it and the return itself: between 1/5 and 4/5
    assert randomised_pit(law, np.array([2.0]), np.array([0.0])) == pytest.approx(0.2)
    assert randomised_pit(law, np.array([2.0]), np.array([1.0])) == pytest.approx(0.8)
    assert randomised_pit(law, np.array([9.0]), np.array([0.5])) == pytest.approx(0.9)
    # 1.5 from 2.6 within a tolerance of 1 are the two at 2
    assert randomised_pit(law, np.array([2.6]), np.array([0.0]), 1.0) == pytest.approx(0.2)
    pit = np.array([0.1, 0.4, 0.6, 1.0])
    assert pit_histogram(pit, 2).tolist() == [0.5, 0.5]
    assert [coverage(pit, share) for share in (0.2, 0.9)] == [0.5, 0.75]
    # sorted against 1/8, 3/8, 5/8, 7/8: 0.025, 0.025, 0.025, 0.125
    assert pit_error(pit) == pytest.approx(0.05)


@pytest.mark.parametrize("kind", ["normal", "atoms"])
def test_the_right_law_has_a_uniform_pit_and_covers_as_it_says(kind: str):
    rng, size = np.random.default_rng(0), 20_000
    returns, levels = rng.normal(size=size), np.asarray(even_levels(200), np.float64)
    if kind == "atoms":  # three quarters of the mass at two points
        returns = np.select([returns < 0, returns < 0.67], [-1.0, 0.0], returns)
    law = np.quantile(returns, levels, method="inverted_cdf")
    found = scores(np.broadcast_to(law, (size, 200)), returns, rng.uniform(size=size), 1e-6)
    np.testing.assert_allclose(found["coverage"], COVERAGES, atol=0.02)
    np.testing.assert_allclose(found["pit"], 1 / 20, atol=0.006)
    assert found["pit_error"] < 0.006
    wrong = scores(np.broadcast_to(0.5 * law, (size, 200)), returns, rng.uniform(size=size), 1e-6)
    assert wrong["pit_error"] > 0.05 and wrong["crps"] > found["crps"]
