# %% [markdown]
# # The critic inside an agent that is not ours
#
# An online agent for Gymnasium's CartPole: ε-greedy, a replay buffer, one critic. Everything but the critic is plain
# NumPy; what the critic adds to the usual Q-network is the whole law of the return.

# %%
import os
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from pcbf_core import LearnerState, PCBFCritic, PCBFCriticConfig, TaskSpec, Transition, even_levels, noise_at_levels

NUM_ROUNDS = int(os.environ.get("PCBF_EXAMPLE_STEPS", "2000"))  # of one step in each simulator
NUM_ENVS, UPDATES, BATCH_SIZE, REWARD = 8, 2, 128, 0.04  # rewards so scaled that returns are a few units wide
SCALE = np.array([2.4, 2.0, 0.2, 2.0], np.float32)  # of the observations
MOVES = jnp.array([[-1.0], [1.0]])  # left and right, as actions in [-1, 1]

# %%
config = PCBFCriticConfig(
    discount=0.99,
    hidden_sizes=(64, 64),
    activation="relu",
    layer_norm=False,
    num_critics=2,
    successor_aggregation="min",  # of two critics the one that expects less, against wishful targets
    learning_rate=1e-3,
)
critic = PCBFCritic(config, TaskSpec(observation_shape=(4,), action_dim=1))


def values(state: LearnerState, observation: jax.Array) -> jax.Array:
    """Mean return of both moves, (*batch, 2): one Euler step of the flow has the mean of the whole."""
    moves = jnp.broadcast_to(MOVES, (*observation.shape[:-1], 2, 1))
    noise = noise_at_levels(even_levels(8))
    return critic.one_step_returns(state, observation[..., None, :], moves, noise).mean(axis=-1)


@jax.jit
def greedy(state: LearnerState, observation: jax.Array) -> jax.Array:
    return values(state, observation).argmax(axis=-1)


@partial(jax.jit, donate_argnums=0)
def learn(state: LearnerState, batches: Transition, key: jax.Array) -> LearnerState:
    """One update for every batch; a' is the move that the critic likes best."""

    def step(state: LearnerState, item: tuple[Transition, jax.Array]) -> tuple[LearnerState, None]:
        batch, step_key = item
        batch = batch.replace(next_action=MOVES[greedy(state, batch.next_observation)])
        return critic.update(state, batch, step_key)[0], None

    return jax.lax.scan(step, state, (batches, jax.random.split(key, UPDATES)))[0]


# %% [markdown]
# ## A replay buffer, and the loop
# A pole that falls ends the return (`terminal`); the time limit does not.


# %%
class Replay:
    def __init__(self, size: int):
        self.rows, self.count, self.size = {}, 0, size

    def add(self, **columns: np.ndarray) -> None:
        where = (self.count + np.arange(NUM_ENVS)) % self.size
        for name, values in columns.items():
            store = self.rows.setdefault(name, np.zeros((self.size, *values.shape[1:]), np.float32))
            store[where] = values
        self.count += NUM_ENVS

    def sample(self, rng: np.random.Generator) -> Transition:
        rows = rng.integers(min(self.count, self.size), size=(UPDATES, BATCH_SIZE))
        return Transition(**{name: store[rows] for name, store in self.rows.items()})


def train(num_rounds: int, seed: int = 0) -> tuple[LearnerState, list[int]]:
    """The trained critic, and the lengths of all episodes in the order in which they ended."""
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    env = gymnasium.make_vec("CartPole-v1", NUM_ENVS, vectorization_mode="sync", vector_kwargs=same_step)
    state, replay, lengths, running = critic.init(key), Replay(20_000), [], np.zeros(NUM_ENVS, int)
    seen, _ = env.reset(seed=seed)
    for number in range(num_rounds):
        explore = max(0.02, 1 - number / (0.3 * num_rounds))
        move = np.asarray(greedy(state, seen / SCALE))
        move = np.where(rng.uniform(size=NUM_ENVS) < explore, rng.integers(2, size=NUM_ENVS), move)
        following, _, fell, cut, info = env.step(move)
        last, over, running = following.copy(), fell | cut, running + 1
        for slot in np.flatnonzero(over):
            last[slot] = info["final_obs"][slot]  # `following` is the start of the next episode
        lengths += running[over].tolist()
        running[over] = 0
        replay.add(observation=seen / SCALE, action=2.0 * move[:, None] - 1, reward=np.full(NUM_ENVS, REWARD),
                   next_observation=last / SCALE, terminal=fell)  # fmt: skip
        seen = following
        if replay.count >= 4 * BATCH_SIZE:
            state = learn(state, replay.sample(rng), jax.random.fold_in(key, number))
        if (number + 1) % max(num_rounds // 6, 1) == 0:
            print(f"{(number + 1) * NUM_ENVS:6} steps: the last 20 poles stood {np.mean(lengths[-20:]):.0f} steps")
    env.close()
    return state, lengths


state, lengths = train(NUM_ROUNDS)
print(f"first 20 poles: {np.mean(lengths[:20]):.0f} steps, last 20: {np.mean(lengths[-20:]):.0f}")
law = critic.quantiles(state, jnp.zeros(4), MOVES[1], jnp.array([0.1, 0.5, 0.9])) / REWARD
print("discounted steps to come from an upright pole, at 10, 50 and 90 %:", np.round(np.asarray(law), 1))
