"""The registry: names, suggestions, variants, settings per domain, and the sheet that repeats it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from pcbf_baselines.registry import METHODS, make_agent, make_config
from pcbf_records.sheets import METHODS_FILE, MethodRow, domain_of, domain_settings, load_sheets

from ..methods import SPECS

ROOT = Path(__file__).parents[2]


def test_the_names_of_the_paper_are_there():
    assert set(METHODS) == {
        "pcbf", "pcbf_flow", "value_flows", "floq", "fql", "iql", "iqn", "codac", "c51", "bc", "random",
    }  # fmt: skip
    assert {name for name, method in METHODS.items() if not method.visual} == {"floq", "codac", "c51"}


def test_common_defaults_are_those_of_the_paper():
    for name in METHODS:
        if name in ("random", "pcbf_flow"):
            continue
        config = make_config(name)
        assert config.hidden_sizes == (512, 512, 512, 512)
        assert (config.learning_rate, config.polyak_rate, config.activation) == (3e-4, 0.005, "gelu")
        assert getattr(config, "num_critics", 2) == 2
        assert getattr(config, "num_action_steps", 10) == 10
        if name in ("pcbf", "value_flows", "iqn", "c51"):
            assert config.num_candidates == 16


def test_wrong_names_get_a_suggestion():
    with pytest.raises(ValueError, match="Did you mean 'pcbf'"):
        make_agent("pcfb", SPECS["state"], None)
    with pytest.raises(ValueError, match="Did you mean 'control_weight'"):
        make_agent("pcbf", SPECS["state"], {"control_wait": 0.1})
    with pytest.raises(ValueError, match="Did you mean 'released'"):
        make_config("pcbf", {"variant": "release"})
    with pytest.raises(ValueError, match="variant"):
        make_config("iql", {"variant": "released"})


def test_released_variant_does_what_the_repository_does():
    config = make_config("pcbf", {"variant": "released", "control_weight": 0.4})
    assert config.next_action == "current_action" and config.done_source == "terminals"
    assert config.trained_critics == 1 and config.num_critics == 2 and config.grad_clip == 1.0
    assert (config.score, config.num_return_samples, config.score_noise) == ("one_step", 1, "per_candidate")
    assert config.action_clip == "every_step"
    assert config.control_weight == 0.4
    assert make_config("pcbf", {"variant": "paper"}) == make_config("pcbf")


def test_domain_settings_build_every_agent_of_the_paper():
    sheets = load_sheets(ROOT)
    assert len(sheets.domains) == 14
    assert {domain_of(sheets.domains, sheets.tasks[name]) for name in sheets.paper_tasks} <= set(sheets.domains)
    for domain in sheets.domains:
        task = next(task for task in sheets.tasks.values() if domain_of(sheets.domains, task) == domain)
        for name in METHODS:
            settings = domain_settings(sheets.domains, task, name)
            config = make_agent(name, SPECS["state"], settings).config  # type: ignore[attr-defined]
            for key, value in settings.items():
                expected = tuple(value) if isinstance(value, list) else value
                assert dataclasses.asdict(config)[key] == expected


def test_the_sheet_of_methods_is_the_registry():
    """config/methods.tsv, read by what plans without JAX."""
    rows = [MethodRow(method.name, method.title, method.visual, method.version) for method in METHODS.values()]
    assert list(load_sheets(ROOT).methods.values()) == rows


def test_printed_values_are_used_or_a_reason_is_given():
    table = yaml.safe_load((ROOT / METHODS_FILE).read_text(encoding="utf-8"))
    for domain, entry in table["domains"].items():
        printed = {f"{m}.{key}": value for m, values in entry["printed"].items() for key, value in values.items()}
        different = set()
        for heading, value in printed.items():
            method, key = table["headings"][heading].split(".")
            if entry["methods"][method][key] != value:
                different.add(heading)
        reasons = entry.get("reasons", {})
        assert different == set(reasons), domain
        assert set(reasons.values()) <= set(table["reason_texts"])
