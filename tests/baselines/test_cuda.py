"""Every method lowers for CUDA from shapes alone: no GPU is needed to know that nothing in it needs a CPU."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.registry import METHODS, make_agent
from pcbf_core.dataset import Dataset
from pcbf_core.networks import BLOCK_BYTES, in_blocks
from pcbf_core.training import train_chunk

from ..methods import SPECS, TINY, random_batch

CASES = [(method, kind) for method in TINY for kind in SPECS if kind == "state" or METHODS[method].visual]


def lowered(function, *args, platform: str = "cuda", **settings) -> str:
    """The program of a jitted function for a platform, as text."""
    return function.trace(*args, **settings).lower(lowering_platforms=(platform,)).as_text()


def custom_calls(program: str) -> set[str]:
    return set(re.findall(r"custom_call @([\w$.]+)", program))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), CASES)
def test_training_and_acting_lower_for_cuda(method: str, kind: str):
    spec = SPECS[kind]
    agent = make_agent(method, spec, TINY[method])
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2))
    states = jax.eval_shape(jax.vmap(agent.init), keys)
    source = jax.eval_shape(lambda: Dataset(random_batch(spec, 8)))
    train = partial(train_chunk, agent, num_steps=2, batch_size=4)
    programs = [lowered(jax.jit(train), states, source, keys)]
    state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
    observation = jax.eval_shape(lambda: random_batch(spec, 3).observation)
    programs.append(lowered(jax.jit(agent.act), state, observation, jax.eval_shape(lambda: jax.random.key(0))))
    for program in programs:
        assert not {
            name for name in custom_calls(program) if "callback" in name or name.startswith(("lapack", "xla_cpu"))
        }


def test_blocks_follow_the_platform_a_program_is_lowered_for():
    width = 64
    context = jax.ShapeDtypeStruct((16, BLOCK_BYTES // width, width), jnp.float32)
    params = jax.ShapeDtypeStruct((width, width), jnp.float32)
    run = jax.jit(partial(in_blocks, lambda kernel, rows: jnp.tanh(rows @ kernel)))
    assert "stablehlo.while" in lowered(run, params, context, platform="cpu")
    assert "stablehlo.while" not in lowered(run, params, context, platform="cuda")


def test_blocks_change_nothing():
    width = 64
    kernel, rows = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(((width, width), (5, 2**12, width)))
    )

    def apply(kernel, rows):
        return jnp.tanh(rows @ kernel)

    np.testing.assert_allclose(jax.jit(partial(in_blocks, apply))(kernel, rows), apply(kernel, rows), atol=1e-6)
