"""Fetching dataset files: several sources in order, resumed where they broke off, checked before they get their name.

Beside every dataset file lies `<file>.json`, its *receipt*: size, SHA-256, the shape and type of each
array, and `source`: "official", "mirror", "user" (a path or address of your own), "found" (it was
there already) or "local" (generated here). A file that does not match its receipt is never
replaced; the error names it and says what to do. What is fetched must also be what `data.registry` says of the
official file; another one is refused and kept aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from pcbf_experiments.data.registry import file_faults
from pcbf_records.canonical import readable_json
from pcbf_records.files import UNREADABLE, check_npz, npy_header, open_npz, read_json, sha256, write_text
from pcbf_records.layout import RAW_DATA
from pcbf_records.sheets import Task

OFFICIAL = "https://rail.eecs.berkeley.edu/datasets/ogbench"
MIRROR = "https://huggingface.co/datasets/zhouzypaul/ogbench_datasets/resolve"
MIRROR_REVISION = "https://huggingface.co/api/datasets/zhouzypaul/ogbench_datasets"  # says which revision is the newest
SOURCES_VARIABLE = "PCBF_DATA_SOURCES"
MARK = "pcbf_local"  # array inside generated files that says so
BLOCK = 1 << 20
TIMEOUT = 30.0


class DatasetError(RuntimeError):
    """A dataset file that is absent, broken or not the one it should be; the message says what to do."""


class DatasetMissing(DatasetError):
    """A dataset of which nothing is there."""


@dataclass(frozen=True)
class Source:
    """A place that holds dataset files under their official names: an address or a folder.

    Attributes:
      kind: "official", "mirror" or "user".
      revision_at: for a mirror with revisions, the address that tells the newest. The first file that is fetched from
        there pins it: all files of a folder come from one revision, whatever is changed there meanwhile.
    """

    place: str
    kind: str
    revision_at: str = ""

    def pinned(self, folder: Path) -> tuple[Source, dict[str, str]]:
        """The source at the revision that files in `folder` came from, else the newest, and a receipt's word of it."""
        if not self.revision_at:
            return self, {}
        receipts = [read_json(file) for file in sorted(folder.glob("*.npz.json"))]
        known = [str(receipt["revision"]) for receipt in receipts if "revision" in receipt]
        revision = min(known) if known else _newest_revision(self.revision_at)
        return Source(f"{self.place.rstrip('/')}/{revision}", self.kind), {"revision": revision}

    def address(self, file_name: str) -> str:
        if "://" in self.place:
            return f"{self.place.rstrip('/')}/{urllib.parse.quote(file_name)}"
        return (Path(self.place).expanduser().resolve() / file_name).as_uri()


def default_sources(extra: Sequence[str] = ()) -> list[Source]:
    """`extra` places, then those of PCBF_DATA_SOURCES (separated by spaces), the official server, public mirrors."""
    own = [*extra, *os.environ.get(SOURCES_VARIABLE, "").split()]
    return [
        *(Source(place, "user") for place in own),
        Source(OFFICIAL, "official"),
        Source(MIRROR, "mirror", MIRROR_REVISION),
    ]


