"""Run and evaluation records without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcbf_records.layout import JobFiles
from pcbf_records.runs import Evaluation, EvaluationRecord, RunRecord, save_evaluations, save_run, write_receipt

CONFIG = {"task": "t", "method": "m", "agent": {"learning_rate": 3e-4, "hidden_sizes": [8, 8]}}
SCORES = ((10, 100.0), (20, 50.0), (30, 20.0), (40, 20.0))  # of the first of two episodes; the other one scores 0


def make_run(**changes: Any) -> RunRecord:
    values: dict[str, Any] = dict(
        task="t",
        method="m",
        seed=1,
        status="finished",
        steps=40,
        snapshot_steps=(10, 20, 30, 40),
        num_final_evaluations=3,
        config=CONFIG,
        dataset={"source": "local", "name": "d"},
        final_metrics={"loss": 0.1},
    )
    return RunRecord(**{**values, **changes})


def make_evaluation(step: int, score: float) -> Evaluation:
    return Evaluation(step, (score, 0.0), (1.0, 2.0), (3, 4), (1.0, 0.0), {"num_episodes": 2}, "0" * 64)


def judged(run: RunRecord, scores: Sequence[tuple[int, float]] = SCORES) -> EvaluationRecord:
    """The evaluations of a run, as far as it came."""
    made = tuple(make_evaluation(*item) for item in scores if item[0] <= run.steps)
    return EvaluationRecord(run.task, run.method, run.seed, run.config_hash, made)


def write_group(root: Path, seeds: Sequence[int] = (0, 1), **changes: Any) -> JobFiles:
    """A finished and judged group of seeds with its receipts."""
    runs = [make_run(seed=seed, **changes) for seed in seeds]
    files = JobFiles.of_seeds(root, runs[0].task, runs[0].method, seeds)
    for run in runs:
        save_run(files.record(run.seed), run)
        save_evaluations(files.evaluations(run.seed), judged(run))
    write_receipt(files.receipt, files, {files.record(run.seed): {"status": run.status} for run in runs})
    write_receipt(files.evaluation_receipt, files, {files.evaluations(seed): {} for seed in seeds})
    return files
