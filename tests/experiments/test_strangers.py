"""What strangers may send: every reader names what is wrong, executes nothing, and takes little memory."""

from __future__ import annotations

import io
import json
import resource
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors

from pcbf_baselines.registry import make_agent
from pcbf_experiments.data.download import DatasetError, check_file, receipt_path
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.running.checkpoint import CheckpointError, restore_checkpoint, save_checkpoint
from pcbf_experiments.running.snapshot import HEADER, SnapshotError, _digest, load_snapshot, save_snapshot
from pcbf_experiments.suites.minari import check_dataset, read_episodes
from pcbf_experiments.suites.ogbench import _checked, dataset_files
from pcbf_experiments.tasks import find_task
from pcbf_records.canonical import canonical_json, plain
from pcbf_records.errors import RecordError
from pcbf_records.runs import load_evaluations, load_run, receipt_faults, save_evaluations, save_run
from pcbf_records.toy import load_toy_record, save_toy_record

from ..methods import SPECS, TINY
from ..records.samples import judged, make_run, write_group
from ..toys import toy_arrays

MEMORY = 2**28  # bytes that a reader may take for a file of a few kilobytes
DEEP = "[" * 100_000
TREE = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "key": jax.random.key(0)}
DOOR = find_task("door-expert-v1")
CUBE = find_task("cube-single-play-singletask-task1-v0")


@contextmanager
def bounded_memory():
    """Inside the block the process may take little more than it has; who wants more gets a MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass(frozen=True)
class Reader:
    """A kind of file: where it lies, how one is made and read, and the error that names what is wrong with it."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], object]
    error: type[Exception]


def write_snapshot(path: Path) -> None:
    agent = make_agent("bc", SPECS["state"], TINY["bc"])
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(agent.init, jax.random.key(0)))
    config = {"task": "t", "method": "bc", "spec": plain(SPECS["state"]), "method_settings": plain(TINY["bc"])}
    save_snapshot(path, state, scaling=Scaling(), config=config, seed=3, step=7)


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        episode = file.create_group("episode_0")
        for name, width in (("observations", 39), ("actions", 28)):
            episode[name] = np.zeros((4, width))
        episode.attrs["id"] = 0
    path.with_name("metadata.json").write_text(json.dumps({"total_episodes": 1, "total_steps": 3}), encoding="utf-8")


def write_npz(path: Path) -> None:
    names = {"observations": 28, "actions": 5, "terminals": 1, "qpos": 21}
    np.savez(path, allow_pickle=False, **{name: np.zeros((3, width), np.float32) for name, width in names.items()})
    np.savez(path.with_name("copy.npz"))


