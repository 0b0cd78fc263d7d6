"""The cells of a rehearsal and its table, and what a plan makes of them."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pcbf_experiments.campaign.estimate import describe_plan, method_speeds, rehearsed_speeds
from pcbf_experiments.campaign.estimate import main as plan_main
from pcbf_experiments.campaign.needs import data_bytes, kept_bytes, load_rehearsal, memory_lines, num_files
from pcbf_experiments.campaign.plan import TrainJob, load_plan
from pcbf_experiments.campaign.rehearsal import COLUMNS, OK, add_rows, cells_of, groups_of, read_rows, sample
from pcbf_experiments.campaign.status import SILENCE, describe_status, job_status
from pcbf_experiments.cli import rehearse
from pcbf_records import layout

from .conftest import REPOSITORY

TASK = "scene-play-singletask-task2-v0"
NOW = 1_000_000.0


@pytest.fixture(scope="module")
def paper():
    return load_plan(REPOSITORY, {"scale": "paper"})


def row(method: str = "iql", **values) -> dict:
    measured = {"device": "cpu", "seeds": 1, "steps_per_second": 4.0, "state_bytes": 10_000_000}
    sizes = {"temporary_bytes": 2_000_000_000, "checkpoint_bytes": 11_000_000, "snapshot_bytes": 5_000_000}
    place = {"task": TASK, "domain": "scene-play", "suite": "ogbench", "method": method, "outcome": OK}
    return {**place, **measured, **sizes, **values}


def rehearsed(tmp_path: Path, *rows: dict):
    add_rows(tmp_path / layout.rehearsal_table("paper"), rows)
    return load_rehearsal(tmp_path, "paper")


# --- cells ------------------------------------------------------------------------------------------------------------


def test_the_paper_has_246_cells_with_the_settings_of_their_jobs(paper):
    cells = cells_of(paper)
    assert len(cells) == 28 * 7 + 10 * 5
    assert Counter((cell.suite, cell.observations) for cell in cells) == {
        ("ogbench", "state"): 140,
        ("ogbench", "pixel"): 50,
        ("adroit", "state"): 56,
    }
    (one,) = [cell for cell in cells if (cell.task, cell.method) == (TASK, "pcbf")]
    assert one.job["run"]["batch_size"] == 256 and one.job["domain"]["control_weight"] == 0.2
    assert (one.seeds_per_job, one.cloning_job) == (4, None)
    assert len(groups_of(cells)) == 5 * 7 + 2 * 5


def test_a_sample_has_one_of_each_suite_and_method_before_a_second(paper):
    chosen = sample(cells_of(paper), 19)
    kinds = [(cell.suite, cell.observations, cell.method) for cell in chosen]
    assert len(set(kinds)) == len(kinds) == 19  # 7 + 5 + 7
    assert len(sample(cells_of(paper), 20)) == 20


def test_a_cell_is_another_with_another_setting_and_the_same_otherwise(paper):
    cell = cells_of(paper)[0]
    assert cell.config_hash(seeds=1) == replace(cell).config_hash(seeds=1)
    assert cell.config_hash(seeds=1) != cell.config_hash(seeds=2)
    assert cell.config_hash() != replace(cell, job={**cell.job, "method": {"discount": 0.9}}).config_hash()


def test_rows_take_the_place_of_earlier_ones_of_their_cell(tmp_path):
    table = tmp_path / "rehearsal.csv"
    add_rows(table, [row(outcome="begin: no"), row("pcbf")])
    add_rows(table, [row()])
    found = read_rows(table)
    assert list(found) == [(TASK, "iql"), (TASK, "pcbf")]
    assert found[TASK, "iql"]["outcome"] == OK and found[TASK, "iql"]["steps_per_second"] == "4"
    assert table.read_text(encoding="utf-8").splitlines()[0] == ",".join(COLUMNS)
    table.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no table of rehearsals"):
        read_rows(table)


def test_a_process_that_ends_early_fails_the_cells_it_has_not_told_of(tmp_path, monkeypatch, paper):
    """One cell told of by both phases, one by the first, one by none."""
    cells = [cell for cell in cells_of(paper) if cell.domain == "scene-play" and cell.method == "iql"][:3]

    def start(place: Path, phase: str) -> None:
        for cell in cells[: 2 if phase == "begin" else 1]:
            file = place / phase / f"{cell.task}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps({"lost": {}, "seeds": 1} if phase == "begin" else {"score": 0.0}))
        (place / f"{phase}.code").write_text("-9")

    monkeypatch.setattr(rehearse, "_start", start)
    rows = list(rehearse._try_group(cells, tmp_path, {}, {}))
    assert rows[0]["outcome"] == OK and rows[0]["score"] == 0.0 and "lost" not in rows[0]
    assert rows[1]["outcome"].startswith("resume: its process ended with code -9")
    assert rows[2]["outcome"].startswith("begin: its process ended with code -9")


# --- the published one ----------------------------------------------------------------------------------------------


def test_the_published_rehearsal_has_every_cell_of_the_paper_and_no_failure(paper):
    rows = read_rows(REPOSITORY / layout.PUBLISHED_REHEARSAL)
    assert set(rows) == {(cell.task, cell.method) for cell in cells_of(paper)} and len(rows) == 246
    for place, found in rows.items():
        assert found["outcome"] == OK, place
        assert found["batch_size"] == "256" and float(found["steps_per_second"]) > 0
        assert int(found["state_bytes"]) > 4 * int(found["parameters"])  # parameters, their targets, Adam's moments


# --- plan -------------------------------------------------------------------------------------------------------------


def test_a_rehearsal_on_a_gpu_tells_the_speed_and_one_on_the_cpu_does_not(tmp_path):
    paper = {"iqn": 3.0}
    on_cpu = rehearsed(tmp_path, row("iqn", steps_per_second=2.0))
    assert method_speeds(["iqn"], [], paper, 1000.0, on_cpu)["iqn"].source == "tab:cost of the paper (A100)"
    on_gpu = rehearsed(tmp_path, row("iqn", device="NVIDIA A100", seeds=4, steps_per_second=250.0))
    speed = method_speeds(["iqn"], [], paper, 1000.0, on_gpu)["iqn"]
    assert speed.seconds == pytest.approx(1e-3) and speed.source == "rehearsed on NVIDIA A100, 1 cells"


def test_a_scale_of_the_cpu_is_planned_by_its_rehearsal_there(tmp_path):
    plan = load_plan(REPOSITORY, {"scale": "desk", "methods": ["iql"]})
    jobs = plan.selected()
    statuses = [job_status(tmp_path, job, NOW) for job in jobs]
    (hint,) = [line for line in describe_plan(tmp_path, plan, tmp_path, statuses, {}) if "pcbf-rehearse" in line]
    assert "--scale desk" in hint
    speeds = rehearsed_speeds(rehearsed(tmp_path, row("iql", steps_per_second=100.0)))
    lines = list(describe_plan(tmp_path, plan, tmp_path, statuses, speeds))
    (hours,) = [line for line in lines if line.startswith("all ")]
    assert float(hours.split()[-1]) == round(sum(len(job.seeds) * plan.steps(job) for job in jobs) / 100 / 3600, 1)
    assert any("core hours" in line for line in lines) and not any("card" in line for line in lines)


def test_seeds_and_jobs_that_fit_into_a_card(tmp_path):
    plan = load_plan(REPOSITORY, {"scale": "paper", "tasks": [TASK], "methods": ["iql"]})
    known, jobs = rehearsed(tmp_path, row()), plan.selected()
    data = data_bytes(plan.sheets.tasks[TASK])
    assert data == 1_001_000 * 4 * (2 * 40 + 2 * 5 + 3)
    lines = list(memory_lines(plan, jobs, known, 12e9))  # 2.01 GB a seed: four of eight in 9 GB
    assert "rehearsal on cpu; a GPU's programs differ" in lines[0]
    assert "state tasks: seeds_per_job up to 4 (8.4 GB with its data); then jobs_per_gpu up to 1" in lines[1]
    assert "seeds_per_job up to 8" in list(memory_lines(plan, jobs, known, 80e9))[1]
    assert "too much for a card of 2 GB" in list(memory_lines(plan, jobs, known, 2e9))[1]
    assert list(memory_lines(plan, jobs, {}, 80e9)) == []


def test_disk_and_files_of_what_is_kept(tmp_path):
    plan = load_plan(REPOSITORY, {"scale": "paper", "tasks": [TASK], "methods": ["iql"]})
    sizes = kept_bytes(plan, plan.selected(), rehearsed(tmp_path, row()))
    assert sizes == {"checkpoints": 8 * 11e6, "snapshots": 8 * 3 * 5e6}  # three final snapshots a seed
    assert num_files(plan, plan.selected()) == 2 * 11 + 8 * (5 + 3)


def test_the_plan_says_in_which_order_domains_are_trained(capsys):
    assert (
        plan_main(["--root", str(REPOSITORY), "--domains", "scene-play", "cube-double-play", "--methods", "iql"]) == 0
    )
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("queue")]
    assert "cube-double-play after 11, scene-play after 22" in line


# --- a job that hangs -------------------------------------------------------------------------------------------------


def test_a_job_that_is_there_and_says_nothing_hangs(tmp_path):
    job = TrainJob(TASK, "iql", (0,))
    said = {"done": 5, "total": 20, "unit": "steps", "started": NOW - 10, "updated": NOW}
    file = job.files(tmp_path).progress
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**said, "pid": os.getpid(), "node": platform.node()}), encoding="utf-8")
    assert job_status(tmp_path, job, NOW + SILENCE).state == "running"
    status = job_status(tmp_path, job, NOW + SILENCE + 60)
    assert status.state == "hangs"
    text = "\n".join(describe_status(tmp_path, None, [status]))
    assert "1 hangs" in text and "nothing said for more than 15 minutes" in text
    assert f"process {os.getpid()} has said nothing for 16:00" in text
