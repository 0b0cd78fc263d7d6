"""A method, a suite and a task small enough to train, kill, resume and judge in a test."""

from __future__ import annotations

import io
import itertools
import math
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pcbf_baselines import METHODS, Method, register_method
from pcbf_core.learner import LearnerState, gradient_step
from pcbf_core.types import Metrics, TaskSpec, Transition
from pcbf_experiments.data.checks import Check
from pcbf_experiments.data.rows import DatasetInfo, Rows, summarise
from pcbf_experiments.evaluation import EvaluationSettings
from pcbf_experiments.running import loop
from pcbf_experiments.running.loop import RunOptions, run
from pcbf_experiments.running.problem import Problem, make_problem
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.simulators import SimulatorSpec
from pcbf_experiments.suites import SUITES, Suite, register_suite
from pcbf_experiments.tasks import TASKS, register_task
from pcbf_records.sheets import Task

# --- the method -----------------------------------------------------------------------------------------------------


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


METHOD = Method("linear", "Linear", TinyConfig, TinyAgent, visual=True)

# --- the suite ------------------------------------------------------------------------------------------------------


class Follow(gymnasium.Env):
    """Shows three numbers per step; the action that equals tanh of the first two costs nothing."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: Any) -> Any:
        error = float(np.abs(np.asarray(action) - np.tanh(self.shown[:2])).sum())
        is_over = bool(self.np_random.uniform() < 0.2)  # so that episodes differ in length
        return self._show(), -error, is_over, False, {"success": float(error < 1)}

    def _show(self) -> np.ndarray:
        self.shown = self.np_random.normal(size=3).astype(np.float32)
        return self.shown


class TinySuite(Suite):
    """Data that need no file, a simulator that takes no time, the return of an episode as its score."""

    name: ClassVar[str] = "tiny"
    num_final_evaluations: ClassVar[int] = 2

    def check(self, task: Task) -> None:
        if task.is_pixel:
            raise ValueError(f"`observations='pixel'` of {task.name}: a tiny task shows three numbers.")

    def load_rows(self, task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
        rng = np.random.default_rng(9)
        observation = (
            (rng.normal(size=(10, 1, 3)) + 0.2 * rng.normal(size=(10, 6, 3))).astype(np.float32).reshape(60, 3)
        )
        rows = Rows(
            observation=observation,
            action=np.tanh(observation[:, :2]),
            reward=-rng.uniform(size=60).astype(np.float32),
            terminal=np.zeros(60, np.float32),
            is_last=np.arange(60) % 6 == 5,
            has_last_action=True,
        )
        return rows, summarise(task.dataset, rows, "local", {"a": "0"}, {})

    def reward_bounds(self, info: DatasetInfo) -> tuple[float, float]:
        return info.reward_range

    def fetch(self, task: Task, data_dir: Path, sources: Any) -> list[dict[str, Any]]:
        return []

    def make_local(self, task: Task, data_dir: Path, settings: Any, **how: Any) -> list[Path]:
        return []

    def shapes(self, task: Task) -> tuple[tuple[int, ...], int]:
        return (3,), 2

    def checks(self, task: Task, rows: Rows, info: DatasetInfo, data_dir: Path | None) -> list[Check]:
        return []

    def simulator(self, task: Task, *, episode_limit: int | None = None, **options: Any) -> SimulatorSpec:
        return SimulatorSpec("Follow-v0", episode_limit=episode_limit or task.episode_limit)

    def score(self, task: Task, episode_return: float, success: float) -> float:
        return 10 * episode_return + success

    def views(self, task: Task, env: gymnasium.Env) -> list[np.ndarray]:
        return [np.zeros((8, 8, 3), np.uint8)]


TASK = Task("tiny", "tiny-data", "tiny-domain", "tiny", discount=0.5, steps=60, seeds=2, episode_limit=12)


def register() -> None:
    """Let commands and registries know the method, the suite and the task."""
    if "Follow-v0" not in gymnasium.registry:
        gymnasium.register("Follow-v0", entry_point=Follow)
    register_method(METHOD)
    register_suite(TinySuite())
    register_task(TASK)


@contextmanager
def registered() -> Iterator[None]:
    """As if nobody had registered anything, after the block."""
    register()
    try:
        yield
    finally:
        del METHODS[METHOD.name], SUITES[TinySuite.name], TASKS[TASK.name]


# --- runs -----------------------------------------------------------------------------------------------------------

SETTINGS = RunSettings(steps=60, batch_size=8, eval_every=20, log_every=5)
JUDGING = EvaluationSettings(num_episodes=4, num_slots=2)


def tiny_problem(settings: RunSettings = SETTINGS, **config: Any) -> Problem:
    return make_problem(TASK.name, METHOD.name, settings, config)


def run_tiny(results: str, rows: float = math.inf) -> None:
    """Body of a process that the kill test kills; a commit made meanwhile must not show in its records.

    After so many rows of the last seed's metrics and the next one, it waits to be killed.
    """
    register()
    loop.code_version = dict
    count = itertools.count()

    def wait(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        if seed == 1 and next(count) >= rows:
            signal.pause()

    options = RunOptions(checkpoint_every=5, log=io.StringIO(), sinks=[wait])
    run(tiny_problem(), SETTINGS, (0, 1), Path(results), options=options)
