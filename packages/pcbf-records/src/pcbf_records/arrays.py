"""Records that are arrays with what made them, in one npz file: checked alike when written and when read."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcbf_records.canonical import canonical_json
from pcbf_records.errors import RecordError
from pcbf_records.files import atomic_write, open_npz
from pcbf_records.toy import check_shapes, read_metadata


def save_arrays(
    path: Path, arrays: Mapping[str, Any], shapes: Mapping[str, str], metadata: Mapping[str, Any], remake: str
) -> None:
    """Write arrays, whose axes must be those of `shapes` (one letter each), with what made them."""
    check_shapes(path, arrays, shapes, {}, remake)
    told = np.array(json.dumps(json.loads(canonical_json(metadata)), sort_keys=True))
    with atomic_write(path, "wb") as file:
        np.savez_compressed(file, **{**arrays, "metadata": told})


def load_arrays(path: Path, shapes: Mapping[str, str], remake: str) -> dict[str, Any]:
    """The arrays of a record, every shape checked, and its `metadata`; `remake` says how to make it again."""
    try:
        with open_npz(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path} is not a readable npz ({error}); {remake}") from error
    check_shapes(path, arrays, shapes, {}, remake)
    return {**{name: arrays[name] for name in shapes}, "metadata": read_metadata(path, arrays)}
