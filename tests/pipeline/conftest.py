"""A copy of the pipeline to play with, and synthetic records in the form of real ones."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcbf_experiments.campaign.manifest import build_manifest
from pcbf_experiments.campaign.plan import all_jobs
from pcbf_experiments.campaign.settings import (
    Settings,
    calibration_pairs,
    exact_job,
    exact_pairs,
    load_scale,
    toy_job,
    toy_pairs,
)
from pcbf_records import layout
from pcbf_records.calibration import collect_calibration, save_calibration_record
from pcbf_records.canonical import content_hash, readable_json
from pcbf_records.control import collect_control
from pcbf_records.exact import collect_exact, save_exact_record
from pcbf_records.files import write_text
from pcbf_records.runs import (
    Evaluation,
    EvaluationRecord,
    RunRecord,
    Status,
    save_evaluations,
    save_run,
    write_receipt,
)
from pcbf_records.sheets import load_sheets
from pcbf_records.theory import CheckRow, PopulationRow, write_checks, write_population
from pcbf_records.toy import SHAPES, collect_toys, save_toy_record

from ..calibration_records import calibration_arrays
from ..exact_records import exact_arrays

REPOSITORY = Path(__file__).parents[2]
PIPELINE = (
    "Snakefile",
    "rules",
    "config",
    "profiles",
    "dvc.yaml",
    "data/dvc.yaml",
    "results/dvc.yaml",
    ".dvc",
    ".dvcignore",
    ".gitignore",
    "data/paper",
    "packages",
)

Runner = Callable[..., subprocess.CompletedProcess[str]]


def copy_pipeline(target: Path) -> Path:
    """`target`, holding the files that the pipeline consists of, as they are now."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.pyc", "tmp", "cache", "config.local")
    for name in PIPELINE:
        source = REPOSITORY / name
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=leave_out)
        else:
            shutil.copyfile(source, target / name)
    return target


def let_smoke_be_published(root: Path) -> None:
    """Have dvc.yaml rebuild the smoke scale instead of those that are published."""
    text = (root / "dvc.yaml").read_text(encoding="utf-8")
    text = re.sub(r"published: \[.*\]", "published: [smoke]", text)
    (root / "dvc.yaml").write_text(re.sub(r"unfinished: \[.*\]", "unfinished: []", text), encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The pipeline's files in a folder of their own."""
    return copy_pipeline(tmp_path / "checkout")


@pytest.fixture(scope="session")
def run_module() -> Runner:
    """A function that runs `python -m module arguments...` in a folder and returns what came of it."""

    def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", module, *arguments]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path}
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)

    return run


