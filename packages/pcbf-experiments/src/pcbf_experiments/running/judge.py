"""From snapshots to evaluation records: the stage after training, and what a run by hand does as it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

from pcbf_experiments.evaluation import Evaluator
from pcbf_experiments.running.errors import RunError
from pcbf_experiments.running.snapshot import SnapshotError, load_snapshot
from pcbf_experiments.running.stopping import Stopper
from pcbf_records.canonical import content_hash
from pcbf_records.errors import RecordError
from pcbf_records.files import remove_unfinished, sha256
from pcbf_records.layout import JobFiles, snapshot_steps
from pcbf_records.locks import held
from pcbf_records.runs import Evaluation, EvaluationRecord, RunRecord, load_evaluations, load_run, save_evaluations
from pcbf_records.versions import code_version, library_versions

Keep = Literal["all", "final", "none"]


def judge_snapshot(files: JobFiles, seed: int, step: int, config_hash: str, evaluator: Evaluator) -> Evaluation:
    """The evaluation of one snapshot, which is in the seed's evaluation record from now on.

    One that is there already, of the same snapshot and settings, is not made again.
    """
    path = files.snapshot(seed, step)
    record = _record(files, seed, config_hash)
    known, digest = record.at(step), sha256(path)
    if known is not None and known.snapshot == digest and known.settings == evaluator.settings.recorded:
        return known
    snapshot = load_snapshot(path)
    if (snapshot.seed, snapshot.step) != (seed, step):
        raise SnapshotError(f"{path} is of seed {snapshot.seed}, step {snapshot.step}; put it where its name says.")
    if content_hash(snapshot.config) != config_hash:
        raise SnapshotError(
            f"{path} is of another run ({snapshot.method} on {snapshot.task}, other settings or data) than the record "
            "beside it; train again with --restart, or restore a copy of it."
        )
    how = {"step": step, "number": snapshot.number, "snapshot": digest}
    made = evaluator(snapshot.agent, snapshot.state, snapshot.scaling, **how)
    save_evaluations(files.evaluations(seed), record.added(made))
    return made


def _record(files: JobFiles, seed: int, config_hash: str) -> EvaluationRecord:
    """The seed's evaluation record of this config; a fresh one if there is none, or one of another config."""
    fresh = EvaluationRecord(
        files.task, files.method, seed, config_hash, versions=library_versions(), code=code_version()
    )
    path = files.evaluations(seed)
    try:
        record = load_evaluations(path)
    except FileNotFoundError:
        return fresh
    except RecordError as error:
        aside = path.with_name(f"{path.name}.old")
        path.replace(aside)
        print(f"{error}\n{path} was moved to {aside.name}; its snapshots are judged anew", file=sys.stderr)
        return fresh
    return record if record.config_hash == config_hash else fresh


def judge_group(
    files: JobFiles,
    evaluator: Evaluator,
    *,
    keep: Keep = "all",
    wait: bool = True,
    report: Callable[[int], None] = lambda done: None,
    stopper: Stopper | None = None,
    log: IO[str] | None = None,
) -> dict[Path, RunRecord]:
    """The evaluation records of a trained group by file, all its snapshots judged; each evaluation is kept at once.

    Args:
      keep: which snapshots stay afterwards: all of them, those that the reported score needs, or none.
      report: told how many evaluations are done.
      stopper: told that nothing is lost by a signal during an evaluation; those before it are kept.
      log: where scores are told; standard error if None.
    """
    stream, stopper = sys.stderr if log is None else log, stopper or Stopper()
    with held([files.lock(seed, "evaluate") for seed in files.seeds], wait=wait, log=stream):
        runs = {seed: load_run(files.record(seed)) for seed in files.seeds}
        done = 0
        for seed, run in runs.items():
            remove_unfinished(files.evaluations(seed))
            for step in run.snapshot_steps:
                with stopper.nothing_to_lose():
                    _judge_step(files, run, step, evaluator, stream)
                done += 1
                report(done)
            if not files.evaluations(seed).exists():  # a run that diverged before its first snapshot
                save_evaluations(files.evaluations(seed), _record(files, seed, run.config_hash))
        for run in runs.values():
            drop_snapshots(files, run, keep)
    return {files.evaluations(seed): run for seed, run in runs.items()}


def _judge_step(files: JobFiles, run: RunRecord, step: int, evaluator: Evaluator, log: IO[str]) -> None:
    if files.snapshot(run.seed, step).exists():
        made = judge_snapshot(files, run.seed, step, run.config_hash, evaluator)
        print(f"seed {run.seed}, step {step}: score {made.mean:.1f}", file=log)
        return
    kept = _record(files, run.seed, run.config_hash).at(step)
    if kept is not None:
        print(f"seed {run.seed}, step {step}: score {kept.mean:.1f}, as judged before; no snapshot is left", file=log)
    elif step in run.final_steps:
        raise RunError(
            f"{files.snapshot(run.seed, step)} is missing and was never judged, but the score needs it; "
            f"train again: remove {files.checkpoint} and {files.record(run.seed)}, then run the same command."
        )
    else:
        print(f"seed {run.seed}, step {step}: no snapshot is left, and it was never judged", file=log)


def drop_snapshots(files: JobFiles, run: RunRecord, keep: Keep) -> None:
    """Remove the snapshots of a judged run that nothing needs any more."""
    kept = {"all": run.snapshot_steps, "final": run.final_steps, "none": ()}[keep]
    for step in snapshot_steps(files, run.seed):
        if step not in kept:
            files.snapshot(run.seed, step).unlink(missing_ok=True)
