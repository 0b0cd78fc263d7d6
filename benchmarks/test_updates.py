"""One gradient step of every method, as a share of the machine's matmul peak, against IQL's and against its plain form.

`bound` is the speed-up over the plain form that the same products would have at the matmul peak, all else free.

pytest benchmarks/test_updates.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array
from plain import plain_forms
from pytest_benchmark.fixture import BenchmarkFixture
from work import BATCH_SIZE, SIZES, agent_of, best_of_each, dataset, matmul_flops, peak_gflops, product_chain

from pcbf_core.agent import Agent, Learner, PreparingLearner
from pcbf_core.dataset import Dataset
from pcbf_core.learner import LearnerState
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
# Steps in one call of the compiled loop; of the amortised forms `action_reuse` steps are timed.
# A call takes its memory anew from the system, which is a fifth of one step of CODAC; calls of a run have thousands.
NUM_STEPS = {"4x512": 3, "3x128": 8}
LIGHT = ("iql", "fql", "pcbf, a' = batch action", "bc")
KEYS = jax.random.split(jax.random.key(0), 1)
PLAIN_SECONDS: dict[tuple[str, str], float] = {}


def fast_steps(agent: Agent, num_steps: int) -> Callable[[], Any]:
    """`num_steps` of the compiled loop, every call after the one before; it is compiled here, by a call of one step."""
    keys, states = KEYS, jax.tree.map(jnp.copy, initial(agent))  # a call consumes them
    settings: dict[str, Any] = {"num_steps": num_steps, "batch_size": BATCH_SIZE, "across": "map"}

    def run(count: int = num_steps) -> Any:
        nonlocal states
        states, metrics = train_chunk(agent, states, dataset(), keys, count=count, **settings)
        return metrics

    jax.block_until_ready(run(1))
    return run


def amortised_steps(agent: PreparingLearner) -> Callable[[], Any]:
    """`action_reuse` steps and what they need of the choice: an n-th of one of `train_chunk`'s rounds of n² steps.

    One batch is prepared and shuffled for each of n steps; a round does n times that.
    """
    state, data = first_state(agent), dataset()

    @partial(jax.jit, donate_argnums=0)
    def part(state: LearnerState, data: Dataset, key: Array) -> tuple[LearnerState, Any]:
        batch_key, prepare_key, learn_key = jax.random.split(key, 3)
        batch = agent.prepare(state, data.sample(batch_key, BATCH_SIZE), prepare_key)

        def one_step(state: LearnerState, key: Array) -> tuple[LearnerState, Any]:
            order_key, update_key = jax.random.split(key)
            order = jax.random.permutation(order_key, BATCH_SIZE)
            return agent.learn(state, jax.tree.map(lambda rows: rows[order], batch), update_key)

        return jax.lax.scan(one_step, state, jax.random.split(learn_key, agent.action_reuse))

    compiled = part.lower(state, data, jax.random.key(1)).compile()

    def run() -> Any:
        nonlocal state
        state, metrics = compiled(state, data, jax.random.key(1))
        return metrics

    return run


@cache
def initial(agent: Learner) -> LearnerState:
    """The states in which training begins, of one learner."""
    return init_many(agent, KEYS)


def first_state(agent: Learner) -> LearnerState:
    """The state in which training begins."""
    return jax.tree.map(lambda leaf: leaf[0], initial(agent))


def update_flops(agent: Agent) -> float:
    """Multiply-adds (× 2) of the products in one update."""
    key = jax.random.key(0)
    return matmul_flops(agent.update, jax.eval_shape(agent.init, key), dataset().sample(key, BATCH_SIZE), key)


@cache
def iql_steps(size: str) -> Callable[[], Any]:
    """As many steps of IQL as its own case takes, timed beside every other method."""
    return fast_steps(agent_of("iql", size), 2 * NUM_STEPS[size])


def plain_steps(agent: Agent, num_steps: int) -> Callable[[], Any]:
    """`num_steps` of the plain form, driven from Python one step at a time."""
    state, key = first_state(agent), jax.random.key(1)
    with plain_forms():
        update = jax.jit(agent.update).lower(state, dataset().sample(key, BATCH_SIZE), key).compile()

    def run() -> Any:
        now = state
        for step in range(num_steps):
            batch_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            now, metrics = update(now, dataset().sample(batch_key, BATCH_SIZE), update_key)
            float(next(iter(metrics.values())))
        return now

    return run


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_update(benchmark: BenchmarkFixture, ledger: Any, case: str, size: str) -> None:
    method, settings = CASES[case]
    agent = agent_of(method, size, **settings)
    exact_settings = {name: value for name, value in settings.items() if name in ("next_action", "control_weight")}
    exact, plain_case = agent_of(method, size, **exact_settings), (f"{method} {exact_settings}", size)
    reuse = agent.action_reuse if isinstance(agent, PreparingLearner) else 1
    num_steps = reuse if reuse > 1 else NUM_STEPS[size] * (2 if case in LIGHT else 1)
    num_plain = max(NUM_STEPS[size] // 2, 1) * (2 if case in LIGHT else 1)

    fast = amortised_steps(agent) if isinstance(agent, PreparingLearner) and reuse > 1 else fast_steps(agent, num_steps)
    work = {"fast": fast, "iql": iql_steps(size), "product": product_chain()}
    if plain_case not in PLAIN_SECONDS:
        work["plain"] = plain_steps(exact, num_plain)
    seconds = benchmark.pedantic(lambda: best_of_each(work), rounds=1)
    peak = peak_gflops(seconds["product"])
    step_seconds, iql_seconds = seconds["fast"] / num_steps, seconds["iql"] / (2 * NUM_STEPS[size])
    if "plain" in seconds:
        PLAIN_SECONDS[plain_case] = seconds["plain"] / num_plain
    flops = update_flops(agent)
    ledger.add(
        "updates",
        method=method,
        case=case,
        size=size,
        update_ms=round(1e3 * step_seconds, 2),
        share_of_peak=None if reuse > 1 else round(flops / step_seconds / 1e9 / peak, 3),
        times_iql=round(step_seconds / iql_seconds, 2),
        plain_ms=round(1e3 * PLAIN_SECONDS[plain_case], 2),
        speedup_over_plain=round(PLAIN_SECONDS[plain_case] / step_seconds, 2),
        bound=None if reuse > 1 else round(PLAIN_SECONDS[plain_case] * 1e9 * peak / flops, 2),
    )
