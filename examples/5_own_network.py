# %% [markdown]
# # Your own network under the PCBF loss
#
# The paths and targets are pure functions: they know no network, no optimiser and no training loop. Here the velocity
# field is a Flax NNX module of ours, trained by Optax in a loop of ours, on a process whose law is known exactly.

# %%
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from pcbf_core import even_levels, flow_map, flow_path_point, flow_path_velocity, noise_and_times, noise_at_levels
from pcbf_core.mrp import MRPS

NUM_STEPS = int(os.environ.get("PCBF_EXAMPLE_STEPS", "4000"))
BATCH_SIZE, NUM_TIMES, NUM_FLOW_STEPS, POLYAK_RATE = 256, 4, 6, 0.02
process = MRPS["crossroads"]  # a fork to a good and a bad road; on the bad one a rare large loss

# %% [markdown]
# ## The network
# Anything that gives dz/dt for a flow time, a point and a state will do. This one multiplies features of the state
# into those of time and point.


# %%
class Velocity(nnx.Module):
    def __init__(self, num_states: int, width: int, rngs: nnx.Rngs):
        self.state = nnx.Embed(num_states, width, rngs=rngs)
        self.point = nnx.Linear(2, width, rngs=rngs)
        self.hidden = nnx.Linear(width, width, rngs=rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, flow_time: jax.Array, point: jax.Array, state: jax.Array) -> jax.Array:
        inputs = jnp.stack(jnp.broadcast_arrays(flow_time, point), axis=-1)
        hidden = nnx.silu(self.point(inputs)) * (1 + self.state(state)[:, None])
        return self.out(nnx.silu(self.hidden(hidden)))[..., 0]


form, params = nnx.split(Velocity(process.num_states, 64, nnx.Rngs(0)))


def velocity(params: nnx.State, state: jax.Array):
    """v(t, z | s) as the function of time and point that `flow_map` integrates."""
    return lambda flow_time, point: nnx.merge(form, params)(flow_time, point, state)


# %% [markdown]
# ## The loss
# X′ is the end of the successor's flow from the *same* noise X₀. On the flow path with λ = 1 the point that the
# network is asked at lies on that flow, and the target is the velocity there: no bias, nothing to tune
# (docs/flow-path.md).


# %%
def loss(params: nnx.State, target_params: nnx.State, key: jax.Array) -> jax.Array:
    batch_key, noise_key = jax.random.split(key)
    batch = process.sample(batch_key, BATCH_SIZE)
    noise, flow_time = noise_and_times(noise_key, BATCH_SIZE, NUM_TIMES, stratified=True)
    successor = velocity(target_params, batch.next_observation)
    start = jnp.broadcast_to(noise, flow_time.shape)
    flow_point = flow_map(successor, start, NUM_FLOW_STEPS, solver="midpoint", end_time=flow_time)
    given = dict(
        noise=noise,
        successor_noise=noise,
        successor_return=flow_map(successor, noise, NUM_FLOW_STEPS, solver="midpoint"),
        flow_point=flow_point,
        reward=batch.reward[:, None],
        flow_time=flow_time,
        effective_discount=process.discount * (1 - batch.terminal[:, None]),
        control_weight=1.0,
    )
    point = flow_path_point(**given)
    target = flow_path_velocity(**given, flow_velocity=successor(flow_time, flow_point))
    point, target = jax.lax.stop_gradient((point, target))
    return jnp.mean((velocity(params, batch.observation)(flow_time, point) - target) ** 2)


# %% [markdown]
# ## The loop

# %%
optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, NUM_STEPS))


@jax.jit
def train(params: nnx.State, target_params: nnx.State, opt_state: optax.OptState):
    def step(carry, key):
        params, target_params, opt_state = carry
        value, grads = jax.value_and_grad(loss)(params, target_params, key)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        target_params = optax.incremental_update(params, target_params, POLYAK_RATE)
        return (params, target_params, opt_state), value

    (params, *_), losses = jax.lax.scan(
        step, (params, target_params, opt_state), jax.random.split(jax.random.key(0), NUM_STEPS)
    )
    return params, losses


opt_state = optimizer.init(params)
params, losses = train(params, jax.tree.map(jnp.copy, params), opt_state)
print(f"loss: {losses[:100].mean():.2f} at first, {losses[-100:].mean():.2f} at last")

# %% [markdown]
# ## Against the exact law
# The flow keeps the order of its noises, so quantiles of the noise give quantiles of the return.

# %%
levels = even_levels(512)
distances = {}
for state in process.evaluation_states:
    noise = noise_at_levels(levels)[None]
    returns = np.asarray(flow_map(velocity(params, jnp.array([state])), noise, 50, solver="midpoint"))[0]
    law = process.return_law(state)
    distances[state] = law.wasserstein1(returns) / law.std
    print(
        f"state {state}: mean {returns.mean():+.2f} | {law.mean:+.2f}, std {returns.std():.2f} | {law.std:.2f} "
        f"(learned | exact), W1 {distances[state]:.3f} of the std"
    )
