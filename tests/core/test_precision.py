"""Training with products in bfloat16: close to float32, and float32 wherever nothing was asked for."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.registry import make_agent
from pcbf_core.dataset import Dataset
from pcbf_core.encoders import ImpalaEncoder
from pcbf_core.precision import Precision, products_in
from pcbf_core.training import _train_chunk, init_many

from ..methods import SPECS, TINY, random_batch

STEPS = 20
SIZES = {"num_steps": STEPS, "batch_size": 16, "across": "vmap"}


def vector(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.slow
def test_a_chunk_of_training_in_bfloat16_stays_close_to_float32():
    spec = SPECS["state"]
    agent, source = make_agent("bc", spec, TINY["bc"]), Dataset(random_batch(spec, 64))
    keys = jax.random.split(jax.random.key(0), 1)
    begun = vector(init_many(agent, keys).params)
    trained = {}
    for precision, other in (("bfloat16", "f32"), ("float32", "bf16")):
        states = init_many(agent, keys)
        program = _train_chunk.lower(agent, states, source, keys, 0, STEPS, None, **SIZES, precision=precision)
        factors = re.findall(r"dot_general .*: \(tensor<[\dx]*?x(\w+)>", program.as_text())
        assert len(factors) > 5 and other not in factors  # every product of networks
        trained[precision] = program.compile()(states, source, keys, 0, STEPS, None)
    (full, losses), (low, low_losses) = trained["float32"], trained["bfloat16"]
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(low.params))
    moved = vector(full.params) - begun
    apart = vector(low.params) - vector(full.params)
    assert 0 < np.linalg.norm(apart) < 0.3 * np.linalg.norm(moved)
    for name, history in losses.items():
        np.testing.assert_allclose(low_losses[name], history, rtol=0.05, atol=0.05)


@pytest.mark.slow
def test_convolutions_round_their_factors_and_nothing_else():
    encoder = ImpalaEncoder((2,), 4)
    image = jax.random.randint(jax.random.key(0), (2, 8, 8, 3), 0, 256).astype(jnp.uint8)

    def features(precision: Precision) -> Any:
        with products_in(precision):
            return encoder.apply(encoder.init(jax.random.key(1), image), image)

    full, low = (jax.jit(features, static_argnums=0)(precision) for precision in ("float32", "bfloat16"))
    assert low.dtype == full.dtype == jnp.float32
    assert 0 < np.abs(low - full).max() < 0.05 * np.abs(full).max()
