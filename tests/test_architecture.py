"""The floor plan: who may import whom, and how large a room may be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCES = {path.name: path for path in sorted(REPOSITORY.glob("packages/*/src/*")) if path.is_dir()}
MAY_IMPORT = {
    "pcbf_core": set(),
    "pcbf_baselines": {"pcbf_core"},
    "pcbf_records": set(),
    "pcbf_experiments": {"pcbf_core", "pcbf_baselines", "pcbf_records"},
    "pcbf_analysis": {"pcbf_core", "pcbf_records"},
    "snakemake_logger_plugin_pcbf": set(),  # a part of pcbf-experiments whose name Snakemake prescribes
}
# Heavy libraries and where alone they may be imported.
HOMES = {
    "jax": {"pcbf_core", "pcbf_baselines", "pcbf_experiments", "pcbf_analysis"},
    "pandas": {"pcbf_analysis", "pcbf_experiments/campaign"},
    "matplotlib": {"pcbf_analysis"},
    "gymnasium": {"pcbf_experiments"},
    "mujoco": {"pcbf_experiments"},
    "ogbench": {"pcbf_experiments"},
    "minari": {"pcbf_experiments"},
}
WITHOUT_JAX = ("pcbf_experiments/campaign",)
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 500, 60
LONG_FUNCTIONS = {"parser", "data_parser"}  # lists of options: long and flat


def modules() -> Iterator[Path]:
    for folder in SOURCES.values():
        yield from sorted(folder.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Dotted names of everything that a module imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def place(path: Path) -> str:
    return path.relative_to(path.parents[len(path.parts) - path.parts.index("src") - 2]).as_posix()


def test_the_five_packages_and_the_plugin_are_there() -> None:
    assert set(SOURCES) == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_what_is_below_them(package: str) -> None:
    for path in sorted(SOURCES[package].rglob("*.py")):
        ours = {name.partition(".")[0] for name in imported(path)} & set(MAY_IMPORT)
        assert ours <= {package} | MAY_IMPORT[package], place(path)


def test_heavy_libraries_stay_in_their_homes() -> None:
    for path in modules():
        for name in {name.partition(".")[0] for name in imported(path)} & set(HOMES):
            where = place(path)
            assert any(where.startswith(home) for home in HOMES[name]), f"{where} imports {name}"


def test_what_must_start_fast_imports_no_jax() -> None:
    slow = {"jax", "flax", "pcbf_core", "pcbf_baselines"}
    for folder in WITHOUT_JAX:
        package, _, inner = folder.partition("/")
        for path in sorted((SOURCES[package] / inner).rglob("*.py")):
            assert not {name.partition(".")[0] for name in imported(path)} & slow, place(path)


def test_no_module_and_no_function_outgrows_a_reader() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= MAX_MODULE_LINES, place(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name not in LONG_FUNCTIONS:
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= MAX_FUNCTION_LINES, f"{place(path)}: {node.name} has {length} lines"


def test_files_are_found_through_the_layout_alone() -> None:
    """Where records lie is spelled in `pcbf_records.layout` and nowhere else in the code."""
    spelled = re.compile(r"""["'/](?:toy/runs|toy/w1\.csv|theory/checks\.csv|control/evaluations)""")
    for path in modules():
        if path.name != "layout.py":
            code = "\n".join(ast.unparse(node) for node in _without_docstrings(path))
            assert not spelled.search(code), place(path)


def _without_docstrings(path: Path) -> Iterator[ast.stmt]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    yield from tree.body


def test_every_command_names_a_function_that_exists() -> None:
    import importlib
    import tomllib

    for project in sorted(REPOSITORY.glob("packages/*/pyproject.toml")):
        scripts = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("scripts", {})
        for target in scripts.values():
            module, _, function = target.partition(":")
            assert callable(getattr(importlib.import_module(module), function))
