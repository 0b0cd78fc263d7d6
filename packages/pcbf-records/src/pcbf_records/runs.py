"""Run records: what a run of one seed writes and analysis reads; JSON, the same bytes for the same run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pcbf_core.config import check_choice
from pcbf_core.files import atomic_write

PACKAGES = ("pcbf-core", "pcbf-baselines")
LIBRARIES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "numpy",
    "gymnasium",
    "gymnasium-robotics",
    "minari",
    "mujoco",
    "ogbench",
)
STATUSES = ("finished", "diverged")


@dataclass(frozen=True)
class Evaluation:
    """Raw scores of the episodes played after `step` gradient steps, in the order of their episode numbers.

    `scores` are in the task's unit: 100 for a success and 0 otherwise on OGBench, the
    D4RL-normalised return on Adroit.
    """

    step: int
    scores: tuple[float, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class RunRecord:
    """One seed of one method on one task.

    Attributes:
      status: "finished", or "diverged" with the reason in `message`.
      num_final_evaluations: how many of the last evaluations the reported score averages.
      config: everything that decides the run; `config_hash` is its hash.
      dataset: name, hash, size and source of the data; `source` is "local" for data that were generated here.
      versions, code: libraries, packages and the git commit.
    """

    task: str
    method: str
    seed: int
    status: Literal["finished", "diverged"]
    steps: int
    evaluations: tuple[Evaluation, ...]
    num_final_evaluations: int
    config: Mapping[str, Any]
    dataset: Mapping[str, Any]
    final_metrics: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("status", self.status, STATUSES)

    @property
    def config_hash(self) -> str:
        return config_hash(self.config)

    @property
    def score(self) -> float | None:
        """Mean over the last evaluations, as the paper reports it; None for a run that did not finish."""
        if self.status != "finished" or not self.evaluations:
            return None
        last = self.evaluations[-self.num_final_evaluations :]
        return sum(evaluation.mean for evaluation in last) / len(last)


def record_path(results: Path | str, task: str, method: str, seed: int) -> Path:
    """Where the record of one seed lies in a results directory."""
    return Path(results) / "runs" / task / method / f"seed{seed}.json"


def save_record(path: Path | str, record: RunRecord) -> None:
    values = {**dataclasses.asdict(record), "config_hash": record.config_hash, "score": record.score}
    with atomic_write(path) as file:
        file.write(json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def load_record(path: Path | str) -> RunRecord:
    """The record at `path`; a file that is not one is named with its remedy."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        values.pop("score")
        stored_hash = values.pop("config_hash")
        evaluations = tuple(evaluation_from(item) for item in values.pop("evaluations"))
        record = RunRecord(**values, evaluations=evaluations)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a run record ({error}); delete it and run its command again.") from error
    if stored_hash != record.config_hash:
        raise ValueError(f"{path} has been edited: its config does not match its hash; delete it and run again.")
    return record


def evaluation_from(values: Mapping[str, Any]) -> Evaluation:
    """An evaluation from its JSON values."""
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return Evaluation(**plain)


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted names: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def config_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(config).encode()).hexdigest()


def differences(old: Any, new: Any, old_name: str = "old", new_name: str = "new") -> Iterator[str]:
    """A line for every value in which two configs differ, by its dotted name."""
    before, after = dict(_flatten(json.loads(canonical_json(old)))), dict(_flatten(json.loads(canonical_json(new))))
    for name in sorted({*before, *after}):
        left, right = (repr(values[name]) if name in values else "absent" for values in (before, after))
        if left != right:
            yield f"{name}: {left} ({old_name}) -> {right} ({new_name})"


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flatten(item, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} has no JSON form; pass numbers, text, lists or dicts.")


def library_versions() -> dict[str, Any]:
    """Versions of Python and of the libraries that decide the numbers of a run."""
    return {"python": platform.python_version(), **installed(LIBRARIES)}


def installed(names: Sequence[str]) -> dict[str, str | None]:
    """Version of each distribution; None where it is absent."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


@cache
def code_version() -> dict[str, Any]:
    """Versions of our packages, the git commit around them and whether packages differ from it; None outside git."""
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "HEAD")
    top = _git(here, "rev-parse", "--show-toplevel")
    changed = _git(Path(top), "status", "--porcelain", "--", "packages") if top else None
    return {"packages": installed(PACKAGES), "commit": commit, "dirty": None if changed is None else bool(changed)}


def _git(directory: Path, *arguments: str) -> str | None:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
