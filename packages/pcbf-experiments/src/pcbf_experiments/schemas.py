"""Settings against a JSON schema: a sentence for every fault. Nothing here imports JAX."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from pcbf_records.canonical import shown, suggestion

Keys = list[str | int]


def schema_faults(schema: Mapping[str, Any], value: Any) -> list[tuple[Keys, str]]:
    """Everything in `value` that `schema` does not allow: where it stands, and a sentence that says what may."""
    validator = _Validator(schema)
    faults = sorted(validator.iter_errors(value), key=lambda fault: [str(key) for key in fault.absolute_path])
    return [found for fault in faults for found in _explain(fault, schema)]


def _is_integer(_: Any, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_Validator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer).redefine("number", _is_number),
)


def _explain(fault: ValidationError, root: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """The keys and the sentence of everything wrong in one schema violation."""
    keys: Keys = list(fault.absolute_path)
    schema: Any = fault.schema
    value: Any = fault.instance
    if fault.validator == "additionalProperties":
        known = list(schema["properties"])
        for name in [name for name in value if name not in known]:
            hint = suggestion(str(name), known) or f"; known are {', '.join(known)}"
            yield [*keys, name], f"{_dotted([*keys, name])} = {shown(value[name])}: unknown key{hint}"
    elif fault.validator == "required":
        for name in [name for name in schema["required"] if name not in value and f"'{name}'" in fault.message]:
            yield (
                [*keys, name],
                f"{_dotted([*keys, name])} is missing: must be {_allowed(schema['properties'][name], root)}",
            )
    else:
        yield keys, f"{_dotted(keys)} = {shown(value)}: must be {_requirement(fault, schema, root)}"


def _requirement(fault: ValidationError, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    value = fault.instance
    match fault.validator:
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return _bounds(schema)
        case "minItems":
            return f"a list of at least {schema['minItems']}"
        case "uniqueItems":
            return "a list without repetition"
        case "enum":
            return _allowed(schema, root) + (suggestion(value, schema["enum"]) if isinstance(value, str) else "")
        case _:
            return _allowed(schema, root) + _number_hint(value, schema)


def _number_hint(value: Any, schema: Mapping[str, Any]) -> str:
    """A remedy for the trap of YAML that 5e-3 is text and only 5.0e-3 a number."""
    if not isinstance(value, str) or schema.get("type") not in ("number", "integer"):
        return ""
    try:
        return f"; YAML reads this as text, write {Decimal(value):f}"
    except InvalidOperation:
        return ""


def allowed(schema: Mapping[str, Any]) -> str:
    """What a value under `schema` may be, in words."""
    return _allowed(schema, schema)


def _allowed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """What a value under `schema` may be, in words."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
    if "anyOf" in schema:
        return " or ".join(_allowed(option, root) for option in schema["anyOf"])
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    match schema.get("type"):
        case [*kinds]:
            return " or ".join(_allowed({**schema, "type": kind}, root) for kind in kinds)
        case "null":
            return "null"
        case "object":
            keys = ", ".join(schema["properties"])
            return f"a mapping with the keys {keys}" if keys else "a mapping"
        case "array":
            return f"a list, each item {_allowed(schema['items'], root)}" if "items" in schema else "a list"
        case "boolean":
            return "true or false"
        case "string":
            return f"the word {schema['pattern'].strip('^$')}" if "pattern" in schema else "a name"
        case kind:
            return " ".join(filter(None, [{"integer": "an integer"}.get(str(kind), "a number"), _bounds(schema)]))


def _bounds(schema: Mapping[str, Any]) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return " and ".join(f"{sign} {schema[name]}" for name, sign in signs.items() if name in schema)


def _dotted(keys: Iterable[str | int]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".") or "the file"
