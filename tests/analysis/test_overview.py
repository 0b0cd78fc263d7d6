"""The table that decides, from records and scores whose numbers are worked by hand."""

from __future__ import annotations

import math

import pytest

from pcbf_analysis.results import Results
from pcbf_analysis.tables import Estimate, overview, shown_rows, to_csv
from pcbf_analysis.tables.contest import contest

from .run_fixtures import CUBE, CUBE_2, collected, write_run, write_runs

LAW, CRPS, REGRET, GAIN, SCORE, OVER_BC = overview.QUESTIONS


def cells(results: Results) -> dict[tuple[str, str], Estimate | None]:
    """The table by method and column."""
    table = overview.compute(results)
    names = [column.name for column in table.columns]
    return {(row[0], name): cell for row in table.rows for name, cell in zip(names[1:], row[1:], strict=True)}


def test_a_mean_is_over_all_places_by_the_seeds_that_they_share() -> None:
    places = {
        "first": {"a": {0: 1.0, 1: 3.0, 2: 9.0}, "b": {0: 5.0}},
        "second": {"a": {1: 5.0, 2: 1.0}, "b": {}},
        "nobody was there": {"a": {}, "b": {}},
    }
    assert overview.averaged(places) == {"a": {1: 4.0, 2: 5.0}, "b": {}}
    assert overview.averaged({}) == {}


def test_bold_is_ahead_of_every_other_and_less_can_be_better() -> None:
    close = {seed: 1.0 + 0.1 * seed for seed in range(4)}
    far = {seed: value + 1 + 0.01 * (-1) ** seed for seed, value in close.items()}
    scores = {"iqn": close, "c51": far}
    assert [cell.is_bold for cell in overview.estimates(LAW, scores).values()] == [True, False]
    assert [cell.is_bold for cell in overview.estimates(SCORE, scores).values()] == [False, True]
    assert not any(cell.is_bold for cell in overview.estimates(OVER_BC, scores).values())  # the column before has it
    assert overview.standing(LAW, scores) == ("iqn", [])
    noisy = {0: 1.0, 1: 1.6, 2: 0.9, 3: 2.0}
    assert not any(cell.is_bold for cell in overview.estimates(LAW, {**scores, "pcbf": noisy}).values())
    assert overview.standing(LAW, {**scores, "pcbf": noisy}) == ("iqn", ["pcbf"])


def test_laws_and_exact_control_by_hand(complete: Results) -> None:
    found = cells(complete)
    crps = found["pcbf_flow", "law_simulators"]
    assert crps is not None and crps.is_bold  # a tenth below IQN with every seed
    half = 4.303 * 0.01 / 3**0.5  # Student's quantile at two degrees of freedom
    assert (crps.mean, crps.low, crps.high) == pytest.approx((0.21, 0.21 - half, 0.21 + half), abs=1e-5)
    assert str(crps) == "0.210 (0.185 to 0.235)"
    for method in ("pcbf_flow", "iqn"):
        regret, gain = found[method, "regret"], found[method, "gain"]
        assert regret is not None and gain is not None
        assert (regret.mean, gain.mean) == pytest.approx((29.9, 10))
        assert not regret.is_bold and not gain.is_bold  # both have the same
    assert found["iql", "gain"] is None and found["iql", "law_processes"] is None
    methods = overview.compute(complete).column("method")
    assert methods == ["pcbf_flow", "pcbf", "value_flows", "flow_iqn", "iqn", "c51", "iql"]  # no variant, no reference
    assert "Law on simulators, CRPS: PCBF, flow path (nobody); " in overview.compute(complete).note


def test_the_law_on_reward_processes_is_the_mean_of_the_contest(complete: Results) -> None:
    table = contest(complete)
    w1 = [value for name, value in zip(table.column("method"), table.column("w1"), strict=True) if name == "c51"]
    cell = cells(complete)["c51", "law_processes"]
    assert len(w1) == 5 and cell is not None
    assert cell.mean == pytest.approx(sum(w1) / 5)


def test_the_control_suite_is_averaged_over_tasks_and_held_against_cloning(empty: Results) -> None:
    for task, shift in ((CUBE, 0), (CUBE_2, 20)):
        write_runs(empty.root, task, "pcbf", [60 + shift, 62 + shift, 64 + shift], source="local")
        write_runs(empty.root, task, "bc", [10 + shift, 11 + shift, 12 + shift], source="local")
    write_runs(empty.root, CUBE, "iql", [90, 90, 90], source="local")  # lacks the other task
    write_run(empty.root, CUBE_2, "iql", 0, [[0]], status="diverged", source="local")
    results = collected(empty.root)
    found = cells(results)
    score, over = found["pcbf", "score"], found["pcbf", "over_bc"]
    assert score is not None and over is not None
    assert (score.mean, score.is_bold) == (pytest.approx(72), True)
    assert (over.mean, over.low) == (pytest.approx(51), pytest.approx(51 - 4.303 / 3**0.5, abs=1e-3))
    assert found["bc", "over_bc"] is None
    assert ("iql", "score") not in found  # a part of the mean would say nothing
    table = overview.compute(results)
    assert shown_rows(table)[0][-2:] == ["72.0 (67.0 to 77.0)", "51.0 (48.5 to 53.5)"]
    assert "Number of tasks: 2 (3 seeds). 1 runs of the suite diverged" in table.note
    rows = to_csv(table).splitlines()
    assert rows[1].startswith("score,pcbf,2,3,72,") and rows[1].endswith(",True")


def test_an_estimate_says_what_it_knows() -> None:
    assert str(Estimate(12.34, math.nan, math.nan, digits=1)) == "12.3"
    assert str(Estimate(21244.5, 7326.4, 35162.6, digits=3)) == "21244 (7326 to 35163)"
