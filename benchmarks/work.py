"""What benchmarks share: sizes, synthetic data, timing, the machine's peak and the work in a program."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from pcbf_baselines.registry import make_agent
from pcbf_core.agent import Agent
from pcbf_core.dataset import Dataset
from pcbf_core.types import TaskSpec, Transition

KEPT_PROGRAMS: dict[str, Any] = {
    "jax_compilation_cache_dir": str(Path(__file__).parent.parent / ".cache" / "jax-bench"),
    "jax_persistent_cache_min_compile_time_secs": 0.1,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
SPEC = TaskSpec(observation_shape=(40,), action_dim=5, return_range=(-100.0, 0.0))
BATCH_SIZE = 256
SIZES: dict[str, dict[str, Any]] = {
    "4x512": {"hidden_sizes": (512,) * 4},
    "3x128": {"hidden_sizes": (128,) * 3},
}
QUANTILE_FEATURES = {"4x512": 512, "3x128": 128}


def agent_of(method: str, size: str, **settings: Any) -> Agent:
    """The method's agent with the networks of `size`."""
    chosen = {**SIZES[size], **settings}
    if method in ("iqn", "codac"):
        chosen["quantile_features"] = QUANTILE_FEATURES[size]
    if method == "floq":
        chosen["flow_hidden_sizes"] = SIZES[size]["hidden_sizes"]
    return make_agent(method, SPEC, chosen)


@cache
def dataset(num_transitions: int = 10_000) -> Dataset:
    """Transitions of the shapes of cube-double, filled with noise."""
    keys = jax.random.split(jax.random.key(0), 4)
    observation = jax.random.normal(keys[0], (num_transitions, *SPEC.observation_shape))
    return Dataset(
        Transition(
            observation=observation,
            action=jax.random.uniform(keys[1], (num_transitions, SPEC.action_dim), minval=-1.0),
            reward=-jax.random.uniform(keys[2], (num_transitions,)),
            next_observation=observation + 0.1 * jax.random.normal(keys[3], observation.shape),
            terminal=jnp.zeros(num_transitions),
        )
    )


def best_seconds(
    work: Callable[[], Any],
    *,
    repeats: int = 3,
    warm: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The shortest of `repeats` times that `work` takes; what it returns is waited for."""
    if warm:
        jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        begin = clock()
        jax.block_until_ready(work())
        times.append(clock() - begin)
    return min(times)


LEAST_ROUNDS = 3


def best_of_each(
    work: Mapping[str, Callable[[], Any]],
    *,
    most_seconds: float = 4.0,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The shortest time of each work, done in turn so that a busy minute of the machine hits all of them.

    There are three rounds at least, as the first of long work are slow; after them none begins after `most_seconds`.
    `time.process_time` as `clock` counts the time of cores, not of the wall: that of a process with one thread, whoever
    else is on the machine.
    """
    best = dict.fromkeys(work, math.inf)
    begin = time.perf_counter()
    for index in range(rounds):
        if index >= LEAST_ROUNDS and time.perf_counter() - begin > most_seconds:
            break
        for name, each in work.items():
            best[name] = min(best[name], best_seconds(each, repeats=1, warm=False, clock=clock))
    return best


def on_one_core(script: str, *arguments: str) -> Any:
    """What a script of this folder prints, from a process of its own: threads are counted when JAX starts."""
    environment = {**os.environ, "NPROC": "1", "OMP_NUM_THREADS": "1"}
    environment |= {name.upper(): str(value) for name, value in KEPT_PROGRAMS.items()}
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


PRODUCTS, WIDTH = 200, 512


@cache
def product_chain() -> Callable[[], Any]:
    """`PRODUCTS` products of (batch × width) · (width × width), all cores: the reference for everything else."""
    x, w = jnp.ones((BATCH_SIZE, WIDTH)), jnp.eye(WIDTH)
    chain = jax.jit(lambda x, w: jax.lax.fori_loop(0, PRODUCTS, lambda _, y: y @ w, x)).lower(x, w).compile()
    return lambda: chain(x, w)


def peak_gflops(seconds: float | None = None) -> float:
    """GFLOP/s of `product_chain` that took so many seconds; None takes the time now."""
    seconds = best_seconds(product_chain(), repeats=5) if seconds is None else seconds
    return PRODUCTS * 2 * BATCH_SIZE * WIDTH**2 / seconds / 1e9


def matmul_flops(function: Callable[..., Any], *args: Any) -> float:
    """Multiply-adds (× 2) of all matrix products in the program of `function`, loops multiplied out.

    Of the forms for different platforms, and of other branches, the one with the most products counts.
    """
    return _flops(jax.make_jaxpr(function)(*args).jaxpr)


def _flops(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            lengths = [equation.invars[0].aval.shape[axis] for axis in contracted]
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(lengths)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        inner = [_flops(each) for value in equation.params.values() for each in _programs(value)]
        total += times * (max(inner, default=0.0) if equation.primitive.name == "cond" else sum(inner))
    return total


def _programs(value: Any) -> list[Any]:
    """The programs in a parameter of an operation."""
    found = [getattr(each, "jaxpr", each) for each in (value if isinstance(value, tuple | list) else (value,))]
    return [each for each in found if hasattr(each, "eqns")]
