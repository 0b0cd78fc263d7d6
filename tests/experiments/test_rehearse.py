"""A rehearsal of one cell of each suite, as small as it gets: from its data to its place in the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcbf_experiments.campaign.rehearsal import Cell
from pcbf_experiments.running import rehearse
from pcbf_experiments.running.rehearse import RehearsalError, Stage, begin, resume, score_in_table
from pcbf_experiments.tasks import find_task
from pcbf_records.files import write_text
from pcbf_records.layout import JobFiles

from .tiny import METHOD

RUN = {"steps": 1000, "batch_size": 4, "eval_every": 100, "log_every": 10, "standardise": False}
EVALUATION = {"num_episodes": 50, "num_slots": 10, "episode_limit": None, "success_timing": "pre"}
KINDS = {
    "state": "pointmaze-medium-navigate-singletask-task1-v0",
    "adroit": "door-expert-v1",
}


def cell_of(kind: str, **changes) -> Cell:
    task = find_task(KINDS[kind])
    return Cell(
        task=task.name,
        domain=task.domain,
        suite=task.suite,
        observations=task.observations,
        method=METHOD.name,
        version=1,
        job={"run": RUN, "domain": {}, "default": {}, "method": {}, **changes},
        evaluation=EVALUATION,
        seeds_per_job=2,
    )


def stage_in(folder: Path, seeds: int = 1) -> Stage:
    return Stage(folder / "results", folder / "raw", folder / "data", seeds=seeds)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_goes_from_its_data_to_its_place_in_the_table(kind, tiny_task, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearse, "ROWS", {"state": rehearse.LocalSettings(1, 1, 3)})
    monkeypatch.setattr(rehearse, "PLAYED", {"num_episodes": 1, "num_slots": 1, "episode_limit": 2})
    cell, stage, told = cell_of(kind), stage_in(tmp_path), []
    begin(cell, stage, told.append, is_last=False)
    files = JobFiles.of_seeds(stage.results, cell.task, cell.method, [0])
    assert files.checkpoint.exists() and not files.record(0).exists()
    (measured,) = told
    assert measured["data"] == "local" and measured["device"] == "cpu"
    assert measured["parameters"] > 0 and measured["temporary_bytes"] > 0
    row = resume(cell, stage, json.loads(json.dumps(measured["lost"])))
    assert row["resume_difference"] == 0 and row["steps_per_second"] > 0
    assert row["checkpoint_bytes"] > measured["state_bytes"] and row["snapshot_bytes"] > 4 * measured["parameters"]
    if kind == "state":
        record = json.loads(files.evaluations(0).read_text(encoding="utf-8"))
        record["evaluations"][0]["scores"] = [12.5]
        del record["sha256"]
        write_text(files.evaluations(0), json.dumps(record))
        assert score_in_table(stage.results, cell, files) == 12.5  # it is the record's score that stands there
        with pytest.raises(RehearsalError, match="the table has {} where"):
            score_in_table(stage.results, Cell(**{**vars(cell), "domain": "another"}), files)


def test_what_a_kill_lost_must_come_out_the_same():
    assert rehearse._difference({"loss": 1.0}, {"loss": 1.0}) == 0
    assert rehearse._difference({"loss": 1.0}, {"loss": 1.1}) == pytest.approx(0.1 / 1.1)
    assert rehearse._difference({"loss": 1.0}, {}) == float("inf")


def test_a_short_run_keeps_all_settings_but_its_length():
    cell = cell_of("state")
    settings = Stage(Path(), Path(), Path(), chunk=2).settings_of(cell)
    assert (settings.steps, settings.log_every, settings.snapshot_steps) == (6, 2, (6,))
    images = Cell(**{**vars(cell), "observations": "pixel", "job": {**cell.job, "run": {**RUN, "batch_size": 256}}})
    stage = Stage(Path(), Path(), Path())
    assert (stage.settings_of(images).batch_size, stage.trained(images).batch_size) == (256, 8)
    assert settings == Stage(Path(), Path(), Path(), chunk=2).trained(cell)
    assert settings.batch_size == 4 and Stage(Path(), Path(), Path()).seeds_of(cell) == [0]  # a CPU takes one
