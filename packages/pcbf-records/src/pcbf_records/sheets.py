"""The sheets of config/: which tasks and methods there are, and the settings of methods per domain.

`config/tasks.tsv` (the paper's), `config/extra_tasks.tsv` and `config/methods.tsv` are written from the registries of
the packages (`make sheets`), for whatever must know them without importing JAX; a test holds them equal.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from pcbf_records.errors import RecordError
from pcbf_records.layout import CONFIG

Observations = Literal["state", "pixel"]
METHODS_FILE = f"{CONFIG}/methods.yaml"
WITHOUT_SETTINGS = "random"  # the method that nothing can be told
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, and eight times faster where it is there


@dataclass(frozen=True)
class Task:
    """One task of the benchmark.

    Attributes:
      name: the paper's name, which is also OGBench's or D4RL's.
      dataset: OGBench file name without its ending, or Minari id; tasks of a domain share it.
      domain: row of tab:aggregated.
      suite: where data, simulator and score come from: "ogbench", "adroit", "minari" or one you add.
      observations: "state" for vectors, "pixel" for images.
      discount, steps, seeds: γ, gradient steps and seeds of the paper.
      episode_limit: longest evaluation episode.
      is_tuned: the task of its domain on which the paper tunes (the starred one).
      simulator: Gymnasium id, `module:Id` if importing `module` registers it; empty where the suite knows it.
    """

    name: str
    dataset: str
    domain: str
    suite: str
    discount: float
    steps: int
    seeds: int
    episode_limit: int
    observations: Observations = "state"
    is_tuned: bool = False
    simulator: str = ""

    def __post_init__(self) -> None:
        if self.observations not in get_args(Observations):
            raise ValueError(f"`observations={self.observations!r}` of {self.name}: choose one of state, pixel.")
        if not 0 <= self.discount < 1:
            raise ValueError(f"`discount={self.discount}` of {self.name} is out of range; it must be >= 0 and < 1.")
        for name in ("steps", "seeds", "episode_limit"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}={getattr(self, name)}` of {self.name} is out of range; it must be >= 1.")

    @property
    def is_pixel(self) -> bool:
        return self.observations == "pixel"


@dataclass(frozen=True)
class MethodRow:
    """What must be known of a method without its code (one row of config/methods.tsv).

    Attributes:
      title: how tables and figures call it.
      visual: whether the paper runs it on images.
      version: raised when a change makes earlier runs of the method incomparable.
    """

    name: str
    title: str
    visual: bool
    version: int


@dataclass(frozen=True)
class Sheets:
    """Tasks, methods and their settings per domain, as config/ holds them."""

    tasks: Mapping[str, Task]
    paper_tasks: tuple[str, ...]
    methods: Mapping[str, MethodRow]
    domains: Mapping[str, Any] = field(default_factory=dict)


def load_sheets(root: str | Path) -> Sheets:
    """The sheets under <root>/config."""
    config = Path(root) / CONFIG
    paper, extra = (_rows(config / f"{name}.tsv", Task) for name in ("tasks", "extra_tasks"))
    methods = _rows(config / "methods.tsv", MethodRow)
    return Sheets({**paper, **extra}, tuple(paper), methods, load_domains(Path(root) / METHODS_FILE))


@cache
def _parsed(text: str) -> dict[str, Any]:
    """The YAML of `text`, parsed once."""
    return yaml.load(text, Loader=LOADER)


def load_domains(path: str | Path) -> Mapping[str, Any]:
    """The domains of a file like config/methods.yaml, each with its discount and the settings of its methods."""
    return _parsed(Path(path).read_text(encoding="utf-8"))["domains"]


def domain_of(domains: Iterable[str], task: Task) -> str | None:
    """The entry of config/methods.yaml that a task has: that of its dataset if there is one, else of its domain."""
    own = [name for name in domains if name == task.domain or task.name.startswith(f"{name}-")]
    return max(own, key=len, default=None)


def domain_settings(domains: Mapping[str, Any], task: Task, method: str) -> dict[str, Any]:
    """Settings of a method on the domain of `task`, the domain's discount included; empty where there are none."""
    name = domain_of(domains, task)
    if name is None or method == WITHOUT_SETTINGS:
        return {}
    return {"discount": domains[name]["discount"], **domains[name]["methods"].get(method, {})}


# --- as text --------------------------------------------------------------------------------------------------------

_HEADINGS = {Task: "task", MethodRow: "method"}  # of the column of names
_UNWRITTEN = ("simulator",)  # the sheets hold tasks whose suite knows the simulator


def sheet_text(rows: Iterable[Any], kind: type) -> str:
    """Rows as the tab-separated text that config/ holds."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    names = [field.name for field in fields(kind) if field.name not in _UNWRITTEN]
    writer.writerow([_HEADINGS[kind], *names[1:]])
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([int(value) if isinstance(value, bool) else value for value in values])
    return text.getvalue()


def _rows(path: Path, kind: type) -> dict[str, Any]:
    types = {field.name: str(field.type) for field in fields(kind)}
    read = {"int": int, "float": float, "bool": lambda text: text == "1"}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file, delimiter="\t"))
        rows = [
            kind(line.pop(_HEADINGS[kind]), **{name: read.get(types[name], str)(text) for name, text in line.items()})
            for line in lines
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise RecordError(f"{path} cannot be read as a sheet ({error}); `git checkout` it, or mend the row.") from error
    return {row.name: row for row in rows}
