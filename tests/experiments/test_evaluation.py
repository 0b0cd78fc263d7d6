"""Evaluation: what an episode scores depends on its number and the learner, on nothing else."""

from __future__ import annotations

import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from pcbf_core.pcbf import PCBF, PCBFConfig
from pcbf_core.types import TaskSpec
from pcbf_experiments import evaluation
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.evaluation import (
    EvaluationSettings,
    Evaluator,
    episode_seed,
    play,
    policy,
    states_at_once,
    widest_product,
)
from pcbf_experiments.running.snapshot import Snapshot
from pcbf_experiments.simulators import SimulatorPool, SimulatorSpec, StepResult, StopOnDrop, make_simulator
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
from pcbf_experiments.video import record_video, return_panel

from .tiny import TinyAgent, TinyConfig

pytestmark = pytest.mark.filterwarnings("ignore")  # of the simulators
POINT = find_task("pointmaze-teleport-navigate-singletask-task1-v0")
CUBE = find_task("cube-single-play-singletask-task1-v0")
DOOR, PEN = find_task("door-expert-v1"), find_task("pen-expert-v1")


def play_with(task, shape, actions, num_workers, num_slots=2, num_episodes=3, limit=25):
    agent = TinyAgent(TinyConfig(), TaskSpec(observation_shape=shape, action_dim=actions))
    state = agent.init(jax.random.key(0))
    settings = EvaluationSettings(num_episodes, num_slots, episode_limit=limit)
    with Evaluator(task, settings, num_workers) as evaluator:
        return evaluator(agent, state, Scaling(), step=7)


def test_seeds_belong_to_task_and_episode():
    seeds = {episode_seed(name, e) for name in ("a", "b") for e in range(50)}
    assert len(seeds) == 100 and max(seeds) < 2**31
    assert episode_seed("a", 3) == episode_seed("a", 3)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_number_of_processes_changes_nothing(num_workers):
    alone = play_with(POINT, (2,), 2, 0)
    assert play_with(POINT, (2,), 2, num_workers) == alone
    assert alone.lengths == (25, 25, 25) and alone.returns == (-25.0, -25.0, -25.0)
    assert len(alone.scores) == 3 and alone.step == 7


def test_playing_leaves_numpys_generator_alone():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.uniform()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    play_with(POINT, (2,), 2, 0, num_episodes=1, limit=3)
    assert np.random.uniform() == expected  # noqa: NPY002


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        SimulatorSpec("cube-single-singletask-task1-v0", registered_by="ogbench"),
        SimulatorSpec("pointmaze-teleport-singletask-task1-v0", registered_by="ogbench"),
        SimulatorSpec("AdroitHandPen-v1", registered_by="gymnasium_robotics", wrappers=(StopOnDrop,)),
    ],
    ids=lambda spec: spec.id,
)
def test_an_episode_depends_on_its_seed_alone(spec):
    """Not on earlier episodes, not on the simulator, not on NumPy's generator."""

    def episode(env, seed):
        actions = np.random.default_rng(0).uniform(-1, 1, (12, *env.action_space.shape))
        return np.array([env.reset(seed=seed)[0], *(env.step(action)[0] for action in actions)])

    env, other = make_simulator(spec), make_simulator(spec)
    first = episode(env, 1)
    assert not np.array_equal(episode(env, 2), first)
    np.random.seed(0)  # noqa: NPY002
    assert np.array_equal(episode(env, 1), first)
    assert np.array_equal(episode(other, 1), first)
    with pytest.raises(ValueError, match="seed"):
        env.reset()


class Script:
    """A pool whose episodes last as long as their seed says and succeed at odd lengths."""

    num_slots = 3

    def __init__(self, lengths):
        self.lengths = lengths
        self.left: dict[int, int] = {}
        self.order = iter(lengths)

    def ask(self, command, items):
        if command == "reset":
            for slot, _ in items:
                self.left[slot] = next(self.order)
            return [np.zeros(1, np.float32) for _ in items]
        results = []
        for slot, action in items:
            self.left[slot] -= 1
            results.append(StepResult(np.ones(1, np.float32), float(action[0]), self.left[slot] == 0, 1.0))
        return results


def test_slots_take_the_next_episode_and_every_step_is_counted():
    lengths = [2, 5, 1, 3, 1, 4]
    seen = []

    def act(observation, episode, step):
        seen.append((episode.tolist(), step.tolist()))
        assert observation.shape == (3, 1)
        return np.full((3, 1), 2.0)

    games = play(Script(lengths), "t", act, 6)  # type: ignore[arg-type]
    assert [game.number for game in games] == list(range(6))
    assert [game.length for game in games] == lengths
    assert [game.total for game in games] == [2.0 * length for length in lengths]
    assert seen[0] == ([0, 1, 2], [0, 0, 0]) and seen[1] == ([0, 1, 3], [1, 1, 0])


