"""The tasks by their paper names (tab:fullogbench_comparison), a few more for small machines, and those you add."""

from __future__ import annotations

import csv
import difflib
import importlib
import io
import os
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Literal, get_args

from pcbf_core.config import check_choice, check_range

Kind = Literal["state", "pixel", "adroit", "minari"]
PLUGINS_VARIABLE = "PCBF_PLUGINS"
PLUGINS_GROUP = "pcbf.plugins"


@dataclass(frozen=True)
class Task:
    """One task of the benchmark.

    Attributes:
      name: the paper's name, which is also OGBench's or D4RL's.
      dataset: OGBench file name without its ending, or Minari id; tasks of a domain share it.
      domain: row of tab:aggregated.
      kind: "state" or "pixel" on OGBench, "adroit", or "minari": any Minari dataset of vectors and its simulator.
      discount, steps, seeds: γ, gradient steps and seeds of the paper.
      episode_limit: longest evaluation episode.
      is_tuned: the task of its domain on which the paper tunes (the starred one).
      simulator: Gymnasium id of a "minari" task, `module:Id` if importing `module` registers it; other kinds know
        theirs.
    """

    name: str
    dataset: str
    domain: str
    kind: Kind
    discount: float
    steps: int
    seeds: int
    episode_limit: int
    is_tuned: bool = False
    simulator: str = ""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        check_range("discount", self.discount, at_least=0, below=1)
        for name in ("steps", "seeds", "episode_limit"):
            check_range(name, getattr(self, name), at_least=1)
        if (self.kind == "minari") != bool(self.simulator):
            raise ValueError(
                f"`simulator={self.simulator!r}` of {self.name}: a task of kind 'minari' needs the Gymnasium id of "
                f"its simulator, other kinds know theirs; this one is of kind {self.kind!r}."
            )

    @property
    def is_minari(self) -> bool:
        """Whether the data are a Minari dataset, rather than OGBench's files."""
        return self.kind in ("adroit", "minari")

    @property
    def environment(self) -> str:
        """Gymnasium id of the simulator."""
        if self.kind == "minari":
            return self.simulator
        if self.kind == "adroit":
            return f"AdroitHand{self.name.split('-')[0].capitalize()}-v1"
        words = self.name.split("-")
        words.remove(self.dataset.split("-")[-2])
        return "-".join(words)

    @property
    def num_final_evaluations(self) -> int:
        """How many of the last evaluations the reported score averages: 3 on OGBench, 1 on Adroit."""
        return 1 if self.kind == "adroit" else 3


_Row = tuple[str, str, Kind, float, int, int, int, int]
# domain, dataset type, kind, discount, steps, seeds, episode limit, tuned task
_OGBENCH: tuple[_Row, ...] = (
    ("cube-double", "play", "state", 0.995, 1_000_000, 8, 500, 2),
    ("scene", "play", "state", 0.99, 1_000_000, 8, 750, 2),
    ("puzzle-4x4", "play", "state", 0.99, 1_000_000, 8, 500, 4),
    ("cube-triple", "play", "state", 0.995, 1_000_000, 8, 1000, 1),
    ("visual-antmaze-teleport", "navigate", "pixel", 0.99, 500_000, 4, 1000, 1),
    ("visual-cube-double", "play", "pixel", 0.995, 500_000, 4, 500, 1),
)
_EXTRA: tuple[_Row, ...] = (
    ("cube-single", "play", "state", 0.99, 1_000_000, 8, 200, 2),
    ("visual-cube-single", "play", "pixel", 0.99, 500_000, 4, 200, 1),
    ("pointmaze-medium", "navigate", "state", 0.99, 1_000_000, 8, 1000, 1),
    ("pointmaze-large", "navigate", "state", 0.99, 1_000_000, 8, 1000, 1),
    ("pointmaze-giant", "navigate", "state", 0.995, 1_000_000, 8, 1000, 1),
    ("pointmaze-teleport", "navigate", "state", 0.99, 1_000_000, 8, 1000, 1),
    ("antmaze-teleport", "navigate", "state", 0.99, 1_000_000, 8, 1000, 1),
)
_ADROIT = ("pen", "door", "hammer", "relocate")


def _ogbench_tasks(rows: tuple[_Row, ...]) -> list[Task]:
    return [
        Task(
            name=f"{domain}-{data}-singletask-task{number}-v0",
            dataset=f"{domain}-{data}-v0",
            domain=f"{domain}-{data}",
            kind=kind,
            discount=discount,
            steps=steps,
            seeds=seeds,
            episode_limit=limit,
            is_tuned=number == tuned,
        )
        for domain, data, kind, discount, steps, seeds, limit, tuned in rows
        for number in range(1, 6)
    ]


def _adroit_tasks() -> list[Task]:
    return [
        Task(
            name=f"{hand}-{data}-v1",
            dataset=f"D4RL/{hand}/{data}-v2",
            domain="adroit",
            kind="adroit",
            discount=0.99,
            steps=500_000,
            seeds=8,
            episode_limit=100 if hand == "pen" else 200,
        )
        for hand in _ADROIT
        for data in ("cloned", "expert")
    ]


_STATE, _PIXEL = _OGBENCH[:4], _OGBENCH[4:]
PAPER_TASKS: dict[str, Task] = {
    task.name: task for task in (*_ogbench_tasks(_STATE), *_adroit_tasks(), *_ogbench_tasks(_PIXEL))
}
EXTRA_TASKS: dict[str, Task] = {task.name: task for task in _ogbench_tasks(_EXTRA)}
TASKS: dict[str, Task] = {**PAPER_TASKS, **EXTRA_TASKS}


def register_task(task: Task) -> Task:
    """`task`, which `find_task` and the commands know from now on; the name of another task raises."""
    if TASKS.setdefault(task.name, task) != task:
        raise ValueError(f"a task called {task.name!r} exists with other values; choose another name.")
    return task


@cache
def load_plugins() -> None:
    """Import what adds tasks and methods: the modules named in PCBF_PLUGINS, and entry points `pcbf.plugins`."""
    for module in os.environ.get(PLUGINS_VARIABLE, "").split():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{PLUGINS_VARIABLE} names {module!r}, which cannot be imported ({error}); "
                "install it, or put its folder on PYTHONPATH."
            ) from error
    for point in entry_points(group=PLUGINS_GROUP):
        point.load()


def find_task(name: str) -> Task:
    """The task called `name`, plugins included; a wrong name raises with the nearest ones."""
    load_plugins()
    if name in TASKS:
        return TASKS[name]
    near = difflib.get_close_matches(name, TASKS, n=3, cutoff=0.3)
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    raise ValueError(f"`task={name!r}` is unknown.{hint} `pcbf-data list` shows all {len(TASKS)} names.")


def datasets() -> dict[str, Task]:
    """One task for every dataset, by the dataset's name, plugins included."""
    load_plugins()
    return {task.dataset: task for task in reversed(TASKS.values())}


def tasks_tsv() -> str:
    """The 38 tasks of the paper as tab-separated text: what `config/tasks.tsv` holds."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    columns = [field.name for field in fields(Task) if field.name != "simulator"]
    writer.writerow([name if name != "name" else "task" for name in columns])
    for task in PAPER_TASKS.values():
        values = [getattr(task, name) for name in columns]
        writer.writerow([int(value) if isinstance(value, bool) else value for value in values])
    return text.getvalue()
