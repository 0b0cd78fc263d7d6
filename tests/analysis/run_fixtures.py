"""Small run, evaluation and cost records, written as training and evaluation write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcbf_analysis.results import Results
from pcbf_records.canonical import readable_json
from pcbf_records.control import collect_control
from pcbf_records.files import write_text
from pcbf_records.layout import JobFiles
from pcbf_records.runs import Evaluation, EvaluationRecord, RunRecord, Status, save_evaluations, save_run
from pcbf_records.sheets import load_sheets

REPOSITORY = Path(__file__).parents[2]
CUBE = "cube-double-play-singletask-task1-v0"
CUBE_2 = "cube-double-play-singletask-task2-v0"
PEN = "pen-cloned-v1"
LAPTOP_TASK = "cube-single-play-singletask-task1-v0"


def evaluation(step: int, scores: Sequence[float]) -> Evaluation:
    """An evaluation with these scores; an episode with a score of 100 is a success."""
    return Evaluation(
        step=step,
        scores=tuple(map(float, scores)),
        returns=tuple(float(score) - 100 for score in scores),
        lengths=tuple(200 for _ in scores),
        successes=tuple(float(score == 100) for score in scores),
    )


def write_run(
    results: Path,
    task: str,
    method: str,
    seed: int,
    evaluations: Sequence[Sequence[float]],
    *,
    num_final: int = 1,
    source: str = "official",
    status: Status = "finished",
    steps: int = 1000,
    agent: dict[str, Any] | None = None,
) -> RunRecord:
    """The record of a run with these scores, one list per evaluation, saved in its place beside its evaluations."""
    at = [steps * (index + 1) // len(evaluations) for index in range(len(evaluations))]
    run = RunRecord(
        task=task,
        method=method,
        seed=seed,
        status=status,
        steps=steps,
        snapshot_steps=tuple(at),
        num_final_evaluations=num_final,
        config={"task": task, "method": method, "run": {"steps": steps}, "agent": agent or {}},
        dataset={"name": task, "source": source},
        message="critic loss became nan at step 7 of seed 0." if status == "diverged" else "",
        versions={"jax": "0"},
        code={"commit": "c0ffee"},
    )
    played = tuple(evaluation(step, scores) for step, scores in zip(at, evaluations, strict=True))
    files = JobFiles.of_seeds(results, task, method, [seed])
    save_run(files.record(seed), run)
    save_evaluations(files.evaluations(seed), EvaluationRecord(task, method, seed, run.config_hash, played))
    return run


def write_runs(results: Path, task: str, method: str, scores: Sequence[float], **options: Any) -> None:
    """One run per score, of one evaluation with two episodes that lie 10 below and above it."""
    for seed, score in enumerate(scores):
        write_run(results, task, method, seed, [[score - 10, score + 10]], **options)


def collected(root: Path) -> Results:
    """A results folder with the table of all runs that were written so far."""
    collect_control(root, load_sheets(REPOSITORY).tasks)
    return Results(root, REPOSITORY)


def write_cost(results: Path, task: str, method: str, **values: Any) -> None:
    """A cost record of three seeds; `values` replace its entries."""
    cost = {
        "seeds": [0, 1, 2],
        "first_step": 0,
        "steps": 1000,
        "train_seconds": 10.0,
        "steps_per_second": 100.0,
        "peak_host_bytes": 2 * 10**9,
        "peak_device_bytes": None,
        "device": "cpu",
        **values,
    }
    write_text(JobFiles.of_seeds(results, task, method, [0, 1, 2]).cost, readable_json(cost))
