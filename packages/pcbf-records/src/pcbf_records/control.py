"""The control suite collected: one table with a row per evaluation of every run, and the configs that rows refer to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcbf_records import layout
from pcbf_records.canonical import content_hash, readable_json
from pcbf_records.errors import RecordError
from pcbf_records.files import write_csv, write_text
from pcbf_records.runs import (
    Evaluation,
    EvaluationRecord,
    RunRecord,
    final_evaluations,
    load_evaluations,
    load_run,
    receipt_faults,
)
from pcbf_records.sheets import Task

EVALUATION_COLUMNS = (
    *("task", "domain", "suite", "method", "seed", "change", "status", "steps", "source"),
    *("step", "is_final", "mean", "episodes", "config", "dataset", "message"),
)


@dataclass(frozen=True)
class Configs:
    """What the table names by hash: configs of runs and descriptions of datasets."""

    configs: Mapping[str, Mapping[str, Any]]
    datasets: Mapping[str, Mapping[str, Any]]


def collect_control(results: Path, tasks: Mapping[str, Task]) -> int:
    """Number of runs in the table of all run and evaluation records of a results folder, ablations included.

    A record that its receipt names and that is missing or has changed raises, as does a finished run whose final
    evaluations are not there: a table must not silently stand on fewer seeds.

    Args:
      tasks: what is known of tasks, by name; a task that is not there is a domain of its own.
    """
    folders = {"": results, **{folder.name: folder for folder in layout.ablation_folders(results)}}
    faults = [
        str(fault)
        for folder in folders.values()
        for receipt in layout.receipt_files(folder)
        for fault in receipt_faults(folder, receipt)
    ]
    if faults:
        more = f"\nand {len(faults) - 5} more" if len(faults) > 5 else ""
        raise RecordError(
            f"{results} is not whole:\n  " + "\n  ".join(faults[:5]) + more + "\n"
            "Run the pipeline again: what is missing is made again, from checkpoints and snapshots if they are there."
        )
    rows: list[tuple[Any, ...]] = []
    configs: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    num_runs = 0
    for change, folder in folders.items():
        for run, judged in load_pairs(folder):
            num_runs += 1
            dataset = content_hash(run.dataset)
            configs[run.config_hash], datasets[dataset] = run.config, run.dataset
            rows += _rows(run, judged, change, dataset, tasks.get(run.task))
    write_csv(results / layout.CONTROL_EVALUATIONS, EVALUATION_COLUMNS, rows)
    write_text(results / layout.CONTROL_CONFIGS, readable_json({"configs": configs, "datasets": datasets}))
    return num_runs


def load_configs(path: Path) -> Configs:
    """What the table of evaluations names by hash."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Configs(content["configs"], content["datasets"])
    except FileNotFoundError:
        return Configs({}, {})
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} cannot be read ({error}); remake it with `pcbf-collect`.") from error


def load_pairs(folder: Path) -> Iterator[tuple[RunRecord, EvaluationRecord]]:
    """Every run of a results folder, without its ablations, beside its evaluations; checked against their names."""
    for path in layout.run_files(folder):
        run = load_run(path)
        task, method, seed = layout.place(path)
        if (run.task, run.method, run.seed) != (task, method, seed):
            raise RecordError(f"{path} holds {run.task}, {run.method}, seed {run.seed}; put it where its name says.")
        file = layout.JobFiles.of_seeds(folder, task, method, [seed]).evaluations(seed)
        judged = load_evaluations(file) if file.exists() else EvaluationRecord(task, method, seed, run.config_hash)
        final_evaluations(run, judged)
        yield run, judged


def _rows(
    run: RunRecord, judged: EvaluationRecord, change: str, dataset: str, task: Task | None
) -> Iterator[tuple[Any, ...]]:
    """The rows of one run: one per evaluation, or one without an evaluation for a run that has none."""
    where = (run.task, task.domain if task else run.task, task.suite if task else "", run.method, run.seed, change)
    state = (run.status, run.steps, str(run.dataset.get("source", "unknown")))
    made_from = (run.config_hash, dataset, run.message)
    for evaluation in judged.evaluations or (None,):
        yield (*where, *state, *_cells(evaluation, run), *made_from)


def _cells(evaluation: Evaluation | None, run: RunRecord) -> tuple[Any, ...]:
    if evaluation is None:
        return ("", False, "", "")
    scores = " ".join(map(repr, evaluation.scores))
    return (evaluation.step, evaluation.step in run.final_steps, repr(evaluation.mean), scores)
