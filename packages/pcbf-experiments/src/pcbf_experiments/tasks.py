"""The tasks by their paper names (tab:fullogbench_comparison), a few more for small machines, and those you add."""

from __future__ import annotations

from collections.abc import Iterable

from pcbf_experiments.plugins import load_plugins
from pcbf_records.canonical import nearest
from pcbf_records.sheets import Observations, Task

_Row = tuple[str, str, Observations, float, int, int, int, int]
# domain, dataset type, observations, discount, steps, seeds, episode limit, tuned task
_STATE: tuple[_Row, ...] = (
    ("cube-double", "play", "state", 0.995, 1_000_000, 8, 500, 2),
    ("scene", "play", "state", 0.99, 1_000_000, 8, 750, 2),
    ("puzzle-4x4", "play", "state", 0.99, 1_000_000, 8, 500, 4),
    ("cube-triple", "play", "state", 0.995, 1_000_000, 8, 1000, 1),
)
_PIXEL: tuple[_Row, ...] = (
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
_HANDS = ("pen", "door", "hammer", "relocate")


def _ogbench_tasks(rows: tuple[_Row, ...]) -> list[Task]:
    return [
        Task(
            name=f"{domain}-{data}-singletask-task{number}-v0",
            dataset=f"{domain}-{data}-v0",
            domain=f"{domain}-{data}",
            suite="ogbench",
            observations=observations,
            discount=discount,
            steps=steps,
            seeds=seeds,
            episode_limit=limit,
            is_tuned=number == tuned,
        )
        for domain, data, observations, discount, steps, seeds, limit, tuned in rows
        for number in range(1, 6)
    ]


def _adroit_tasks() -> list[Task]:
    return [
        Task(
            name=f"{hand}-{data}-v1",
            dataset=f"D4RL/{hand}/{data}-v2",
            domain="adroit",
            suite="adroit",
            discount=0.99,
            steps=500_000,
            seeds=8,
            episode_limit=100 if hand == "pen" else 200,
        )
        for hand in _HANDS
        for data in ("cloned", "expert")
    ]


PAPER_TASKS: dict[str, Task] = {
    task.name: task for task in (*_ogbench_tasks(_STATE), *_adroit_tasks(), *_ogbench_tasks(_PIXEL))
}
EXTRA_TASKS: dict[str, Task] = {task.name: task for task in _ogbench_tasks(_EXTRA)}
TASKS: dict[str, Task] = {**PAPER_TASKS, **EXTRA_TASKS}


def register_task(task: Task) -> Task:
    """`task`, which `find_task` and the commands know from now on; the name of another task or a wrong suite raises."""
    from pcbf_experiments.suites import suite_of  # needs JAX, which a look at the list does not

    suite_of(task).check(task)
    if TASKS.setdefault(task.name, task) != task:
        raise ValueError(f"a task called {task.name!r} exists with other values; choose another name.")
    return task


def find_task(name: str) -> Task:
    """The task called `name`, plugins included; a wrong name raises with the nearest ones."""
    load_plugins()
    if name in TASKS:
        return TASKS[name]
    raise _unknown("task", name, TASKS)


def find_dataset(name: str) -> Task:
    """A task of the dataset called `name`, or the task of that name; a wrong name raises with the nearest datasets."""
    known = datasets()
    if name in known:
        return known[name]
    if name in TASKS:
        return TASKS[name]
    raise _unknown("dataset", name, [*known, *TASKS])


def _unknown(what: str, name: str, known: Iterable[str]) -> ValueError:
    near = nearest(name, known, count=3)
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    return ValueError(f"`{what}={name!r}` is unknown.{hint} `pcbf-data list` shows all names.")


def datasets() -> dict[str, Task]:
    """One task for every dataset, by the dataset's name, plugins included."""
    load_plugins()
    return {task.dataset: task for task in reversed(TASKS.values())}
