"""Settings of a scale: read, checked against the schema, and cut into what each job needs.

Nothing here imports JAX or a plotting library, so that the pipeline's start-up stays quick.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pcbf_experiments.schemas import schema_faults
from pcbf_records.canonical import shown, suggestion
from pcbf_records.sheets import LOADER
from pcbf_records.toy import TUNED_FIRST, num_learners
from pcbf_records.variants import base_method

Settings = dict[str, Any]

SCALES = ("smoke", "laptop", "desk", "paper")
DEFAULT_SCALE = "laptop"

SCHEMA = Path("config/schemas/scale.schema.yaml")
OVERRIDE_SOURCE = "--config"
SELECTORS = ("tasks", "domains", "methods")  # words of `--config` that choose among the runs of a scale
OTHER_WORDS = ("scale", *SELECTORS, "jobs_per_gpu")  # words of `--config` that are no section of a scale
GRIDS = ("control_weights", "independent_control_weights", "dcfm_weights", "flow_control_weights", "learning_rates")
TOY_LISTS = ("processes", "methods")


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
        hint = "is this a whole checkout?" if path.stem in SCALES else _unknown_scale(path.stem)
        raise SettingsError(f"{path}: there is no such file; {hint}")
    overrides = overrides or {}
    settings = _merge(_read_yaml(path), overrides)
    sentences = [
        f"{OVERRIDE_SOURCE if _contains(overrides, keys) else _tail(path)}: {sentence}"
        for keys, sentence in schema_faults(_read_yaml(root / SCHEMA), settings)
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


def jobs_per_gpu(config: Mapping[str, Any]) -> int | None:
    """What `--config jobs_per_gpu=…` says, None if nothing."""
    value = config.get("jobs_per_gpu")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise SettingsError(f"{OVERRIDE_SOURCE}: jobs_per_gpu = {shown(value)}: must be an integer >= 1")
    return value


def selection(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """What `--config tasks=... domains=... methods=...` selects among the runs of a scale: one name each, or a list."""
    chosen = {part: config[part] for part in SELECTORS if part in config}
    return {part: [value] if isinstance(value, str) else list(value) for part, value in chosen.items()}


def toy_pairs(settings: Settings) -> list[tuple[str, str]]:
    """The processes and methods whose toy runs a scale has."""
    toy = settings["toy"]
    return [(process, method) for process in toy["processes"] for method in toy["methods"]]


def toy_job(settings: Settings, process: str, method: str) -> Settings:
    """What one toy job depends on: its own coefficients and the shared training settings."""
    toy = settings["toy"]
    coefficients = {
        "pcbf": toy["control_weights"][process],
        "pcbf-independent": toy["independent_control_weights"][process],
        "value_flows": toy["dcfm_weights"][process],
        "pcbf_flow": toy["flow_control_weights"][process],
        **dict.fromkeys(TUNED_FIRST, toy["learning_rates"]),
    }
    shared = {name: value for name, value in toy.items() if name not in (*GRIDS, *TOY_LISTS)}
    return {"coefficients": coefficients[method], **shared}


def toy_work(job: Settings, method: str) -> int:
    """Gradient steps of a toy job over all its coefficients and seeds: its share of the overall progress."""
    learners = num_learners(method, len(job["coefficients"]), job["num_seeds"], job["num_tuning_seeds"])
    return learners * job["num_steps"]


def exact_pairs(settings: Settings) -> list[tuple[str, str]]:
    """The decision processes and methods, variants of methods after them, whose exact runs a scale has."""
    return _pairs(settings["exact"], "mdps")


def exact_job(settings: Settings, method: str) -> Settings:
    """What one job of exact control depends on: how it is trained and judged, settings of all methods and its own."""
    return _job(settings["exact"], "mdps", method)


def calibration_pairs(settings: Settings) -> list[tuple[str, str]]:
    """The datasets and critics, variants of critics after them, whose calibration runs a scale has."""
    return _pairs(settings["calibration"], "datasets")


def calibration_job(settings: Settings, dataset: str, method: str) -> Settings:
    """What one job of calibration depends on besides its data: how it is trained and judged, the critic's settings."""
    chosen = settings["calibration"]
    return {**_job(chosen, "datasets", method), "discount": chosen["datasets"][dataset]["discount"]}


def calibration_source(settings: Settings, dataset: str) -> Settings:
    """How much of a calibration dataset is made: episodes, their length, and the seed."""
    return {name: settings["calibration"]["datasets"][dataset][name] for name in ("episodes", "length", "seed")}


def seeds_work(job: Settings) -> int:
    """Gradient steps of a job of exact control or calibration over all its seeds."""
    return job["num_seeds"] * job["num_steps"]


def _pairs(section: Settings, places: str) -> list[tuple[str, str]]:
    """Methods on every place, then variants on those where the section wants them."""
    methods = [(place, method) for place in section[places] for method in section["methods"]]
    return methods + [(place, variant) for place in section[f"variant_{places}"] for variant in section["variants"]]


def _job(section: Settings, places: str, method: str) -> Settings:
    """The section without what chooses jobs, with settings of all methods and those of one; a variant adds its own."""
    choosing = (places, "methods", "variants", f"variant_{places}", "method_settings")
    shared = {name: value for name, value in section.items() if name not in choosing}
    chosen, variant = section["method_settings"], section["variants"].get(method, {})
    return {**shared, "default": chosen["default"], "own": {**chosen.get(base_method(method), {}), **variant}}


class _UniqueKeyLoader(LOADER):
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
    text = path.read_text(encoding="utf-8")
    try:
        content = yaml.load(text, _UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:  # at the end of a file its mark may stand below the last line
        line = min(error.problem_mark.line + 1, len(text.splitlines())) if error.problem_mark else "?"
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
