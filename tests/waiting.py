"""Waiting for other programs, which write, replace and remove their files whenever they like.

Nobody here asks whether a file exists and then reads it: it may be gone in between. What cannot be read is not there
yet.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

PATIENCE = 1800.0  # seconds; only a test that fails waits so long, and a machine with much else to do is slow
SHOWN = 4000  # characters of what was seen last

Seen = TypeVar("Seen")


def wait_for(
    look: Callable[[], Seen],
    holds: Callable[[Seen], object] = bool,
    *,
    ended: Callable[[], object] = lambda: False,
    patience: float = PATIENCE,
    every: float = 0.01,
) -> Seen:
    """What `look` returns, as soon as it `holds`.

    An OSError or ValueError means "not yet": what was to be read is absent, half-written or just being replaced.

    Args:
      ended: whether nobody is left who could make it true; what was done until then is still seen.
      patience, every: seconds until we give up and between two looks.
    """
    deadline = time.monotonic() + patience
    while True:
        reason = "nobody is left who could" if ended() else None  # asked first: a program may speak before it ends
        if reason is None and time.monotonic() > deadline:
            reason = f"{patience:g} s have passed"
        try:
            last: Any = look()
            if holds(last):
                return last
        except (OSError, ValueError) as error:
            last = f"{type(error).__name__}: {error}"
        if reason:
            raise AssertionError(f"it did not come true, {reason}; last seen:\n{str(last)[-SHOWN:]}")
        time.sleep(every)


def text_of(path: Path) -> str:
    """What a file holds at this moment, be it cut in the middle of a letter."""
    return path.read_text(encoding="utf-8", errors="replace")


def wait_for_words(path: Path, words: str, **options: Any) -> str:
    """The content of another program's file, as soon as it has these words in it."""
    return wait_for(lambda: text_of(path), lambda text: words in text, **options)


def exit_code(process: subprocess.Popen[Any], log: Path) -> int:
    """The exit code of a program once it has ended; if it does not, its log is shown."""
    ended = wait_for(lambda: (process.poll(), text_of(log)), lambda seen: seen[0] is not None)
    assert ended[0] is not None
    return ended[0]
