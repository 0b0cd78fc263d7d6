"""The scripts of examples/: they run, on less data and fewer steps than by default, and show what they say."""

from __future__ import annotations

import ast
import gc
import importlib
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from pcbf_experiments.tasks import TASKS

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


def run(name: str, monkeypatch: pytest.MonkeyPatch, **sizes: object) -> dict[str, Any]:
    """What a script leaves behind, run with these sizes."""
    for variable, value in sizes.items():
        monkeypatch.setenv(f"PCBF_EXAMPLE_{variable.upper()}", str(value))
    (script,) = EXAMPLES.glob(f"{name}_*.py")
    with jax.default_prng_impl("unsafe_rbg"):  # compiles in a fraction of the time
        return runpy.run_path(str(script), run_name="__main__")


def imports(script: Path) -> Iterator[tuple[str, str]]:
    """Module and name of everything of ours that a script imports."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pcbf_"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_there_are_five_and_all_are_prose_and_code_in_cells():
    assert [script.name[0] for script in SCRIPTS] == list("12345")
    for script in SCRIPTS:
        heads = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("# %%")]
        assert heads[0] == "# %% [markdown]" and set(heads) == {"# %%", "# %% [markdown]"}, script


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_only_exported_names_are_used(script: Path):
    used = list(imports(script))
    assert used
    for module, name in used:
        assert name in importlib.import_module(module).__all__, f"{script.name}: {module}.{name}"


def test_the_agent_that_is_not_ours_is_short():
    (script,) = EXAMPLES.glob("4_*.py")
    assert script.read_text(encoding="utf-8").count("\n") <= 120


@pytest.mark.slow
def test_the_mean_says_fast_and_the_tail_says_slow(monkeypatch: pytest.MonkeyPatch):
    rows = np.array(run("1", monkeypatch, steps=100)["rows"])  # (speeds, learned or simulated, mean, CVaR, P(Z < 0))
    mean, tail = rows[:, 1, 0], rows[:, 1, 1]
    assert mean[2] > mean[0] and tail[2] < tail[0]
    assert (rows[:, 0, 1] < rows[:, 0, 0]).all() and np.isfinite(rows).all()


@pytest.mark.slow
def test_the_long_way_is_the_careful_one(monkeypatch: pytest.MonkeyPatch):
    found = run("2", monkeypatch, steps=64)
    *learned, exact_mean, exact_tail = found["results"].values()
    assert exact_mean == pytest.approx((0.31, -1.26), abs=0.01)  # docs/exact-control.md
    assert exact_tail == pytest.approx((0.15, -0.09), abs=0.01)
    assert all(mean <= exact_mean[0] and cvar <= exact_tail[1] for mean, cvar in learned)  # nothing is better


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Minari, about metadata an example does without
def test_a_dataset_of_ones_own_is_recorded_trained_on_and_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    try:
        found = run("3", monkeypatch, steps=16, episodes=10, folder=tmp_path)
    finally:
        TASKS.pop("buoy-tipsy-v0", None)
    assert (tmp_path / "minari/buoy/tipsy-v0/data").is_dir()
    assert found["loaded"].info.num_episodes == 10 and found["loaded"].spec.observation_shape == (4,)
    assert found["state"].params.keys() == {"critic", "proposal"} and len(found["result"].scores) == 50
    found.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Minari leaves its temporary folder to the garbage collector
        gc.collect()


@pytest.mark.slow
def test_the_online_agent_stores_what_happened_and_trains_on_it(monkeypatch: pytest.MonkeyPatch):
    """That it learns to balance takes a minute; here it falls, and knows after which rounds."""
    found = run("4", monkeypatch, steps=80)
    assert 8 <= np.mean(found["lengths"]) <= 60 and sum(found["lengths"]) <= 80 * found["NUM_ENVS"]
    assert int(found["state"].opt_state[0].count) == found["UPDATES"] * (80 - 63)  # from 512 transitions on


@pytest.mark.slow
def test_a_network_of_ones_own_learns(monkeypatch: pytest.MonkeyPatch):
    found = run("5", monkeypatch, steps=40)
    assert found["losses"][-10:].mean() < 0.9 * found["losses"][:5].mean()
    assert set(found["distances"]) == {0, 1, 4}
