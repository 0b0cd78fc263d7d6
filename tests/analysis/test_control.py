"""The control suite as collected: runs with their evaluations, what an ablation is, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pcbf_analysis.control import Run, load_control
from pcbf_analysis.results import Results
from pcbf_analysis.tables.scores import load_suite
from pcbf_records import layout
from pcbf_records.errors import RecordError
from pcbf_records.layout import JobFiles, ablation

from .run_fixtures import CUBE, CUBE_2, PEN, collected, write_run


def run_of(results: Results, task: str, method: str, seed: int) -> Run:
    """The one run of the suite with that name."""
    found = [run for run in results.control.suite if (run.task, run.method, run.seed) == (task, method, seed)]
    assert len(found) == 1
    return found[0]


def test_every_run_is_there_with_its_final_score(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 10, [[0, 0], [100, 0], [100, 100]], num_final=2, source="local")
    write_run(empty.root, CUBE, "pcbf", 2, [[0, 100]])
    write_run(empty.root, CUBE, "iql", 0, [[50]], status="diverged")
    record = write_run(empty.root, PEN, "bc", 0, [[70.5, 71.5]])
    runs = collected(empty.root).control.suite
    assert [run.seed for run in runs] == [0, 2, 10, 0]  # iql, then pcbf by the number of its seed, then the next task
    assert [run.score for run in runs] == pytest.approx([np.nan, 50, 75, 71], nan_ok=True)
    assert [run.status for run in runs] == ["diverged", "finished", "finished", "finished"]
    assert [run.domain for run in runs] == ["cube-double-play"] * 3 + ["adroit"]
    assert [run.suite for run in runs] == ["ogbench"] * 3 + ["adroit"]
    assert [run.source for run in runs] == ["official", "official", "local", "official"]
    assert [len(run.final) for run in runs] == [0, 1, 2, 1]
    assert [len(run.episodes) for run in runs] == [0, 2, 4, 2]
    assert "became nan" in runs[0].message
    assert (runs[3].config_hash, runs[3].config, runs[3].dataset) == (record.config_hash, record.config, record.dataset)


def test_a_run_marks_what_its_score_averages(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[0, 0], [100, 0], [100, 100]], num_final=2, steps=900)
    run = run_of(collected(empty.root), CUBE, "pcbf", 0)
    assert [evaluation.step for evaluation in run.evaluations] == [300, 600, 900]
    assert [evaluation.is_final for evaluation in run.evaluations] == [False, True, True]
    assert [evaluation.scores.tolist() for evaluation in run.evaluations] == [[0, 0], [100, 0], [100, 100]]
    assert [evaluation.mean for evaluation in run.evaluations] == [0, 50, 100]
    assert run.episodes.mean() == run.score == 75


def test_scores_are_read_to_the_last_digit(empty: Results) -> None:
    scores = [100 / 3, 200 / 7, 0.1 + 0.2]
    write_run(empty.root, PEN, "bc", 0, [scores])
    run = run_of(collected(empty.root), PEN, "bc", 0)
    assert run.episodes.tolist() == scores
    assert run.score == sum(scores) / 3


def test_an_ablation_has_its_control_weights_and_is_no_run_of_the_suite(empty: Results) -> None:
    for weight in ("0.9", "0", "0.25"):
        write_run(empty.root / ablation(f"control_weight={weight}"), CUBE, "pcbf", 0, [[40]])
    control = collected(empty.root).control
    assert [weight for weight, _ in control.ablation()] == [0, 0.25, 0.9]
    assert {run.change for _, run in control.ablation()} == set(control.changes)
    assert control.suite == ()
    write_run(empty.root / ablation("control_weight=high"), CUBE, "pcbf", 0, [[40]])
    with pytest.raises(RecordError, match="control_weight=high does not end in a number"):
        collected(empty.root).control.ablation()


def test_changes_are_ordered_by_setting_and_then_as_numbers(empty: Results) -> None:
    for change in ("b=10", "b=9", "a=2", "b=tanh"):
        write_run(empty.root / ablation(change), CUBE, "pcbf", 0, [[40]])
    assert collected(empty.root).control.changes == ["a=2", "b=9", "b=10", "b=tanh"]


def test_the_suites_own_runs_belong_to_the_ablation_of_their_task(empty: Results) -> None:
    for weight in ("0", "0.9"):
        write_run(empty.root / ablation(f"control_weight={weight}"), CUBE, "pcbf", 0, [[40]])
    write_run(empty.root, CUBE, "pcbf", 0, [[60]], agent={"control_weight": 0.4})
    write_run(empty.root, CUBE, "pcbf", 1, [[80]], agent={"control_weight": 0.9})  # has runs of its own already
    write_run(empty.root, CUBE, "iql", 0, [[80]])
    write_run(empty.root, "hammer-expert-v1", "pcbf", 0, [[80]], agent={"control_weight": 0.4})
    found = collected(empty.root).control.ablation()
    assert [weight for weight, _ in found] == [0, 0.4, 0.9]
    assert [run.score for _, run in found] == [40, 60, 40]


def test_settings_of_the_agent_are_known_by_name(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[60]], agent={"control_weight": 0.4})
    run = run_of(collected(empty.root), CUBE, "pcbf", 0)
    assert run.setting("control_weight") == 0.4
    assert run.setting("huber_threshold") is None


def test_without_a_collected_table_there_are_no_runs(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[60]])
    assert empty.control.runs == ()
    assert Results(empty.root, empty.repository).control.ablation() == []
    assert len(collected(empty.root).control.runs) == 1


def test_the_table_is_read_and_runs_are_grouped_once_for_each_object(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[60]])
    first = collected(empty.root)
    assert first.control is first.control
    assert load_suite(first) is load_suite(first)
    write_run(empty.root, CUBE_2, "pcbf", 0, [[60]])
    second = collected(empty.root)
    assert len(load_suite(first).tasks) == 1
    assert len(load_suite(second).tasks) == 2


def test_a_record_that_is_broken_edited_or_misplaced_is_not_collected(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[1]])
    path = JobFiles.of_seeds(empty.root, CUBE, "pcbf", [0]).record(0)
    whole = path.read_text()
    path.write_text(whole[:100])
    with pytest.raises(RecordError, match="is not a record of this version"):
        collected(empty.root)
    path.write_text(whole.replace('"steps": 1000\n  }', '"steps": 2000\n  }'))
    with pytest.raises(RecordError, match="has been edited"):
        collected(empty.root)
    path.write_text(whole)
    path.rename(path.with_name("seed1.json"))
    with pytest.raises(RecordError, match=r"holds cube-double-play-singletask-task1-v0, pcbf, seed 0; put it where"):
        collected(empty.root)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("is_final", "was_final", "lacks is_final; remake it with `pcbf-collect`"),
        (",1000,", ",many,", "cannot be read .*many.*remake it with `pcbf-collect`"),
    ],
)
def test_a_collected_table_that_is_not_as_agreed_is_refused(empty: Results, old: str, new: str, sentence: str) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[1]])
    path = collected(empty.root).root / layout.CONTROL_EVALUATIONS
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecordError, match=sentence):
        load_control(empty.root)


def test_an_empty_table_and_lost_configs_are_refused(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[1]])
    collected(empty.root)
    configs, table = (empty.root / name for name in (layout.CONTROL_CONFIGS, layout.CONTROL_EVALUATIONS))
    configs.unlink()
    with pytest.raises(RecordError, match="remake it with `pcbf-collect`"):
        load_control(empty.root)
    table.write_text("")
    with pytest.raises(RecordError, match="is not a readable csv"):
        load_control(empty.root)
