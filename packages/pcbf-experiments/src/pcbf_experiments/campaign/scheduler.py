"""What a killed Snakemake leaves behind: its lock on the working directory, which nobody will open any more.

Snakemake's own locks are plain files: after SIGKILL or a power cut they stay, and the same command is refused until
somebody runs `--unlock`. So every scheduler also holds a lock that the kernel frees when it ends. Whoever can have that
one alone knows that no other scheduler is alive here, and may remove what dead ones left.
"""

from __future__ import annotations

import fcntl
import platform
from pathlib import Path
from typing import IO

_HELD: list[IO[str]] = []  # open until this process ends


def clear_stale_locks(folder: Path) -> list[Path]:
    """Snakemake's lock files in `folder` (.snakemake) that a scheduler which is gone left here; they are removed.

    The lock is marked with this machine's name and held from now on. Locks of another machine are left alone: on a
    shared file system its scheduler may be alive although we cannot see its lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / "pcbf-scheduler.lock", "a+", encoding="utf-8")  # noqa: SIM115 - held until the end
    _HELD.append(file)
    removed: list[Path] = []
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # another scheduler is alive; Snakemake itself decides whether the two get into each other's way
    else:
        file.seek(0)
        if file.read() in ("", platform.node()):
            removed = sorted((folder / "locks").glob("*.lock"))
            for path in removed:
                path.unlink(missing_ok=True)
            file.truncate(0)
            file.write(platform.node())
            file.flush()
    fcntl.flock(file, fcntl.LOCK_SH)
    return removed