@pytest.fixture(scope="session")
def smoke(made_once: Callable[[str, Callable[[Path], None]], Path], run_module: Runner) -> Path:
    """A checkout under git in which the smoke scale has been run; tests leave it as it is."""

    def run(folder: Path) -> None:
        root = copy_pipeline(folder / "checkout")
        let_smoke_be_published(root)
        git(root, "init", "--quiet")
        commit(root, "pipeline")
        command = ["--", "snakemake", "--cores", "2", "--config", "scale=smoke"]
        done = run_module(root, "pcbf_experiments.campaign.watch", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        write_text(said_by(root), done.stdout)

    return made_once("smoke", run) / "checkout"


def said_by(root: Path) -> Path:
    """What the run of the smoke scale has printed."""
    return root.with_name("said.log")


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    return subprocess.run(["git", *name, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a csv file, by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_finished_scale(
    root: Path, scale: str = "smoke", *, shift: float = 0.0, score_shift: float = 0.0, noise_seed: int = 0
) -> Path:
    """A small finished results/<scale>, figures as placeholders.

    W1 is near 0.3 + `shift`, disturbed by 0.02 of noise; scores are near 50 + `score_shift`, disturbed by 5.
    """
    settings = load_scale(root / "config" / "scales" / f"{scale}.yaml")
    results = root / layout.scale_folder(scale)
    random = np.random.default_rng(noise_seed)
    for process, method in toy_pairs(settings):
        write_toy_run(results, process, method, toy_job(settings, process, method), random, shift)
    collect_toys(results)
    for mdp, method in exact_pairs(settings):
        job = exact_job(settings, method)
        arrays = exact_arrays((1.0, *job["risk_levels"]), job["num_seeds"])
        arrays["cvar"] = arrays["cvar"] + shift + 0.02 * random.standard_normal(arrays["cvar"].shape)
        save_exact_record(results / layout.exact_run(mdp, method), arrays, {})
    collect_exact(results, dict.fromkeys(settings["exact"]["mdps"], 0), [])
    for dataset, method in calibration_pairs(settings):
        arrays = calibration_arrays(settings["calibration"]["num_seeds"], shift)
        arrays["crps"] = arrays["crps"] + 0.02 * random.standard_normal(arrays["crps"].shape)
        save_calibration_record(results / layout.calibration_run(dataset, method), arrays, {})
    collect_calibration(results)
    checks = [
        CheckRow("endpoints", "s", "prop:endpoints_main", 1e-9, 0, "≈", 1e-6),
        CheckRow("bound", "s", "l", 1, 2, "<="),
    ]
    write_checks(results / layout.THEORY_CHECKS, checks)
    write_population(results / layout.THEORY_POPULATION, [PopulationRow("bernoulli", "flow", "shared", 1.0, 15)])
    write_runs(root, results, settings, 50 + score_shift + 5 * random.standard_normal(1000))
    placeholders = (layout.figure("residual", "svg"), *(layout.table(label, "csv") for label in ("toy_w1", "cost")))
    for name in (*placeholders, layout.REPORT):
        write_text(results / name, f"{name} {shift} {score_shift} {noise_seed}\n")
    write_text(results / layout.MANIFEST, readable_json(build_manifest(results, settings, load_sheets(root))))
    return results


def write_toy_run(
    results: Path, process: str, method: str, job: Settings, random: np.random.Generator, shift: float
) -> None:
    """The record of a toy job; everything but W1 and the spread of the loss is zero."""
    states = range(1, 5) if process == "chain" else [0]
    lengths = {
        "C": len(job["coefficients"]),
        "S": job["num_seeds"],
        "U": job["num_tuning_seeds"],
        "N": len(states),
        "L": 3,
        "H": 2,
    }
    arrays = {name: np.zeros([lengths[axis] for axis in axes]) for name, axes in SHAPES.items()}
    arrays |= {
        "coefficients": np.array(job["coefficients"]),
        "seeds": np.arange(lengths["S"]),
        "tuning_seeds": 1000 + np.arange(lengths["U"]),
        "states": np.array(states),
        "w1": 0.3 + shift + 0.02 * random.standard_normal(arrays["w1"].shape),
        "loss_std": 1 + 0.05 * random.standard_normal(arrays["loss_std"].shape),
    }
    save_toy_record(results / layout.toy_run(process, method), arrays, {"wall_seconds": shift})


def write_runs(root: Path, results: Path, settings: Settings, scores: Iterable[float]) -> None:
    """Records of the training runs of a scale with these scores, what they cost, and a picture of a task."""
    sheets, left = load_sheets(root), iter(scores)
    for job in all_jobs(settings, sheets):
        write_job(job.files(results), {seed: next(left) for seed in job.seeds})
        write_json(job.files(results).cost, {"train_seconds": next(left)})
    write_json(results / layout.spaces("task"), {"action_dim": 5})
    collect_control(results, sheets.tasks)


def write_job(files: layout.JobFiles, scores: Mapping[int, float]) -> None:
    """Run and evaluation records and receipts of a finished group of seeds with these scores."""
    for seed, score in scores.items():
        write_run(files, seed, score)
        write_evaluations(files, seed, [score])
    write_receipt(files.receipt, files, {files.record(seed): {} for seed in scores})
    write_receipt(files.evaluation_receipt, files, {files.evaluations(seed): {} for seed in scores})


CONFIG = {"method_version": 1}


def write_run(files: layout.JobFiles, seed: int, score: float = 0.0, status: Status = "finished") -> None:
    """The run record of a seed that was trained for 20 steps; its metrics and commit tell the score."""
    record = RunRecord(
        task=files.task,
        method=files.method,
        seed=seed,
        status=status,
        steps=20,
        snapshot_steps=(10, 20),
        num_final_evaluations=1,
        config=CONFIG,
        dataset={"source": "local"},
        final_metrics={"loss": score},
        code={"commit": f"commit of {score}"},
    )
    save_run(files.record(seed), record)


def write_evaluations(files: layout.JobFiles, seed: int, scores: Sequence[float]) -> None:
    """The evaluation record of a seed with these scores of its last steps."""
    steps = (10, 20)[-len(scores) :]
    judged = [Evaluation(step, (score,), (0.0,), (1,), (0.0,)) for step, score in zip(steps, scores, strict=True)]
    record = EvaluationRecord(files.task, files.method, seed, content_hash(CONFIG), tuple(judged))
    save_evaluations(files.evaluations(seed), record)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value))
