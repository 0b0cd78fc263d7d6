"""`pcbf-status` and `pcbf-plan`: what they read from a campaign's files and what they make of it."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from pcbf_experiments.campaign.estimate import (
    Speed,
    describe_plan,
    disk_bytes,
    load_costs,
    method_speeds,
    paper_times,
    train_hours,
)
from pcbf_experiments.campaign.estimate import main as plan_main
from pcbf_experiments.campaign.plan import Plan, TrainJob, data_stamp, load_plan
from pcbf_experiments.campaign.status import SILENCE, describe_status, job_status, time_left
from pcbf_experiments.campaign.status import main as status_main
from pcbf_records.layout import JobFiles

from .conftest import REPOSITORY, write_evaluations, write_finished_scale, write_job, write_json, write_run

TASK = "cube-single-play-singletask-task1-v0"
NOW = 1000.0
SAID = {"job": "x", "done": 15, "total": 20, "first": 5, "unit": "steps", "started": 990.0, "updated": 995.0, "pid": 1}


@pytest.fixture
def plan() -> Plan:
    return load_plan(REPOSITORY, {"scale": "smoke"})


def job(method: str) -> TrainJob:
    return TrainJob(TASK, method, (0, 1))


def files(results: Path, method: str = "iql") -> JobFiles:
    return job(method).files(results)


# --- status -------------------------------------------------------------------------------------------------------


def test_a_job_without_files_waits(tmp_path):
    assert job_status(tmp_path, job("iql"), NOW).state == "waiting"


def test_a_job_that_spoke_lately_runs_and_one_that_fell_silent_has_stopped(tmp_path):
    write_json(files(tmp_path).progress, SAID)
    status = job_status(tmp_path, job("iql"), NOW)
    assert status.state == "running"
    assert status.progress and status.progress.rate == 2.0  # ten steps in five seconds
    assert status.progress.seconds_left == 2.5
    assert job_status(tmp_path, job("iql"), NOW + SILENCE).state == "stopped"


def test_a_failure_has_its_reason_until_the_job_speaks_again(tmp_path):
    write_json(files(tmp_path).progress, SAID)
    write_json(files(tmp_path).failure, {"reason": "the disk is full"})
    os.utime(files(tmp_path).progress, (1, 1))
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.reason) == ("failed", "the disk is full")
    os.utime(files(tmp_path).failure, (0, 0))
    assert job_status(tmp_path, job("iql"), NOW).state == "running"


def test_a_job_is_done_once_all_seeds_are_trained_and_judged(tmp_path):
    own = files(tmp_path)
    write_run(own, 0)
    assert job_status(tmp_path, job("iql"), NOW).state == "waiting"
    write_run(own, 1)
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.num_done, status.is_trained) == ("trained", 0, True)
    write_evaluations(own, 0, [50.0])
    assert job_status(tmp_path, job("iql"), NOW).state == "trained"
    write_evaluations(own, 1, [50.0])
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.num_done, status.num_diverged) == ("done", 2, 0)


def test_a_run_that_diverged_has_nothing_to_be_judged(tmp_path):
    for seed in (0, 1):
        write_run(files(tmp_path), seed, status="diverged")
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.num_done, status.num_diverged) == ("done", 2, 2)


def test_a_trained_job_shows_how_far_its_evaluation_is_not_its_training(tmp_path):
    own = files(tmp_path)
    for seed in (0, 1):
        write_run(own, seed)
    write_json(own.progress, SAID)
    assert job_status(tmp_path, job("iql"), NOW).progress is None
    write_json(own.evaluation_progress, {**SAID, "done": 30, "total": 40, "first": 0, "unit": "episodes"})
    status = job_status(tmp_path, job("iql"), NOW)
    assert status.state == "trained"
    assert status.progress and (status.progress.fraction, status.progress.unit) == (0.75, "episodes")


def test_an_evaluation_that_failed_has_its_reason_until_it_speaks_again(tmp_path):
    own = files(tmp_path)
    for seed in (0, 1):
        write_run(own, seed)
    write_json(own.evaluation_progress, SAID)
    write_json(own.failure, {"reason": "a snapshot is missing"})
    os.utime(own.evaluation_progress, (1, 1))
    status = job_status(tmp_path, job("iql"), NOW)
    assert (status.state, status.reason) == ("failed", "a snapshot is missing")
    os.utime(own.failure, (0, 0))
    assert job_status(tmp_path, job("iql"), NOW).state == "trained"


def test_a_file_cut_short_is_no_record(tmp_path):
    own = files(tmp_path)
    for path in (own.record(0), own.record(1)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"status": "fin', encoding="utf-8")
    assert job_status(tmp_path, job("iql"), NOW).state == "waiting"


def test_the_lines_say_what_a_reader_wants_to_know(tmp_path, plan):
    ablated = next(one for one in plan.selected() if one.change)
    write_job(files(tmp_path, "random"), {0: 1.0, 1: 2.0})
    write_json(files(tmp_path, "pcbf").progress, SAID)
    write_json(ablated.files(tmp_path).failure, {"reason": "no GPU is visible\nand more"})
    statuses = [job_status(tmp_path, one, NOW) for one in plan.selected()]
    text = "\n".join(describe_status(Path("results/smoke"), plan, statuses))
    states = "1 done, 0 trained, 1 running, 1 failed, 0 stopped, 0 lost, 1 waiting"
    assert f"results/smoke: 2 of 8 runs done; jobs: {states}" in text
    assert f"{TASK} pcbf seeds0-1: 75 % of 20 steps, 2 steps/s, 0:02 left" in text
    assert f"{TASK} pcbf control_weight=0.5 seeds0-1: no GPU is visible" in text
    assert "and more" not in text
    # two seeds of pcbf lack 5 steps each, iql and the ablation 20 each, at 2 steps/s for each of two seeds
    assert time_left(plan, statuses) == pytest.approx((2 * 5 + 2 * 20 + 2 * 20) / 4)


def test_what_is_trained_takes_no_more_training(tmp_path, plan):
    write_json(files(tmp_path, "pcbf").progress, SAID)
    for seed in (0, 1):
        write_run(files(tmp_path), seed)
    write_json(files(tmp_path).evaluation_progress, {**SAID, "done": 1, "total": 4, "first": 0, "unit": "episodes"})
    statuses = [job_status(tmp_path, one, NOW) for one in plan.selected()]
    text = "\n".join(describe_status(Path("results/smoke"), plan, statuses))
    assert f"trained, to be evaluated:\n  {TASK} iql seeds0-1: 25 % of 4 episodes" in text
    # two seeds of pcbf lack 5 steps each, random and the ablation 20 each
    assert time_left(plan, statuses) == pytest.approx((2 * 5 + 2 * 20 + 2 * 20) / 4)


def test_the_command_reads_a_finished_scale(checkout, capsys):
    write_finished_scale(checkout)
    assert status_main(["results/smoke", "--root", str(checkout)]) == 0
    assert "8 of 8 runs done" in capsys.readouterr().out
    assert status_main(["results/smok", "--root", str(checkout)]) == 1
    assert "results/smok has no runs; did you mean smoke?" in capsys.readouterr().err


def test_any_folder_is_listed(tmp_path, capsys):
    """What `pcbf-train` leaves in results/own, or in a folder of any name."""
    results = tmp_path / "own"
    write_job(files(results, "random"), {0: 1.0, 1: 2.0})
    write_json(files(results, "iql").failure, {"reason": "no space left"})
    write_json(files(results, "iql").checkpoint, {})
    lock = files(results, "pcbf").with_seeds((3,)).lock(3, "train")
    write_json(lock, {})
    assert status_main([str(results)]) == 0
    told = capsys.readouterr().out
    assert f"{results.as_posix()}: 2 of 5 runs done" in told and "1 failed" in told and "1 waiting" in told
    assert f"{TASK} iql seeds0-1: no space left" in told


def test_a_job_whose_process_has_ended_is_stopped_at_once(tmp_path):
    write_json(files(tmp_path).progress, SAID)
    assert job_status(tmp_path, job("iql"), NOW).state == "running"
    ended = subprocess.Popen(["true"])
    ended.wait()
    write_json(files(tmp_path).progress, {**SAID, "pid": ended.pid, "node": platform.node()})
    assert job_status(tmp_path, job("iql"), NOW).state == "stopped"
    write_json(files(tmp_path).progress, {**SAID, "pid": ended.pid, "node": "another"})
    assert job_status(tmp_path, job("iql"), NOW).state == "running"


def test_a_lost_record_is_named(tmp_path):
    own = files(tmp_path)
    write_job(own, {0: 1.0, 1: 2.0})
    assert job_status(tmp_path, job("iql"), NOW).state == "done"
    own.record(0).unlink()
    write_json(own.progress, {**SAID, "done": 20})  # all steps were made
    status = job_status(tmp_path, job("iql"), NOW)
    assert status.state == "lost" and status.reason == f"{own.record(0).as_posix()} is missing"
    text = "\n".join(describe_status(tmp_path, None, [status]))
    assert "records lost; rerun to make them again:" in text and status.reason in text


# --- plan ---------------------------------------------------------------------------------------------------------


def cost(method: str, seconds: float, device: str = "cpu", task: str = TASK) -> dict:
    return {"task": task, "method": method, "train_seconds": seconds, "steps": 100, "seeds": [0, 1], "device": device}


def test_speeds_are_measured_on_a_gpu_or_the_papers_or_ratios():
    costs = [cost("pcbf", 30.0, "A100"), cost("iqn", 8.0), cost("iql", 4.0), cost("codac", 8.0, task="another")]
    speeds = method_speeds(["pcbf", "value_flows", "iqn", "codac"], costs, {"iql": 1.0, "value_flows": 2.4}, 1000.0)
    assert speeds["pcbf"] == Speed(0.15, "measured on A100")
    assert speeds["value_flows"].seconds == pytest.approx(2.4e-3)
    assert speeds["iqn"].seconds == pytest.approx(2e-3)  # twice IQL's
    assert "codac" not in speeds  # IQL was not measured there


def test_hours_are_those_of_all_seeds_and_steps():
    plan = load_plan(REPOSITORY, {"scale": "paper", "domains": ["scene-play"], "methods": ["iql"]})
    hours = train_hours(plan, plan.selected(), {"iql": Speed(1e-3, "")})
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
    checkpoint = files(results).checkpoint
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
        files(results).checkpoint,
        path.parents[1] / "ogbench/cube-single-play-v0.npz.1234abcd.part",
    )
    for file in gone:
        file.parent.mkdir(parents=True)
        file.symlink_to(tmp_path / "nowhere")  # listed, and not there
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # the download ends just after
    without = disk_bytes(tmp_path / "empty", plan, tmp_path / "empty/results/smoke", plan.selected())
    assert disk_bytes(tmp_path, plan, results, plan.selected()) == without


def test_cost_records_are_read_from_every_folder(tmp_path):
    whole, empty = (JobFiles(tmp_path / name, "task", m, "seeds0") for name, m in (("a", "iql"), ("b", "pcbf")))
    write_json(whole.cost, {"steps": 5, "seeds": [0], "train_seconds": 1.0})
    write_json(whole.evaluation_cost, {"seeds": [0], "evaluate_seconds": 1.0})
    write_json(empty.cost, {"steps": 0, "seeds": [0]})
    (found,) = load_costs([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert (found["task"], found["method"]) == ("task", "iql")
