"""The registry of official files: what is fetched is what it says, or is refused with both values and kept aside."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pcbf_experiments.cli import data as command
from pcbf_experiments.data import download, registry
from pcbf_experiments.data.download import DatasetError, Source, check_file, fetch
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import PAPER_TASKS
from pcbf_records.files import sha256

ENTRY = "ogbench/toy-play-v0.npz"
ROW = f"{ENTRY}\t2\t6\tobservations float32 3; actions float32 2; qpos float32 ?\t\t{{}}\tfirst seen"


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A function that puts a toy dataset with this hash into the registry."""

    def write(digest: str = "") -> None:
        table = tmp_path / f"datasets{digest[:8]}.tsv"
        table.write_text("\t".join(registry.COLUMNS) + "\n" + ROW.format(digest) + "\n", encoding="utf-8")
        monkeypatch.setattr(registry, "entries", lambda: entries(table))

    entries = registry.entries
    write()
    return write


def served(folder: Path, rows: int = 6, dims: int = 3, **more) -> Source:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"observations": np.zeros((rows, dims), np.float32), "actions": np.zeros((rows, 2), np.float32)}
    np.savez(folder / "toy-play-v0.npz", allow_pickle=False, **arrays, qpos=np.zeros((rows, 7), np.float32), **more)
    return Source(str(folder), "mirror")


def test_the_registry_has_every_dataset_of_the_paper_with_the_shapes_of_its_suite():
    entries = registry.entries()
    wanted = set()
    for task in PAPER_TASKS.values():
        shape, actions = suite_of(task).shapes(task)
        is_npz = task.suite == "ogbench"
        names = [f"ogbench/{task.dataset}{part}.npz" for part in ("", "-val")] if is_npz else [f"minari/{task.dataset}"]
        for name in names:
            wanted.add(name)
            assert entries[name].arrays["observations"][1] == shape
            assert entries[name].arrays["actions"][1] == (actions,)
            assert entries[name].rows == (entries[name].episodes and 1001 * entries[name].episodes)
    assert set(entries) == wanted


def test_what_the_registry_says_is_taken(known, tmp_path):
    file = tmp_path / "raw" / ENTRY
    assert fetch(file, [served(tmp_path / "a")], progress=False)["source"] == "mirror"
    known(sha256(file))
    file.with_name(f"{file.name}.json").unlink()
    assert check_file(file)["source"] == "found"


@pytest.mark.parametrize(
    ("changes", "digest", "said"),
    [
        ({"dims": 4}, "", r"observations is float32 \[6, 4\], the registry has float32 \[6, 3\]"),
        ({"rows": 5}, "", r"actions is float32 \[5, 2\], the registry has float32 \[6, 2\]"),
        ({}, "0" * 64, r"its SHA-256 is [0-9a-f]{64}, the registry has 0{64} \(first seen\)"),
    ],
)
def test_another_file_is_refused_with_both_values_and_kept_aside(known, tmp_path, changes, digest, said):
    known(digest)
    file = tmp_path / "raw" / ENTRY
    source = served(tmp_path / "a", **changes)
    with pytest.raises(DatasetError, match=said):
        fetch(file, [source], progress=False)
    (aside,) = file.parent.iterdir()
    assert aside.suffix == ".refused" and aside.read_bytes() == (tmp_path / "a/toy-play-v0.npz").read_bytes()
    file.write_bytes(aside.read_bytes())
    with pytest.raises(DatasetError, match=said):  # nor is one that somebody put there
        check_file(file)
    assert file.exists()


def test_generated_files_may_be_of_any_size(known, tmp_path):
    mark = {download.MARK: np.array(json.dumps({"seed": 0}))}
    receipt = fetch(tmp_path / "raw" / ENTRY, [served(tmp_path / "a", rows=2, **mark)], progress=False)
    assert receipt["source"] == "local"


def test_a_mirror_is_pinned_to_the_revision_of_its_first_file(tmp_path, monkeypatch):
    first, second = "a" * 40, "b" * 40
    newest = tmp_path / "newest.json"
    newest.write_text(json.dumps({"sha": first}), encoding="utf-8")
    for revision in (first, second):
        served(tmp_path / revision)
    (tmp_path / first / "other.npz").write_bytes((tmp_path / first / "toy-play-v0.npz").read_bytes())
    mirror = Source(tmp_path.as_uri(), "mirror", newest.as_uri())
    folder = tmp_path / "raw"
    assert fetch(folder / "toy-play-v0.npz", [mirror], progress=False)["revision"] == first
    newest.write_text(json.dumps({"sha": second}), encoding="utf-8")
    assert fetch(folder / "other.npz", [mirror], progress=False)["revision"] == first
    newest.write_text(json.dumps({"sha": "../main"}), encoding="utf-8")
    with pytest.raises(DatasetError, match=r"its revision is '\.\./main', which is none"):
        fetch(tmp_path / "elsewhere" / "toy-play-v0.npz", [mirror], progress=False)


def test_the_row_of_a_file_that_is_here_is_printed_with_its_hash(known, tmp_path, capsys):
    file = tmp_path / "raw" / ENTRY
    receipt = fetch(file, [served(tmp_path / "a")], progress=False)
    assert command.main(["registry", "--data-dir", str(tmp_path / "raw")]) == 0
    row = capsys.readouterr().out.splitlines()[1].split("\t")
    assert row[:4] == ROW.split("\t")[:4]
    assert row[4:] == [str(receipt["bytes"]), receipt["sha256"], "first seen"]
