"""Settings of a scale: read, checked against the schema, and cut into what each job needs.

Nothing here imports JAX or a plotting library, so that the pipeline's start-up stays quick.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from pcbf_records.canonical import shown, suggestion

Settings = dict[str, Any]

SCALES = ("smoke", "laptop", "paper")
DEFAULT_SCALE = "laptop"

SCHEMA = Path("config/schemas/scale.schema.yaml")
OVERRIDE_SOURCE = "--config"
SELECTORS = ("tasks", "domains", "methods")  # words of `--config` that choose among the runs of a scale
OTHER_WORDS = ("scale", *SELECTORS, "jobs_per_gpu")  # words of `--config` that are no section of a scale
GRIDS = ("control_weights", "independent_control_weights", "dcfm_weights")


class SettingsError(ValueError):
    """Settings that cannot be used; the message has one sentence per fault."""


def load_scale(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Checked settings of the scale file `path`, with `overrides` merged over it, section by section.

    Args:
      path: a file <root>/config/scales/<scale>.yaml; the schema is read from <root>/config/schemas.
      overrides: nested values that replace those of the file; lists are replaced whole.
    """
    path = Path(path)
    root = path.parent.parent.parent
    if not path.is_file():
        raise SettingsError(f"{path}: there is no such file; {_unknown_scale(path.stem)}")
    overrides = overrides or {}
    settings = _merge(_read_yaml(path), overrides)
    validator = _Validator(_read_yaml(root / SCHEMA))
    faults = sorted(validator.iter_errors(settings), key=lambda fault: [str(key) for key in fault.absolute_path])
    sentences = [
        f"{OVERRIDE_SOURCE if _contains(overrides, keys) else _tail(path)}: {sentence}"
        for fault in faults
        for keys, sentence in _explain(fault, validator.schema)
    ]
    if sentences:
        raise SettingsError("\n".join(sentences))
    return settings


def load_scales(root: str | Path, config: Mapping[str, Any]) -> tuple[str, dict[str, Settings]]:
    """The scale chosen on Snakemake's command line, and the checked settings of every scale.

    Args:
      root: directory that holds config/scales.
      config: what `--config` gave: `scale` and other words, and sections whose values replace those of the scale.
        Snakemake hands values inside a section over as text (`toy={"num_steps": 50}` as "50"); they are read as JSON.
    """
    directory = Path(root) / "config/scales"
    scale = config.get("scale", DEFAULT_SCALE)
    if scale not in SCALES:
        raise SettingsError(_unknown_scale(str(scale)))
    known = [*OTHER_WORDS, *_read_yaml(Path(root) / SCHEMA)["properties"]]
    overrides = {name: _read_text(value) for name, value in config.items() if name not in OTHER_WORDS}
    for name, value in overrides.items():
        if name not in known:
            hint = suggestion(name, known) or f"; known are {', '.join(known)}"
            raise SettingsError(f"{OVERRIDE_SOURCE}: {name} = {shown(value)}: unknown key{hint}")
    return scale, {
        name: load_scale(directory / f"{name}.yaml", overrides if name == scale else None) for name in SCALES
    }


def selection(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """What `--config tasks=... domains=... methods=...` selects among the runs of a scale: one name each, or a list."""
    chosen = {part: config[part] for part in SELECTORS if part in config}
    return {part: [value] if isinstance(value, str) else list(value) for part, value in chosen.items()}


def toy_job(settings: Settings, process: str, method: str) -> Settings:
    """What one toy job depends on: its own coefficients and the shared training settings."""
    toy = settings["toy"]
    coefficients = {
        "pcbf": toy["control_weights"][process],
        "pcbf-independent": toy["independent_control_weights"][process],
        "value_flows": toy["dcfm_weights"],
    }
    shared = {name: value for name, value in toy.items() if name not in GRIDS}
    return {"coefficients": coefficients[method], **shared}


def toy_work(job: Settings) -> int:
    """Gradient steps of a toy job over all its coefficients and seeds: its share of the overall progress."""
    return len(job["coefficients"]) * job["num_seeds"] * job["num_steps"]


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML without the silent overwriting of a key that stands there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key} stands there twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> Settings:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise SettingsError(f"{_tail(path)}: line {line} cannot be read as YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{_tail(path)}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{_tail(path)}: holds {shown(content)}: must be a mapping of sections")
    return content


def _tail(path: Path) -> str:
    """The path from its repository's root, as a reader would type it there."""
    return path.relative_to(path.parent.parent.parent).as_posix()


def _unknown_scale(name: str) -> str:
    return f"scale = {name}: must be one of {', '.join(SCALES)}{suggestion(name, SCALES)}"


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    both = {
        name: _merge(base[name], value) if isinstance(base.get(name), Mapping) and isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
    return {**base, **both}


def _read_text(value: Any) -> Any:
    """`value` with each text inside it replaced by what it says as JSON, where it says something."""
    if isinstance(value, Mapping):
        return {name: _read_text(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_read_text(inner) for inner in value]
    if isinstance(value, str):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def _contains(tree: Any, keys: Sequence[str | int]) -> bool:
    """Whether `keys` leads into or through a leaf of `tree`, i.e. the value comes from there."""
    for key in keys:
        if not isinstance(tree, Mapping):
            return True
        if key not in tree:
            return False
        tree = tree[key]
    return bool(keys)


def _is_integer(_: Any, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_Validator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer).redefine("number", _is_number),
)


def _explain(fault: ValidationError, root: Settings) -> Iterator[tuple[list[str | int], str]]:
    """The keys and the sentence of everything wrong in one schema violation."""
    keys: list[str | int] = list(fault.absolute_path)
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


def _requirement(fault: ValidationError, schema: Mapping[str, Any], root: Settings) -> str:
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


def _allowed(schema: Mapping[str, Any], root: Settings) -> str:
    """What a value under `schema` may be, in words."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
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
