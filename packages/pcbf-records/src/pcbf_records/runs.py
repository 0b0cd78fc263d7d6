"""Run records and evaluation records of the control suite: JSON, the same bytes for the same run.

Training leaves a run record per seed; evaluating its snapshots leaves an evaluation record per seed, with every
episode. A receipt says which records of a group of seeds there are, and their hashes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pcbf_records.canonical import content_hash, readable_json, shown
from pcbf_records.errors import RecordError
from pcbf_records.files import read_json, sha256, write_text
from pcbf_records.layout import JobFiles

Status = Literal["finished", "diverged"]


def steps_to_judge(steps: int, eval_every: int, eval_from: int = 0) -> tuple[int, ...]:
    """The steps after which a run of `steps` is to be judged, ascending; the last one always is."""
    every = range(eval_every, steps, eval_every)
    return (*(step for step in every if step >= eval_from), steps)


@dataclass(frozen=True)
class RunRecord:
    """One seed of one method on one task, as training leaves it.

    Attributes:
      status: "finished", or "diverged" with the reason in `message`.
      snapshot_steps: the steps after which the run is to be judged.
      num_final_evaluations: how many of the last of these the reported score averages.
      config: everything that decides the run; `config_hash` is its hash.
      dataset: name, hash, size and source of the data; `source` is "local" for data that were generated here.
      versions, code: libraries, packages and the git commit.
      proposal: SHA-256 of the snapshot whose proposal it took; None if it took none, and the file leaves it out.
    """

    task: str
    method: str
    seed: int
    status: Status
    steps: int
    snapshot_steps: tuple[int, ...]
    num_final_evaluations: int
    config: Mapping[str, Any]
    dataset: Mapping[str, Any]
    final_metrics: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)
    proposal: str | None = None

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(f"`status={self.status!r}` is unknown; choose one of {', '.join(get_args(Status))}.")

    @property
    def config_hash(self) -> str:
        return content_hash(self.config)

    @property
    def said(self) -> dict[str, str]:
        """What a receipt says of the run."""
        return {"status": self.status, **({} if self.proposal is None else {"proposal": self.proposal})}

    @property
    def final_steps(self) -> tuple[int, ...]:
        """The steps whose evaluations the reported score averages; none for a run that diverged."""
        return self.snapshot_steps[-self.num_final_evaluations :] if self.status == "finished" else ()


@dataclass(frozen=True)
class Evaluation:
    """Raw scores of the episodes played after `step` gradient steps, in the order of their episode numbers.

    Attributes:
      scores: in the task's unit: 100 for a success and 0 otherwise on OGBench, the D4RL-normalised return on Adroit.
      settings: how the episodes were played.
      snapshot: SHA-256 of the snapshot that played them; None for one that was never written to a file.
    """

    step: int
    scores: tuple[float, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[float, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    snapshot: str | None = None

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class EvaluationRecord:
    """All evaluations of one run, by step; `config_hash` is that of the run."""

    task: str
    method: str
    seed: int
    config_hash: str
    evaluations: tuple[Evaluation, ...] = ()
    versions: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)

    def at(self, step: int) -> Evaluation | None:
        """The evaluation after `step` gradient steps, if there is one."""
        return next((evaluation for evaluation in self.evaluations if evaluation.step == step), None)

    def added(self, evaluation: Evaluation) -> EvaluationRecord:
        """The record with `evaluation` in its place; one of the same step is replaced."""
        kept = [other for other in self.evaluations if other.step != evaluation.step]
        ordered = sorted([*kept, evaluation], key=lambda item: item.step)
        return dataclasses.replace(self, evaluations=tuple(ordered))


def final_evaluations(run: RunRecord, judged: EvaluationRecord) -> list[Evaluation]:
    """The evaluations that the reported score averages; one that is missing raises with its remedy."""
    found = [judged.at(step) for step in run.final_steps]
    missing = [str(step) for step, evaluation in zip(run.final_steps, found, strict=True) if evaluation is None]
    if missing or judged.config_hash != run.config_hash:
        what = f"step {', '.join(missing)}" if missing else "this config"
        raise RecordError(
            f"{run.task}, {run.method}, seed {run.seed} has no evaluation of {what}; run `pcbf-evaluate`, or the "
            "pipeline, which does."
        )
    return [evaluation for evaluation in found if evaluation is not None]


def final_score(run: RunRecord, judged: EvaluationRecord) -> float | None:
    """Mean over the last evaluations, as the paper reports it; None for a run that diverged."""
    last = final_evaluations(run, judged)
    return sum(evaluation.mean for evaluation in last) / len(last) if last else None


# --- files ----------------------------------------------------------------------------------------------------------


def save_run(path: Path | str, record: RunRecord) -> None:
    values = {**dataclasses.asdict(record), "config_hash": record.config_hash}
    if record.proposal is None:
        del values["proposal"]
    _save(path, values)


def load_run(path: Path | str) -> RunRecord:
    """The run record at `path`; a file that is not one is named with its remedy."""
    values = _read(Path(path), "run")
    try:
        stored_hash = values.pop("config_hash")
        record = RunRecord(**_tuples(values))
        _check_types(record)
        own_hash = record.config_hash
    except (KeyError, TypeError, ValueError) as error:
        raise _no_record(path, "run", error) from error
    if stored_hash != own_hash:
        raise RecordError(f"{path} has been edited: its config does not match its hash; delete it and run again.")
    return record


def save_evaluations(path: Path | str, record: EvaluationRecord) -> None:
    _save(path, dataclasses.asdict(record))


def _save(path: Path | str, values: dict[str, Any]) -> None:
    """Write a record with the hash of all that it says."""
    write_text(path, readable_json({**values, OWN_HASH: content_hash(values)}))


def load_evaluations(path: Path | str) -> EvaluationRecord:
    """The evaluation record at `path`; a file that is not one is named with its remedy."""
    values = _read(Path(path), "evaluation")
    try:
        evaluations = tuple(Evaluation(**_tuples(item)) for item in values.pop("evaluations"))
        record = EvaluationRecord(**values, evaluations=evaluations)
        for part in (record, *evaluations):
            _check_types(part)
        if any(not evaluation.scores for evaluation in evaluations):
            raise ValueError("an evaluation has no episode")
        return record
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _no_record(path, "evaluation", error) from error


OWN_HASH = "sha256"
MAX_RECORD_BYTES = 2**28
NUMBERS = ("scores", "returns", "successes", "lengths", "snapshot_steps")
WORDS = ("task", "method", "message", "config_hash")


def _check_types(record: RunRecord | EvaluationRecord | Evaluation) -> None:
    """Raise a `ValueError` unless the values of a record that was read are of the kinds that they should be."""
    for item in dataclasses.fields(record):
        value, name = getattr(record, item.name), item.name
        if name in WORDS:
            is_right = isinstance(value, str)
        elif name in NUMBERS:
            is_right = isinstance(value, tuple) and all(_is_number(each) for each in value)
        elif "Mapping" in str(item.type):
            is_right = isinstance(value, dict)
        elif str(item.type) == "int":
            is_right = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        else:
            continue
        if not is_right:
            raise ValueError(f"`{name}` is {shown(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(path: Path, kind: str) -> dict[str, Any]:
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise _no_record(path, kind, f"it has {path.stat().st_size} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _no_record(path, kind, error) from error
    if not isinstance(content, dict):
        raise _no_record(path, kind, f"it holds a {type(content).__name__}")
    said = content.pop(OWN_HASH, None)  # records of earlier versions have none
    try:
        is_whole = said in (None, content_hash(content))
    except ValueError:  # numbers that JSON does not know
        is_whole = False
    if not is_whole:
        raise RecordError(f"{path} has been edited: it does not match its hash; delete it and run its command again.")
    return content


def _no_record(path: Path | str, kind: str, fault: object) -> RecordError:
    return RecordError(
        f"{path} is not a record of this version ({kind}: {fault}); delete it and run its command again."
    )


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


# --- receipts -------------------------------------------------------------------------------------------------------


def write_receipt(
    path: Path, files: JobFiles, records: Mapping[Path, Mapping[str, Any]], *, is_restored: bool = False
) -> None:
    """Say in a small file which records a finished group has, by their names in the results folder, with their hashes.

    `records` gives the files, and for each what the receipt says of it besides; `is_restored` that they were made
    elsewhere, so that their data need not be here.
    """
    made = {file.relative_to(files.root).as_posix(): {**said, "sha256": sha256(file)} for file, said in records.items()}
    receipt = {"task": files.task, "method": files.method, "seeds": list(files.seeds), "records": made}
    write_text(path, readable_json({**receipt, **({"restored": True} if is_restored else {})}))


def is_restored(receipt: Path) -> bool:
    """Whether the records of a receipt were made elsewhere; not if there is none."""
    return receipt.is_file() and bool(read_json(receipt).get("restored"))


class Fault(NamedTuple):
    """A record that is not what its receipt says."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()} {self.reason}"


def receipt_faults(results: Path, receipt: Path) -> Iterator[Fault]:
    """Every record that a receipt of a results folder names and that is missing or has changed since."""
    records = read_json(receipt).get("records")
    if not isinstance(records, dict):
        yield Fault(receipt, "cannot be read")
        return
    inside = results.resolve()
    for name, said in sorted(records.items()):
        if not isinstance(said, dict) or not (results / name).resolve().is_relative_to(inside):
            yield Fault(receipt, f"names {shown(name)}, which is no record of this folder")
        elif not (results / name).is_file():
            yield Fault(results / name, "is missing")
        elif sha256(results / name) != said.get("sha256"):
            yield Fault(results / name, "has changed since it was made")
