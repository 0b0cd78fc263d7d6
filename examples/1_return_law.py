# %% [markdown]
# # A return law from NumPy data
#
# A machine runs at a speed that is set once. Every round it earns more the faster it runs, and may break down, which
# costs 5 and ends all earning; a fast machine breaks down far more often, a loaded one too. From logged rounds alone,
# as NumPy arrays, we learn the law of the discounted earnings Z(load, speed), and ask it what a mean cannot tell.

# %%
import os

import jax
import jax.numpy as jnp
import numpy as np

from pcbf_core import (
    Dataset,
    PCBFCritic,
    PCBFCriticConfig,
    TaskSpec,
    Transition,
    first_divergence,
    init_many,
    train_chunk,
)

NUM_STEPS = int(os.environ.get("PCBF_EXAMPLE_STEPS", "4000"))
DISCOUNT = 0.9
rng = np.random.default_rng(0)


# %% [markdown]
# ## The log
# One row per round: load and speed stay as they are, so s' = s and a' = a. `terminal` is 1 where the return ends with
# the reward. Actions must lie in [-1, 1].


# %%
def one_round(load: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Earnings of a round, and whether the machine broke down."""
    broke = rng.uniform(size=speed.shape) < 0.02 * (1 + speed) ** 2 * (1 + load / 2)
    return 0.5 + 0.5 * speed + 0.3 * rng.standard_normal(speed.shape) - 5 * broke, broke


load, speed = rng.uniform(-1, 1, (2, 200_000)).astype(np.float32)
reward, broke = one_round(load, speed)
log = Transition(
    observation=load[:, None],
    action=speed[:, None],
    reward=reward.astype(np.float32),
    next_observation=load[:, None],
    terminal=broke.astype(np.float32),
    next_action=speed[:, None],
)
data = Dataset(log)  # checked here: lengths, NaN, actions in [-1, 1]

# %% [markdown]
# ## Training
# The defaults of the critic need no tuning of the target. What is set here is the size of the network and a learning
# rate that decays, so that the law comes to rest.

# %%
config = PCBFCriticConfig(
    discount=DISCOUNT,
    hidden_sizes=(64, 64),
    layer_norm=False,
    num_critics=1,
    num_flow_times=4,  # more of them cost no further flow
    learning_rate=3e-3,
    decay_steps=NUM_STEPS,
)
critic = PCBFCritic(config, TaskSpec(observation_shape=(1,), action_dim=1))
keys = jax.random.split(jax.random.key(0), 1)  # one key per seed; seeds train side by side
states, metrics = train_chunk(critic, init_many(critic, keys), data, keys, num_steps=NUM_STEPS, batch_size=256)
assert not first_divergence(metrics)
state = jax.tree.map(lambda leaf: leaf[0], states)

# %% [markdown]
# ## What the law tells
# The machine can be simulated, so the truth is at hand: 20,000 machines for each speed, at no load.


# %%
def simulated_returns(speed: float, count: int = 20_000, rounds: int = 150) -> np.ndarray:
    total, weight, speeds = np.zeros(count), np.ones(count), np.full(count, speed)
    for _ in range(rounds):
        reward, broke = one_round(np.zeros(count), speeds)
        total += weight * reward
        weight *= DISCOUNT * ~broke
    return total


def tail_mean(returns: np.ndarray, share: float) -> float:
    return float(np.sort(returns)[: int(share * len(returns))].mean())


@jax.jit
def read(action: jax.Array) -> tuple[jax.Array, ...]:
    """Mean, mean of the worst tenth and P(Z ≤ 0) at no load; level 1 of CVaR is the mean."""
    where = jnp.zeros(1)
    tails = [critic.cvar(state, where, action, level) for level in (1.0, 0.1)]
    return *tails, critic.cdf(state, where, action, 0.0)


print("speed        mean       CVaR at 10 %     P(Z < 0)      (learned | simulated)")
rows = []
for speed in (-0.6, 0.0, 0.8):
    truth, action = simulated_returns(speed), jnp.array([speed])
    learned = tuple(float(value) for value in read(action))
    rows.append((learned, (truth.mean(), tail_mean(truth, 0.1), (truth < 0).mean())))
    print(f"{speed:+.1f}  " + "   ".join(f"{ours:6.2f} | {exact:5.2f}" for ours, exact in zip(*rows[-1], strict=True)))

# %% [markdown]
# By the mean one would run fast; the worst tenth of the returns says slowly. `quantiles`, `density` and
# `sample_returns` read the same law.
