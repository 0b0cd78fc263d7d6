"""A frozen proposal: PCBF's step among candidates drawn ahead, against the step that clones its own, and against IQL's.

The settings are those of config/scales/laptop.yaml, the data as many rows as it makes. `bound` is the speed-up that a
choice for nothing would have: a' is the batch's own action. `draw_steps` is the cost of a draw of all
candidates in steps. The first release, of which the target speaks, is timed by its own code, taken from the history.

pytest benchmarks/test_frozen.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

import dataclasses
import io
import subprocess
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import yaml
from pytest_benchmark.fixture import BenchmarkFixture
from work import SPEC, best_of_each, dataset, on_one_core

from pcbf_baselines.registry import METHODS, make_agent
from pcbf_core.agent import Agent
from pcbf_core.policy import draw_candidates
from pcbf_core.proposing import takes_proposal
from pcbf_core.training import init_many, train_chunk

ROOT = Path(__file__).parent.parent
CONTROL = yaml.safe_load((ROOT / "config/scales/laptop.yaml").read_text())["control"]
NUM_ROWS = CONTROL["data"]["episodes"] * CONTROL["data"]["length"]
NUM_STEPS = CONTROL["method_settings"]["default"]["action_reuse"] ** 2
KEYS = jax.random.split(jax.random.key(0), 1)


def laptop_agent(method: str, **settings: Any) -> Agent:
    """The method's agent with the settings of the laptop scale, changed by `settings`."""
    known, chosen = {field.name for field in dataclasses.fields(METHODS[method].config)}, CONTROL["method_settings"]
    default = {name: value for name, value in chosen["default"].items() if name in known}
    return make_agent(method, SPEC, {**default, **chosen.get(method, {}), **settings})


def draw(agent: Any) -> Callable[[], Any]:
    """Candidates for all rows, of one seed."""
    params = agent.proposal.init_params(KEYS[0])
    return lambda: draw_candidates(agent.proposal, params, dataset(NUM_ROWS).transitions.next_observation, KEYS[0])


def steps(agent: Agent) -> Callable[[], Any]:
    """`NUM_STEPS` of the compiled loop; with candidates drawn ahead, if the proposal is frozen."""
    fresh, candidates = init_many(agent, KEYS), None
    if takes_proposal(agent):
        fresh = jax.vmap(agent.with_proposal)(fresh, jax.vmap(agent.proposal.init_params)(KEYS))
        candidates = draw(agent)()[None]
    sizes: dict[str, Any] = {"num_steps": NUM_STEPS, "batch_size": CONTROL["run"]["batch_size"], "across": "map"}
    sizes["candidates"] = candidates
    return lambda: train_chunk(agent, jax.tree.map(jnp.copy, fresh), dataset(NUM_ROWS), KEYS, **sizes)


def test_frozen_proposal(benchmark: BenchmarkFixture, ledger: Any) -> None:
    frozen = laptop_agent("pcbf", proposal_training="frozen")
    work = {
        "frozen": steps(frozen),
        "joint": steps(laptop_agent("pcbf", proposal_training="joint")),
        "iql": steps(laptop_agent("iql")),
        "bc": steps(laptop_agent("bc")),
        "bound": steps(laptop_agent("pcbf", proposal_training="frozen", next_action="current_action", action_reuse=1)),
    }
    for each in work.values():
        jax.block_until_ready(each())
    seconds = benchmark.pedantic(lambda: best_of_each(work, most_seconds=10, rounds=40), rounds=1)
    drawn = best_of_each({"draw": draw(frozen)}, rounds=2)["draw"]
    step = {name: value / NUM_STEPS for name, value in seconds.items()}
    ledger.add(
        "frozen",
        work="PCBF's step, laptop scale",
        frozen_ms=round(1e3 * step["frozen"], 2),
        joint_ms=round(1e3 * step["joint"], 2),
        iql_ms=round(1e3 * step["iql"], 2),
        bc_ms=round(1e3 * step["bc"], 2),
        speedup_over_joint=round(step["joint"] / step["frozen"], 2),
        bound=round(step["joint"] / step["bound"], 2),
        times_iql=round(step["frozen"] / step["iql"], 2),
        draw_seconds=round(drawn, 2),
        draw_steps=round(drawn / step["frozen"]),
    )


FIRST_RELEASE = "c8633110f70db8a2368034377356b26c23d8a44d"


def test_against_the_first_release(benchmark: BenchmarkFixture, ledger: Any, tmp_path: Path) -> None:
    """Each on a core of its own, by the time of that core; a product's time there makes them comparable."""
    archive = ["git", "archive", FIRST_RELEASE, "packages", "config", "benchmarks"]
    found = subprocess.run(archive, cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip("a clone without its history lacks the first release")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as files:
        files.extractall(tmp_path, filter="data")

    with ThreadPoolExecutor(2) as pair:
        both = pair.map(lambda checkout: on_one_core("laptop_step.py", *checkout), [[], [str(tmp_path)]])
        now, first = benchmark.pedantic(lambda: list(both), rounds=1)
    ledger.add(
        "first_release",
        work="PCBF's step, laptop scale, on one core",
        now_ms=round(now["step_ms"], 2),
        first_ms=round(first["step_ms"], 2),
        speedup=round(first["step_ms"] / first["products_ms"] / (now["step_ms"] / now["products_ms"]), 2),
    )
