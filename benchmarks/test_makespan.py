"""How long a campaign takes on one GPU: evaluation as a stage of its own, beside the next training, or inside each job;
and how long it was said to take, from a rehearsal of its cells.

The GPU is pretended: a lease that one job at a time holds, while the work is done by a core.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_benchmark.fixture import BenchmarkFixture

from pcbf_experiments.campaign.estimate import method_speeds, train_hours
from pcbf_experiments.campaign.needs import load_rehearsal
from pcbf_experiments.campaign.plan import Plan, TrainJob, data_folder, evaluate_job, load_plan, train_job
from pcbf_experiments.cli.train import job_method_settings
from pcbf_records import layout
from pcbf_records.files import read_json
from pcbf_records.runs import load_evaluations, load_run

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
SCALE = "smoke"
EVALUATION = {"num_episodes": 6, "num_slots": 3, "episode_limit": 100, "success_timing": "pre"}
CONTROL: dict[str, Any] = {
    "methods": ["pcbf"],
    "num_seeds": 3,
    "seeds_per_job": 1,
    "gpus_per_job": 1,
    "method_settings": {"default": {"hidden_sizes": [64, 64], "num_candidates": 8}},
    "ablations": {"control_weights": [], "tasks": []},
    "run": {"steps": 1200, "batch_size": 256, "eval_every": 600, "log_every": 300, "evaluation": EVALUATION},
}
SHORT = {"steps": 600, "evaluation": {**EVALUATION, "num_episodes": 3}}  # compiles the same programs


def test_one_gpu(benchmark: BenchmarkFixture, ledger: Any, tmp_path: Path) -> None:
    pytest.importorskip("ogbench")
    plan, short = plan_of(CONTROL), {**CONTROL, "num_seeds": 1, "run": {**CONTROL["run"], **SHORT}}
    pipeline(tmp_path, "data", CONTROL)
    for job in plan_of(short).selected():
        by_hand(tmp_path, plan_of(short), job, tmp_path / "warm")

    def in_jobs() -> float:
        begin = time.perf_counter()
        for job in plan.selected():
            by_hand(tmp_path, plan, job, tmp_path / "in_jobs")
        return time.perf_counter() - begin

    def in_stages() -> float:
        begin = time.perf_counter()
        pipeline(tmp_path, "runs", CONTROL)
        return time.perf_counter() - begin

    inside = in_jobs()
    staged = benchmark.pedantic(in_stages, rounds=1)
    results = tmp_path / layout.scale_folder(SCALE)
    for job in plan.selected():
        assert list(outcomes(job.files(results))) == list(outcomes(job.files(tmp_path / "in_jobs")))
    seconds = {
        name: sum(read_json(getattr(job.files(results), file))[name] for job in plan.selected())
        for name, file in (("train_seconds", "cost"), ("evaluate_seconds", "evaluation_cost"))
    }
    ledger.add(
        "makespan",
        work=f"{len(plan.selected())} jobs on one GPU",
        cores=2,
        stages_seconds=round(staged, 1),
        inside_seconds=round(inside, 1),
        speedup=round(inside / staged, 2),
        train_seconds=round(seconds["train_seconds"], 1),
        evaluate_seconds=round(seconds["evaluate_seconds"], 1),
    )
    forecast = forecast_seconds(plan, tmp_path / "rehearsed")
    ledger.add(
        "forecast",
        work=f"training of {len(plan.selected())} jobs on one GPU",
        forecast_seconds=round(forecast, 1),
        measured_seconds=round(seconds["train_seconds"], 1),
        ratio=round(forecast / seconds["train_seconds"], 2),
    )


def forecast_seconds(plan: Plan, root: Path) -> float:
    """What `pcbf-plan` makes of a rehearsal of the same cells on the same pretended GPU."""
    shutil.copytree(REPOSITORY / "config", root / "config")
    (root / layout.PAPER_NUMBERS).parent.mkdir(parents=True)
    (root / layout.PAPER_NUMBERS).symlink_to(REPOSITORY / layout.PAPER_NUMBERS)
    (root / f"config/scales/{SCALE}.yaml").write_text(yaml.safe_dump(plan.settings[SCALE]), encoding="utf-8")
    chunk = str(CONTROL["run"]["log_every"])
    run(root, [BIN / "pcbf-rehearse", "--scale", SCALE, "--seeds", "1", "--chunk", chunk])
    cells = {key: replace(cell, device="pretended") for key, cell in load_rehearsal(root, SCALE).items()}
    speeds = method_speeds(plan.sheets.methods, [], {}, 0.0, cells)
    return 3600 * sum(train_hours(plan, plan.selected(), speeds).values())


def plan_of(control: dict[str, Any]) -> Plan:
    return load_plan(REPOSITORY, {"scale": SCALE, "control": control})


def outcomes(files: layout.JobFiles) -> Iterator[tuple[str, list[tuple[float, ...]]]]:
    """Config and scores of each seed: the same, whoever evaluated."""
    for seed in files.seeds:
        judged = load_evaluations(files.evaluations(seed)).evaluations
        yield load_run(files.record(seed)).config_hash, [evaluation.scores for evaluation in judged]


def pipeline(folder: Path, target: str, control: dict[str, Any]) -> None:
    """Snakemake on two cores and one GPU: training holds the GPU, evaluation does not."""
    options = ["--snakefile", REPOSITORY / "Snakefile", "--directory", folder, "--cores", "2", "--resources", "gpu=1"]
    config = ["--config", f"scale={SCALE}", f"control={json.dumps(control)}"]
    run(folder, [BIN / "snakemake", *options, *config, "--", target])


def by_hand(folder: Path, plan: Plan, job: TrainJob, out: Path) -> None:
    """The same job with the same settings, which keeps the GPU until it is evaluated."""
    settings = plan.settings[plan.scale]
    told = train_job(settings, plan.sheets, job.task, job.method)
    method, judged_by = job_method_settings(job.method, told), evaluate_job(settings)
    options = {
        **{name: told["run"][name] for name in ("steps", "batch_size", "eval_every", "log_every", "reward_scale")},
        **{name: told["run"][name] for name in ("across", "return_width") if told["run"][name] is not None},
        **{name.removeprefix("num_"): value for name, value in judged_by.items() if value is not None},
        "settings": json.dumps(method),
        "seeds": job.seeds[0],
        "data_dir": folder / data_folder(settings),
        "out": out,
    }
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    flags = ["--no-domain-settings", *(["--standardise"] if told["run"]["standardise"] else [])]
    run(folder, [BIN / "pcbf-lease", "1", "--", BIN / "pcbf-train", job.task, job.method, *flags, *words])


def run(folder: Path, command: Sequence[Path | str]) -> None:
    """Run a command with a pretended GPU, one thread per job and one cache of compiled programs."""
    environment = {
        **os.environ,
        "PCBF_GPUS": "pretended",
        "PCBF_LOCK_DIR": str(folder / "locks"),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "XLA_FLAGS": "",
        "NPROC": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