READERS = [
    Reader("seed1.json", lambda path: save_run(path, make_run()), load_run, RecordError),
    Reader("seed1.evaluations.json", lambda p: save_evaluations(p, judged(make_run())), load_evaluations, RecordError),
    Reader(
        "toy/runs/chain/pcbf.npz", lambda p: save_toy_record(p, toy_arrays(), {"a": 1}), load_toy_record, RecordError
    ),
    Reader(
        "seeds0.npz",
        lambda path: save_checkpoint(path, TREE, step=3, config={"a": 1}),
        lambda path: restore_checkpoint(path, TREE),
        CheckpointError,
    ),
    Reader("step7.safetensors", write_snapshot, load_snapshot, SnapshotError),
    Reader(
        f"minari/{DOOR.dataset}/data/main_data.hdf5",
        write_hdf5,
        lambda path: read_episodes(DOOR, path.parents[5]),
        DatasetError,
    ),
    Reader("ogbench/cube-single-play-v0.npz", write_npz, lambda path: _checked(path, CUBE), DatasetError),
]
IDS = [reader.name.rpartition("/")[2] for reader in READERS]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A whole file of every kind, by reader."""
    files = {}
    for reader in READERS:
        path = tmp_path_factory.mktemp("good") / reader.name
        path.parent.mkdir(parents=True, exist_ok=True)
        reader.write(path)
        files[reader.name] = path
    return files


def is_refused(reader: Reader, path: Path) -> bool:
    """Whether the reader names the fault; anything but its own error escapes, and so does a want of memory."""
    receipt_path(path).unlink(missing_ok=True)
    with bounded_memory():
        try:
            reader.read(path)
        except reader.error as error:
            told = str(error)
        else:
            return False
    assert len(told) < 2000, "an error that fits on a screen"
    return True


@pytest.mark.parametrize(
    "reader", [r for r in READERS if "hdf5" not in r.name], ids=[i for i in IDS if "hdf5" not in i]
)
def test_a_whole_file_is_read(reader, good):
    assert not is_refused(reader, good[reader.name])


@pytest.mark.parametrize("reader", READERS, ids=IDS)
@settings(max_examples=40)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_is_refused(reader, good, share):
    path, whole = good[reader.name], good[reader.name].read_bytes()
    try:
        path.write_bytes(whole[: int(share * (len(whole) - 2))])  # a newline at the end of JSON is no loss
        assert is_refused(reader, path)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("reader", READERS, ids=IDS)
@settings(max_examples=60)
@given(change=st.data())
def test_changed_bytes_are_refused_or_do_no_harm(reader, good, change):
    """A changed byte in a number or in padding need not be noticed here: hashes in receipts notice it."""
    path, whole = good[reader.name], good[reader.name].read_bytes()
    bent = bytearray(whole)
    for place in change.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        bent[place] = change.draw(st.integers(0, 255))
    try:
        path.write_bytes(bytes(bent))
        is_refused(reader, path)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("reader", READERS, ids=IDS)
@settings(max_examples=15)
@given(content=st.binary(max_size=200))
def test_anything_else_is_refused(reader, good, content):
    path, whole = good[reader.name], good[reader.name].read_bytes()
    try:
        path.write_bytes(content)
        assert is_refused(reader, path)
    finally:
        path.write_bytes(whole)


# --- made to deceive --------------------------------------------------------------------------------------------------


def bent_npz(path: Path, out: Path, **changed: np.ndarray | bytes) -> Path:
    """The archive with some of its arrays replaced, by other arrays or by any bytes."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name in dict.fromkeys([*old.namelist(), *(f"{name}.npy" for name in changed)]):
            value = changed.get(name.removesuffix(".npy"), old.read(name) if name in old.namelist() else b"")
            if isinstance(value, np.ndarray):
                stream = io.BytesIO()
                np.lib.format.write_array(stream, value, allow_pickle=True)
                value = stream.getvalue()
            new.writestr(name, value)
    return out


