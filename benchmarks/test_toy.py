"""Toy training: a learner of the compiled laptop grid against the paper's setting, driven from Python.

Both runs have 10 000 steps; their W1 is in results/published/laptop/toy/w1.csv (ours) and data/paper/toy_w1.csv (the
paper's, from that setting). Times are of 50 and 10 steps, multiplied up: all steps cost the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from work import best_seconds

from pcbf_core.config import config_from
from pcbf_core.mrp import MRPS
from pcbf_core.training import init_many, train_chunk
from pcbf_experiments.campaign.settings import load_scales, toy_job
from pcbf_experiments.toy import ENTRIES, ProcessSource, ToySettings, make_critics

ROOT = Path(__file__).parent.parent
TITLES = {"pcbf": "PCBF", "value_flows": "Value Flows"}


def settings_of(scale: str, env: str, method: str) -> ToySettings:
    _, scales = load_scales(ROOT, {})
    return config_from(ToySettings, json.loads(json.dumps(toy_job(scales[scale], env, method))))


def plain_seconds(env: str, method: str, num_steps: int = 10) -> float:
    """Seconds of a whole run that goes through Python at every step, in the paper's setting; `num_steps` are timed."""
    settings, process = settings_of("paper", env, method), MRPS[env]
    (critic,) = make_critics(process, method, settings)
    state, key = critic.init(jax.random.key(0)), jax.random.key(1)
    update = jax.jit(critic.update)

    def run() -> Any:
        now = state
        for step in range(num_steps):
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            batch = process.sample(batch_key, settings.batch_size, settings.absorbing_fraction)
            now, metrics = update(now, batch, update_key)
            float(metrics["critic_loss"])
        return now

    return best_seconds(run, repeats=2) / num_steps * settings.num_steps


def grid_seconds(env: str, method: str, num_steps: int = 50) -> float:
    """Seconds of a learner of a whole grid, one after the other, in the laptop setting; `num_steps` are timed."""
    settings, process = settings_of("laptop", env, method), MRPS[env]
    (critic,), name = make_critics(process, method, settings), ENTRIES[method].coefficient
    weights = jnp.tile(jnp.asarray(settings.coefficients), settings.num_seeds)
    keys = jax.random.split(jax.random.key(0), len(weights))
    fresh = init_many(critic, keys)
    source = ProcessSource(process, settings.absorbing_fraction)

    def run() -> Any:
        states = jax.tree.map(jnp.copy, fresh.replace(coefficients={**fresh.coefficients, name: weights}))
        sizes: dict[str, Any] = {"num_steps": num_steps, "batch_size": settings.batch_size, "across": "map"}
        return train_chunk(critic, states, source, keys, **sizes)

    return best_seconds(run, repeats=2) / num_steps * settings.num_steps / len(weights)


@pytest.mark.parametrize("method", TITLES)
def test_toy_run(benchmark: BenchmarkFixture, ledger: Any, method: str) -> None:
    seconds = benchmark.pedantic(lambda: grid_seconds("solitaire", method), rounds=1)
    plain = plain_seconds("solitaire", method)
    ledger.add(
        "toy",
        work=f"laptop run of {TITLES[method]} on Solitaire",
        timed_steps="50 of 10 000, plain 10",
        seconds=round(seconds, 2),
        plain_seconds=round(plain, 1),
        speedup_over_plain=round(plain / seconds, 1),
    )
