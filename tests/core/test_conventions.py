"""House rules a reader may rely on: methods abstract or final, abstract classes that are, files of readable size."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from abc import ABC
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import pcbf_baselines
import pcbf_core

MOST_LINES_OF_A_FUNCTION, MOST_LINES_OF_A_MODULE = 60, 500
OURS = ("pcbf_core", "pcbf_baselines", __name__)
CORE = Path(pcbf_core.__file__).parent


def modules(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


@cache
def classes() -> list[type]:
    """Every class that core and baselines define."""
    found = {
        value
        for package in (pcbf_core, pcbf_baselines)
        for module in modules(package)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    return sorted(found, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def methods(kind: type) -> dict[str, bool]:
    """Methods and properties in the body of the class, dunders left out, and whether each is abstract."""
    return {
        name: getattr(value, "__isabstractmethod__", False)
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType | property | classmethod | staticmethod)
        and not (name.startswith("__") and name.endswith("__"))
    }


def is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def overridden(kind: type) -> list[str]:
    """Concrete methods of a base that `kind` defines again; other libraries' bases have rules of their own."""
    bases = [base for base in kind.__mro__[1:] if base.__module__.startswith(OURS) and not is_protocol(base)]
    return [
        f"{kind.__name__}.{name} overrides {base.__name__}.{name}"
        for name in methods(kind)
        for base in bases
        if methods(base).get(name) is False
    ]


@pytest.mark.filterwarnings("ignore")  # of the simulators that some modules import
def test_a_concrete_method_is_never_overridden():
    assert {"PCBF", "IQN", "ValueFlowsCritic", "PCBFConfig"} <= {kind.__name__ for kind in classes()}
    assert not [fault for kind in classes() for fault in overridden(kind)]


@pytest.mark.filterwarnings("ignore")
def test_classes_with_abstract_methods_are_abstract_base_classes():
    with_abstract = [kind for kind in classes() if any(methods(kind).values()) and not is_protocol(kind)]
    names = {kind.__name__ for kind in with_abstract}
    assert {"GradientAgent", "CandidateAgent", "FlowAgent", "ReturnCritic", "MarkovRewardProcess"} <= names
    for kind in with_abstract:
        assert issubclass(kind, ABC) and inspect.isabstract(kind), f"{kind.__name__} can be made without its methods"


def test_the_rules_see_what_breaks_them():
    class Base:
        def told(self) -> int:
            return 1

    class Other(Base):
        def told(self) -> int:
            return 2

    assert overridden(Other) == ["Other.told overrides Base.told"]
    assert not overridden(Base)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_modules_and_functions_of_core_have_a_readable_size(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES_OF_A_MODULE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MOST_LINES_OF_A_FUNCTION, f"{node.name} has {lines} lines"


def test_the_loss_of_pcbf_is_as_short_as_the_algorithm():
    tree = ast.parse((CORE / "critic.py").read_text(encoding="utf-8"))
    critic = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "PCBFCritic")
    loss = next(node for node in critic.body if isinstance(node, ast.FunctionDef) and node.name == "loss")
    assert (loss.end_lineno or 0) - loss.lineno + 1 <= 30 and (loss.end_lineno or 0) - loss.body[0].lineno <= 25