def header_of(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": "<f4"})
    return stream.getvalue()


ARCHIVES = {"toy/runs/chain/pcbf.npz": "w1", "seeds0.npz": "['weights']", "ogbench/cube-single-play-v0.npz": "qpos"}
DECEITS = {
    "absurd shape": header_of((10**12, 10**6)),
    "large shape": header_of((2**33,)),
    "negative shape": header_of((-5,)),
    "pickle": np.array([{"a": 1}], dtype=object),
    "bomb": np.zeros(2**26 + 2**20, np.uint8),  # tens of kilobytes that unpack to more than 64 MB
    "no array": b"nothing",
}


@pytest.mark.parametrize("deceit", DECEITS)
@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_would_take_memory_or_execute_something(name, deceit, good, tmp_path):
    (reader,) = [reader for reader in READERS if reader.name == name]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    assert is_refused(reader, bent_npz(good[name], path, **{ARCHIVES[name]: DECEITS[deceit]}))


@pytest.mark.parametrize(
    ("name", "array", "value"),
    [
        ("toy/runs/chain/pcbf.npz", "w1", np.full((2, 2, 1), "far")),
        ("toy/runs/chain/pcbf.npz", "metadata", np.array(DEEP)),
        ("seeds0.npz", "['weights']", np.zeros((2, 3), np.float64)),
        ("seeds0.npz", "header", np.array(DEEP)),
        ("seeds0.npz", "header", np.array('{"format": 1}')),
        ("seeds0.npz", "../../../evil", np.zeros(3)),
        ("ogbench/cube-single-play-v0.npz", "qpos", np.zeros((2, 3))),
    ],
)
def test_arrays_of_another_kind(name, array, value, good, tmp_path):
    (reader,) = [reader for reader in READERS if reader.name == name]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    assert is_refused(reader, bent_npz(good[name], path, **{array: value}))


@pytest.mark.parametrize("name", ["seed1.json", "seed1.evaluations.json"])
@settings(max_examples=60)
@given(change=st.data())
def test_records_with_values_of_another_kind(name, good, change, tmp_path_factory):
    (reader,) = [reader for reader in READERS if reader.name == name]
    values = json.loads(good[name].read_text(encoding="utf-8"))
    del values["sha256"]  # records of earlier versions have none, and a stranger could make one
    key = change.draw(st.sampled_from([key for key in values if key not in ("final_metrics", "versions", "code")]))
    wrong = change.draw(st.sampled_from([None, -1, 1.5, True, "x", [1, "x"], [[]], {"a": [1]}, "../../etc"]))
    if type(wrong) is type(values[key]) and not isinstance(wrong, int):
        return  # another word or list of the right kind
    path = tmp_path_factory.getbasetemp() / f"bent-{name}"
    path.write_text(json.dumps({**values, key: wrong}), encoding="utf-8")
    assert is_refused(reader, path)


def test_json_without_end_is_refused(tmp_path):
    for reader in READERS[:2]:
        (tmp_path / "deep.json").write_text(DEEP, encoding="utf-8")
        assert is_refused(reader, tmp_path / "deep.json")
    write_npz(tmp_path / "toy.npz")
    receipt_path(tmp_path / "toy.npz").write_text(DEEP, encoding="utf-8")
    with pytest.raises(DatasetError, match="cannot be read"):
        check_file(tmp_path / "toy.npz")


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1e400},
        {"step": None},
        {"config": DEEP[:50]},
        {"config": {"spec": None, "method": "bc"}},
        {"config": {"method": "../../bc", "spec": plain(SPECS["state"])}},
        {"config": {"method": "bc", "spec": {**plain(SPECS["state"]), "observation_shape": [10**15]}}},
        {"config": {"method": "bc", "spec": {**plain(SPECS["state"]), "observation_shape": [-3]}}},
        {"config": {"method": "bc", "spec": {**plain(SPECS["state"]), "action_dim": "many"}}},
        {"config": {"method": "bc", "spec": plain(SPECS["state"]), "method_settings": {"hidden_sizes": [10**12]}}},
        {"reward_scale": "large"},
    ],
)
def test_snapshots_with_a_right_hash_and_wrong_words(changes, good, tmp_path):
    path = good["step7.safetensors"]
    tensors = safetensors.load(path.read_bytes())
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"][HEADER])
    header = {**header, **changes}
    del header["sha256"]
    header = json.loads(json.dumps(header))
    try:
        header["sha256"] = _digest(header, tensors)
        said = canonical_json(header)
    except ValueError:  # JSON knows no infinity; Python's reader does
        header["sha256"] = ""
        said = json.dumps(header)
    (tmp_path / "bent.safetensors").write_bytes(safetensors.save(tensors, metadata={HEADER: said}))
    assert is_refused(READERS[4], tmp_path / "bent.safetensors")


@pytest.mark.parametrize("trick", ["soft link", "external link", "external data", "absurd shape"])
def test_hdf5_that_points_elsewhere_or_is_larger_than_its_file(trick, tmp_path):
    path = tmp_path / f"minari/{DOOR.dataset}/data/main_data.hdf5"
    path.parent.mkdir(parents=True)
    write_hdf5(path)
    (tmp_path / "secret").write_bytes(bytes(4 * 39 * 8))
    with h5py.File(path, "a") as file:
        episode: Any = file["episode_0"]
        del episode["observations"]
        if trick == "soft link":
            episode["observations"] = h5py.SoftLink("/episode_0/actions")
        elif trick == "external link":
            episode["observations"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "/observations")
        elif trick == "external data":
            external = [(str(tmp_path / "secret"), 0, 4 * 39 * 8)]
            episode.create_dataset("observations", (4, 39), np.float64, external=external)
        else:
            episode.create_dataset("observations", (10**9, 39), np.float64, chunks=(1, 39))
    assert is_refused(READERS[5], path)
    with pytest.raises(DatasetError, match="link to elsewhere|another file|unpack to more"):
        check_dataset(DOOR, tmp_path)


@pytest.mark.parametrize("name", ["../../outside.json", "/outside.json", "runs/../../../outside.json"])
def test_receipts_name_nothing_outside_of_their_folder(name, tmp_path):
    files = write_group(tmp_path / "results")
    receipt = json.loads(files.receipt.read_text(encoding="utf-8"))
    receipt["records"][name] = {"sha256": "0" * 64}
    files.receipt.write_text(json.dumps(receipt), encoding="utf-8")
    (fault,) = receipt_faults(files.root, files.receipt)
    assert fault.path == files.receipt and "no record of this folder" in fault.reason


def test_dataset_names_stay_in_their_folder():
    assert all(file.parent.name == "ogbench" for file in dataset_files(CUBE, Path("data")))
