"""Checkpoints: a pytree and a JSON header in one npz file, written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcbf_core.types import PyTree
from pcbf_experiments.running.trees import named_leaves
from pcbf_records.canonical import canonical_json, content_hash, differences
from pcbf_records.files import atomic_write, open_npz

HEADER = "header"
FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the file, the fault and the remedy."""


def save_checkpoint(
    path: Path | str,
    tree: PyTree,
    *,
    step: int,
    config: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write `tree` (arrays and PRNG keys), `step`, `config` with its hash and `extra` (JSON values) to `path`.

    The file takes its name only once it is complete, so a reader finds the old checkpoint or the
    new one. The same arguments give the same bytes.
    """
    leaves = named_leaves(tree)
    header = {
        "format": FORMAT,
        "step": step,
        "config": config,
        "config_hash": content_hash(config),
        "extra": extra or {},
        "keys": {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if _is_key(leaf)},
    }
    arrays = {name: np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for name, leaf in leaves.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise CheckpointError(
                f"{name} has dtype {array.dtype}, which npz cannot hold; convert it to float32 first."
            )
    with atomic_write(path, "wb") as file:
        np.savez(file, allow_pickle=False, **{HEADER: np.array(canonical_json(header))}, **arrays)


def read_header(path: Path | str) -> dict[str, Any]:
    """The header of a checkpoint: `step`, `config`, `config_hash`, `extra`."""
    return _read(Path(path), arrays=False)[0]


def restore_checkpoint(
    path: Path | str, template: PyTree, *, config: Mapping[str, Any] | None = None
) -> tuple[PyTree, dict[str, Any]]:
    """The tree stored at `path` in the form of `template`, and the header.

    Args:
      template: a tree of the same structure, shapes and dtypes, such as a freshly made state.
      config: if given, a checkpoint made under another config is refused and the differing keys are shown.
    """
    path = Path(path)
    header, arrays = _read(path, arrays=True)
    if config is not None:
        check_config(path, header, config)
    wanted = named_leaves(template)
    missing, unknown = sorted(set(wanted) - set(arrays)), sorted(set(arrays) - set(wanted))
    if missing or unknown:
        raise CheckpointError(
            f"{path} holds another tree: missing {_shorten(missing)}; not expected {_shorten(unknown)}. "
            "Restore it with the agent and settings that made it."
        )
    leaves = [_restore_leaf(path, name, arrays[name], leaf, header["keys"]) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), header


def check_config(path: Path | str, header: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise, with the differing keys, unless the checkpoint was made under `config`."""
    if header["config_hash"] == content_hash(config):
        return
    raise CheckpointError(
        f"{path} was made with other settings:\n{told(header['config'], config)}\n"
        "Use those settings, another output folder, or start again with --restart."
    )


def told(stored: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """A line for every value in which a stored config differs from the present one."""
    return "\n".join(f"  {name}: {old} there, {new} now" for name, old, new in differences(stored, config))


def _read(path: Path, *, arrays: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; train first, or pass the path of a checkpoint.")
    try:
        with open_npz(path) as file:
            header = json.loads(str(file[HEADER][()]))
            stored = {name: file[name] for name in file.files if name != HEADER} if arrays else {}
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a whole checkpoint ({error}); delete it to start again, or restore a copy of it."
        ) from error
    kinds = {"step": int, "config": dict, "config_hash": str, "extra": dict, "keys": dict}
    found = header.get("format") if isinstance(header, dict) else None
    if found != FORMAT or any(not isinstance(header.get(name), kind) for name, kind in kinds.items()):
        raise CheckpointError(f"{path} has format {found}, this version reads {FORMAT}; train again.")
    return header, stored


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restore_leaf(path: Path, name: str, stored: np.ndarray, leaf: Any, keys: Mapping[str, str]) -> Any:
    expected = jax.random.key_data(leaf) if _is_key(leaf) else np.asarray(leaf)
    if stored.shape != expected.shape or stored.dtype != expected.dtype:
        raise CheckpointError(
            f"{path}: {name} is {stored.dtype}{list(stored.shape)}, expected {expected.dtype}{list(expected.shape)}; "
            "restore it with the agent and settings that made it."
        )
    if _is_key(leaf):
        if keys.get(name) != str(jax.random.key_impl(leaf)):
            raise CheckpointError(f"{path}: {name} is a key of {keys.get(name)}; restore it with the JAX that made it.")
        return jax.random.wrap_key_data(jnp.asarray(stored), impl=keys[name])
    return jnp.asarray(stored) if isinstance(leaf, jax.Array) else stored


def _shorten(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most]) or "nothing"
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
