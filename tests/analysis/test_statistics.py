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
    improvement_interval,
    interquartile_mean,
    performance_profile,
    pooled_interquartile_mean,
    probability_of_improvement,
    profile_band,
    seeds_needed,
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
    assert interquartile_mean([[0, 10, 20, 30, 35], [40, 45, 50, 60, 1000]]) == pytest.approx(220 / 6)  # 20 … 50 remain
    assert np.isnan(interquartile_mean([[1, 2, 3, 6]]))  # four runs
    assert np.isnan(interquartile_mean([]))


def test_seeds_are_drawn_within_their_task() -> None:
    # each task has no spread of its own, so that no draw can differ although the tasks do
    assert bootstrap_interval([[0] * 6, [100] * 5]) == (50, 50)
    low, high = bootstrap_interval([[0, 0, 0, 0, 100]])
    assert (low, high) == (0, 60)  # nobody draws the 100 with probability 0.33, and more than three times with 0.007
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


def test_below_five_seeds_nothing_is_resampled() -> None:
    assert bootstrap_interval([[1, 2, 3, 4, 5], [1, 2, 3, 4]]) == UNKNOWN
    assert bootstrap_interval([]) == UNKNOWN


def test_the_seeds_needed_make_the_interval_as_narrow_as_asked() -> None:
    assert seeds_needed(0.0, 5.0) == 2
    needed = seeds_needed(3.46, 5.0)
    assert needed is not None
    for count, is_narrow in ((needed - 1, False), (needed, True)):
        half = stats.t.ppf(0.975, count - 1) * 3.46 / np.sqrt(count)
        assert (half <= 5.0) == is_narrow
    assert seeds_needed(np.nan, 5.0) is None


def test_a_profile_is_the_share_of_runs_above_a_threshold() -> None:
    tasks = [[0, 50, 100, 100], [20, 60]]
    np.testing.assert_allclose(performance_profile(tasks, [-1, 0, 20, 50, 99, 100]), [1, 7 / 8, 5 / 8, 1 / 2, 1 / 4, 0])
    low, high = profile_band([[0, 0, 50, 100, 100], [20, 20, 60, 60, 60]], [-1, 50, 100])
    assert (low[0], high[0], low[2], high[2]) == (1, 1, 0, 0)
    assert low[1] < 1 / 2 < high[1]
    assert np.isnan(performance_profile([], [0.0])).all()
    assert np.isnan(profile_band([[1.0]], [0.0])[0]).all()


def test_the_probability_of_improvement_by_hand_and_by_mann_whitney() -> None:
    # task 1: a fifth of our seeds win always, the others tie with two fifths and lose to three; task 2: we always win
    first = [9, 3, 3, 3, 3], [3, 3, 5, 5, 5]
    expected = (1 / 5 + 4 / 5 * 2 / 5 / 2 + 1) / 2
    assert probability_of_improvement([first[0], [9] * 5], [first[1], [5] * 5]) == pytest.approx(expected)
    x, y = [3.1, 2.2, 5.9, 4.0, 1.5], [1.0, 3.5, 2.2, 0.3, 4.4]
    expected = stats.mannwhitneyu(x, y).statistic / 25
    assert probability_of_improvement([x], [y]) == pytest.approx(expected)
    assert probability_of_improvement([x], [y]) + probability_of_improvement([y], [x]) == pytest.approx(1)
    low, high = improvement_interval([x], [y])
    assert low < expected < high
    assert improvement_interval([[5, 6] * 3], [[1, 2] * 3]) == (1, 1)
    assert improvement_interval([[5, 6] * 3], [[1, 2] * 2]) == UNKNOWN
    assert np.isnan(probability_of_improvement([[5, 6] * 3], [[1, 2] * 2]))


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
