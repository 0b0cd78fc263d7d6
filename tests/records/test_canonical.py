"""One spelling of a value as JSON, its hash, and the differences of two values by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pcbf_records.canonical import (
    Difference,
    canonical_json,
    content_hash,
    differences,
    nearest,
    plain,
    readable_json,
    shown,
    suggestion,
)


@dataclass(frozen=True)
class Point:
    x: float
    sizes: tuple[int, ...] = (8, 8)


def test_equal_values_have_one_spelling() -> None:
    assert canonical_json({"b": (2, 3), "a": 1}) == canonical_json({"a": 1, "b": [2, 3]}) == '{"a":1,"b":[2,3]}'
    assert canonical_json(Point(0.5)) == '{"sizes":[8,8],"x":0.5}'
    numpy = {"a": np.float32(0.5), "b": np.arange(2), "c": np.int64(3), "d": np.bool_(True)}
    assert canonical_json(numpy) == '{"a":0.5,"b":[0,1],"c":3,"d":true}'
    assert canonical_json(Path("a") / "b") == '"a/b"' and canonical_json("é") == '"é"'
    assert plain(Point(0.5)) == {"x": 0.5, "sizes": [8, 8]}


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": object()}, {1, 2}, Point])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical_json(value)


def test_numbers_come_back_to_the_bit() -> None:
    numbers = np.random.default_rng(0).standard_normal(100).tolist()
    assert plain(numbers) == numbers and plain(0.1 + 0.2) == 0.1 + 0.2


def test_the_hash_ignores_order_and_nothing_else() -> None:
    assert content_hash({"a": 1, "b": (2, 3)}) == content_hash({"b": [2, 3], "a": 1})
    different = [{"a": 1}, {"a": 1.5}, {"a": "1"}, {"a": [1]}, {"a": None}, {"b": 1}, {}]
    assert len({content_hash(value) for value in different}) == len(different)


def test_differences_are_triples_by_dotted_name() -> None:
    old, new = {"a": {"x": 1, "z": [1, 2]}, "b": 2}, {"a": {"x": 1, "y": 0, "z": [1, 3]}}
    assert list(differences(old, new)) == [
        Difference("a.y", "absent", "0"),
        Difference("a.z", "[1, 2]", "[1, 3]"),
        Difference("b", "2", "absent"),
    ]
    assert not list(differences({"a": (1, 2)}, {"a": [1, 2]}))
    assert list(differences({"a": {}}, {"a": {"b": 1}})) == [("a", "{}", "absent"), ("a.b", "absent", "1")]
    assert [(name, old) for name, old, _ in differences(Point(1.0), Point(2.0))] == [("x", "1.0")]


def test_long_values_are_cut_when_shown() -> None:
    assert shown("a" * 100) == f'"{"a" * 56}...' and shown([1, 2]) == "[1, 2]"


def test_readable_json_is_sorted_line_by_line() -> None:
    assert readable_json({"b": [1], "a": "é"}) == '{\n "a": "é",\n "b": [\n  1\n ]\n}\n'


def test_the_nearest_name_is_suggested() -> None:
    assert suggestion("control_wait", ["control_weight", "discount"]) == "; did you mean control_weight?"
    assert suggestion("zzz", ["control_weight"]) == ""
    assert nearest("seed0", ["seed1", "seed2", "other"], count=2) == ["seed2", "seed1"]
