"""Files that are whole or absent, locks the kernel frees, progress that others read."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcbf_records.files import atomic_write, read_json, remove_unfinished, sha256, write_csv, write_text
from pcbf_records.locks import LockedError, held
from pcbf_records.progress import ProgressFile, progress_of
from pcbf_records.versions import code_version, library_versions

from ..waiting import PATIENCE


def test_a_file_takes_its_name_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.txt"
    with atomic_write(path) as file:
        file.write("one")
        assert not path.exists()
    assert path.read_text() == "one"

    def fail_halfway() -> None:
        with atomic_write(path) as file:
            file.write("tw")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert path.read_text() == "one" and [item.name for item in path.parent.iterdir()] == ["a.txt"]


def test_what_a_killed_writer_left_behind_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    code = (
        "import os, signal, sys; from pcbf_records.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    write_text(path, "whole")
    write_text(tmp_path / "b.txt", "other")
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode < 0
    assert path.read_text() == "whole" and len(list(tmp_path.iterdir())) == 3
    remove_unfinished(path)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_a_table_has_six_digits_and_unix_lines(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ("a", "b"), [(1 / 3, "x,y"), (2, 1e-9)])
    assert (tmp_path / "t.csv").read_bytes() == b'a,b\n0.333333,"x,y"\n2,1e-09\n'


@pytest.mark.parametrize("content", [None, "", "{", "[1]", "3"])
def test_a_small_file_of_another_process_is_read_or_is_nothing(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    assert read_json(path) == {}
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_sha256_is_the_usual_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "seed0.lock"
    with held([path]), pytest.raises(LockedError, match=f"held by process {os.getpid()} on"), held([path], wait=False):
        pass
    with held([path], wait=False):
        pass


def test_a_lock_is_free_when_its_process_is_killed_and_who_waits_is_told(tmp_path: Path) -> None:
    path = tmp_path / "seed0.lock"
    code = (
        "import signal, sys; from pathlib import Path; from pcbf_records.locks import held\n"
        "with held([Path(sys.argv[1])]):\n"
        "    print('held', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"held by process {holder.pid} on"), held([path], wait=False):
            pass
        holder.kill()
        holder.wait(PATIENCE)
    log = io.StringIO()
    with held([path], wait=True, log=log):
        assert log.getvalue() == ""


# --- progress and versions --------------------------------------------------------------------------------------------


def test_progress_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    write = ProgressFile(path, "job", 100, first=20, unit="episodes")
    write(20)
    write(50)  # within half a second: left out
    assert read_json(path)["done"] == 20
    write(100)  # the end never is
    said = read_json(path)
    assert (said["job"], said["done"], said["total"], said["pid"]) == ("job", 100, 100, os.getpid())
    progress = progress_of({**said, "started": 0.0, "updated": 40.0, "done": 60})
    assert (progress.rate, progress.fraction, progress.seconds_left) == (1.0, 0.6, 40.0)
    assert progress.unit == "episodes"
    assert progress_of({**said, "started": 5.0, "updated": 5.0}).seconds_left is None
    with pytest.raises(KeyError):
        progress_of({"done": 1})
    ProgressFile(None, "job", 1)(1)


def test_versions_name_our_packages_and_the_libraries_that_decide_numbers() -> None:
    assert {"pcbf-core", "pcbf-records", "pcbf-experiments"} <= set(code_version()["packages"])
    assert {"python", "jax", "numpy", "mujoco"} <= set(library_versions())
    assert json.dumps(code_version()) and json.dumps(library_versions())
