"""Locks that the kernel frees when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO


class LockedError(RuntimeError):
    """Another process holds what we need; the message says which."""


@contextmanager
def held(paths: Sequence[Path], *, wait: bool = True, log: IO[str] | None = None) -> Iterator[None]:
    """Hold the locks of all `paths` inside the block; wait for whoever holds one, or raise `LockedError`.

    Who waits is told so on `log`, standard error if None. The files stay: a file that is removed and made again would
    be another lock.
    """
    with ExitStack() as stack:
        for path in sorted(paths):
            file = stack.enter_context(open_lock(path))
            _acquire(file, path, wait, log or sys.stderr)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
        yield


def open_lock(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "a+", encoding="utf-8")


def try_lock(file: IO[str]) -> bool:
    """Whether the lock of an open file is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(file: IO[str], path: Path, wait: bool, log: IO[str]) -> None:
    if try_lock(file):
        return
    file.seek(0)
    holder = file.read() or "another process"
    if not wait:
        raise LockedError(f"{path} is held by {holder}, which works on the same run; wait for it or end it.")
    print(
        f"waiting: {path} is held by {holder}, which works on the same run; end it to go on at once",
        file=log,
        flush=True,
    )
    fcntl.flock(file, fcntl.LOCK_EX)