def receipt_path(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def describe(file: Path) -> dict[str, dict[str, Any]]:
    """Shape and type of every array of an npz file, from its headers alone; never unpickles."""
    arrays: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(file) as archive:
        for member in sorted(archive.namelist()):
            with archive.open(member) as stream:
                try:
                    shape, dtype = npy_header(stream)
                except ValueError as error:
                    raise ValueError(f"{member}: {error}") from error
            arrays[member.removesuffix(".npy")] = {"shape": list(shape), "dtype": dtype.name}
    return arrays


def local_mark(file: Path) -> dict[str, Any] | None:
    """How a generated file was made, as it says itself; None for a file that was not generated here."""
    with open_npz(file) as arrays:
        return json.loads(str(arrays[MARK][()])) if MARK in arrays.files else None


def write_receipt(file: Path, source: str, **details: Any) -> dict[str, Any]:
    """Record what `file` is now; one that carries the generator's mark is recorded as local whatever is said."""
    mark = local_mark(file)
    receipt = {
        "file": file.name,
        "bytes": file.stat().st_size,
        "sha256": sha256(file),
        "arrays": describe(file),
        "source": "local" if mark else source,
        **details,
        **({"local": mark} if mark else {}),
    }
    write_text(receipt_path(file), readable_json(receipt))
    return receipt


def missing(path: Path, task: Task, data_dir: Path) -> DatasetMissing:
    """What to do about data that are not there, in commands that can be pasted."""
    where = "" if data_dir == Path(RAW_DATA) else f" --data-dir {shlex.quote(str(data_dir))}"
    return DatasetMissing(
        f"{path} is missing; `pcbf-data fetch {task.name}{where}` downloads it, "
        f"`pcbf-data make-local {task.name}{where}` generates it."
    )


def check_file(file: Path) -> dict[str, Any]:
    """The receipt of `file` after checking the file against it; a file without one gets one if it can be read."""
    remedy = f"Move it away or delete it together with {receipt_path(file).name}, then fetch or make it again."
    if not file.is_file():
        raise DatasetError(f"{file} is missing.")
    try:
        receipt = json.loads(receipt_path(file).read_text(encoding="utf-8"))
        if not {"bytes", "sha256", "source", "file", "arrays"} <= set(receipt):
            raise ValueError("it is no receipt")
    except FileNotFoundError:
        return _adopt(file, remedy)
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{receipt_path(file)} cannot be read ({error}). {remedy}") from error
    if file.stat().st_size != receipt["bytes"]:
        raise DatasetError(f"{file} has {file.stat().st_size} bytes, {receipt['bytes']} were recorded. {remedy}")
    if (found := sha256(file)) != receipt["sha256"]:
        raise DatasetError(f"{file} has SHA-256 {found[:12]}…, {str(receipt['sha256'])[:12]}… was recorded. {remedy}")
    return receipt


def _adopt(file: Path, remedy: str) -> dict[str, Any]:
    fault = unreadable(file)
    if fault:
        raise DatasetError(f"{file} is truncated or corrupt ({fault}). {remedy}")
    if faults := registry_faults(file, file):
        raise DatasetError(f"{file} is not the official file: {'; '.join(faults)}. {remedy}")
    return write_receipt(file, "found")


def unreadable(file: Path) -> str | None:
    """Why an npz file cannot be read to its end, or None if it can."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
        if broken:
            return f"{broken} fails its checksum"
        with file.open("rb") as stream:
            check_npz(stream)
    except (*UNREADABLE, ValueError, OSError, EOFError, RuntimeError) as error:
        return str(error)
    return None


def fetch(file: Path, sources: Sequence[Source], *, progress: bool = True) -> dict[str, Any]:
    """The receipt of `file`, downloaded from the first source that delivers it whole unless it is there already."""
    if file.exists():
        return check_file(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    faults = []
    for named in sources:
        address = named.place
        try:
            source, said = named.pinned(file.parent)
            address = source.address(file.name)
            part = file.with_name(f"{file.name}.{hashlib.sha256(address.encode()).hexdigest()[:8]}.part")
            _download(address, part, progress=progress)
            return _accept(part, file, source, address, **said)
        except (OSError, HTTPException, DatasetError) as error:
            faults.append(f"  {address}: {error}")
    tried = "\n".join(faults) or "  no source is set"
    raise DatasetError(
        f"{file.name} could not be fetched:\n{tried}\n"
        f"The same command resumes what was begun. Other places: --source PLACE or {SOURCES_VARIABLE}=PLACE (a folder "
        "or an address that holds the file), or `pcbf-data make-local` for data generated here."
    )


def _newest_revision(address: str) -> str:
    """The revision of a mirror that its own answer calls the newest."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            revision = json.loads(answer.read(BLOCK))["sha"]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError("it does not say which revision it has") from error
    if not (isinstance(revision, str) and re.fullmatch(r"[0-9a-f]{40}", revision)):
        raise DatasetError(f"it says that its revision is {str(revision)[:60]!r}, which is none")
    return revision


def _accept(part: Path, file: Path, source: Source, address: str, **said: str) -> dict[str, Any]:
    """Give a complete download its name. A receipt beside the original decides what it must be and whence it is.

    One that is not what the registry says of the official file is kept aside, unless it was generated.
    """
    fault = unreadable(part)
    if fault:
        part.unlink()
        raise DatasetError(f"what it sent is not a whole npz file ({fault})")
    original = _receipt_at(address) if source.kind == "user" else None
    if original and original["sha256"] != sha256(part):
        part.unlink()
        raise DatasetError(f"what it sent is not the file that {address}.json describes")
    if faults := registry_faults(part, file):
        aside = part.with_suffix(".refused")
        os.replace(part, aside)
        raise DatasetError(f"what it sent is not the official file: {'; '.join(faults)}; it is kept as {aside.name}")
    os.replace(part, file)
    return write_receipt(file, original["source"] if original else source.kind, address=_public(address), **said)


def registry_faults(found: Path, file: Path) -> list[str]:
    """What is otherwise with `found` than the registry says of the official `file`; nothing if it was generated."""
    return [] if local_mark(found) else file_faults(f"{file.parent.name}/{file.name}", found, describe(found))


def _public(address: str) -> str:
    """`address` without the user name, password or query that an own bucket may need."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "file":
        return "file"
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _receipt_at(address: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"{address}.json", timeout=TIMEOUT) as answer:
            receipt = json.load(answer)
    except (OSError, HTTPException, ValueError):
        return None
    return receipt if isinstance(receipt, dict) and {"sha256", "source"} <= set(receipt) else None


def _download(address: str, part: Path, *, progress: bool) -> None:
    """Bring `part` to the full length of `address`, going on after the bytes it already holds."""
    try:
        begun = part.stat().st_size
    except FileNotFoundError:
        begun = 0
    request = urllib.request.Request(address)
    if begun and not address.startswith("file:"):
        request.add_header("Range", f"bytes={begun}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing beyond what we hold
            raise
        total = error.headers.get("Content-Range", "").rpartition("/")[2]
        if not (total.isdigit() and int(total) == begun):
            part.unlink()
            _download(address, part, progress=progress)
        return
    with answer:
        resumes = getattr(answer, "status", None) == 206 and _range_start(answer) == begun
        start = begun if resumes else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        with open(part, "ab" if resumes else "wb") as stream:
            _copy(answer, stream, part.name.split(".npz")[0], start, total, progress)
    if total is not None and part.stat().st_size != total:
        raise DatasetError(f"the connection ended after {part.stat().st_size} of {total} bytes")


def _range_start(answer: Any) -> int | None:
    begin = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(begin) if begin.isdigit() else None


def _copy(answer: IO[bytes], stream: IO[bytes], name: str, start: int, total: int | None, progress: bool) -> None:
    with tqdm(initial=start, total=total, unit="B", unit_scale=True, desc=name, disable=not progress) as bar:
        for block in _blocks(answer):
            stream.write(block)
            bar.update(len(block))


def _blocks(answer: IO[bytes]) -> Iterator[bytes]:
    while block := answer.read(BLOCK):
        yield block
