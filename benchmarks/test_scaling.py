"""How the cost of a PCBF step grows with what a user may turn up; the figure `scaling` is drawn from this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from work import BATCH_SIZE, agent_of, best_of_each, dataset

from pcbf_core.training import init_many, train_chunk

NUM_STEPS = 4
BASE = {"seeds": 1, "candidates": 8, "flow_steps": 10, "transitions": 10_000}
GROWING = {
    "seeds": [1, 2, 4, 8],
    "candidates": [1, 4, 8, 16, 32],
    "flow_steps": [2, 5, 10, 20],
    "transitions": [1_000, 10_000, 100_000, 1_000_000],
}


def steps(seeds: int, candidates: int, flow_steps: int, transitions: int) -> Callable[[], Any]:
    """`NUM_STEPS` of `seeds` learners side by side, at laptop size, compiled."""
    agent = agent_of("pcbf", "3x128", num_candidates=candidates, num_flow_steps=flow_steps, control_weight=0.4)
    keys = jax.random.split(jax.random.key(0), seeds)
    fresh, source = init_many(agent, keys), dataset(transitions)
    sizes: dict[str, Any] = {"num_steps": NUM_STEPS, "batch_size": BATCH_SIZE, "across": "vmap"}

    def run(count: int) -> Any:
        return train_chunk(agent, jax.tree.map(jnp.copy, fresh), source, keys, count=count, **sizes)

    jax.block_until_ready(run(1))
    return lambda: run(NUM_STEPS)


@pytest.mark.parametrize("quantity", GROWING)
def test_growth(benchmark: BenchmarkFixture, ledger: Any, quantity: str) -> None:
    work = {str(value): steps(**{**BASE, quantity: value}) for value in GROWING[quantity]}
    seconds = benchmark.pedantic(lambda: best_of_each(work), rounds=1)
    first = seconds[str(GROWING[quantity][0])]
    for value in GROWING[quantity]:
        each = seconds[str(value)]
        ledger.add(
            "scaling",
            quantity=quantity,
            value=value,
            step_ms=round(1e3 * each / NUM_STEPS, 3),
            times_first=round(each / first, 2),
        )
