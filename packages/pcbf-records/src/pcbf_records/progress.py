"""How far a long job is, as a small file that others may read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from pcbf_core.files import atomic_write


class Progress:
    """Writes how far a job is to a small file, at most a few times per second; None writes nothing.

    `first` is how far earlier calls had come, so that a reader can tell the speed of this one.
    """

    def __init__(self, path: Path | None, job: str, total: int, first: int = 0) -> None:
        self.path, self.job, self.total, self.first = path, job, total, first
        self.started = time.time()
        self.written = 0.0

    def __call__(self, done: int) -> None:
        now = time.time()
        if self.path is None or (now - self.written < 0.5 and done < self.total):
            return
        self.written = now
        fields = {"job": self.job, "done": done, "total": self.total, "first": self.first, "unit": "steps"}
        with atomic_write(self.path, "w") as file:
            json.dump({**fields, "started": self.started, "updated": now, "pid": os.getpid()}, file)
