"""In which precision networks multiply: float32, or bfloat16 with all the rest in float32.

Parameters, the optimiser, sums and activations stay float32. With bfloat16 both factors of every product of a dense or
convolution layer are rounded, forwards and backwards, which is what the matrix units of accelerators are fast at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

Precision = Literal["float32", "bfloat16"]

_chosen: ContextVar[Precision] = ContextVar("precision", default="float32")


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    """Networks that are traced inside the block multiply in this precision.

    Compiled functions do not ask again: make it depend on an argument that they are compiled for.
    """
    token = _chosen.set(precision)
    try:
        yield
    finally:
        _chosen.reset(token)


def dense_product() -> Callable[..., Array] | None:
    """What a dense layer multiplies with; None for its own."""
    return None if _chosen.get() == "float32" else _rounded(jax.lax.dot_general)


def convolution() -> Callable[..., Array] | None:
    """What a convolution layer multiplies with; None for its own."""
    return None if _chosen.get() == "float32" else _rounded(jax.lax.conv_general_dilated)


def matmul(left: Array, right: Array) -> Array:
    """`left @ right`."""
    return left @ right if _chosen.get() == "float32" else _rounded(jnp.matmul)(left, right)


def _rounded(multiply: Callable[..., Array]) -> Callable[..., Array]:
    def product(left: Array, right: Array, *args: Any, **options: Any) -> Array:
        factors = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
        return multiply(*factors, *args, **options).astype(left.dtype)

    return product
