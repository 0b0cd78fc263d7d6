"""Checks for configuration values: each error says what was given, what is allowed and what to do.

The fields of a config say in their types what they may hold, `learning_rate: Positive`; `tidy` checks that, and
`json_schema` tells it to whoever must know without importing the config.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """Bounds of a number, to be written into its type: `Annotated[float, Range(above=0)]`."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )

    @property
    def words(self) -> str:
        bounds = {">": self.above, ">=": self.at_least, "<": self.below, "<=": self.at_most}
        return " and ".join(f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None) or "finite"


@dataclass(frozen=True)
class OneOf:
    """Words that a text may be, to be written into its type: the words themselves, or the class variable with them."""

    words: tuple[str, ...] | str

    def of(self, kind: type) -> tuple[str, ...]:
        return getattr(kind, self.words) if isinstance(self.words, str) else self.words


Count = Annotated[int, Range(at_least=1)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(at_least=0)]
Share = Annotated[float, Range(at_least=0, at_most=1)]
PositiveShare = Annotated[float, Range(above=0, at_most=1)]
Sizes = tuple[Count, ...]
"""Widths of a network's layers."""


def check_range(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Raise unless `value` is a finite number inside the bounds."""
    bounds = Range(above=above, at_least=at_least, below=below, at_most=at_most)
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{name}={value!r}` is not a number; pass one that is {bounds.words}.")
    if not bounds.holds(value):
        raise ValueError(f"`{name}={value}` is out of range; it must be {bounds.words}.")


def check_whole(name: str, value: object, *, at_least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `at_least`."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"`{name}={value!r}` must be a whole number >= {at_least}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise unless `value` is one of `choices`; suggest the nearest."""
    choices = list(choices)
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`{name}={value!r}` is unknown; choose one of {', '.join(choices)}.{hint}")


def config_from(kind: type[T], values: Mapping[str, Any]) -> T:
    """An instance of the config dataclass `kind` from plain values; lists become tuples."""
    if not isinstance(values, Mapping):
        raise ValueError(f'settings must be names with values, got {values!r}; pass for example {{"discount": 0.99}}.')
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        check_choice(f"{kind.__name__} key", name, fields)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


LATER: Mapping[str, Any] = types.MappingProxyType({"later": True})
"""Metadata of a setting that came after records were published, see `recorded`."""


def recorded(config: Any) -> dict[str, Any]:
    """The settings of a config dataclass as records tell them.

    One that is `LATER` is told where it is not at its default, so that a run without it keeps the hash that it had.
    """
    silent = {
        field.name
        for field in dataclasses.fields(config)
        if field.metadata.get("later") and getattr(config, field.name) == field.default
    }
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in silent}


# --- declared types -------------------------------------------------------------------------------


def tidy(config: Any) -> None:
    """Give every value of a config dataclass the type that it is declared with, or raise with what is expected.

    NumPy numbers become Python's and lists tuples, so that a config can be hashed and written as JSON. To be called
    first in `__post_init__`.
    """
    for name, options in _declared(type(config)).items():
        given = getattr(config, name)
        found = [option for option in options if option.fits(plain_number(given))]
        if not found:
            raise ValueError(f"`{name}={given!r}` is not what it should be; pass {_words(options)}.")
        object.__setattr__(config, name, found[0].checked(name, plain_number(given)))


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON schema of the settings of a config dataclass; functions, which JSON has not, are left out."""
    properties = {}
    for name, options in _declared(kind).items():
        schemas = [schema for option in options if (schema := option.schema())]
        properties[name] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def plain_number(value: object) -> object:
    """A NumPy or JAX number as Python's; anything else as it is."""
    is_scalar = isinstance(value, np.generic) or (hasattr(value, "item") and getattr(value, "shape", None) == ())
    return value.item() if is_scalar else value  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Declared:
    """One of the types that a field may have.

    Attributes:
      base: int, float, bool, str, None's type, tuple or Callable.
      bounds: of a number.
      choices: of a text; empty if any will do.
      item: of a tuple.
    """

    base: Any
    bounds: Range = Range()
    choices: tuple[str, ...] = ()
    item: _Declared | None = None

    def fits(self, value: object) -> bool:
        """Whether `value` is of this type, whatever its bounds."""
        if self.item is not None:
            is_list = isinstance(value, list | tuple | np.ndarray)
            return is_list and all(self.item.fits(plain_number(each)) for each in value)  # type: ignore[union-attr]
        if self.base is Callable:
            return callable(value)
        if isinstance(value, bool):
            return self.base is bool
        return isinstance(value, int | float if self.base is float else self.base)

    def allows(self, value: Any) -> bool:
        """Whether `value`, which fits, is within bounds or among the choices."""
        return value in self.choices if self.choices else self.base is str or self.bounds.holds(value)

    def checked(self, name: str, value: Any) -> Any:
        """`value`, which fits, as this type; raises if it is out of bounds."""
        if self.item is not None:
            values = tuple(plain_number(each) for each in value)
            if not values or not all(map(self.item.allows, values)):
                raise ValueError(f"`{name}={values}` is out of range; pass {self.words}, and not an empty one.")
            return values
        if self.base in (int, float):
            check_range(name, value, **dataclasses.asdict(self.bounds))
        elif self.choices:
            check_choice(name, value, self.choices)
        return value

    @property
    def words(self) -> str:
        """What a value of this type may be."""
        plain = {int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "None"}
        if self.item is not None:
            example = "" if self.item.base is str else ", e.g. (64, 64)"
            return f"a list with {self.item.words} in each place{example}"
        if self.base is str:
            return f"one of {', '.join(self.choices)}" if self.choices else "a word"
        if self.base is Callable:
            return "a function"
        bounds = f" {self.bounds.words}" if self.bounds != Range() else ""
        return plain[self.base] + bounds

    def schema(self) -> dict[str, Any]:
        """Its JSON schema, empty for a function."""
        if self.item is not None:
            return {"type": "array", "minItems": 1, "items": self.item.schema()}
        if self.choices:
            return {"enum": list(self.choices)}
        names = {int: "integer", float: "number", bool: "boolean", str: "string", types.NoneType: "null"}
        keys = {"above": "exclusiveMinimum", "at_least": "minimum", "below": "exclusiveMaximum", "at_most": "maximum"}
        bounds = {keys[name]: value for name, value in dataclasses.asdict(self.bounds).items() if value is not None}
        return {"type": names[self.base], **bounds} if self.base in names else {}


@cache
def _declared(kind: type) -> dict[str, tuple[_Declared, ...]]:
    """What each field of a config dataclass may hold."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: tuple(_options(hints[field.name], kind)) for field in dataclasses.fields(kind)}


def _options(hint: Any, kind: type) -> list[_Declared]:
    if get_origin(hint) in (Union, types.UnionType):
        return [option for each in get_args(hint) for option in _options(each, kind)]
    if get_origin(hint) is Literal:
        return [_Declared(str, choices=get_args(hint))]
    if get_origin(hint) is tuple:
        return [_Declared(tuple, item=_options(get_args(hint)[0], kind)[0])]
    if get_origin(hint) is Callable:
        return [_Declared(Callable)]
    if get_origin(hint) is Annotated:
        base, limit = get_args(hint)
        is_range = isinstance(limit, Range)
        return [_Declared(base, bounds=limit) if is_range else _Declared(base, choices=limit.of(kind))]
    return [_Declared(hint)]


def _words(options: Iterable[_Declared]) -> str:
    return " or ".join(dict.fromkeys(option.words for option in options))
