"""Checks for configuration values: each error says what was given, what is allowed and what to do."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def check_range(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Raise unless `value` is a number inside the bounds."""
    bounds = {">": above, ">=": at_least, "<": below, "<=": at_most}
    allowed = " and ".join(f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{name}={value!r}` is not a number; pass one that is {allowed}.")
    inside = (
        (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (below is None or value < below)
        and (at_most is None or value <= at_most)
    )
    if not inside:
        raise ValueError(f"`{name}={value}` is out of range; it must be {allowed}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise unless `value` is one of `choices`; suggest the nearest."""
    choices = list(choices)
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`{name}={value!r}` is unknown; choose one of {', '.join(choices)}.{hint}")


def config_from(kind: type[T], values: Mapping[str, Any]) -> T:
    """An instance of the config dataclass `kind` from plain values; lists become tuples."""
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        check_choice(f"{kind.__name__} key", name, fields)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
