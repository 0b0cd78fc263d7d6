"""How far a long job is: written as a small file by the job, read by whoever watches."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcbf_records.files import atomic_write


class ProgressFile:
    """Writes how far a job is to a small file, at most a few times per second; None writes nothing.

    `first` is how far earlier calls had come, so that a reader can tell the speed of this one.
    """

    def __init__(self, path: Path | None, job: str, total: int, first: int = 0, unit: str = "steps") -> None:
        self.path, self.job, self.total, self.first, self.unit = path, job, total, first, unit
        self.started = time.time()
        self.written = 0.0

    def __call__(self, done: int) -> None:
        now = time.time()
        if self.path is None or (now - self.written < 0.5 and done < self.total):
            return
        self.written = now
        fields = {"job": self.job, "done": done, "total": self.total, "first": self.first, "unit": self.unit}
        process = {"pid": os.getpid(), "node": platform.node()}
        with atomic_write(self.path) as file:
            json.dump({**fields, "started": self.started, "updated": now, **process}, file)


@dataclass(frozen=True)
class Progress:
    """How far a running job says it is."""

    done: int
    total: int
    rate: float  # per second
    unit: str = "steps"

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time left at the speed so far; None if that is unknown."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


def is_gone(said: Mapping[str, Any]) -> bool:
    """Whether the process that wrote this is known to have ended: it ran on this machine, and is not there any more."""
    if said.get("node") != platform.node() or not isinstance(said.get("pid"), int):
        return False
    try:
        os.kill(said["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's, and alive
        pass
    return False


def is_alive(said: Mapping[str, Any]) -> bool:
    """Whether the process that wrote this is known to be there: it runs on this machine."""
    return said.get("node") == platform.node() and isinstance(said.get("pid"), int) and not is_gone(said)


def progress_of(said: Mapping[str, Any]) -> Progress:
    """Progress from what a job has written; KeyError or TypeError if it is something else."""
    seconds = said["updated"] - said["started"]
    rate = (said["done"] - said.get("first", 0)) / seconds if seconds > 0 else 0.0
    return Progress(said["done"], said["total"], rate, said["unit"])


def clock(seconds: float) -> str:
    """65 -> 1:05, 3700 -> 1:01:40."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
