"""Small run and cost records in the form that training writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pcbf_core.records import Evaluation, RunRecord, record_path, save_record

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
    status: Literal["finished", "diverged"] = "finished",
    steps: int = 1000,
    agent: dict[str, Any] | None = None,
) -> RunRecord:
    """The record of a run with these scores, one list per evaluation, saved in its place."""
    count = len(evaluations)
    record = RunRecord(
        task=task,
        method=method,
        seed=seed,
        status=status,
        steps=steps,
        evaluations=tuple(evaluation(steps * (i + 1) // count, scores) for i, scores in enumerate(evaluations)),
        num_final_evaluations=num_final,
        config={"task": task, "method": method, "run": {"steps": steps}, "agent": agent or {}},
        dataset={"name": task, "source": source},
        message="critic loss became nan at step 7 of seed 0." if status == "diverged" else "",
        versions={"jax": "0"},
        code={"commit": "c0ffee"},
    )
    save_record(record_path(results, task, method, seed), record)
    return record


def write_runs(results: Path, task: str, method: str, scores: Sequence[float], **options: Any) -> None:
    """One run per score, of one evaluation with two episodes that lie 10 below and above it."""
    for seed, score in enumerate(scores):
        write_run(results, task, method, seed, [[score - 10, score + 10]], **options)


def write_cost(results: Path, task: str, method: str, **values: Any) -> None:
    """A cost record of three seeds; `values` replace its entries."""
    cost = {
        "seeds": [0, 1, 2],
        "first_step": 0,
        "steps": 1000,
        "train_seconds": 10.0,
        "evaluate_seconds": 2.0,
        "steps_per_second": 100.0,
        "peak_host_bytes": 2 * 10**9,
        "peak_device_bytes": None,
        "device": "cpu",
        **values,
    }
    path = results / "cost" / task / method / "seeds0-1-2.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cost))
