"""The plain form of every method: the same agents, with nothing hoisted, batched, scanned or cut into blocks.

Inside `plain_forms()` a network sees whole concatenated inputs at every call (an observation is repeated for each of
its candidates and in each solver step), ensemble members are called one by one, and a flow is a Python loop of
solver steps. Parameters and results are those of the fast form up to rounding, which tests assert; benchmarks divide
the two times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core import flow, flow_critic, networks, policy, roles
from pcbf_core.types import PyTree


def plain_flow_map(
    velocity: Callable,
    noise: Array,
    num_steps: int,
    *,
    solver: str = "euler",
    time_power: float = 1.0,
    end_time: float | Array = 1.0,
    clip_range: flow.ClipRange | None = None,
) -> Array:
    """`flow_map` as a Python loop."""
    one_step, (begins, ends) = flow._stepping(
        velocity, noise, num_steps, solver=solver, time_power=time_power, end_time=end_time, clip_range=clip_range
    )
    point = noise
    for index in range(num_steps):
        point = one_step(point, (begins[index], ends[index]))
    return point


def joined(parts: Sequence[Array]) -> Array:
    """Parts repeated to their common leading axes, then concatenated."""
    leading = jnp.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return jnp.concatenate([jnp.broadcast_to(part, (*leading, part.shape[-1])) for part in parts], axis=-1)


def plain_product(parts: Sequence[Array], kernel: Array) -> Array:
    """`product` of the whole concatenated input."""
    return joined(parts) @ kernel


def members_of(params: PyTree) -> list[PyTree]:
    return [jax.tree.map(lambda leaf, i=index: leaf[i], params) for index in range(len(jax.tree.leaves(params)[0]))]


def plain_at(
    self: roles.Role,
    params: PyTree,
    observation: Array,
    *parts: Array,
    own_inputs: bool = False,
    for_gradient: bool = False,
) -> Callable[..., Array]:
    """`Role.at` that keeps nothing: every call sees the observation again."""
    features, network = self.features(params, observation), self.network(params)
    alone = jnp.broadcast_shapes(features.shape[:-1], *(part.shape[:-1] for part in parts))

    def one(member: PyTree, *inputs: Array) -> Array:
        context_of = partial(self.module.apply, member, method="context")
        new_axes = jax.eval_shape(context_of, features, *parts).ndim - 1 - len(alone)  # such as that of levels
        each = jnp.broadcast_shapes(alone, *(part.shape[: part.ndim - 1 - new_axes] for part in inputs))
        seen = jnp.broadcast_to(features, (*each, features.shape[-1]))  # the observation is repeated for every input
        return self.module.apply(member, context_of(seen, *parts), *inputs)

    if self.members is None:
        return lambda *inputs: one(network, *inputs)

    def call(*inputs: Array) -> Array:
        own = [tuple(x[i] for x in inputs) if own_inputs else inputs for i in range(self.members or 1)]
        return jnp.stack([one(member, *item) for member, item in zip(members_of(network), own, strict=True)])

    return call


def plain_ensemble_velocity(
    field: networks.VelocityField,
    params: PyTree,
    observation: Array,
    action: Array,
    *,
    sample_axes: int = 0,
    for_gradient: bool = False,
) -> Callable[[Array, Array], Array]:
    """`ensemble_velocity` that concatenates (z, t, s, a) anew for each point and calls member by member."""

    def velocity(flow_time: Array, point: Array) -> Array:
        time = jnp.broadcast_to(flow_time, point.shape)
        spread = (*(1,) * sample_axes, -1)
        outputs = []
        for member, z, t in zip(members_of(params), point, time, strict=True):
            leading = z.shape[: z.ndim - sample_axes]

            def over_points(x: Array, shape: tuple[int, ...] = z.shape, leading: tuple[int, ...] = leading) -> Array:
                x = jnp.broadcast_to(x, (*leading, x.shape[-1])).reshape(*leading, *spread)
                return jnp.broadcast_to(x, (*shape, x.shape[-1]))

            seen = (
                (observation, action) if field.encoder is not None else (over_points(observation), over_points(action))
            )
            context: Any = field.apply(member, *seen, method="context")
            if field.encoder is not None:
                context = over_points(context)
            outputs.append(field.apply(member, t, z, context))
        return jnp.stack(outputs)

    return velocity


@contextmanager
def plain_forms() -> Iterator[None]:
    """Agents traced inside are in their plain form."""
    from pcbf_baselines import floq, quantiles, value_flows

    modules = (flow_critic, policy, floq, value_flows)
    flows = [mock.patch.object(module, "flow_map", plain_flow_map) for module in modules]
    products = [mock.patch.object(module, "product", plain_product) for module in (networks, quantiles)]
    others = [
        mock.patch.object(roles.Role, "at", plain_at),
        mock.patch.object(flow_critic, "ensemble_velocity", plain_ensemble_velocity),
    ]
    patches = [*flows, *products, *others]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
