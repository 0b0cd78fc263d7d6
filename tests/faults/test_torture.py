"""The torture's books: what a seed stands for, what is published of it, and a short run of it."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pcbf_records.layout import PUBLISHED_FAULTS

from .torture import AS_ROOT, COLUMNS, DAMAGED, DAMAGES, KILLS, OTHERS, REPOSITORY, faults_of

SHORT_SEED, SHORT_COUNT = 929, 3
EVERYTHING = sorted(
    [
        *(name for name, number in KILLS.items() for _ in range(number)),
        *(f"{target} {damage}" for target in DAMAGED for damage in DAMAGES),
        *OTHERS,
        *AS_ROOT,
    ]
)


def test_a_seed_stands_for_the_same_faults_in_the_same_order():
    assert faults_of(3) == faults_of(3) != faults_of(4)
    assert faults_of(3, 5) == faults_of(3)[:5]
    assert sum(KILLS.values()) >= 20
    assert sorted(faults_of(3)) == EVERYTHING


def test_what_is_published_is_every_fault_of_its_seed_and_none_was_lost():
    with (REPOSITORY / PUBLISHED_FAULTS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS and len({row["seed"] for row in rows}) == 1
    assert sorted(row["fault"] for row in rows) == EVERYTHING
    assert set(Counter(row["outcome"] for row in rows)) == {"survived", "named"}
    assert all(row["told"] for row in rows if row["outcome"] == "named")


@pytest.mark.slow
def test_a_short_torture_loses_nothing(tmp_path: Path):
    faults = faults_of(SHORT_SEED, SHORT_COUNT)
    assert {"kill both", "two schedulers"} < set(faults) and any(name.startswith("checkpoint") for name in faults)
    out = tmp_path / "faults.csv"
    options = ["--seed", SHORT_SEED, "--faults", SHORT_COUNT, "--out", out, "--work", tmp_path]
    command = [sys.executable, REPOSITORY / "tests/faults/torture.py", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["fault"] for row in rows) == sorted(faults)
    assert {row["outcome"] for row in rows} <= {"survived", "named"}
