"""`pcbf-status` and `pcbf-plan`: what they read from a campaign's files and what they make of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcbf_analysis.campaign import (
    SILENCE,
    Speed,
    card_hours,
    describe_plan,
    describe_status,
    disk_bytes,
    job_status,
    load_costs,
    method_speeds,
    paper_times,
    plan_main,
    status_main,
    time_left,
)
from pcbf_analysis.control import Plan, TrainJob, data_stamp, load_plan

from .conftest import REPOSITORY, write_finished_scale, write_json

TASK = "cube-single-play-singletask-task1-v0"
NOW = 1000.0
SAID = {"job": "x", "done": 15, "total": 20, "first": 5, "unit": "steps", "started": 990.0, "updated": 995.0, "pid": 1}


@pytest.fixture
def plan() -> Plan:
    return load_plan(REPOSITORY, {"scale": "smoke"})


def job(method: str, variant: str = "") -> TrainJob:
    return TrainJob(TASK, method, (0, 1), variant)


# --- status -------------------------------------------------------------------------------------------------------


def test_a_job_without_files_waits(tmp_path):
    assert job_status(tmp_path, job("iql"), NOW).state == "waiting"


def test_a_job_that_spoke_lately_runs_and_one_that_fell_silent_has_stopped(tmp_path):
    write_json(tmp_path / job("iql").progress, SAID)
    status = job_status(tmp_path, job("iql"), NOW)
    assert status.state == "running"
    assert status.progress and status.progress.rate == 2.0  # ten steps in five seconds
    assert status.seconds_left == 2.5
    assert job_status(tmp_path, job("iql"), NOW + SILENCE).state == "stopped"


def test_a_failure_has_its_reason_until_the_job_speaks_again(tmp_path):
    write_json(tmp_path / job("iql").progress, SAID)
    write_json(tmp_path / job("iql").failure, {"reason": "the disk is full"})
    os.utime(tmp_path / job("iql").progress, (1, 1))
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.reason) == ("failed", "the disk is full")
    os.utime(tmp_path / job("iql").failure, (0, 0))
    assert job_status(tmp_path, job("iql"), NOW).state == "running"


def test_a_job_is_done_with_the_records_of_all_seeds(tmp_path):
    first, second = job("iql").records
    write_json(tmp_path / first, {"status": "finished"})
    assert job_status(tmp_path, job("iql"), NOW).state == "waiting"
    write_json(tmp_path / second, {"status": "diverged"})
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.num_done, status.num_diverged) == ("done", 2, 1)


def test_a_file_cut_short_is_no_record(tmp_path):
    for name in job("iql").records:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"status": "fin', encoding="utf-8")
    assert job_status(tmp_path, job("iql"), NOW).state == "waiting"


def test_the_lines_say_what_a_reader_wants_to_know(tmp_path, plan):
    ablated = next(one for one in plan.selected() if one.variant)
    for name in job("random").records:
        write_json(tmp_path / name, {"status": "finished"})
    write_json(tmp_path / job("pcbf").progress, SAID)
    write_json(tmp_path / ablated.failure, {"reason": "no graphics card is visible\nand more"})
    statuses = [job_status(tmp_path, one, NOW) for one in plan.selected()]
    text = "\n".join(describe_status(Path("results/smoke"), plan, statuses))
    assert "results/smoke: 2 of 8 runs done; jobs: 1 done, 1 running, 1 failed, 0 stopped, 1 waiting" in text
    assert f"{TASK} pcbf seeds0-1: 75 % of 20 steps, 2 steps/s, 0:02 left" in text
    assert f"{TASK} pcbf control_weight=0.5 seeds0-1: no graphics card is visible" in text
    assert "and more" not in text
    # two seeds of pcbf lack 5 steps each, iql and the ablation 20 each, at 2 steps/s for each of two seeds
    assert time_left(plan, statuses) == pytest.approx((2 * 5 + 2 * 20 + 2 * 20) / 4)


def test_the_command_reads_a_finished_scale(checkout, capsys):
    write_finished_scale(checkout)
    assert status_main(["results/smoke", "--root", str(checkout)]) == 0
    assert "8 of 8 runs done" in capsys.readouterr().out
    assert status_main(["results/smok", "--root", str(checkout)]) == 1
    assert "did you mean smoke?" in capsys.readouterr().err


# --- plan ---------------------------------------------------------------------------------------------------------


def cost(method: str, seconds: float, device: str = "cpu", task: str = TASK) -> dict:
    return {"task": task, "method": method, "train_seconds": seconds, "steps": 100, "seeds": [0, 1], "device": device}


def test_speeds_are_measured_on_a_card_or_the_papers_or_ratios():
    costs = [cost("pcbf", 30.0, "A100"), cost("iqn", 8.0), cost("iql", 4.0), cost("codac", 8.0, task="another")]
    speeds = method_speeds(["pcbf", "value_flows", "iqn", "codac"], costs, {"iql": 1.0, "value_flows": 2.4}, 1000.0)
    assert speeds["pcbf"] == Speed(0.15, "measured on A100")
    assert speeds["value_flows"].seconds == pytest.approx(2.4e-3)
    assert speeds["iqn"].seconds == pytest.approx(2e-3)  # twice IQL's
    assert "codac" not in speeds  # IQL was not measured there


def test_hours_are_those_of_all_seeds_and_steps():
    plan = load_plan(REPOSITORY, {"scale": "paper", "domains": ["scene-play"], "methods": ["iql"]})
    hours = card_hours(plan, plan.selected(), {"iql": Speed(1e-3, "")})
    assert hours == {("scene-play", "iql"): pytest.approx(5 * 8 * 1e6 * 1e-3 / 3600)}


def test_the_papers_times_are_relative_to_iql():
    times = paper_times(REPOSITORY)
    assert times["iql"] == 1.0 and times["pcbf"] == 2.5


def test_the_plan_of_the_paper_counts_its_runs(capsys):
    assert plan_main(["--root", str(REPOSITORY)]) == 0
    text = capsys.readouterr().out
    assert "control suite 1768 runs" in text
    assert "disk:" in text
    for domain in ("cube-double-play", "adroit", "visual-cube-double-play"):
        assert f"\n{domain} " in text


def test_the_plan_says_what_is_missing_and_what_is_not(checkout, plan):
    results = write_finished_scale(checkout)
    statuses = [job_status(results, one, NOW) for one in plan.selected()]
    lines = list(describe_plan(checkout, plan, results, statuses, {}))
    assert "missing: 1 of 1 datasets (cube-single-play-v0)" in lines
    assert lines[-1] == "all runs are done"
    stamp = checkout / data_stamp(plan.settings["smoke"], plan.sheets, TASK)
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    assert not [line for line in describe_plan(checkout, plan, results, statuses, {}) if "datasets (" in line[:40]]


def test_disk_space_is_that_of_checkpoints_and_data_where_they_are(tmp_path, plan):
    results = tmp_path / "results/smoke"
    checkpoint = results / f"checkpoints/{TASK}/iql/seeds0-1.npz"
    data = (tmp_path / data_stamp(plan.settings["smoke"], plan.sheets, TASK)).parents[
        1
    ] / "ogbench/cube-single-play-v0.npz"
    for path, size in ((checkpoint, 2000), (data, 300)):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(size))
    sizes = disk_bytes(tmp_path, plan, results, plan.selected())
    assert (sizes["datasets"], sizes["checkpoints"]) == (300, 8 * 1000)  # eight runs, one seed in 1000 bytes


def test_files_that_vanish_while_disk_space_is_counted_take_none(tmp_path, plan, monkeypatch):
    results, path = tmp_path / "results/smoke", tmp_path / data_stamp(plan.settings["smoke"], plan.sheets, TASK)
    gone = (
        results / f"checkpoints/{TASK}/iql/seeds0-1.npz",
        path.parents[1] / "ogbench/cube-single-play-v0.npz.1234abcd.part",
    )
    for file in gone:
        file.parent.mkdir(parents=True)
        file.symlink_to(tmp_path / "nowhere")  # listed, and not there
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # the download ends just after
    without = disk_bytes(tmp_path / "empty", plan, tmp_path / "empty/results/smoke", plan.selected())
    assert disk_bytes(tmp_path, plan, results, plan.selected()) == without


def test_cost_records_are_read_from_every_folder(tmp_path):
    write_json(tmp_path / "a/cost/task/iql/seeds0.json", {"steps": 5, "seeds": [0], "train_seconds": 1.0})
    write_json(tmp_path / "b/cost/task/pcbf/seeds0.json", {"steps": 0, "seeds": [0]})
    (found,) = load_costs([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert (found["task"], found["method"]) == ("task", "iql")
