"""The docs site: exported names have entries, methods pages, links targets, and sentences the numbers they need."""

from __future__ import annotations

import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from pcbf_baselines import METHODS
from pcbf_experiments.method_settings import method_schemas
from pcbf_records import layout

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DESK = ROOT / layout.published_folder("desk")
PUBLIC = (
    "pcbf_core",
    "pcbf_core.mrp",
    "pcbf_core.mdp",
    "pcbf_core.population",
    "pcbf_core.theory",
    "pcbf_baselines",
    "pcbf_experiments",
    "pcbf_experiments.suites",
    "pcbf_records",
)


@cache
def builder() -> ModuleType:
    """docs/build.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    builder().stage(folder)
    return folder


def resolved(name: str) -> Any:
    """The object of a dotted name."""
    module, _, rest = name.partition(".")
    found: Any = importlib.import_module(module)
    for part in rest.split("."):
        if not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


def test_every_exported_name_has_an_entry_and_every_entry_a_name():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    entries = re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE)
    exported = [f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__]
    assert sorted(entries) == sorted(exported)
    for name in exported:
        assert resolved(name) is not None, name


def test_every_method_has_a_page_that_names_functions_that_exist():
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == set(METHODS)
    for path in (DOCS / "methods").glob("*.md"):
        functions = re.findall(r"\| `(pcbf_\w+\.[\w.]+)` \|$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert functions, path
        assert all(callable(resolved(name)) for name in functions), path


def test_every_page_is_in_the_navigation(staged: Path):
    text = (DOCS / "zensical.toml").read_text(encoding="utf-8")
    shown = set(re.findall(r'= "([\w/-]+\.md)"', text))
    assert all((staged / name).is_file() for name in shown)
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= shown


def test_markers_become_tables_and_links_lead_somewhere(staged: Path):
    """Staging itself refuses a dead link."""
    for path in staged.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert not builder().MARKER.search(text), path
        for address in builder().LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
            name = address[1].partition("#")[0]
            if name and not re.match(r"[a-z]+:", name):
                assert (path.parent / name).is_file(), f"{path}: {name}"
    page = (staged / "methods/iql.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in method_schemas()["iql"]["properties"])
    assert "| `expectile` | `0.9` | a number > 0 and < 1 | τ of the value's expectile. |" in page


def test_a_dead_link_is_told(monkeypatch: pytest.MonkeyPatch):
    faults: list[str] = []
    builder().relinked(Path("docs/toys.md"), "see [this](nowhere.md) and [that](#here)", faults)
    assert faults == ["docs/toys.md links to nowhere.md, which does not exist"]


def test_choosing_a_critic_says_what_the_tables_say():
    contest = pd.read_csv(DESK / layout.table("toy_contest", "csv")).set_index(["env", "method"])["w1"].to_dict()
    exact = pd.read_csv(DESK / layout.table("exact_control", "csv")).set_index(["mdp", "method"])
    regret, gain = exact["regret"].to_dict(), exact["gain"].to_dict()
    width = (exact["gain_high"] - exact["gain_low"]).to_dict()

    def order(process: str) -> list[str]:
        """The methods of the contest, that with the best law first."""
        return sorted(builder().CONTESTANTS, key=lambda method: contest[process, method])

    assert order("solitaire")[0] == order("chain")[0] == "c51"
    assert all("c51" in order(process)[-2:] for process in ("bernoulli", "normal", "crossroads"))
    assert order("bernoulli")[-1] == order("normal")[-1] == "iqn" and order("crossroads")[-1] == "c51"
    assert regret["cliff", "iql"] < 5e-4 and regret["gamble", "iql"] < 5e-4
    assert min(gain["cliff", "pcbf_flow"], gain["cliff", "iqn"]) > 0.9 * gain["cliff", "optimum"]
    assert gain["gamble", "iqn"] > gain["gamble", "pcbf_flow"]
    searching = ("pcbf_flow", "pcbf", "value_flows", "iqn", "c51")
    assert min(searching, key=lambda method: gain["cliff", method]) == "value_flows"
    assert max(searching, key=lambda method: width["cliff", method]) == "value_flows"
    for mdp in ("cliff", "gamble"):
        best = min(regret[mdp, method] for method in ("fql", "floq", "codac"))
        assert best > max(regret[mdp, method] for method in (*searching, "iql"))
    overview = pd.read_csv(DESK / layout.table("overview", "csv")).set_index("method")
    law = overview[overview["measure"] == "law_processes"]["mean"].to_dict()
    assert min(law, key=law.__getitem__) == "pcbf_flow"
    crps = pd.read_csv(DESK / layout.table("calibration", "csv")).set_index("method")
    for _, rows in crps.drop(index=["monte_carlo", "marginal"]).groupby("dataset"):
        of_dataset = rows["crps"].to_dict()
        assert min(of_dataset, key=of_dataset.__getitem__) == "c51"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path):
    builder().build(tmp_path)
    page = (tmp_path / "site/api/core.html").read_text(encoding="utf-8")
    assert 'id="pcbf_core.PCBFCritic.cvar"' in page
    assert not re.search(r"""(?:src|<link[^>]* href)="https?://""", page), "pages ask the network for nothing"
    assert (tmp_path / "site/published/laptop/report/index.html").is_file()
