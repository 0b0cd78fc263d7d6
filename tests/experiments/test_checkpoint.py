"""Checkpoints: what goes in comes out, and whatever is wrong with a file is said."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core.learner import LearnerState
from pcbf_experiments.running.checkpoint import CheckpointError, read_header, restore_checkpoint, save_checkpoint

CONFIG = {"task": "t", "agent": {"learning_rate": 3e-4, "hidden_sizes": [8, 8]}}


def make_tree(value: float = 1.0) -> dict:
    state = LearnerState(
        params={"critic": {"w": jnp.full((2, 3), value), "b": jnp.arange(3)}},
        target_params={"critic": {"w": jnp.zeros((2, 3)), "b": jnp.arange(3)}},
        opt_state=(jnp.int32(7), {"mu": jnp.ones(4, bool)}),
        coefficients={"control_weight": jnp.float32(0.4)},
    )
    return {"states": state, "keys": jax.random.split(jax.random.key(3), 2), "mean": np.arange(3.0)}


def save(path, value: float = 1.0, **changes) -> None:
    save_checkpoint(path, make_tree(value), step=5, config=CONFIG, extra={"evaluations": [1.5]}, **changes)


def test_round_trip_gives_every_leaf_and_key_back(tmp_path):
    save(tmp_path / "c.npz", 2.0)
    tree, header = restore_checkpoint(tmp_path / "c.npz", make_tree(0.0), config=CONFIG)
    expected = make_tree(2.0)
    assert jax.tree.structure(tree) == jax.tree.structure(expected)
    assert (jax.random.key_data(tree["keys"]) == jax.random.key_data(expected["keys"])).all()
    for got, want in zip(jax.tree.leaves(tree["states"]), jax.tree.leaves(expected["states"]), strict=True):
        assert got.dtype == want.dtype and (got == want).all()
    assert (header["step"], header["extra"]) == (5, {"evaluations": [1.5]})
    assert read_header(tmp_path / "c.npz")["config"] == CONFIG


def test_same_state_gives_same_bytes_and_leaves_no_other_file(tmp_path):
    save(tmp_path / "a.npz")
    save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_another_config_is_refused_with_the_difference(tmp_path):
    save(tmp_path / "c.npz")
    other = {"task": "t", "agent": {"learning_rate": 1e-3, "hidden_sizes": [8, 8]}}
    with pytest.raises(CheckpointError, match=r"agent\.learning_rate: 0\.0003 there, 0\.001 now"):
        restore_checkpoint(tmp_path / "c.npz", make_tree(), config=other)


@pytest.mark.parametrize("cut", [0, 10, 400, -30])
def test_truncated_file_is_named_with_its_remedy(tmp_path, cut):
    save(tmp_path / "c.npz")
    data = (tmp_path / "c.npz").read_bytes()
    (tmp_path / "c.npz").write_bytes(data[:cut])
    with pytest.raises(CheckpointError, match=r"c\.npz is not a whole checkpoint.*delete it"):
        restore_checkpoint(tmp_path / "c.npz", make_tree())


def test_flipped_byte_is_noticed(tmp_path):
    save(tmp_path / "c.npz", 1234.5)
    data = bytearray((tmp_path / "c.npz").read_bytes())
    place = data.find(np.float32(1234.5).tobytes())
    data[place] ^= 1
    (tmp_path / "c.npz").write_bytes(data)
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        restore_checkpoint(tmp_path / "c.npz", make_tree())


def test_other_trees_are_refused_by_name(tmp_path):
    save(tmp_path / "c.npz")
    fewer = make_tree()
    del fewer["mean"]
    with pytest.raises(CheckpointError, match=r"not expected \['mean'\]"):
        restore_checkpoint(tmp_path / "c.npz", fewer)
    wider = {**make_tree(), "mean": np.arange(4.0)}
    with pytest.raises(CheckpointError, match=r"\['mean'\] is float64\[3\], expected float64\[4\]"):
        restore_checkpoint(tmp_path / "c.npz", wider)
    with pytest.raises(CheckpointError, match="does not exist"):
        restore_checkpoint(tmp_path / "d.npz", wider)


def test_pickled_objects_are_never_loaded(tmp_path):
    np.savez(tmp_path / "c.npz", header=np.array({"a": 1}, dtype=object))
    with pytest.raises(CheckpointError, match="only pickle could read"):
        restore_checkpoint(tmp_path / "c.npz", make_tree())
