"""Where a PCBF step with the batch's action at laptop size spends its time, on one core: each piece compiled alone.

NPROC=1 python benchmarks/pieces.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from test_updates import CASES, fast_steps, first_state
from work import BATCH_SIZE, SIZES, agent_of, best_of_each, dataset

from pcbf_core.learner import LearnerState, make_optimizer
from pcbf_core.networks import HiddenUnit
from pcbf_core.pcbf import PCBF
from pcbf_core.types import PyTree

NUM_STEPS = 32
CASE = "pcbf, a' = batch action"


def repeated(body: Callable[[Array, Any], Any], start: Any) -> Callable[[], Any]:
    """`NUM_STEPS` of `body(index, carry)` in one compiled call."""
    loop = jax.jit(lambda carry: jax.lax.fori_loop(0, NUM_STEPS, body, carry)).lower(start).compile()
    jax.block_until_ready(loop(start))
    return lambda: loop(start)


def pieces(agent: PCBF) -> dict[str, Callable[[], Any]]:
    """What a step consists of, and the product and the unit of one of its layers."""
    state, key, optimizer = first_state(agent), jax.random.key(1), make_optimizer(agent.config)
    batch = dataset().sample(key, BATCH_SIZE)
    chosen = batch.replace(next_action=batch.action)
    gradient = jax.tree.map(jnp.ones_like, state.params)
    successor = agent.critic.trained_flow(state.target_params["critic"], batch.next_observation, batch.action)
    width = SIZES["3x128"]["hidden_sizes"][0]
    layer, kernel, unit = jnp.ones((BATCH_SIZE, width)), jnp.eye(width), HiddenUnit()
    unit_of: Any = partial(unit.apply, unit.init(key, layer))

    def loss(params: PyTree, index: Array) -> Array:
        return agent.loss(params, state, chosen, jax.random.fold_in(key, index))[0]

    def optimise(_: Array, now: LearnerState) -> LearnerState:
        updates, opt_state = optimizer.update(gradient, now.opt_state, now.params)
        params: PyTree = optax.apply_updates(now.params, updates)
        online = {name: params[name] for name in now.target_params}
        target = optax.incremental_update(online, now.target_params, agent.config.polyak_rate)
        return now.replace(params=params, target_params=target, opt_state=opt_state)

    def draw(index: Array, rows: Any) -> Any:
        drawn = dataset().sample(jax.random.fold_in(key, index), BATCH_SIZE)
        return jax.tree.map(lambda new, old: new + 0 * old, drawn, rows)

    def differentiate(index: Array, total: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, total, jax.grad(loss)(state.params, index))

    return {
        "step": fast_steps(agent, NUM_STEPS),
        "successor's flow": repeated(lambda _, z: z + 1e-3 * successor.returns(z), jnp.zeros((BATCH_SIZE, 1))),
        "losses": repeated(lambda index, total: total + loss(state.params, index), jnp.zeros(())),
        "losses and gradients": repeated(differentiate, state.params),
        "Adam and target network": repeated(optimise, state),
        "drawing the batch": repeated(draw, batch),
        "product of a layer": repeated(lambda _, x: x @ kernel, layer),
        "activation and LayerNorm of a layer": repeated(lambda _, x: layer + unit_of(x), layer),
    }


def main() -> dict[str, float]:
    """Time of each piece as a share of the step's; the unit's is told against its product as well."""
    method, settings = CASES[CASE]
    agent = agent_of(method, "3x128", **settings)
    assert isinstance(agent, PCBF)
    seconds = best_of_each(pieces(agent), most_seconds=20, rounds=100, clock=time.process_time)
    shares = {name: round(each / seconds["step"], 3) for name, each in seconds.items()}
    against = seconds["activation and LayerNorm of a layer"] / seconds["product of a layer"]
    return {**shares, "activation and LayerNorm against the product": round(against, 2)}


if __name__ == "__main__":
    print(json.dumps(main(), indent=1))
