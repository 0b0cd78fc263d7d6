"""One gradient step of every method, as a share of the machine's matmul peak, against IQL's and against its plain form.

pytest benchmarks/test_updates.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from plain import plain_forms
from pytest_benchmark.fixture import BenchmarkFixture
from work import BATCH_SIZE, SIZES, agent_of, best_seconds, dataset, matmul_flops, peak_gflops

from pcbf_core.agent import Agent
from pcbf_core.training import init_many, train_chunk

# What makes the targets' actions cheaper by design; see docs/cost.md for what it does to scores.
AMORTISED: dict[str, Any] = {"action_reuse": 8, "num_action_steps": 2, "action_solver": "midpoint"}
FEWER_STEPS: dict[str, Any] = {"num_flow_steps": 2, "solver": "midpoint", "num_next_samples": 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "iql": ("iql", {}),
    "fql": ("fql", {}),
    "floq": ("floq", {}),
    "codac": ("codac", {}),
    "pcbf, a' = batch action": ("pcbf", {"next_action": "current_action", "control_weight": 0.4}),
    "pcbf": ("pcbf", {"control_weight": 0.4}),
    "pcbf, amortised": ("pcbf", {"control_weight": 0.4, **AMORTISED, **FEWER_STEPS}),
    "value_flows": ("value_flows", {}),
    "value_flows, amortised": ("value_flows", {**AMORTISED, "num_flow_steps": 2, "solver": "midpoint"}),
    "iqn": ("iqn", {}),
    "iqn, amortised": ("iqn", AMORTISED),
    "c51": ("c51", {}),
    "bc": ("bc", {}),
}
SECONDS: dict[tuple[str, str], float] = {}


def fast_seconds(agent: Agent, num_steps: int) -> float:
    """Seconds per step of the compiled loop."""
    keys = jax.random.split(jax.random.key(0), 1)
    fresh = init_many(agent, keys)

    def run() -> Any:
        states = jax.tree.map(jnp.copy, fresh)
        return train_chunk(agent, states, dataset(), keys, num_steps=num_steps, batch_size=BATCH_SIZE, across="map")

    return best_seconds(run, repeats=2) / num_steps


def plain_seconds(agent: Agent, num_steps: int) -> float:
    """Seconds per step of the plain form, driven from Python one step at a time."""
    state, key = jax.jit(agent.init)(jax.random.key(0)), jax.random.key(1)
    with plain_forms():
        update = jax.jit(agent.update).lower(state, dataset().sample(key, BATCH_SIZE), key).compile()

    def run() -> Any:
        now = state
        for step in range(num_steps):
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            now, metrics = update(now, dataset().sample(batch_key, BATCH_SIZE), update_key)
            float(next(iter(metrics.values())))
        return now

    return best_seconds(run, repeats=2) / num_steps


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_update(benchmark: BenchmarkFixture, ledger: Any, case: str, size: str) -> None:
    method, settings = CASES[case]
    agent = agent_of(method, size, **settings)
    exact = agent_of(method, size, **{k: v for k, v in settings.items() if k in ("next_action", "control_weight")})
    num_steps = agent.action_reuse**2 if hasattr(agent, "action_reuse") else 1  # type: ignore[attr-defined]
    num_steps = max(num_steps, 2 if size == "4x512" else 16)

    seconds = benchmark.pedantic(lambda: fast_seconds(agent, num_steps), rounds=1)
    SECONDS[case, size] = seconds
    state = jax.jit(agent.init)(jax.random.key(0))
    flops = matmul_flops(agent.update, state, dataset().sample(jax.random.key(0), BATCH_SIZE), jax.random.key(0))
    ratio_to_plain = plain_seconds(exact, 2 if size == "4x512" else 8) / seconds
    is_amortised = getattr(agent, "action_reuse", 1) > 1
    ledger.add(
        "updates",
        method=method,
        case=case,
        size=size,
        update_ms=round(1e3 * seconds, 2),
        share_of_peak=None if is_amortised else round(flops / seconds / 1e9 / peak_gflops(), 3),
        times_iql=round(seconds / SECONDS["iql", size], 2),
        speedup_over_plain=round(ratio_to_plain, 2),
    )
