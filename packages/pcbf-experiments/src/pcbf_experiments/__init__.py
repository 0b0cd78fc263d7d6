"""What produces records: suites and their data, simulators, evaluation, the run loop, toys, theory, the campaign.

Modules are imported where they are needed, so that commands which plan or watch start without JAX; so are the names
below, which are what users of the library ask for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcbf_experiments.data.loading import LoadedTask, load_task
    from pcbf_experiments.evaluation import EvaluationSettings, Evaluator
    from pcbf_experiments.running.snapshot import Snapshot, load_snapshot
    from pcbf_experiments.suites.minari import minari_folder
    from pcbf_experiments.tasks import find_task, register_task
    from pcbf_experiments.video import record_video
    from pcbf_records.sheets import Task

__all__ = [
    "EvaluationSettings",
    "Evaluator",
    "LoadedTask",
    "Snapshot",
    "Task",
    "find_task",
    "load_snapshot",
    "load_task",
    "minari_folder",
    "record_video",
    "register_task",
]

_HOMES = {
    "EvaluationSettings": "pcbf_experiments.evaluation",
    "Evaluator": "pcbf_experiments.evaluation",
    "LoadedTask": "pcbf_experiments.data.loading",
    "Snapshot": "pcbf_experiments.running.snapshot",
    "Task": "pcbf_records.sheets",
    "find_task": "pcbf_experiments.tasks",
    "load_snapshot": "pcbf_experiments.running.snapshot",
    "load_task": "pcbf_experiments.data.loading",
    "minari_folder": "pcbf_experiments.suites.minari",
    "record_video": "pcbf_experiments.video",
    "register_task": "pcbf_experiments.tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
