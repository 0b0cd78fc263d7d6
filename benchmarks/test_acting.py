"""Choosing actions, and playing 50 episodes: in lockstep and worker processes against one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from plain import plain_forms
from pytest_benchmark.fixture import BenchmarkFixture
from work import SIZES, SPEC, agent_of, best_of_each

from pcbf_baselines.registry import make_agent
from pcbf_core.types import TaskSpec
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.evaluation import EvaluationSettings, Evaluator
from pcbf_experiments.simulators import make_simulator
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
from pcbf_records.sheets import Task

TASK = "cube-single-play-singletask-task1-v0"
NUM_EPISODES, EPISODE_STEPS = 50, 10


@pytest.mark.parametrize("num_states", [1, 50])
@pytest.mark.parametrize("size", SIZES)
def test_action_selection(benchmark: BenchmarkFixture, ledger: Any, size: str, num_states: int) -> None:
    agent = agent_of("pcbf", size, num_candidates=16, num_return_samples=16, control_weight=0.4)
    state = jax.jit(agent.init)(jax.random.key(0))
    observation = jax.random.normal(jax.random.key(1), (num_states, *SPEC.observation_shape))
    arguments = (state, observation, jax.random.key(2))
    act = jax.jit(agent.act).lower(*arguments).compile()
    with plain_forms():
        plain = jax.jit(lambda *values: agent.act(*values)).lower(*arguments).compile()
    work = {"fast": lambda: act(*arguments), "plain": lambda: plain(*arguments)}
    seconds = benchmark.pedantic(lambda: best_of_each(work), rounds=1)
    ledger.add(
        "acting",
        work="choose actions, K = 16, M = 16",
        size=size,
        states=num_states,
        **{f"{name}_ms": round(1e3 * each / num_states, 3) for name, each in seconds.items()},
        speedup_over_plain=round(seconds["plain"] / seconds["fast"], 2),
    )


def play_alone(task: Task) -> Callable[[], None]:
    """As many steps of one simulator, without a policy: what an evaluation on one core cannot do without."""
    env = make_simulator(suite_of(task).simulator(task, episode_limit=EPISODE_STEPS))
    action = np.zeros(env.action_space.shape or (), np.float32)

    def play() -> None:
        for _ in range(NUM_EPISODES):
            env.reset(seed=0)
            for _ in range(EPISODE_STEPS):
                env.step(action)

    return play


@pytest.fixture(scope="module")
def evaluators() -> Iterator[tuple[Evaluator, Evaluator]]:
    """25 simulators in as many processes as there are cores, and a single one; 27 times a second or two to make."""
    pytest.importorskip("ogbench")
    task = find_task(TASK)
    lengths: dict[str, Any] = {"num_episodes": NUM_EPISODES, "episode_limit": EPISODE_STEPS}
    with (
        Evaluator(task, EvaluationSettings(num_slots=25, **lengths), os.cpu_count() or 1) as together,
        Evaluator(task, EvaluationSettings(num_slots=1, **lengths)) as alone,
    ):
        yield together, alone


@pytest.fixture(scope="module")
def simulator_alone() -> Callable[[], None]:
    return play_alone(find_task(TASK))


@pytest.mark.parametrize("method", ["pcbf", "pcbf_flow", "iql"])
def test_evaluation(
    benchmark: BenchmarkFixture,
    ledger: Any,
    evaluators: tuple[Evaluator, Evaluator],
    simulator_alone: Callable[[], None],
    method: str,
) -> None:
    """50 episodes, cut short, of an untrained learner at laptop size; the scores must be the same."""
    spec = TaskSpec(observation_shape=(28,), action_dim=5, return_range=(-100.0, 0.0))
    agent = make_agent(method, spec, {**SIZES["3x128"]})
    state = jax.jit(agent.init)(jax.random.key(0))
    together, alone = evaluators
    work: dict[str, Callable[[], Any]] = {
        "fast": lambda: together(agent, state, Scaling(), step=0).returns,
        "plain": lambda: alone(agent, state, Scaling(), step=0).returns,
    }
    fast, plain = (each() for each in work.values())  # compile, start the simulators
    np.testing.assert_allclose(fast, plain, atol=1e-3)
    seconds = benchmark.pedantic(lambda: best_of_each({**work, "simulator": simulator_alone}, rounds=2), rounds=1)
    ledger.add(
        "acting",
        work=f"{NUM_EPISODES} episodes of {EPISODE_STEPS} steps, {method}",
        size="3x128",
        states=25,
        **{f"{name}_ms": round(1e3 * each / (NUM_EPISODES * EPISODE_STEPS), 3) for name, each in seconds.items()},
        speedup_over_plain=round(seconds["plain"] / seconds["fast"], 2),
        bound=round(seconds["plain"] / seconds["simulator"] * (os.cpu_count() or 1), 2),
    )
