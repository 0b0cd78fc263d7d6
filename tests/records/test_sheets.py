"""The sheets of config/: read as they are written, and what is wrong with one is said."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pcbf_records import RecordError
from pcbf_records.sheets import (
    METHODS_FILE,
    MethodRow,
    Task,
    domain_of,
    domain_settings,
    load_domains,
    load_sheets,
    sheet_text,
)

ROOT = Path(__file__).parents[2]
TASK = Task("a-play-v0", "a-v0", "a-play", "ogbench", discount=0.99, steps=10, seeds=2, episode_limit=5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the sheets."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def test_rows_come_back_as_they_were(root: Path) -> None:
    tasks = [TASK, replace(TASK, name="b-v0", observations="pixel", is_tuned=True, suite="adroit")]
    methods = [MethodRow("m", "The M", True, 1), MethodRow("n", "N", False, 3)]
    (root / "config/tasks.tsv").write_text(sheet_text(tasks, Task))
    (root / "config/extra_tasks.tsv").write_text(sheet_text([], Task))
    (root / "config/methods.tsv").write_text(sheet_text(methods, MethodRow))
    sheets = load_sheets(root)
    assert list(sheets.tasks.values()) == tasks and sheets.paper_tasks == ("a-play-v0", "b-v0")
    assert list(sheets.methods.values()) == methods
    assert sheets.domains == load_domains(root / METHODS_FILE)


def test_a_sheet_says_what_its_columns_are() -> None:
    head, row = sheet_text([TASK], Task).splitlines()
    assert head.split("\t")[:4] == ["task", "dataset", "domain", "suite"] and "simulator" not in head
    assert dict(zip(head.split("\t"), row.split("\t"), strict=True))["is_tuned"] == "0"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tasks", "0.995", "much"),
        ("tasks", "0.995", "1.5"),
        ("tasks", "1000000", "0"),
        ("tasks", "\tstate\t", "\tpicture\t"),
        ("tasks", "episode_limit", "episode_length"),
        ("tasks", "task\tdataset", "name\tdataset"),
        ("extra_tasks", "\t8\t", "\teight\t"),
        ("methods", "version", "edition"),
        ("methods", "\t1\n", "\tone\n"),
        ("methods", "\t1\n", "\t1\tmore\n"),
        ("methods", "pcbf\tPCBF\t1\t1\n", "pcbf\tPCBF\n"),
    ],
)
def test_what_cannot_be_read_as_a_sheet_is_named(name: str, old: str, new: str, root: Path) -> None:
    path = root / "config" / f"{name}.tsv"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(RecordError, match=rf"{name}\.tsv cannot be read as a sheet .*`git checkout` it, or mend"):
        load_sheets(root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": "sound"}, "choose one of state, pixel"),
        ({"discount": 1.0}, "`discount=1.0` of a-play-v0 is out of range"),
        ({"seeds": 0}, "`seeds=0` of a-play-v0 is out of range; it must be >= 1"),
    ],
)
def test_wrong_values_of_a_task_are_told(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TASK, **change)


def test_settings_are_those_of_the_dataset_before_those_of_the_domain() -> None:
    sheets = load_sheets(ROOT)
    cube, pen = sheets.tasks["cube-double-play-singletask-task1-v0"], sheets.tasks["pen-cloned-v1"]
    assert (domain_of(sheets.domains, cube), domain_of(sheets.domains, pen)) == ("cube-double-play", "pen-cloned")
    assert domain_settings(sheets.domains, cube, "pcbf") == {"discount": 0.995, "control_weight": 0.4}
    puzzle = sheets.tasks["puzzle-4x4-play-singletask-task4-v0"]
    assert domain_settings(sheets.domains, puzzle, "value_flows")["confidence_temperature"] == 100
    assert domain_settings(sheets.domains, cube, "random") == {}
    assert domain_of(sheets.domains, TASK) is None and domain_settings(sheets.domains, TASK, "pcbf") == {}
