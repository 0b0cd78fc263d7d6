"""The one spelling of a value as JSON, its hash, and how two values are compared."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted names and no spaces: equal values give equal text."""
    options: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    return json.dumps(value, default=_plain, **options)


def readable_json(value: Any) -> str:
    """`value` as JSON for people and for diffs: sorted, a line each, with an end of line."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"


def plain(value: Any) -> Any:
    """`value` as JSON would give it back: dataclasses as dicts, tuples and arrays as lists."""
    return json.loads(canonical_json(value))


def content_hash(value: Any) -> str:
    """SHA-256 of a value, whatever the order and layout it was written in."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


class Difference(NamedTuple):
    """A value in which two configs differ, by its dotted name; "absent" where one has none."""

    name: str
    old: str
    new: str


def differences(old: Any, new: Any) -> Iterator[Difference]:
    """Every value in which two nested configs differ, by name."""
    before, after = dict(_flatten(plain(old))), dict(_flatten(plain(new)))
    for name in sorted({*before, *after}):
        left, right = (shown(values[name]) if name in values else "absent" for values in (before, after))
        if left != right:
            yield Difference(name, left, right)


def shown(value: Any) -> str:
    """A value as JSON on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if text.isprintable() else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(word: str, choices: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The choices most like `word`, best first; none if nothing is near."""
    return difflib.get_close_matches(str(word), list(choices), n=count, cutoff=cutoff)


def suggestion(word: str, choices: Iterable[str]) -> str:
    """`; did you mean x?` for the choice nearest to `word`, or nothing."""
    near = nearest(word, choices)
    return f"; did you mean {near[0]}?" if near else ""


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flatten(item, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} has no JSON form; pass numbers, text, lists or dicts.")
