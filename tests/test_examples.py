"""The scripts of examples/: they run, and what they print shows that they learned.

The first two run at their own size; the others on less data and fewer steps, so that none takes much more than twenty
seconds of a CPU, most of which is compilation.
"""

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
@pytest.mark.usefixtures("optimised")
def test_the_learned_law_is_near_the_simulated_one_in_mean_and_tail(monkeypatch: pytest.MonkeyPatch):
    """The mean says fast and the worst tenth says slow, in truth and as learned; returns are 2 to 4 units wide."""
    rows = np.array(run("1", monkeypatch)["rows"])  # (speeds, learned or simulated, mean, CVaR, P(Z < 0))
    for mean, tail, _ in rows.transpose(1, 2, 0):
        assert mean[2] > mean[0] and tail[2] < tail[0]
    errors = np.abs(rows[:, 0] - rows[:, 1]).max(axis=0)
    assert (errors < [0.5, 0.8, 0.1]).all(), errors  # the noise, N(0, 1), is off by 3.6, 1.9 and 0.46


@pytest.mark.slow
def test_the_mean_takes_the_short_way_and_the_tail_the_safe_one(monkeypatch: pytest.MonkeyPatch):
    found = run("2", monkeypatch)
    by_mean, by_tail, exact_mean, exact_tail = found["results"].values()  # mean and CVaR at 0.1 of each policy
    assert exact_mean == pytest.approx((0.31, -1.26), abs=0.01)  # docs/exact-control.md
    assert exact_tail == pytest.approx((0.15, -0.09), abs=0.01)
    first = [policy[found["cliff"].start].argmax() for policy in list(found["policies"].values())[:2]]
    assert first == [0, 1]  # right onto the slippery cells, or up and around
    assert by_mean[0] > exact_mean[0] - 0.2  # after 400 steps it is at -1.5
    assert by_tail[1] - by_mean[1] > 0.8 * (exact_tail[1] - exact_mean[1])
    assert all(
        mean <= exact_mean[0] and cvar <= exact_tail[1] for mean, cvar in (by_mean, by_tail)
    )  # nothing is better


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.filterwarnings("ignore")  # of Minari, about metadata an example does without
def test_an_agent_on_a_dataset_of_ones_own_beats_who_made_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    try:
        found = run("3", monkeypatch, steps=1500, episodes=100, folder=tmp_path)
    finally:
        TASKS.pop("buoy-tipsy-v0", None)
    assert (tmp_path / "minari/buoy/tipsy-v0/data").is_dir()
    info, result = found["loaded"].info, found["result"]
    assert info.num_episodes == 100 and found["loaded"].spec.observation_shape == (4,)
    assert found["state"].params.keys() == {"critic", "proposal"} and len(result.scores) == 50
    assert result.mean >= 90
    assert np.mean(result.lengths) < 0.75 * info.num_transitions / info.num_episodes  # the skipper is half as fast
    found.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Minari leaves its temporary folder to the garbage collector
        gc.collect()


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_the_online_agent_learns_to_keep_the_pole_up(monkeypatch: pytest.MonkeyPatch):
    found = run("4", monkeypatch, steps=1300)
    lengths = found["lengths"]
    assert sum(lengths) <= 1300 * found["NUM_ENVS"]
    assert int(found["state"].opt_state[0].count) == found["UPDATES"] * (1300 - 63)  # from 512 transitions on
    assert 8 <= np.mean(lengths[:20]) <= 60  # at random
    assert np.mean(lengths[-20:]) > 2 * np.mean(lengths[:20])


@pytest.mark.slow
def test_a_network_of_ones_own_learns(monkeypatch: pytest.MonkeyPatch):
    found = run("5", monkeypatch, steps=40)
    assert found["losses"][-10:].mean() < 0.9 * found["losses"][:5].mean()
    assert set(found["distances"]) == {0, 1, 4}
