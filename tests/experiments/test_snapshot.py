"""Snapshots: what goes in comes out to the bit, and whatever is wrong with a file is said with its remedy."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors

from pcbf_baselines import METHODS
from pcbf_baselines.registry import make_agent
from pcbf_core.agent import Agent
from pcbf_core.learner import LearnerState
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.running.snapshot import FORMAT, HEADER, SnapshotError, load_snapshot, save_snapshot
from pcbf_records.canonical import canonical_json, plain

from ..methods import SPECS, TINY, random_batch

SCALING = Scaling(np.array([0.5, -1, 2], np.float32), np.array([1, 2, 3], np.float32), reward_scale=0.25)


def config_of(method: str, kind: str = "state") -> dict[str, Any]:
    return {"task": "t", "method": method, "spec": plain(SPECS[kind]), "method_settings": plain(TINY[method])}


def save(path: Path, method: str = "bc", kind: str = "state", seed: int = 3) -> tuple[Agent, LearnerState]:
    """The agent and the state of a snapshot that is at `path` now."""
    agent = make_agent(method, SPECS[kind], TINY[method])
    state = jax.jit(agent.init)(jax.random.key(seed, impl="unsafe_rbg"))
    save_snapshot(path, state, scaling=SCALING, config=config_of(method, kind), seed=seed, step=7)
    return agent, state


PIXEL = [pytest.param(name, "pixel", marks=pytest.mark.slow) for name, method in METHODS.items() if method.visual]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), [*((name, "state") for name in METHODS), *PIXEL])
def test_a_loaded_agent_acts_and_samples_returns_to_the_bit(method: str, kind: str, tmp_path: Path) -> None:
    agent, state = save(tmp_path / "a.safetensors", method, kind)
    loaded = load_snapshot(tmp_path / "a.safetensors")
    assert (loaded.agent, loaded.spec, loaded.method) == (agent, SPECS[kind], method)
    assert (loaded.seed, loaded.step, loaded.scaling.reward_scale) == (3, 7, 0.25)
    np.testing.assert_array_equal(loaded.scaling.observations(np.ones(3)), SCALING.observations(np.ones(3)))
    assert plain(loaded.config) == config_of(method, kind)
    batch, key = random_batch(SPECS[kind]), jax.random.key(1, impl="unsafe_rbg")
    act = jax.jit(agent.act)
    np.testing.assert_array_equal(act(loaded.state, batch.observation, key), act(state, batch.observation, key))
    if hasattr(agent, "sample_returns"):
        returns: Any = jax.jit(lambda s: agent.sample_returns(s, batch.observation, batch.action, key, 4))
        np.testing.assert_array_equal(returns(loaded.state), returns(state))


@pytest.mark.slow
def test_the_same_arguments_give_the_same_bytes_and_leave_no_other_file(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save(tmp_path / f"{name}.safetensors", "pcbf")
    first, *others = (file.read_bytes() for file in sorted(tmp_path.iterdir()))
    assert len(others) == 2 and all(other == first for other in others)


def test_what_acting_does_without_is_not_in_the_file(tmp_path: Path) -> None:
    _, state = save(tmp_path / "a.safetensors", "pcbf")
    stored = safetensors.load_file(tmp_path / "a.safetensors")
    assert not any("target" in name or "opt_state" in name for name in stored)
    num_numbers = sum(leaf.size for leaf in jax.tree.leaves((state.params, state.coefficients)))
    assert sum(tensor.size for tensor in stored.values()) == num_numbers + 2 * 3  # the statistics of observations


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "a.safetensors"
    save(path)
    return path.read_bytes()


def refused(path: Path, content: bytes) -> str:
    """Why a snapshot of this content is refused; the message names the file."""
    path.write_bytes(content)
    with pytest.raises(SnapshotError) as fault:
        load_snapshot(path)
    assert str(path) in str(fault.value)
    return str(fault.value)


@pytest.mark.parametrize("cut", [0, 4, 100, -1, -2000])
def test_a_truncated_file(cut: int, good: bytes, tmp_path: Path) -> None:
    message = refused(tmp_path / "a.safetensors", good[:cut])
    assert "is not a whole safetensors file" in message and "delete it and train again" in message


def test_one_flipped_bit_anywhere_is_noticed(good: bytes, tmp_path: Path) -> None:
    """In the length, the names, the config, the hash, the padding or the numbers."""
    begin = 8 + int.from_bytes(good[:8], "little")
    places = [*range(0, begin, 7), *range(begin, len(good), 211), len(good) - 1]
    for place in places:
        changed = bytearray(good)
        changed[place] ^= 1 << (place % 8)
        assert "; " in refused(tmp_path / "a.safetensors", bytes(changed)), place


def test_files_of_others(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    assert "no snapshot of pcbf; pass another file" in refused(path, safetensors.save({"w": np.zeros(3)}))
    assert "not a whole safetensors file" in refused(path, b"step,score\n1,2\n")
    np.savez(tmp_path / "b.npz", a=np.zeros(3))
    assert "not a whole safetensors file" in refused(path, (tmp_path / "b.npz").read_bytes())
    for strange in ("[]", "{", '{"format": 1}', "9" * 5000, "[" * 100_000):
        assert "; " in refused(path, safetensors.save({"w": np.zeros(3)}, metadata={HEADER: strange}))
    with pytest.raises(SnapshotError, match=r"nowhere\.safetensors does not exist; train first"):
        load_snapshot(tmp_path / "nowhere.safetensors")
    with pytest.raises(SnapshotError, match="does not exist"):
        load_snapshot(tmp_path)


def test_another_format_is_told_beside_ours(good: bytes, tmp_path: Path) -> None:
    other = FORMAT[:-1] + "2"
    message = refused(tmp_path / "a.safetensors", good.replace(FORMAT.encode(), other.encode()))
    assert f"has format '{other}', this version reads '{FORMAT}'; train again" in message


def test_tensors_of_another_method_are_named(tmp_path: Path) -> None:
    _, state = save(tmp_path / "other.safetensors", "iql")
    path = tmp_path / "a.safetensors"
    save_snapshot(path, state, scaling=SCALING, config=config_of("bc"), seed=3, step=7)
    message = refused(path, path.read_bytes())
    assert "does not fit bc" in message and "absent" in message and "train again" in message


@pytest.mark.parametrize("change", [{"method": "gone"}, {"spec": {}}, {"method_settings": {"no_such": 1}}])
def test_what_this_version_cannot_make_is_told(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    _, state = save(path)
    save_snapshot(path, state, scaling=SCALING, config={**config_of("bc"), **change}, seed=3, step=7)
    assert "cannot be used here" in refused(path, path.read_bytes())


def test_nothing_is_ever_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a pickle under a snapshot's name nor one inside it is executed, and reading needs no pickle at all."""
    ran = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (ran,))

    path = tmp_path / "a.safetensors"
    refused(path, pickle.dumps(Bomb()))
    held = {"w": np.frombuffer(pickle.dumps(Bomb()), np.uint8).copy()}
    said = canonical_json({"format": FORMAT, "config": config_of("bc"), "seed": 0, "step": 0, "reward_scale": 1.0})
    refused(path, safetensors.save(held, metadata={HEADER: said}))
    assert not ran.exists()
    save(path)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_: pytest.fail("a pickle was read"))
    assert json.dumps(plain(load_snapshot(path).config))
