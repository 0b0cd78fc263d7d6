"""Networks: the MLP of tab:hyperparameters and velocity fields built on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from pcbf_core.flow import Velocity
from pcbf_core.precision import dense_product, matmul
from pcbf_core.types import PyTree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"gelu": nn.gelu, "relu": nn.relu, "silu": nn.silu, "tanh": nn.tanh}
glorot_uniform = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


class HiddenUnit(nn.Module):
    """Activation, then LayerNorm if asked."""

    activation: str = "gelu"
    layer_norm: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = ACTIVATIONS[self.activation](x)
        return nn.LayerNorm()(x) if self.layer_norm else x


class MLP(nn.Module):
    """Dense, activation, LayerNorm (if asked) per hidden layer, then a linear output without either.

    With `output_dim=None` the last hidden layer is the output. `output_scale` scales the variance of the
    output kernel at the start.
    """

    hidden_sizes: Sequence[int]
    output_dim: int | None
    layer_norm: bool = True
    activation: str = "gelu"
    output_scale: float = 1.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for size in self.hidden_sizes:
            x = nn.Dense(size, kernel_init=glorot_uniform, dot_general=dense_product())(x)
            x = HiddenUnit(self.activation, self.layer_norm)(x)
        if self.output_dim is not None:
            kernel_init = nn.initializers.variance_scaling(self.output_scale, "fan_avg", "uniform")
            x = nn.Dense(self.output_dim, kernel_init=kernel_init, dot_general=dense_product())(x)
        return x


def product(parts: Sequence[Array], kernel: Array) -> Array:
    """`concatenate(parts) @ kernel` for parts whose leading axes broadcast.

    A part that lacks an axis of the others (an observation beside its candidate actions) is multiplied once.
    """
    if len({part.shape[:-1] for part in parts}) == 1:
        return matmul(jnp.concatenate(parts, axis=-1), kernel)
    total, row = jnp.zeros(()), 0
    for part in parts:
        total = total + matmul(part, kernel[row : row + part.shape[-1]])
        row += part.shape[-1]
    return total


class ConditionedMLP(nn.Module):
    """An MLP on [context, inputs] whose first-layer product with the context is computed once, by `context`.

    Parameters and result are those of the plain MLP on the concatenated input.

    Args:
      context_dim: number of features of what stays the same: the observation, maybe the action.
      input_dim: number of features of what varies: an action, noise, a point of a flow; 0 for none.
      output_scale: variance scale of the output kernel at the start.
    """

    context_dim: int
    input_dim: int
    hidden_sizes: Sequence[int]
    output_dim: int
    layer_norm: bool = True
    activation: str = "gelu"
    output_scale: float = 1.0

    def setup(self) -> None:
        width = self.hidden_sizes[0]
        self.kernel = self.param("kernel", glorot_uniform, (self.context_dim + self.input_dim, width))
        self.bias = self.param("bias", nn.initializers.zeros, (width,))
        self.unit = HiddenUnit(self.activation, self.layer_norm)
        self.rest = MLP(
            self.hidden_sizes[1:],
            self.output_dim,
            layer_norm=self.layer_norm,
            activation=self.activation,
            output_scale=self.output_scale,
        )

    def context(self, *parts: Array) -> Array:
        """First-layer product with what stays the same, shape (*batch, width)."""
        return product(parts, self.kernel[: self.context_dim]) + self.bias

    def __call__(self, context: Array, *inputs: Array) -> Array:
        """Output for `inputs` whose leading axes broadcast against those of `context`."""
        if inputs:
            context = context + product(inputs, self.kernel[self.context_dim :])
        return self.rest(self.unit(context))

    def everything(self, *parts: Array) -> Array:
        """Touches every parameter once, for `init`."""
        return self(self.context(*parts), jnp.zeros(self.input_dim))


class StateEmbedding(nn.Module):
    """Learned vector per discrete state."""

    num_states: int
    features: int = 16

    @nn.compact
    def __call__(self, state: Array) -> Array:
        table = self.param("table", nn.initializers.normal(self.features**-0.5), (self.num_states, self.features))
        return table[state]


class VelocityField(nn.Module):
    """v(t, z | s, a): an MLP on [z, t, obs, action] with raw scalars z and t.

    The first layer is linear in its input, so its product with (obs, action) stays the same along
    a flow. `context` computes that product once; `__call__` adds the parts of z and t to it.
    Parameters and result are those of the plain MLP on the concatenated input.

    Attributes:
      context_dim: number of observation features plus action coordinates.
      encoder: turns an observation into features first (an embedding, a convolution network).
    """

    context_dim: int
    hidden_sizes: Sequence[int]
    layer_norm: bool = True
    activation: str = "gelu"
    encoder: nn.Module | None = None

    def setup(self) -> None:
        width = self.hidden_sizes[0]
        self.kernel = self.param("kernel", glorot_uniform, (2 + self.context_dim, width))
        self.bias = self.param("bias", nn.initializers.zeros, (width,))
        self.unit = HiddenUnit(self.activation, self.layer_norm)
        self.rest = MLP(self.hidden_sizes[1:], 1, layer_norm=self.layer_norm, activation=self.activation)

    def context(self, observation: Array, action: Array) -> Array:
        """First-layer product with observation features and action, shape (*batch, width)."""
        features = observation if self.encoder is None else self.encoder(observation)
        return product([features, action], self.kernel[2:]) + self.bias

    def __call__(self, flow_time: Array, point: Array, context: Array) -> Array:
        """Velocity at `point`; `flow_time` and `context[..., 0]` broadcast against it."""
        time_part = jnp.asarray(flow_time)[..., None] * self.kernel[1]
        hidden = point[..., None] * self.kernel[0] + (context + time_part)
        return self.rest(self.unit(hidden))[..., 0]

    def everything(self, observation: Array, action: Array) -> Array:
        """Touches every parameter once, for `init`."""
        context = self.context(observation, action)
        return self(jnp.zeros(()), jnp.zeros(context.shape[:-1]), context)


BLOCK_BYTES = 2**19  # of a hidden layer that stays in the caches of a core
BLOCK_ROWS = 1024  # at least so many in a block: a product of fewer spends its time on reading the kernel


def without_unit_axes(apply: Callable[..., Array], params: PyTree, context: Array, *inputs: Array) -> Array:
    """`apply(params, context, *inputs)` of arrays as in `in_blocks`, the leading axes of size 1 taken out of its sight.

    XLA reduces a product of (256, 1, 128) arrays on a CPU far slower than one of (256, 128) arrays; the
    gradients of LayerNorm are such reductions.
    """
    arrays = (context, *inputs)
    leading = jnp.broadcast_shapes(*(array.shape[:-1] for array in arrays))
    units = [axis - len(leading) - 1 for axis, length in enumerate(leading) if length == 1]
    rows = [array.squeeze([axis for axis in units if -axis <= array.ndim]) for array in arrays]
    return jnp.expand_dims(apply(params, *rows), units)


def in_blocks(apply: Callable[..., Array], params: PyTree, context: Array, *inputs: Array) -> Array:
    """`apply(params, context, *inputs)`, lowered for a CPU a few rows at a time: hidden layers stay in its caches.

    All arrays are (*leading, features) and their leading axes broadcast; so is the output, and a row of it depends on
    that row of the arrays only. A block has about `BLOCK_BYTES` per hidden layer as wide as `context`, or
    `BLOCK_ROWS` rows if that is more. Not for what is differentiated: adding up the blocks' gradients costs more than
    caches save.
    """
    arrays = (context, *inputs)
    leading = jnp.broadcast_shapes(*(array.shape[:-1] for array in arrays))
    num_rows, most_rows = math.prod(leading), max(BLOCK_BYTES // (4 * context.shape[-1]), BLOCK_ROWS)
    if num_rows <= 2 * most_rows or leading[0] == 1:
        return apply(params, *arrays)

    def blocks(params: PyTree, *arrays: Array) -> Array:
        wide = [array.reshape(*(1,) * (len(leading) + 1 - array.ndim), *array.shape) for array in arrays]
        is_mapped = [array.shape[0] == leading[0] for array in wide]

        def one_item(mapped: Sequence[Array]) -> Array:
            own = iter(mapped)
            return apply(params, *(next(own) if is_own else x[0] for is_own, x in zip(is_mapped, wide, strict=True)))

        mapped = [array for is_own, array in zip(is_mapped, wide, strict=True) if is_own]
        return jax.lax.map(one_item, mapped, batch_size=max(most_rows * leading[0] // num_rows, 1))

    return jax.lax.platform_dependent(params, *arrays, cpu=blocks, default=apply)


def by_rows(apply: Callable[..., Array], *, for_gradient: bool) -> Callable[..., Array]:
    """`apply(params, context, *inputs)` in the form that is fast, given whether it will be differentiated."""
    rows = partial(without_unit_axes, apply)
    return rows if for_gradient else partial(in_blocks, rows)


def over_members(apply: Callable[..., Array], *, num_shared: int = 0) -> Callable[..., Array]:
    """`jax.vmap(apply)` of `apply(params, context, *inputs)`, members on axis 0 but for the last `num_shared` inputs.

    Lowered for a CPU member by member if a hidden layer of one has more than `BLOCK_BYTES`, or if there is one only:
    two members side by side outgrow the caches, and an axis of size 1 is costly (see `without_unit_axes`).
    """

    def in_turn(*args: PyTree) -> Array:
        own, shared = args[: len(args) - num_shared], args[len(args) - num_shared :]
        members = [jax.tree.map(lambda leaf, i=index: leaf[i], own) for index in range(args[1].shape[0])]
        return jnp.stack([apply(*member, *shared) for member in members])

    def at_once(*args: PyTree) -> Array:
        return jax.vmap(apply, in_axes=(0,) * (len(args) - num_shared) + (None,) * num_shared)(*args)

    def members(params: PyTree, context: Array, *inputs: Array) -> Array:
        own = len(inputs) - num_shared
        shapes = [x.shape[1:-1] for x in (context, *inputs[:own])] + [x.shape[:-1] for x in inputs[own:]]
        layer_bytes = 4 * context.shape[-1] * math.prod(jnp.broadcast_shapes(*shapes))
        if context.shape[0] > 1 and layer_bytes <= BLOCK_BYTES:
            return at_once(params, context, *inputs)
        return jax.lax.platform_dependent(params, context, *inputs, cpu=in_turn, default=at_once)

    return members


def init_ensemble(module: nn.Module, key: Array, size: int, *args: Array, method: str = "__call__") -> PyTree:
    """Parameters of `size` members with independent initialisation, stacked on axis 0."""
    return jax.vmap(lambda member_key: module.init(member_key, *args, method=method))(jax.random.split(key, size))


def ensemble_velocity(
    field: VelocityField,
    params: PyTree,
    observation: Array,
    action: Array,
    *,
    sample_axes: int = 0,
    for_gradient: bool = False,
) -> Velocity:
    """The members' velocities at (s, a) as one function on points of shape (members, *batch, *samples).

    Args:
      params: stacked parameters, members on axis 0.
      sample_axes: how many axes the points have behind the batch axes of `observation`.
      for_gradient: whether the velocities will be differentiated by the parameters; only a matter of speed.
    """
    context: Any = jax.vmap(lambda p: field.apply(p, observation, action, method="context"))(params)
    context = jnp.expand_dims(context, tuple(range(-1 - sample_axes, -1)))

    def apply(member: PyTree, context: Array, time: Array, point: Array) -> Array:
        velocity: Any = field.apply(member, time[..., 0], point[..., 0], context)
        return velocity[..., None]

    rows = by_rows(apply, for_gradient=for_gradient)
    # Critics of discrete states keep the axis of a single member: records of reward processes hold to the last bit.
    members = over_members(rows) if field.encoder is None else jax.vmap(rows)

    def velocity(flow_time: Array, point: Array) -> Array:
        each = (point.shape[0], *(1,) * (point.ndim - 1))
        flow_time = jnp.broadcast_to(flow_time, jnp.broadcast_shapes(jnp.shape(flow_time), each))
        return members(params, context, flow_time[..., None], point[..., None])[..., 0]

    return velocity
