"""A learner and a problem small enough to train, kill and resume in a test."""

from __future__ import annotations

import io
import itertools
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pcbf_baselines import runner
from pcbf_baselines.runner import Problem, RunSettings, run
from pcbf_core.learner import LearnerState, gradient_step
from pcbf_core.records import Evaluation
from pcbf_core.training import Dataset
from pcbf_core.types import Metrics, TaskSpec, Transition


@dataclass(frozen=True)
class TinyConfig:
    learning_rate: float = 1e-2
    break_at: int = -1


@dataclass(frozen=True)
class TinyAgent:
    """Regresses the action on the observation by one linear layer; its loss is no number from step `break_at` on."""

    config: TinyConfig
    spec: TaskSpec

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)

    def init(self, key: Array) -> LearnerState:
        shape = (int(np.prod(self.spec.observation_shape)), self.spec.action_dim)
        params = {"actor": 0.1 * jax.random.normal(key, shape), "count": jnp.zeros(())}
        return LearnerState(params, {"actor": params["actor"]}, self.optimizer.init(params))

    def mean(self, params: Any, observation: Array) -> Array:
        axes = len(self.spec.observation_shape)
        flat = observation.reshape(*observation.shape[: observation.ndim - axes], -1)
        return jnp.tanh(flat @ params["actor"])

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        def loss(params: Any) -> tuple[Array, Metrics]:
            noise = 0.1 * jax.random.normal(key, batch.action.shape)
            value = ((self.mean(params, batch.observation) + noise - batch.action) ** 2).mean()
            is_broken = (self.config.break_at >= 0) & (state.opt_state[0].count >= self.config.break_at)
            value = jnp.where(is_broken, jnp.nan, value)
            return value, {"actor_loss": value, "reward": batch.reward.mean()}

        return gradient_step(loss, self.optimizer, state, polyak_rate=0.1)

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        mean = self.mean(state.params, observation)
        return jnp.clip(mean + 0.3 * jax.random.normal(key, mean.shape), -1, 1)

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        return -1 + 0.1 * jax.random.normal(key, (num_samples,))


def judge(agent: Any, state: LearnerState, step: int) -> Evaluation:
    """Scores of three made-up observations."""
    observation = jnp.linspace(-1, 1, 9).reshape(3, 3)
    actions = np.asarray(agent.act(state, observation, jax.random.key(step)), np.float64).sum(axis=1)
    return Evaluation(step, tuple(actions.tolist()), (0.0,) * 3, (1,) * 3, (0.0,) * 3)


def tiny_problem(**config: Any) -> Problem:
    keys = jax.random.split(jax.random.key(9), 4)
    observation, following = (jax.random.normal(key, (50, 3)) for key in keys[:2])
    transitions = Transition(
        observation=observation,
        action=jnp.tanh(observation[:, :2]),
        reward=jax.random.normal(keys[2], (50,)),
        next_observation=following,
        terminal=jnp.zeros(50),
    )
    spec = TaskSpec(observation_shape=(3,), action_dim=2, return_range=(-1.0, 1.0))
    agent = TinyAgent(TinyConfig(**config), spec)
    return Problem("tiny", "linear", agent, spec, Dataset(transitions), judge, {"source": "local", "files": {"a": "0"}})


SETTINGS = RunSettings(steps=60, batch_size=8, eval_every=20, log_every=5)


def run_tiny(results: str, rows: float = math.inf) -> None:
    """Body of a process that the kill test kills; a commit made meanwhile must not show in its records.

    After so many rows of the last seed's metrics and the next one, it waits to be killed.
    """
    runner.code_version = dict
    count = itertools.count()

    def wait(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        if seed == 1 and "score" not in metrics and next(count) >= rows:
            signal.pause()

    run(tiny_problem(), SETTINGS, (0, 1), Path(results), checkpoint_every=5, log=io.StringIO(), sinks=[wait])
