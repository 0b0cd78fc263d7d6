# %% [markdown]
# # Your own Minari dataset
#
# A simulator, a dataset recorded in it by the official library, and one `Task` that names both: that is all that
# loading, checks, training and evaluation need. The task here: a boat on windy water must come to rest at a buoy.

# %%
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import jax
import minari
import numpy as np
from gymnasium.spaces import Box

from pcbf_baselines import make_agent
from pcbf_core import init_many, train_chunk
from pcbf_experiments import EvaluationSettings, Evaluator, Task, load_task, minari_folder, register_task

NUM_STEPS = int(os.environ.get("PCBF_EXAMPLE_STEPS", "2000"))
NUM_EPISODES = int(os.environ.get("PCBF_EXAMPLE_EPISODES", "300"))
FOLDER = Path(os.environ.get("PCBF_EXAMPLE_FOLDER") or tempfile.mkdtemp())


# %% [markdown]
# ## The simulator
# Observations are vectors, actions lie in [-1, 1], and `info["success"]` at the end of an episode makes its score.


# %%
class Buoy(gymnasium.Env):
    """A boat in the plane that must be slow within 0.15 of the buoy at the origin; every step before that costs 1."""

    observation_space = Box(-10, 10, (4,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-1, 1, 2), np.zeros(2)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        wind = 0.02 * self.np_random.standard_normal(2)
        self.speed = 0.9 * self.speed + 0.05 * np.clip(action, -1, 1) + wind
        self.place = self.place + self.speed
        there = bool(np.linalg.norm(self.place) < 0.15 and np.linalg.norm(self.speed) < 0.15)
        return self.observe(), float(there) - 1, there, False, {"success": float(there)}

    def observe(self) -> np.ndarray:
        return np.concatenate([self.place, self.speed]).astype(np.float32)


gymnasium.register("Buoy-v0", entry_point="__main__:Buoy", max_episode_steps=40)

# %% [markdown]
# ## The dataset
# Recorded by Minari's own collector, with a skipper who steers for the buoy half of the time and anywhere otherwise.

# %%
warnings.filterwarnings("ignore", module="minari")  # of author and code link, which an example does without
rng = np.random.default_rng(0)
with minari_folder(FOLDER) as folder:
    folder.mkdir(parents=True, exist_ok=True)
    recorder = minari.DataCollector(gymnasium.make("Buoy-v0"), data_format="hdf5")
    for episode in range(NUM_EPISODES):
        observation, _ = recorder.reset(seed=episode)
        over = False
        while not over:
            aim = np.clip(-2 * observation[:2] - 6 * observation[2:], -1, 1)
            action = aim if rng.uniform() < 0.5 else rng.uniform(-1, 1, 2)
            observation, _, terminated, truncated, _ = recorder.step(action.astype(np.float32))
            over = terminated or truncated
    recorder.create_dataset("buoy/tipsy-v0", algorithm_name="tipsy skipper", description="pcbf's third example")
    recorder.close()

# %% [markdown]
# ## The task
# In a module named by `PCBF_PLUGINS` the same lines make the task known to `pcbf-train` and all other commands.

# %%
task = register_task(
    Task(
        name="buoy-tipsy-v0",
        dataset="buoy/tipsy-v0",
        domain="buoy",
        suite="minari",
        discount=0.95,
        steps=NUM_STEPS,
        seeds=1,
        episode_limit=40,
        simulator="Buoy-v0",
    )
)
loaded = load_task(task.name, data_dir=FOLDER, standardise=True, return_width=4.0)
print(f"{loaded.info.num_episodes} episodes, {loaded.info.num_transitions} transitions")

# %% [markdown]
# ## Train and judge
# Any method of the registry, by name. The skipper of the data is who must be beaten.

# %%
settings = {
    "discount": task.discount,
    "hidden_sizes": (64, 64),
    "num_critics": 1,
    "learning_rate": 2e-3,
    "num_action_steps": 4,
    "action_reuse": 4,  # a' serves four steps, which divides the cost of choosing it by four
}
agent = make_agent("pcbf_flow", loaded.spec, settings)
keys = jax.random.split(jax.random.key(0), 1)
states, _ = train_chunk(agent, init_many(agent, keys), loaded.source, keys, num_steps=NUM_STEPS, batch_size=128)
state = jax.tree.map(lambda leaf: leaf[0], states)
with Evaluator(task, EvaluationSettings(num_episodes=50, num_slots=50)) as judge:
    result = judge(agent, state, loaded.scaling, step=NUM_STEPS)
print(f"the skipper's episodes take {loaded.info.num_transitions / loaded.info.num_episodes:.1f} steps")
print(f"the agent reaches the buoy in {result.mean:.0f} % of 50 episodes, in {np.mean(result.lengths):.1f} steps")
