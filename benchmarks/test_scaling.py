"""How the cost of a PCBF step grows with what a user may turn up; the figure `cost_scaling` is drawn from this."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from work import BATCH_SIZE, agent_of, best_seconds, dataset

from pcbf_core.training import init_many, train_chunk

NUM_STEPS = 16
BASE = {"seeds": 1, "candidates": 8, "flow_steps": 10, "transitions": 10_000}
GROWING = {
    "seeds": [1, 2, 4, 8],
    "candidates": [1, 4, 8, 16, 32],
    "flow_steps": [2, 5, 10, 20],
    "transitions": [1_000, 10_000, 100_000, 1_000_000],
}


def step_seconds(seeds: int, candidates: int, flow_steps: int, transitions: int) -> float:
    """Seconds per step of `seeds` learners side by side, at laptop size."""
    agent = agent_of("pcbf", "3x128", num_candidates=candidates, num_flow_steps=flow_steps, control_weight=0.4)
    keys = jax.random.split(jax.random.key(0), seeds)
    fresh, source = init_many(agent, keys), dataset(transitions)

    def run() -> Any:
        states = jax.tree.map(jnp.copy, fresh)
        return train_chunk(agent, states, source, keys, num_steps=NUM_STEPS, batch_size=BATCH_SIZE)

    return best_seconds(run, repeats=2) / NUM_STEPS


@pytest.mark.parametrize("quantity", GROWING)
def test_growth(benchmark: BenchmarkFixture, ledger: Any, quantity: str) -> None:
    def measure() -> list[float]:
        return [step_seconds(**{**BASE, quantity: value}) for value in GROWING[quantity]]

    seconds = benchmark.pedantic(measure, rounds=1)
    for value, each in zip(GROWING[quantity], seconds, strict=True):
        ledger.add(
            "scaling",
            quantity=quantity,
            value=value,
            step_ms=round(1e3 * each, 3),
            times_first=round(each / seconds[0], 2),
        )
