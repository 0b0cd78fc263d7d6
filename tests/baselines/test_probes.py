"""Small problems with known answers, which tell *what* is broken: reward, discount, action choice, law of the return.

One task holds four states, told apart by a one-hot observation:

    END      reward 1, then the end                            value 1
    BEFORE   reward 0, then END                                value γ
    CHOICE   reward 1 - 2|a - ½|, then the end                 best action ½
    LOTTERY  reward uniform on [-1, 1], then the end           mean 0, quantile 2u - 1 at level u
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.registry import make_agent
from pcbf_core import Dataset, LearnerState, TaskSpec, Transition, init_many, train_chunk
from pcbf_core.noise import even_levels

DISCOUNT = 0.6
SPEC = TaskSpec(observation_shape=(4,), action_dim=1, return_range=(-3.0, 3.0))
END, BEFORE, CHOICE, LOTTERY = jnp.eye(4)

NETWORK = {"hidden_sizes": (32, 32), "discount": DISCOUNT, "learning_rate": 3e-3, "polyak_rate": 0.05}
ACTIONS = {"num_action_steps": 4, "num_candidates": 8}
QUANTILES = {"num_levels": 8, "quantile_features": 32, "num_cosines": 16, "huber_threshold": 0.1}
SETTINGS: dict[str, dict[str, Any]] = {
    "pcbf": {**NETWORK, **ACTIONS, "num_flow_steps": 6, "control_weight": 0.3},
    "value_flows": {**NETWORK, **ACTIONS, "num_flow_steps": 6, "dcfm_weight": 0.1},
    "floq": {**NETWORK, "num_flow_steps": 4, "num_action_steps": 4, "num_bins": 20, "distillation_weight": 1.0},
    "fql": {**NETWORK, "num_action_steps": 4, "distillation_weight": 1.0},
    "iql": {**NETWORK, "inverse_temperature": 3.0},
    "iqn": {**NETWORK, **ACTIONS, **QUANTILES},
    "codac": {**NETWORK, **QUANTILES, "num_action_steps": 4, "distillation_weight": 1.0, "penalty_weight": 0.01},
    "c51": {**NETWORK, **ACTIONS, "num_atoms": 31},
}
DISTRIBUTIONAL = ("pcbf", "value_flows", "iqn", "codac", "c51")


def data(size: int = 4096) -> Dataset:
    """Equal shares of the four states, actions uniform on [-1, 1]."""
    state_key, action_key, reward_key = jax.random.split(jax.random.key(7), 3)
    state = jax.random.randint(state_key, (size,), 0, 4)
    action = jax.random.uniform(action_key, (size, 1), minval=-1.0)
    lottery = jax.random.uniform(reward_key, (size,), minval=-1.0)
    rewards = jnp.stack([jnp.ones(size), jnp.zeros(size), 1 - 2 * jnp.abs(action[:, 0] - 0.5), lottery])
    transitions = Transition(
        observation=jnp.eye(4)[state],
        action=action,
        reward=rewards[state, jnp.arange(size)],
        next_observation=jnp.broadcast_to(END, (size, 4)),
        terminal=(state != 1).astype(jnp.float32),
    )
    return Dataset(transitions)


@cache
def trained(name: str) -> tuple[Any, LearnerState]:
    agent = make_agent(name, SPEC, SETTINGS[name])
    keys = jax.random.split(jax.random.key(0), 1)
    num_steps = 400 if name in ("floq", "iqn", "codac") else 600  # those cost more per step
    states, _ = train_chunk(agent, init_many(agent, keys), data(), keys, num_steps=num_steps, batch_size=64)
    return agent, jax.tree.map(lambda leaf: leaf[0], states)


def values(name: str, observation: jax.Array) -> np.ndarray:
    """Mean return at the observation for actions across the range."""
    agent, state = trained(name)
    action = jnp.linspace(-0.8, 0.8, 5)[:, None]
    observation = jnp.broadcast_to(observation, (5, 4))
    if name in DISTRIBUTIONAL:
        return np.asarray(agent.quantiles(state, observation, action, even_levels(64)).mean(axis=-1))
    return np.asarray(agent.mean_return(state, observation, action))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SETTINGS))
def test_one_step_reward(name: str):
    np.testing.assert_allclose(values(name, END), 1.0, atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SETTINGS))
def test_two_steps_are_discounted(name: str):
    np.testing.assert_allclose(values(name, BEFORE), DISCOUNT, atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SETTINGS))
def test_the_best_action_is_chosen(name: str):
    agent, state = trained(name)
    action = np.asarray(jax.jit(agent.act)(state, jnp.broadcast_to(CHOICE, (64, 4)), jax.random.key(1)))
    assert np.abs(action - 0.5).mean() < 0.3  # the data's own actions are 0.625 away on average
    assert action.mean() == pytest.approx(0.5, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_stochastic_return_has_its_mean(name: str):
    np.testing.assert_allclose(values(name, LOTTERY), 0.0, atol=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTIONAL)
def test_a_stochastic_return_has_its_law(name: str):
    agent, state = trained(name)
    levels = even_levels(64)
    quantiles = np.sort(np.asarray(agent.quantiles(state, LOTTERY, jnp.zeros(1), levels)))
    distance = np.abs(quantiles - (2 * np.asarray(levels) - 1)).mean()
    assert distance < 0.15  # Wasserstein-1; a point mass at the mean is 0.5 away
    certain = np.asarray(agent.quantiles(state, END, jnp.zeros(1), levels))
    assert np.abs(certain - 1).mean() < 0.2


@pytest.mark.slow
@pytest.mark.parametrize(("clip", "reach"), [("end", 0.9), ("every_step", 0.65)])
def test_behaviour_cloning_reproduces_the_actions_of_the_data(clip: str, reach: float):
    """Uniform actions come back; clipping after every Euler step loses the outer third of the range."""
    agent = make_agent("bc", SPEC, {**NETWORK, "num_action_steps": 10, "action_clip": clip, "decay_steps": 600})
    keys = jax.random.split(jax.random.key(0), 1)
    states, _ = train_chunk(agent, init_many(agent, keys), data(), keys, num_steps=600, batch_size=64)
    state = jax.tree.map(lambda leaf: leaf[0], states)
    act = jax.jit(agent.act)
    action = np.sort(np.asarray(act(state, jnp.broadcast_to(CHOICE, (2000, 4)), jax.random.key(1)))[:, 0])
    low, high = np.quantile(action, [0.01, 0.99])
    if clip == "end":
        assert low < -reach and high > reach
        assert np.abs(action - np.linspace(-1, 1, 2000)).mean() < 0.12
    else:
        assert low > -reach - 0.1 and high < reach + 0.1
