"""Files that are whole or absent, and what is read of files that others write."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import struct
import zipfile
import zlib
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


SMALL, EXPANSION = 2**26, 200  # bytes that a file may always unpack to, and how many times its own size beyond that


@contextmanager
def open_npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The arrays of a file, read without pickle; what is no npz archive raises a `ValueError` that says so.

    So does one whose arrays are larger than what is in the file, before memory is taken for them.
    """
    with open(path, "rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("no npz archive")
        check_npz(stream)
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as arrays:
                yield arrays
        except UNREADABLE as error:
            raise ValueError(f"{type(error).__name__}: {str(error)[:300]}") from error


# what zipfile and NumPy raise for archives that they cannot read, besides ValueError, OSError and EOFError
UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, OverflowError, MemoryError)


def check_npz(stream: IO[bytes]) -> None:
    """Raise a `ValueError` unless every array of an npz archive is as long as its header says, and not absurdly so."""
    try:
        _check_npz(stream)
    except (*UNREADABLE, RuntimeError, SyntaxError, TypeError) as error:  # a password, a header that is no Python
        raise ValueError(f"{type(error).__name__}: {str(error)[:300]}") from error


def _check_npz(stream: IO[bytes]) -> None:
    stream.seek(0, os.SEEK_END)
    limit = max(SMALL, EXPANSION * stream.tell())
    with zipfile.ZipFile(stream) as archive:
        total = 0
        for member in archive.infolist():
            with archive.open(member) as file:
                shape, dtype = npy_header(file)
                size = math.prod(shape) * dtype.itemsize
                if min(shape, default=0) < 0 or size != member.file_size - file.tell():
                    said = f"{dtype}{list(shape)}"
                    raise ValueError(f"{member.filename} says it is {said} and has {member.file_size} bytes")
            total += size
            if total > limit:
                raise ValueError(f"it would unpack to more than {limit} bytes")


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array, from the beginning of its file; one that only pickle could read raises."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which only pickle could read")
    return shape, dtype


def read_json(path: Path) -> dict[str, Any]:
    """A small file that another process may be writing, removing or replacing; {} if it is not there or not whole."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
