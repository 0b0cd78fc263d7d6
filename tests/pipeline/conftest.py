"""A copy of the pipeline to play with, and synthetic records in the form of real ones."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcbf_analysis.control import ablation_jobs, control_jobs, load_sheets
from pcbf_analysis.provenance import build_manifest, dump_json
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, Settings, load_scale, toy_job
from pcbf_core.records import Evaluation, RunRecord, save_record

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
    """Have dvc.yaml rebuild the smoke scale instead of the laptop scale."""
    text = (root / "dvc.yaml").read_text(encoding="utf-8")
    (root / "dvc.yaml").write_text(text.replace("published: [laptop]", "published: [smoke]"), encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The pipeline's files in a folder of their own."""
    return copy_pipeline(tmp_path / "checkout")


@pytest.fixture(scope="session")
def run_module(compile_cache: dict[str, str]) -> Runner:
    """A function that runs `python -m module arguments...` in a folder and returns what came of it."""

    def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", module, *arguments]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, **compile_cache, "PATH": path}
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)

    return run


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a csv file, by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, header: str, rows: Sequence[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")


def write_finished_scale(
    root: Path, scale: str = "smoke", *, shift: float = 0.0, score_shift: float = 0.0, noise_seed: int = 0
) -> Path:
    """A small finished results/<scale>, figures as placeholders.

    W1 is near 0.3 + `shift`, disturbed by 0.02 of noise; scores are near 50 + `score_shift`, disturbed by 5.
    """
    settings = load_scale(root / "config" / "scales" / f"{scale}.yaml")
    results = root / "results" / scale
    random = np.random.default_rng(noise_seed)
    distances, spreads = [], []
    for env in ENVIRONMENTS:
        states = range(1, 5) if env == "chain" else [0]
        for method in METHODS:
            job = toy_job(settings, env, method)
            coefficients, seeds = job["coefficients"], range(job["num_seeds"])
            w1 = 0.3 + shift + 0.02 * random.standard_normal((len(coefficients), len(seeds), len(states)))
            spread = 1 + 0.05 * random.standard_normal(w1.shape[:2])
            path = results / "toy" / "runs" / env / f"{method}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            metadata = np.array(json.dumps({"wall_seconds": noise_seed}))
            np.savez(path, coefficients=np.array(coefficients), w1=w1, loss_std=spread, metadata=metadata)
            places = [(i, j) for i in range(len(coefficients)) for j in range(len(seeds))]
            distances += [
                (env, state, method, coefficients[i], seeds[j], w1[i, j, k])
                for i, j in places
                for k, state in enumerate(states)
            ]
            spreads += [(env, method, coefficients[i], seeds[j], spread[i, j]) for i, j in places]
    write_csv(results / "toy" / "w1.csv", "env,state,method,coefficient,seed,w1", distances)
    write_csv(results / "toy" / "loss_std.csv", "env,method,coefficient,seed,loss_std", spreads)
    checks = [
        ("endpoints", "s", "prop:endpoints_main", 1e-9, 0, "=", 1e-6, True),
        ("bound", "s", "l", 1, 2, "<=", 1, True),
    ]
    write_csv(results / "theory" / "checks.csv", "id,statement,label,measured,expected,relation,margin,holds", checks)
    write_runs(root, results, settings, 50 + score_shift + 5 * random.standard_normal(1000))
    for name in ("figures/residual.svg", "tables/toy_w1.csv", "tables/cost.csv", "report/index.html"):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(f"{name} {shift} {score_shift} {noise_seed}\n", encoding="utf-8")
    manifest = build_manifest(results, settings, load_sheets(root))
    (results / "manifest.json").write_text(dump_json(manifest), encoding="utf-8")
    return results


def write_runs(root: Path, results: Path, settings: Settings, scores: Iterable[float]) -> None:
    """Records of the training runs of a scale with these scores, what they cost, and a picture of a task."""
    sheets, left = load_sheets(root), iter(scores)
    for job in [*control_jobs(settings, sheets), *ablation_jobs(settings, sheets)]:
        for name, seed in zip(job.records, job.seeds, strict=True):
            score = next(left)
            record = RunRecord(
                task=job.task,
                method=job.method,
                seed=seed,
                status="finished",
                steps=20,
                evaluations=(Evaluation(20, (score,), (0.0,), (1,), (0.0,)),),
                num_final_evaluations=1,
                config={"method_version": 1},
                dataset={"source": "local"},
                code={"commit": f"commit of {score}"},
            )
            save_record(results / name, record)
        write_json(
            results / f"{job.variant}cost/{job.task}/{job.method}/{job.group}.json", {"train_seconds": next(left)}
        )
    write_json(results / "renders/task.json", {"action_dim": 5})


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
