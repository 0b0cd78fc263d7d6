# %% [markdown]
# # Risk: acting by CVaR beside a cliff
#
# A walker wants to get from S to G. The short way leads over four slippery cells beside a cliff, the long one around.
# The short way has the better mean, the long one the better tail. One critic is trained, for the mean; only the score
# by which the agent picks among its candidates changes. The process is small enough for the exact law of any policy.

# %%
import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np

from pcbf_core import PCBF, Dataset, LearnerState, PCBFConfig, init_many, train_chunk
from pcbf_core.mdp import (
    NUM_MOVES,
    Cliff,
    behaviour_policy,
    draw_transitions,
    move_of,
    optimal_policy,
    return_laws,
    tail_policy,
    task_spec,
)

NUM_STEPS = int(os.environ.get("PCBF_EXAMPLE_STEPS", "2500"))
LEVEL = 0.1  # CVaR: the mean of the worst tenth
cliff = Cliff()
print("\n".join(cliff.rows), "   . ground  ~ slippery  ^ ledge  x cliff  # wall\n")

# %% [markdown]
# ## Data and training
# Transitions of a behaviour that takes the best move a quarter of the time and any move otherwise. An action is a
# point of the square [-1, 1]²; the side it points to is the move.

# %%
data = Dataset(draw_transitions(cliff, behaviour_policy(cliff, 0.25), np.random.default_rng(0), 100_000))
config = PCBFConfig(
    discount=cliff.discount,
    hidden_sizes=(64, 64),
    activation="relu",
    layer_norm=False,
    actor_layer_norm=False,
    num_critics=1,
    learning_rate=5e-3,
    decay_steps=NUM_STEPS,
    polyak_rate=0.05,
    num_flow_times=4,
    num_action_steps=4,
    action_reuse=8,  # a' serves eight steps, which divides the cost of choosing it by eight
)
agent = PCBF(config, task_spec(cliff))
keys = jax.random.split(jax.random.key(0), 1)
states, _ = train_chunk(agent, init_many(agent, keys), data, keys, num_steps=NUM_STEPS, batch_size=64)
state = jax.tree.map(lambda leaf: leaf[0], states)

# %% [markdown]
# ## Two policies of one critic
# `score="cvar"` picks the candidate with the best mean of its worst share. Drawing actions in every state gives the
# probabilities of the moves; from there on everything is exact.

# %%
careful = dataclasses.replace(agent, config=dataclasses.replace(config, score="cvar", risk_level=LEVEL))


def moves_of(acting: PCBF, state: LearnerState, num_draws: int = 128) -> np.ndarray:
    """How often each move is taken in each state, (states, moves)."""
    seen = jnp.repeat(jnp.asarray(cliff.observations), num_draws, axis=0)
    moves = np.asarray(move_of(jax.jit(acting.act)(state, seen, jax.random.key(1)))).reshape(-1, num_draws)
    return np.stack([(moves == move).mean(axis=1) for move in range(NUM_MOVES)], axis=1)


def way(policy: np.ndarray) -> str:
    """The map with the most frequent move of every state."""
    rows = [list(row) for row in cliff.rows]
    for (x, y), move in zip(cliff.cells, policy.argmax(axis=1), strict=True):
        rows[len(rows) - 1 - y][x] = "→↑←↓"[move]
    return "\n".join("".join(row) for row in rows)


best = optimal_policy(cliff)
policies = {
    "learned, by the mean": moves_of(agent, state),
    f"learned, by CVaR at {LEVEL}": moves_of(careful, state),
    "exact, by the mean": best,
    f"exact, by CVaR at {LEVEL}": tail_policy(cliff, return_laws(cliff, best), LEVEL),
}
results = {}
for name, policy in policies.items():
    law = return_laws(cliff, policy)[cliff.start]
    results[name] = (law.mean, law.cvar(LEVEL))
    print(f"{name}: mean {law.mean:.2f}, CVaR at {LEVEL} {law.cvar(LEVEL):.2f}")
print("\nby the mean\n" + way(policies["learned, by the mean"]))
print("\nby CVaR\n" + way(policies[f"learned, by CVaR at {LEVEL}"]))
