"""Statistics: numbers worked by hand, and what intervals must obey."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pcbf_analysis import statistics
from pcbf_analysis.statistics import (
    aggregate,
    bootstrap_interval,
    difference_interval,
    episode_interval,
    improvement_interval,
    interquartile_mean,
    performance_profile,
    pooled_interquartile_mean,
    probability_of_improvement,
    profile_band,
    student_interval,
    within_best,
)

UNKNOWN = pytest.approx(statistics.UNKNOWN, nan_ok=True)


def test_students_interval_by_hand() -> None:
    low, high = student_interval([1.0, 2.0, 3.0])  # mean 2, error 1/√3, t(0.975, 2) = 4.30265
    assert (low, high) == (pytest.approx(2 - 4.30265 / 3**0.5, abs=1e-4), pytest.approx(2 + 4.30265 / 3**0.5, abs=1e-4))
    assert np.isnan(student_interval([1.0])).all()


def test_mean_and_sample_deviation() -> None:
    assert statistics.mean([10, 20, 60]) == 30
    assert statistics.std([10, 20, 60]) == pytest.approx(np.sqrt(1400 / 2))  # squares 400, 100, 900 over n - 1
    assert np.isnan(statistics.std([10]))
    assert np.isnan(statistics.mean([]))


def test_a_domain_is_the_mean_of_task_means_and_of_task_deviations() -> None:
    # tasks of two and four seeds with means 20 and 70, deviations √200 and √(800/3)
    assert aggregate([[10, 30], [50, 70, 90, 70]]) == pytest.approx((45, (np.sqrt(200) + np.sqrt(800 / 3)) / 2))
    assert np.isnan(aggregate([[10, 30], [5]])[1])


def test_the_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    assert interquartile_mean([[0, 10, 20, 30], [40, 50, 60, 1000]]) == 35  # 20, 30, 40, 50 remain
    assert interquartile_mean([[1, 2, 6]]) == 3  # three runs: nothing can be dropped
    assert np.isnan(interquartile_mean([]))


def test_seeds_are_drawn_within_their_task() -> None:
    # each task has no spread of its own, so that no draw can differ although the tasks do
    assert bootstrap_interval([[0, 0, 0], [100, 100]]) == (50, 50)
    low, high = bootstrap_interval([[0, 100]])
    assert (low, high) == (0, 100)  # both ends are drawn with probability 1/4
    low, high = bootstrap_interval([np.arange(101.0)], pooled_interquartile_mean)
    assert 25 < low < 50 < high < 75


def test_an_interval_is_the_same_again_and_another_with_another_seed() -> None:
    tasks = [np.random.default_rng(1).normal(size=9), np.random.default_rng(2).normal(size=5)]
    assert bootstrap_interval(tasks) == bootstrap_interval(tasks)
    assert bootstrap_interval(tasks) != bootstrap_interval(tasks, seed=1)


def test_the_bootstrap_agrees_with_the_normal_interval_on_many_seeds() -> None:
    scores = np.random.default_rng(0).normal(50, 10, size=400)
    half = 1.96 * scores.std() / 20
    np.testing.assert_allclose(bootstrap_interval([scores]), [scores.mean() - half, scores.mean() + half], atol=0.15)


def test_one_seed_has_no_interval() -> None:
    assert bootstrap_interval([[1, 2], [3]]) == UNKNOWN
    assert bootstrap_interval([]) == UNKNOWN
    assert episode_interval([[0, 100, 0]]) == UNKNOWN


def test_a_single_task_counts_the_spread_of_seeds_and_of_episodes() -> None:
    assert episode_interval([[70, 70], [70, 70]]) == (70, 70)
    equal = [[0, 100] * 25, [0, 100] * 25, [0, 100] * 25]  # no spread between seeds, all of it between episodes
    low, high = episode_interval(equal)
    half = 1.96 * 50 / np.sqrt(150)
    np.testing.assert_allclose([low, high], [50 - half, 50 + half], atol=1)
    apart = [[0] * 50, [50] * 50, [100] * 50]  # no spread within seeds: as if only seeds were drawn
    assert episode_interval(apart) == pytest.approx(bootstrap_interval([[0, 50, 100]]), abs=1e-9)
    wide_low, wide_high = episode_interval([[0, 20] * 25, [40, 60] * 25, [80, 100] * 25])
    assert wide_low < 25
    assert wide_high > 75
    assert episode_interval([[1, 2, 3], [4, 5]]) == episode_interval([[1, 2, 3], [4, 5]])


def test_a_profile_is_the_share_of_runs_above_a_threshold() -> None:
    tasks = [[0, 50, 100, 100], [20, 60]]
    np.testing.assert_allclose(performance_profile(tasks, [-1, 0, 20, 50, 99, 100]), [1, 7 / 8, 5 / 8, 1 / 2, 1 / 4, 0])
    low, high = profile_band(tasks, [-1, 50, 100])
    assert (low[0], high[0], low[2], high[2]) == (1, 1, 0, 0)
    assert low[1] < 1 / 2 < high[1]
    assert np.isnan(performance_profile([], [0.0])).all()
    assert np.isnan(profile_band([[1.0]], [0.0])[0]).all()


def test_the_probability_of_improvement_by_hand_and_by_mann_whitney() -> None:
    # task 1: of the pairs (1,0) (1,3) (3,0) (3,3) we win 2, tie 1: 5/8; task 2: we always win
    assert probability_of_improvement([[1, 3], [9]], [[0, 3], [5]]) == pytest.approx((5 / 8 + 1) / 2)
    x, y = [3.1, 2.2, 5.9, 4.0], [1.0, 3.5, 2.2]
    expected = stats.mannwhitneyu(x, y).statistic / 12
    assert probability_of_improvement([x], [y]) == pytest.approx(expected)
    assert probability_of_improvement([x], [y]) + probability_of_improvement([y], [x]) == pytest.approx(1)
    low, high = improvement_interval([x], [y])
    assert low < expected < high
    assert improvement_interval([[5, 6]], [[1, 2]]) == (1, 1)
    assert improvement_interval([[5, 6]], [[1]]) == UNKNOWN


def test_the_interval_of_a_difference_is_welchs() -> None:
    x, y = np.array([1.0, 4.0, 7.0, 12.0]), np.array([2.0, 3.0, 5.0])
    ours, theirs = (x.mean(), x.std(ddof=1), 4), (y.mean(), y.std(ddof=1), 3)
    expected = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(difference_interval(ours, theirs), [expected.low, expected.high])
    assert difference_interval((5, 0, 8), (3, 0, 8)) == (2, 2)
    assert difference_interval((5, 1, 1), (3, 1, 8)) == UNKNOWN
    assert difference_interval((5, 1, 8), (3, np.nan, 8)) == UNKNOWN


def test_bold_is_within_95_percent_of_the_best() -> None:
    assert within_best([95, 94.9, 100, np.nan]) == [True, False, True, False]
    assert within_best([0, 0]) == [True, True]
    assert within_best([-10, -10.2]) == [True, False]
    assert within_best([np.nan]) == [False]
