"""How a long run looks on a terminal or in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import IO

from pcbf_records.progress import clock


class ProgressLine:
    """Steps done, speed and time left, on one line of a terminal or now and then in a log."""

    def __init__(self, stream: IO[str], total: int, first_step: int) -> None:
        self.stream, self.total, self.first_step = stream, total, first_step
        self.started = self.shown = time.monotonic()
        self.is_terminal = stream.isatty()

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        if now - self.shown < (0.2 if self.is_terminal else 10) and step < self.total:
            return
        self.shown = now
        speed = (step - self.first_step) / max(now - self.started, 1e-9)
        left = clock((self.total - step) / speed) if speed else "some time"
        losses = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items() if name.endswith("loss"))
        text = f"step {step}/{self.total}  {speed:.3g} steps/s  {left} left  {losses}"
        self.stream.write(f"\r\x1b[2K{text}" if self.is_terminal else f"{text}\n")
        self.stream.flush()

    def restart(self, step: int) -> None:
        """Measure speed from here on: compiling is no part of it."""
        self.started, self.first_step = time.monotonic(), step

    def note(self, text: str) -> None:
        self.stream.write(f"\r\x1b[2K{text}\n" if self.is_terminal else f"{text}\n")
        self.stream.flush()
