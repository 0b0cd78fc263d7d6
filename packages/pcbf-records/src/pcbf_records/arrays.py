"""Records that are arrays with what made them, in one npz file: checked alike when written and when read."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcbf_records.canonical import canonical_json
from pcbf_records.errors import RecordError
from pcbf_records.files import atomic_write, open_npz

Floats = NDArray[np.floating]


def save_arrays(
    path: Path, arrays: Mapping[str, Any], shapes: Mapping[str, str], metadata: Mapping[str, Any], remake: str
) -> None:
    """Write arrays, whose axes must be those of `shapes` (one letter each), with what made them."""
    check_shapes(path, arrays, shapes, {}, remake)
    write_arrays(path, arrays, metadata)


def load_arrays(path: Path, shapes: Mapping[str, str], remake: str) -> dict[str, Any]:
    """The arrays of a record, every shape checked, and its `metadata`; `remake` says how to make it again."""
    arrays = read_arrays(path, remake)
    check_shapes(path, arrays, shapes, {}, remake)
    return {**{name: arrays[name] for name in shapes}, "metadata": read_metadata(path, arrays)}


def write_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write arrays with what made them, unchecked."""
    told = np.array(json.dumps(json.loads(canonical_json(metadata)), sort_keys=True))
    with atomic_write(path, "wb") as file:
        np.savez_compressed(file, **{**arrays, "metadata": told})


def read_arrays(path: Path, remake: str) -> dict[str, Any]:
    """All arrays of a file by name, unchecked."""
    try:
        with open_npz(path) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RecordError(f"{_named(path)} is not a readable npz ({error}); {remake}") from error


def check_shapes(
    path: Path, arrays: Mapping[str, Any], shapes: Mapping[str, str], sizes: dict[str, int], remake: str
) -> None:
    """Raise unless all arrays are there with consistent axes; `sizes` collects the length of each axis letter."""
    missing = [name for name in shapes if name not in arrays]
    if missing:
        raise RecordError(f"{_named(path)} lacks {', '.join(missing)}; {remake}")
    for name, letters in shapes.items():
        shape, dtype = np.shape(arrays[name]), np.asarray(arrays[name]).dtype
        if dtype.kind not in "biuf":
            raise RecordError(f"{_named(path)}: `{name}` holds {dtype}, expected numbers; {remake}")
        if len(shape) != len(letters):
            raise RecordError(f"{_named(path)}: `{name}` has shape {shape}, expected {len(letters)} axes; {remake}")
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise RecordError(
                    f"{_named(path)}: `{name}` has shape {shape}, but its axis {letter} "
                    f"(of {letters}) has length {sizes[letter]} in the other arrays; {remake}"
                )


def read_metadata(path: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What made a record, {} where it does not say."""
    if "metadata" not in arrays:
        return {}
    try:
        content = json.loads(str(arrays["metadata"]))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{_named(path)}: `metadata` is not JSON ({error}).") from error
    return content if isinstance(content, dict) else {"metadata": content}


def _named(path: Path) -> str:
    return "/".join(path.parts[-4:])
