"""The control suite collected: one row per evaluation, and no table from a folder that is not whole."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pcbf_records import RecordError
from pcbf_records.canonical import content_hash
from pcbf_records.control import EVALUATION_COLUMNS, collect_control, load_configs, load_pairs
from pcbf_records.layout import CONTROL_CONFIGS, CONTROL_EVALUATIONS, ablation
from pcbf_records.runs import save_evaluations, save_run
from pcbf_records.sheets import Task

from .samples import CONFIG, judged, make_run, write_group

TASK = Task("t", "d", "domain", "ogbench", discount=0.9, steps=40, seeds=2, episode_limit=5)


def rows_of(results: Path) -> list[dict[str, str]]:
    with (results / CONTROL_EVALUATIONS).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_there_is_a_row_per_evaluation_with_what_made_it(tmp_path: Path) -> None:
    write_group(tmp_path, (0, 1))
    assert collect_control(tmp_path, {"t": TASK}) == 2
    rows = rows_of(tmp_path)
    assert len(rows) == 2 * 4 and tuple(rows[0]) == EVALUATION_COLUMNS
    last = rows[3]
    assert (last["task"], last["domain"], last["suite"], last["method"]) == ("t", "domain", "ogbench", "m")
    assert (last["seed"], last["change"], last["status"], last["source"]) == ("0", "", "finished", "local")
    assert (last["step"], float(last["mean"]), last["episodes"]) == ("40", 10.0, "20.0 0.0")
    assert [row["is_final"] for row in rows[:4]] == ["False", "True", "True", "True"]
    known = load_configs(tmp_path / CONTROL_CONFIGS)
    assert known.configs[last["config"]] == CONFIG and last["config"] == content_hash(CONFIG)
    assert known.datasets[last["dataset"]] == {"source": "local", "name": "d"}


def test_ablations_diverged_runs_and_unknown_tasks_are_in_it(tmp_path: Path) -> None:
    write_group(tmp_path, (0,))
    write_group(tmp_path / ablation("batch_size=4"), (0,), config={**CONFIG, "run": {"batch_size": 4}})
    write_group(tmp_path, (0,), method="other", status="diverged", steps=5, snapshot_steps=(), message="loss, nan")
    assert collect_control(tmp_path, {}) == 3
    rows = rows_of(tmp_path)
    assert {(row["method"], row["change"]) for row in rows} == {("m", ""), ("m", "batch_size=4"), ("other", "")}
    (broken,) = [row for row in rows if row["status"] == "diverged"]
    assert (broken["step"], broken["mean"], broken["is_final"], broken["message"]) == ("", "", "False", "loss, nan")
    assert {(row["domain"], row["suite"]) for row in rows} == {("t", "")}
    assert len(load_configs(tmp_path / CONTROL_CONFIGS).configs) == 2


def test_the_same_records_give_the_same_bytes_and_seeds_are_in_order(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_group(tmp_path / name, (2, 10, 1))
        collect_control(tmp_path / name, {})
    assert [row["seed"] for row in rows_of(tmp_path / "a")[::4]] == ["1", "2", "10"]
    for file in (CONTROL_EVALUATIONS, CONTROL_CONFIGS):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_scores_in_the_table_are_exact(tmp_path: Path) -> None:
    files = write_group(tmp_path, (0,))
    run = make_run(seed=0)
    save_evaluations(files.evaluations(0), judged(run, [(step, step / 7) for step in (10, 20, 30, 40)]))
    files.evaluation_receipt.unlink()
    collect_control(tmp_path, {})
    assert [float(row["episodes"].split()[0]) for row in rows_of(tmp_path)] == [10 / 7, 20 / 7, 30 / 7, 40 / 7]
    assert float(rows_of(tmp_path)[0]["mean"]) == (10 / 7) / 2


# --- folders that are not whole ---------------------------------------------------------------------------------------


def refused(results: Path) -> str:
    with pytest.raises(RecordError) as fault:
        collect_control(results, {})
    assert not (results / CONTROL_EVALUATIONS).exists()  # nothing is written
    return str(fault.value)


@pytest.mark.parametrize("kind", ["record", "evaluations"])
def test_a_missing_record_is_named(kind: str, tmp_path: Path) -> None:
    files = write_group(tmp_path)
    gone = getattr(files, kind)(1)
    gone.unlink()
    message = refused(tmp_path)
    assert f"{gone.as_posix()} is missing" in message and "Run the pipeline again" in message


@pytest.mark.parametrize("kind", ["record", "evaluations"])
def test_a_changed_record_is_named(kind: str, tmp_path: Path) -> None:
    files = write_group(tmp_path / ablation("batch_size=4"))
    changed = getattr(files, kind)(0)
    changed.write_text(changed.read_text() + " ")
    assert f"{changed.as_posix()} has changed since it was made" in refused(tmp_path)


def test_many_faults_are_counted(tmp_path: Path) -> None:
    files = write_group(tmp_path, range(9))
    for seed in range(8):
        files.record(seed).unlink()
    assert refused(tmp_path).count(".json is missing") == 5
    assert "and 3 more" in refused(tmp_path)


def test_a_run_without_its_final_evaluations_is_named(tmp_path: Path) -> None:
    files = write_group(tmp_path)
    run = make_run(seed=1)
    save_evaluations(files.evaluations(1), judged(run, [(10, 1.0), (20, 1.0), (30, 1.0)]))
    files.evaluation_receipt.unlink()
    assert "t, m, seed 1 has no evaluation of step 40" in refused(tmp_path)
    files.evaluations(1).unlink()
    assert "t, m, seed 1 has no evaluation of step 20, 30, 40; run `pcbf-evaluate`" in refused(tmp_path)


def test_evaluations_of_another_config_are_not_taken_for_those_of_the_run(tmp_path: Path) -> None:
    files = write_group(tmp_path)
    save_run(files.record(0), make_run(seed=0, config={**CONFIG, "new": 1}))
    files.receipt.unlink()
    assert "seed 0 has no evaluation of this config" in refused(tmp_path)


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    files = write_group(tmp_path)
    files.receipt.unlink()
    save_run(files.record(1), make_run(seed=0))
    with pytest.raises(RecordError, match=r"seed1\.json holds t, m, seed 0; put it where its name says"):
        list(load_pairs(tmp_path))


def test_an_empty_folder_gives_an_empty_table(tmp_path: Path) -> None:
    assert collect_control(tmp_path, {}) == 0
    assert rows_of(tmp_path) == []
    assert load_configs(tmp_path / "absent.json").configs == {}
    (tmp_path / "configs.json").write_text("[]")
    with pytest.raises(RecordError, match=r"configs\.json cannot be read .*pcbf-collect"):
        load_configs(tmp_path / "configs.json")
