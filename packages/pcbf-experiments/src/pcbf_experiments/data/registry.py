"""What the official datasets are: names, shapes and types, numbers of rows, sizes and hashes, as far as we know.

The table is `datasets.tsv` beside this file. Where no trustworthy source states a hash, `hash_source` says "first
seen": the hash, once somebody has put it there (`pcbf-data registry` prints the row), is that of the file that was
fetched first, and whoever fetches another one is told.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pcbf_records.errors import RecordError
from pcbf_records.files import sha256

TABLE = Path(__file__).with_name("datasets.tsv")
COLUMNS = ("file", "episodes", "rows", "arrays", "bytes", "sha256", "hash_source")
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Entry:
    """One file of an official dataset, or the folder of one of Minari's; None is what nobody has told us.

    Attributes:
      file: its name below the data folder.
      rows: of every array; in a Minari dataset the steps of all episodes.
      arrays: type ("?" for any) and shape of a row of each array that must be there, None for a length of any size.
    """

    file: str
    episodes: int | None
    rows: int | None
    arrays: Mapping[str, tuple[str, Shape]]
    bytes: int | None
    sha256: str | None
    hash_source: str


@cache
def entries(table: Path = TABLE) -> dict[str, Entry]:
    """The table, by file."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    try:
        found = [
            Entry(
                file=row["file"],
                **{name: int(row[name]) if row[name] else None for name in ("episodes", "rows", "bytes")},
                arrays=dict(map(_array, row["arrays"].split(";"))),
                sha256=row["sha256"] or None,
                hash_source=row["hash_source"],
            )
            for row in rows
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise RecordError(
            f"{table} cannot be read as a registry ({error}); mend the row, or `git checkout` it."
        ) from error
    return {entry.file: entry for entry in found}


def _array(text: str) -> tuple[str, tuple[str, Shape]]:
    """("actions", ("float32", (5,))) of "actions float32 5"."""
    name, kind, *sizes = text.split()
    return name, (kind, tuple(None if size == "?" else int(size) for size in sizes))


def array_faults(entry: Entry, arrays: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is otherwise with described arrays (`download.describe`) than the registry says, both values each."""
    for name, (kind, shape) in entry.arrays.items():
        wanted = f"{kind} [{', '.join(['?' if size is None else str(size) for size in (entry.rows, *shape)])}]"
        if name not in arrays:
            yield f"{name} is missing, the registry has {wanted}"
            continue
        found = arrays[name]
        sizes = list(zip(found["shape"], (entry.rows, *shape), strict=False))
        is_same = kind in ("?", found["dtype"]) and len(found["shape"]) == 1 + len(shape)
        if not is_same or any(right not in (None, left) for left, right in sizes):
            yield f"{name} is {found['dtype']} {found['shape']}, the registry has {wanted}"


def file_faults(name: str, file: Path, arrays: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is otherwise with the official file called `name` than the registry says; nothing for one it has not."""
    entry = entries().get(name)
    if entry is None:
        return []
    faults = list(array_faults(entry, arrays))
    if entry.bytes is not None and file.stat().st_size != entry.bytes:
        faults.append(f"it has {file.stat().st_size} bytes, the registry has {entry.bytes}")
    if entry.sha256 is not None and (found := sha256(file)) != entry.sha256:
        faults.append(f"its SHA-256 is {found}, the registry has {entry.sha256} ({entry.hash_source})")
    return faults


def row_text(entry: Entry, receipt: Mapping[str, Any]) -> str:
    """The row of the table with size and hash of a file as its receipt has them."""
    arrays = [
        " ".join([name, kind, *("?" if size is None else str(size) for size in shape)])
        for name, (kind, shape) in entry.arrays.items()
    ]
    known = (entry.episodes, entry.rows, "; ".join(arrays), receipt["bytes"], receipt["sha256"], entry.hash_source)
    return "\t".join([entry.file, *("" if value is None else str(value) for value in known)])
