"""The settings that each method has, known without importing it: names, types and bounds are told in a second.

`make sheets` writes `method_settings.json` from the configs of `pcbf_baselines.registry`; a test holds them equal.
Methods of plugins are not in it; `make_config` checks those, and what depends on several settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pcbf_experiments.schemas import schema_faults
from pcbf_records.canonical import shown, suggestion

FILE = "method_settings.json"


@cache
def method_schemas() -> dict[str, Any]:
    """The JSON schema of the settings of each method of the registry."""
    return json.loads(files("pcbf_experiments").joinpath(FILE).read_text(encoding="utf-8"))


def setting_faults(method: str, settings: Any) -> list[str]:
    """A sentence for every setting that the method does not have, or that is not of its type."""
    schema = method_schemas().get(method)
    return [sentence for _, sentence in schema_faults(schema, settings)] if schema else []


def default_faults(settings: Mapping[str, Any], methods: Iterable[str]) -> list[str]:
    """A sentence for every setting that none of `methods` has, or that one of them has as another type.

    These are settings for all methods that have them; one of a plugin may have any.
    """
    schemas = [method_schemas().get(method) for method in methods]
    known = {name for schema in schemas if schema for name in schema["properties"]}
    faults = []
    if all(schemas):
        unknown = [name for name in settings if name not in known]
        faults = [f"{name} = {shown(settings[name])}: no method has it{suggestion(name, known)}" for name in unknown]
    for schema in filter(None, schemas):
        own = {name: value for name, value in settings.items() if name in schema["properties"]}
        faults += [sentence for _, sentence in schema_faults(schema, own)]
    return list(dict.fromkeys(faults))
