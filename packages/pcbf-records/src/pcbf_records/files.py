"""Files that are whole or absent, and what is read of files that others write."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np


@contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to that takes its name only once the block ends well; folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    try:
        with open(unfinished, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # such as a full disk, which names no file by itself
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Put `text` into `path` in one go: readers see the old file or the new one, never a part."""
    with atomic_write(path) as file:
        file.write(text)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table in one go; floating point numbers with six significant digits."""
    with atomic_write(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([f"{x:.6g}" if isinstance(x, float) else x for x in row])


def remove_unfinished(path: Path) -> None:
    """Remove what a killed process that was writing `path` left behind."""
    for unfinished in path.parent.glob(f".{path.name}.*.tmp"):
        unfinished.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def open_npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The arrays of a file, read without pickle; what is no npz archive raises a `ValueError` that says so."""
    with open(path, "rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("no npz archive")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            yield arrays


def read_json(path: Path) -> dict[str, Any]:
    """A small file that another process may be writing, removing or replacing; {} if it is not there or not whole."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