def test_states_act_a_block_at_a_time_as_they_do_together_on_any_number_of_threads(monkeypatch):
    sizes = {"hidden_sizes": (8, 8), "num_candidates": 3, "num_action_steps": 2}
    agent = PCBF(PCBFConfig(**sizes), TaskSpec(observation_shape=(4,), action_dim=2, return_range=(-10.0, 0.0)))
    state, key = jax.jit(agent.init)(jax.random.key(0)), jax.random.key(1)
    observation, episode = np.random.default_rng(0).standard_normal((6, 4), np.float32), np.arange(6)
    one_state = 4 * 8 * 2 * 3 * agent.config.num_return_samples  # bytes of a layer: members, candidates, noises
    assert widest_product(jax.make_jaxpr(agent.act)(state, observation[0], key).jaxpr) == one_state
    by_size = []
    for num_states, size in ((100, 6), (2.5, 2), (0.5, 1)):
        monkeypatch.setattr(evaluation, "ACTING_BYTES", int(num_states * one_state))
        assert states_at_once(agent, state, observation) == size
        act, actions = policy(agent, state, Scaling(), key), []
        for num_threads in (1, 2, 4):
            monkeypatch.setattr(evaluation, "NUM_THREADS", num_threads)
            actions.append(act(observation, episode, 2 * episode))
        np.testing.assert_array_equal(actions[1:], actions[:1] * 2)
        by_size.append(actions[0])
    np.testing.assert_allclose(by_size[1:], by_size[:1] * 2, atol=1e-6)


def test_fewer_episodes_than_slots():
    games = play(Script([2, 1]), "t", lambda o, e, s: np.zeros((3, 1)), 2)  # type: ignore[arg-type]
    assert [game.length for game in games] == [2, 1]


@pytest.mark.slow
def test_a_worker_that_dies_or_fails_is_told():
    dead = SimulatorSpec(suite_of(POINT).simulator(POINT).id, registered_by="ogbench", wrappers=(sys.exit,))
    with SimulatorPool(dead, 2, num_workers=2) as pool, pytest.raises(ChildProcessError, match="enough memory"):
        pool.ask("reset", [(0, 1), (1, 2)])
    with (
        SimulatorPool(suite_of(POINT).simulator(POINT), 2, num_workers=2) as pool,
        pytest.raises(ChildProcessError, match="a simulator failed: .*out of range"),
    ):
        pool.ask("step", [(7, np.zeros(2))])


def test_scores():
    assert suite_of(CUBE).score(CUBE, -9.0, 1.0) == 100 and suite_of(CUBE).score(CUBE, -9.0, 0.0) == 0
    assert suite_of(DOOR).score(DOOR, 2880.5693087298737, 0.0) == pytest.approx(100)


@pytest.mark.slow
def test_success_timing_reaches_the_simulator():
    for timing in ("pre", "post"):
        spec = suite_of(CUBE).simulator(CUBE, success_timing=timing)
        env = make_simulator(spec)
        assert env.unwrapped._success_timing == timing  # type: ignore[attr-defined]
        assert env.spec is not None and env.spec.max_episode_steps == 200
        env.close()


def test_adroit_corrections_in_the_simulator():
    pen = make_simulator(suite_of(PEN).simulator(PEN))
    observation, _ = pen.reset(seed=0)
    still = np.zeros(24)
    lengths = 0
    terminated = truncated = False
    while not (terminated or truncated):
        observation, _, terminated, truncated, _ = pen.step(still)
        lengths += 1
    assert lengths <= 100 and terminated == (observation[26] < 0.075)
    door = make_simulator(suite_of(DOOR).simulator(DOOR))
    door.reset(seed=0)
    observation, reward, *_ = door.step(np.zeros(28))
    data = door.unwrapped
    distance = np.linalg.norm(observation[35:38])
    velocity = 1e-5 * np.sum(data.data.qvel**2)  # type: ignore[attr-defined]
    hinge = observation[28]
    assert reward == pytest.approx(-0.1 * distance - 0.1 * (hinge - 1.57) ** 2 - velocity, abs=1e-3)


def test_panel_shows_bars_where_the_returns_are():
    panel = return_panel(np.array([-10.0, -10.0, -5.0]), (-10.0, 0.0), 50, 40, num_bins=10)
    assert panel.shape == (50, 40, 3) and panel.dtype == np.uint8
    filled = (panel[:-1] == [31, 119, 180]).all(axis=-1).sum(axis=0)
    assert filled[1] > filled[21] > 0 and filled[35] == 0


@pytest.mark.slow
def test_video(renderer, tmp_path):
    spec = TaskSpec(observation_shape=(2,), action_dim=2, return_range=(-2.0, 0.0))
    agent = TinyAgent(TinyConfig(), spec)
    snapshot = Snapshot(agent, agent.init(jax.random.key(0)), spec, Scaling(), {}, 0, 0)
    settings = EvaluationSettings(1, 1, episode_limit=3)
    path = tmp_path / "episode.gif"
    assert record_video(snapshot, POINT, path, settings=settings) == 3
    import imageio.v3 as imageio

    frames = imageio.imread(path)
    assert frames.shape[0] == 3 and frames.shape[2] == 2 * frames.shape[1]
    with pytest.raises(ValueError, match="neither"):
        record_video(snapshot, POINT, tmp_path / "episode.avi", settings=settings)
    plain = replace(snapshot, spec=replace(spec, return_range=None))  # no range, no picture of returns
    record_video(plain, POINT, path, settings=settings)
    assert imageio.imread(path).shape[2] == frames.shape[1]
