"""A step of PCBF by the laptop scale's settings, on one core: of today's code or of a checkout of the first release.

NPROC=1 python benchmarks/laptop_step.py [CHECKOUT]
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import yaml

NUM_STEPS = 64  # `action_reuse` squared
NUM_TRANSITIONS = 100_000


def todays() -> Callable[[], Any]:
    """`NUM_STEPS` among candidates of a frozen proposal that were drawn ahead."""
    from test_frozen import NUM_STEPS as CONFIGURED
    from test_frozen import laptop_agent, steps

    assert CONFIGURED == NUM_STEPS
    return steps(laptop_agent("pcbf", proposal_training="frozen"))


def first_release(checkout: Path) -> Callable[[], Any]:
    """`NUM_STEPS` by the packages of `checkout`, in their interfaces; the proposal is cloned beside the critic."""
    sys.path[:0] = [str(checkout / "benchmarks"), *map(str, checkout.glob("packages/*/src"))]
    from work import SPEC, dataset

    from pcbf_baselines.registry import METHODS, make_agent
    from pcbf_core.training import init_many, train_chunk

    settings = yaml.safe_load((checkout / "config/scales/laptop.yaml").read_text())["control"]["method_settings"]
    known = {field.name for field in dataclasses.fields(METHODS["pcbf"].config)}
    default = {name: value for name, value in settings["default"].items() if name in known}
    agent: Any = make_agent("pcbf", SPEC, {**default, **settings["pcbf"]})
    keys, data = jax.random.split(jax.random.key(0), 1), dataset(NUM_TRANSITIONS)
    fresh, sizes = init_many(agent, keys), {"num_steps": NUM_STEPS, "batch_size": 256, "across": "map"}
    chunk: Any = train_chunk  # a compiled function then
    compiled = chunk.lower(agent, fresh, data, keys, **sizes).compile()
    return lambda: compiled(jax.tree.map(jnp.copy, fresh), data, keys)


def main(checkout: str | None = None) -> dict[str, float]:
    """Milliseconds that a core takes for a step, and for the products of `work.product_chain`."""
    step = todays() if checkout is None else first_release(Path(checkout))
    from work import product_chain

    work = {"step_ms": step, "products_ms": product_chain()}
    best = dict.fromkeys(work, float("inf"))
    for _ in range(20):
        for name, each in work.items():
            begin = time.process_time()
            jax.block_until_ready(each())
            best[name] = min(best[name], 1e3 * (time.process_time() - begin))
    return {**best, "step_ms": best["step_ms"] / NUM_STEPS}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
