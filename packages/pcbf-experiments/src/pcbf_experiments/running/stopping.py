"""Ctrl-C and SIGTERM: a first one asks the run to stop after a checkpoint, a second one stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME_SECONDS = 1.0  # a scheduler may send several signals for one wish


class Stopper:
    """Says whether a signal has asked the process to stop; use it as a context.

    A thread reads the signals, so that they count while the main thread is inside a compiled call. A first one ends the
    process at once, unless it comes `while_something_is_lost`; then it asks, and a second one ends it.
    """

    def __init__(self) -> None:
        self.received: list[tuple[float, int]] = []
        self.is_free = True

    @property
    def is_asked(self) -> bool:
        return bool(self.received)

    @property
    def number(self) -> int:
        """The signal that has asked."""
        return self.received[-1][1]

    def ask(self, number: int = signal.SIGTERM) -> None:
        """Do as if the signal had come."""
        self.received.append((time.monotonic(), number))
        is_second = self.received[-1][0] - self.received[0][0] > SAME_SECONDS
        if self.is_free or is_second:
            self._end()

    def __enter__(self) -> Stopper:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        self.wakeup = signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self.wakeup)
        for number, handler in self.before.items():
            signal.signal(number, handler)
        os.close(self.writer)  # ends the thread

    def nothing_to_lose(self) -> AbstractContextManager[None]:
        """Inside the block everything worth keeping is on disk."""
        return self._with_freedom(True)

    def while_something_is_lost(self) -> AbstractContextManager[None]:
        """Inside the block the process has what is not on disk yet, and asks `is_asked` now and then."""
        return self._with_freedom(False)

    @contextmanager
    def _with_freedom(self, is_free: bool) -> Iterator[None]:
        before, self.is_free = self.is_free, is_free
        if self.is_free and self.is_asked:
            self._end()
        try:
            yield
        finally:
            self.is_free = before

    def _listen(self) -> None:
        while data := os.read(self.reader, 1):
            if data[0] in SIGNALS:
                self.ask(data[0])

    def _end(self) -> None:
        print("stopped; rerun to resume, finished work is skipped", file=sys.stderr, flush=True)
        os._exit(128 + self.number)
