"""Toy training: the compiled loop over all learners of a grid against one Python-driven step at a time.

The ratio of the two, in steps per second and learner, is what counts; it is printed and stored with the benchmark.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pcbf_baselines.toy import ProcessSource, ToySettings, make_critic
from pcbf_core.mrp import MRPS
from pcbf_core.training import init_many, train_chunk

NUM_STEPS, NUM_LEARNERS = 200, 6
SETTINGS = ToySettings()


def plain_loop_rate(method: str, num_steps: int = 30) -> float:
    """Steps per second of one learner that goes through Python at every step."""
    process = MRPS["chain"]
    critic, _ = make_critic(process, method, SETTINGS)
    state, key = critic.init(jax.random.key(0)), jax.random.key(1)
    update = jax.jit(critic.update)

    def step(state, index):
        batch_key, update_key = jax.random.split(jax.random.fold_in(key, index))
        batch = process.sample(batch_key, SETTINGS.batch_size, SETTINGS.absorbing_fraction)
        state, metrics = update(state, batch, update_key)
        float(metrics["critic_loss"])
        return state

    for index in range(3):
        state = step(state, index)
    begin = time.perf_counter()
    for index in range(num_steps):
        state = step(state, index)
    return num_steps / (time.perf_counter() - begin)


@pytest.mark.parametrize("method", ["pcbf", "value_flows"])
def test_grid_training(benchmark: BenchmarkFixture, method: str) -> None:
    process = MRPS["chain"]
    critic, name = make_critic(process, method, SETTINGS)
    keys = jax.random.split(jax.random.key(0), NUM_LEARNERS)
    fresh = init_many(critic, keys)
    weights = jnp.linspace(0.0, 0.9, NUM_LEARNERS)
    source = ProcessSource(process, SETTINGS.absorbing_fraction)

    def run() -> None:
        states = jax.tree.map(jnp.copy, fresh.replace(coefficients={**fresh.coefficients, name: weights}))
        done, _ = train_chunk(critic, states, source, keys, num_steps=NUM_STEPS, batch_size=SETTINGS.batch_size)
        jax.block_until_ready(done)

    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    rate = NUM_STEPS * NUM_LEARNERS / benchmark.stats.stats.min  # type: ignore[union-attr]
    ratio = rate / plain_loop_rate(method)
    benchmark.extra_info.update(steps_per_second=round(rate), ratio_to_plain_loop=round(ratio, 2))
    print(f"\n{method}: {rate:,.0f} steps/s over the grid, {ratio:.1f} × the plain per-step loop")
