"""Trials of the search for settings: a table of their own, and no part of what is reported."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pcbf_analysis import artefacts
from pcbf_analysis.results import Results
from pcbf_analysis.tables import Table
from pcbf_analysis.tables.scores import load_suite
from pcbf_records.layout import ablation, tuning

from .run_fixtures import CUBE, CUBE_2, collected, write_run

AGENT = {"discount": 0.98, "control_weight": 0.4}


def write_trial(root: Path, method: str, trial: str, score: float, *, seed: int = 100, **agent: object) -> None:
    write_run(root / ablation(tuning(trial)), CUBE, method, seed, [[0, 0], [score, score]], agent={**AGENT, **agent})


def table_of(results: Results) -> Table:
    return artefacts.TABLES["tuning"].compute(results)


@pytest.fixture
def search(empty: Results) -> Results:
    """A suite and two methods with two trials each, of which one was taken over."""
    write_run(empty.root, CUBE, "pcbf", 0, [[50]], agent=AGENT)
    write_run(empty.root, CUBE, "iql", 0, [[40]], agent={**AGENT, "expectile": 0.9})
    write_run(empty.root / ablation("control_weight=0"), CUBE, "pcbf", 0, [[45]], agent={**AGENT, "control_weight": 0})
    write_trial(empty.root, "pcbf", "control_weight=0.2", 60, control_weight=0.2)
    write_trial(empty.root, "pcbf", "discount=0.98", 70)
    write_trial(empty.root, "iql", "expectile=0.7", 30, expectile=0.7)
    write_trial(empty.root, "iql", "expectile=0.9", 20, expectile=0.9)
    return collected(empty.root)


def test_a_row_per_trial_marks_the_best_and_what_the_suite_uses(search: Results) -> None:
    assert [row[1:] for row in table_of(search).rows] == [
        ("iql", "expectile", "0.7", 1, 2, 30, True, False),
        ("iql", "expectile", "0.9", 1, 2, 20, False, True),
        ("pcbf", "control_weight", "0.2", 1, 2, 60, False, False),
        ("pcbf", "discount", "0.98", 1, 2, 70, True, True),
    ]
    assert table_of(search).note.endswith("trials for every method: 2; seeds 100.")


def test_the_mean_is_over_seeds_and_final_evaluations_and_equals_share_the_best(search: Results) -> None:
    write_trial(search.root, "pcbf", "control_weight=0.2", 80, seed=101, control_weight=0.2)
    table = table_of(collected(search.root))
    assert table.column("mean")[2:] == [70, 70]
    assert table.column("num_seeds")[2:] == [2, 1]
    assert table.column("is_best")[2:] == [True, True]


def test_a_trial_that_diverged_has_no_mean_and_is_never_the_best(search: Results) -> None:
    write_run(
        search.root / ablation(tuning("discount=0.98")), CUBE, "pcbf", 101, [[90]], status="diverged", agent=AGENT
    )
    table = table_of(collected(search.root))
    assert math.isnan(table.column("mean")[3])
    assert table.column("is_best")[2:] == [True, False]


def test_where_the_suite_has_no_runs_of_the_task_those_of_others_tell_what_it_uses(empty: Results) -> None:
    write_trial(empty.root, "pcbf", "discount=0.98", 70)
    assert table_of(collected(empty.root)).column("is_used") == [None]
    write_run(empty.root, CUBE_2, "pcbf", 0, [[50]], agent=AGENT)
    assert table_of(collected(empty.root)).column("is_used") == [True]


def test_an_unequal_search_and_reported_seeds_are_told(search: Results) -> None:
    write_trial(search.root, "iql", "expectile=0.8", 30, seed=0, expectile=0.8)
    note = table_of(collected(search.root)).note
    assert "not an equal search: iql has 3 trials, pcbf has 2 trials" in note
    assert note.endswith("seeds 0, 100, of which the suite reports 0.")


def test_without_trials_the_table_is_empty_and_says_so(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[50]], agent=AGENT)
    table = table_of(collected(empty.root))
    assert table.rows == () and "no records yet" in table.note


def test_a_trial_enters_no_score_no_ablation_and_no_effect_of_a_setting(search: Results) -> None:
    control = search.control
    assert len(control.tuning) == 4 and {run.seed for run in control.tuning} == {100}
    assert control.changes == ["control_weight=0"]
    assert [(weight, run.score) for weight, run in control.ablation()] == [(0, 45), (0.4, 50)]
    assert load_suite(search).scores == {(CUBE, "pcbf"): {0: 50}, (CUBE, "iql"): {0: 40}}
    before = {label: artefact.render(search) for label, artefact in artefacts.TABLES.items() if label != "tuning"}
    for method, trial in (("pcbf", "control_weight=0.3"), ("iql", "expectile=0.5")):
        write_trial(search.root, method, trial, 100)
    after = collected(search.root)
    assert len(after.control.tuning) == 6
    assert before == {label: artefacts.TABLES[label].render(after) for label in before}
