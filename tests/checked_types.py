"""The run-time check of types, shapes included, that conftest.py puts on every function of pcbf_core."""

from __future__ import annotations

from collections.abc import Callable

from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int passes for a float


def checked(function: Callable) -> Callable:
    """`function` with its arguments and result checked, unless it makes a dataclass.

    Configs answer a wrong value with a message of their own, which tests ask for, and JAX makes pytrees of anything.
    """
    return function if function.__name__ == "__init__" else _beartype(function)
