"""Every method as small as it gets, and batches for it; shared by the tests of methods and of what trains them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pcbf_core import TaskSpec, Transition

TINY_NETWORK = {"hidden_sizes": (8, 8), "encoder_channels": (4, 4), "encoder_features": 8}
TINY_FLOW = {"num_flow_steps": 2, "num_action_steps": 2, "num_candidates": 3, "num_return_samples": 2}
TINY_QUANTILES = {"num_levels": 3, "quantile_features": 8, "num_cosines": 4, "num_action_steps": 2}
TINY: dict[str, dict[str, Any]] = {
    "pcbf": {**TINY_NETWORK, **TINY_FLOW, "num_next_samples": 2, "control_weight": 0.5},
    "pcbf_flow": {**TINY_NETWORK, **TINY_FLOW, "num_next_samples": 2},
    "value_flows": {**TINY_NETWORK, **TINY_FLOW},
    "floq": {**TINY_NETWORK, "num_flow_steps": 2, "num_action_steps": 2, "num_bins": 5, "num_flow_samples": 2},
    "fql": {**TINY_NETWORK, "num_action_steps": 2},
    "iql": TINY_NETWORK,
    "iqn": {**TINY_NETWORK, **TINY_QUANTILES, "num_candidates": 3},
    "codac": {**TINY_NETWORK, **TINY_QUANTILES, "num_penalty_actions": 2},
    "c51": {**TINY_NETWORK, "num_atoms": 5, "num_action_steps": 2, "num_candidates": 3},
    "bc": {**TINY_NETWORK, "num_action_steps": 2},
    "random": {},
}
SPECS = {
    "state": TaskSpec(observation_shape=(3,), action_dim=2, return_range=(-5.0, 5.0)),
    "pixel": TaskSpec(observation_shape=(16, 16, 9), action_dim=2, return_range=(-5.0, 5.0)),
}


def random_batch(spec: TaskSpec, size: int = 4, terminal: float = 0.0) -> Transition:
    """Transitions that mean nothing, the same ones at every call."""
    keys = jax.random.split(jax.random.key(3), 5)
    shape = (size, *spec.observation_shape)
    if len(spec.observation_shape) == 3:
        observations = [jax.random.randint(key, shape, 0, 256).astype(jnp.uint8) for key in keys[:2]]
    else:
        observations = [jax.random.normal(key, shape) for key in keys[:2]]
    return Transition(
        observation=observations[0],
        action=jax.random.uniform(keys[2], (size, spec.action_dim), minval=-1),
        reward=jax.random.normal(keys[3], (size,)),
        next_observation=observations[1],
        terminal=jnp.full(size, terminal),
    )
