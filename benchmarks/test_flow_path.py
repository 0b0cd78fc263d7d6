"""What λ costs: one update of the critic on the flow path at λ = 1, on the paper's path at λ > 0, and without λ.

pytest benchmarks/test_flow_path.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array
from pytest_benchmark.fixture import BenchmarkFixture
from work import BATCH_SIZE, SIZES, SPEC, best_of_each, dataset

from pcbf_baselines.losses import bcfm_pair
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig
from pcbf_core.flow_critic import FlowCritic, FlowCriticConfig
from pcbf_core.training import init_many, train_chunk
from pcbf_core.types import Metrics, PyTree, Transition

NUM_STEPS = {"4x512": 2, "3x128": 16}


@dataclass(frozen=True)
class EndpointCritic(FlowCritic):
    """λ = 0 known before compiling: the successor's velocity is never asked for."""

    config: FlowCriticConfig

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        noise, flow_time = self.draw(key, batch)
        successor = self.flow_at(target_params, batch.next_observation, batch.successor_action, aggregation="mean")
        pair = bcfm_pair(
            noise=noise,
            successor_return=successor.returns(noise),
            flow_time=flow_time,
            reward=batch.reward[:, None],
            terminal=batch.terminal[:, None],
            discount=self.config.discount,
        )
        point, target = jax.lax.stop_gradient(pair)
        current = self.flow_at(params, batch.observation, batch.action, aggregation="mean", for_gradient=True)
        loss = jnp.mean((current.member_velocities(flow_time, point) - target) ** 2)
        return loss, {"critic_loss": loss}


def steps(critic: FlowCritic, num_steps: int) -> Callable[[], Any]:
    """`num_steps` of the compiled loop on batches with a' = a."""
    keys = jax.random.split(jax.random.key(0), 1)
    fresh, data = init_many(critic, keys), dataset()
    data = data.replace(transitions=data.transitions.replace(next_action=data.transitions.action))
    settings: dict[str, Any] = {"num_steps": num_steps, "batch_size": BATCH_SIZE, "across": "map"}
    return lambda: train_chunk(critic, jax.tree.map(jnp.copy, fresh), data, keys, **settings)


@pytest.mark.parametrize("num_flow_times", [1, 8])
@pytest.mark.parametrize("size", SIZES)
def test_cost_of_lambda(benchmark: BenchmarkFixture, ledger: Any, size: str, num_flow_times: int) -> None:
    shared: dict[str, Any] = {
        **SIZES[size],
        "num_flow_times": num_flow_times,
        "num_flow_steps": 5,
        "solver": "midpoint",
        "stratified": True,
    }
    critics = {
        "endpoint": EndpointCritic(FlowCriticConfig(**shared), SPEC),
        "linear": PCBFCritic(PCBFCriticConfig(**shared, path="linear", control_weight=0.4), SPEC),
        "flow": PCBFCritic(PCBFCriticConfig(**shared, path="flow"), SPEC),
    }
    work = {name: steps(critic, NUM_STEPS[size]) for name, critic in critics.items()}
    for each in work.values():
        jax.block_until_ready(each())
    seconds = benchmark.pedantic(lambda: best_of_each(work, most_seconds=4, rounds=40), rounds=1)
    ledger.add(
        "flow_path",
        size=size,
        num_flow_times=num_flow_times,
        flow_ms=round(1e3 * seconds["flow"] / NUM_STEPS[size], 3),
        over_no_weight=round(seconds["flow"] / seconds["endpoint"], 3),
        over_linear=round(seconds["flow"] / seconds["linear"], 3),
    )
