"""Leaves of pytrees by name, the form in which checkpoints and snapshots hold them."""

from __future__ import annotations

from typing import Any

import jax

from pcbf_core.types import PyTree


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by their path."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def one_of(tree: PyTree, index: int) -> PyTree:
    """One of several trees that are stacked on axis 0."""
    return jax.tree.map(lambda leaf: leaf[index], tree)
