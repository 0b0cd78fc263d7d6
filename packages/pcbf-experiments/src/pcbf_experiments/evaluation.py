"""Playing episodes of the real simulators: one batched `act` per step, scores that depend on the seeds alone.

Episode e of a task is reset from a seed made of the task's name and e, whatever was trained; its
actions draw from keys of (e, step). Simulators run in lockstep in a fixed number of slots, so the
number of worker processes changes the speed and nothing else.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_baselines.datasets import Scaling, adroit, ogbench
from pcbf_baselines.datasets.ogbench import SuccessTiming
from pcbf_baselines.datasets.pixels import NUM_FRAMES
from pcbf_baselines.datasets.tasks import Task
from pcbf_baselines.wrappers import EnvironmentSpec, StepResult, answer, make_environment, serve
from pcbf_core.agent import Agent, ReturnSampler
from pcbf_core.config import check_range
from pcbf_core.learner import LearnerState
from pcbf_core.records import Evaluation


@dataclass(frozen=True)
class EvaluationSettings:
    """How a learner is judged.

    Attributes:
      num_episodes: 50 in the paper.
      num_slots: simulators that run in lockstep; decides the batch of `act`, so part of the result.
      episode_limit: cut episodes shorter than the task's own limit, for small machines; None keeps it.
      success_timing: see `ogbench.environment_spec`.
    """

    num_episodes: int = 50
    num_slots: int = 10
    episode_limit: int | None = None
    success_timing: SuccessTiming = "pre"

    def __post_init__(self) -> None:
        for name in ("num_episodes", "num_slots"):
            check_range(name, getattr(self, name), at_least=1)
        if self.episode_limit is not None:
            check_range("episode_limit", self.episode_limit, at_least=1)


def episode_seed(task_name: str, episode: int) -> int:
    """The seed of everything random in the simulator's episode; the same for every method and training seed."""
    digest = hashlib.sha256(f"{task_name}/{episode}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def environment_spec(task: Task, settings: EvaluationSettings) -> EnvironmentSpec:
    """The simulator in which a task is judged."""
    if task.kind == "adroit":
        return adroit.environment_spec(task, episode_limit=settings.episode_limit)
    return ogbench.environment_spec(
        task,
        success_timing=settings.success_timing,
        episode_limit=settings.episode_limit,
        num_frames=NUM_FRAMES if task.kind == "pixel" else 0,
    )


class SimulatorPool:
    """Slots of one simulator, spread over worker processes; fewer than two keep them in this process."""

    def __init__(self, spec: EnvironmentSpec, num_slots: int, num_workers: int = 0) -> None:
        self.num_slots = num_slots
        self.num_workers = min(num_workers, num_slots) if num_workers > 1 else 0
        self.stack = ExitStack()
        self.local = [] if self.num_workers else [make_environment(spec) for _ in range(num_slots)]
        self.connections = [self._start(spec, worker) for worker in range(self.num_workers)]

    def _start(self, spec: EnvironmentSpec, worker: int) -> Any:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        count = len(range(worker, self.num_slots, self.num_workers))
        process = context.Process(target=serve, args=(theirs, spec, count), daemon=True)
        process.start()
        theirs.close()
        self.stack.callback(process.join, 10)
        self.stack.callback(_hang_up, ours)
        return ours

    def ask(self, command: str, items: Sequence[tuple[int, Any]]) -> list[Any]:
        """Answers in the order of `items`, pairs of a slot and a seed ("reset") or an action ("step")."""
        if not self.num_workers:
            return answer(self.local, command, items)
        shares: list[list[tuple[int, Any]]] = [[] for _ in self.connections]
        for slot, value in items:
            shares[slot % self.num_workers].append((slot // self.num_workers, value))
        for connection, share in zip(self.connections, shares, strict=True):
            if share:
                connection.send((command, share))
        answers = [iter(_receive(c) if share else ()) for c, share in zip(self.connections, shares, strict=True)]
        return [next(answers[slot % self.num_workers]) for slot, _ in items]

    def close(self) -> None:
        for env in self.local:
            env.close()
        self.stack.close()

    def __enter__(self) -> SimulatorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hang_up(connection: Any) -> None:
    try:
        connection.send(None)
        connection.close()
    except OSError:  # the worker is gone already
        pass


def _receive(connection: Any) -> list[Any]:
    try:
        status, value = connection.recv()
    except EOFError as error:
        raise RuntimeError("a simulator process died; is there enough memory for this many slots?") from error
    if status == "error":
        raise RuntimeError(f"a simulator failed: {value}")
    return value


@dataclass
class Game:
    """An episode while it is played."""

    episode: int
    observation: np.ndarray
    length: int = 0
    total: float = 0.0
    success: float = 0.0

    def add(self, result: StepResult) -> None:
        self.observation = result.observation
        self.length += 1
        self.total += result.reward
        self.success = result.success


Act = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def play(pool: SimulatorPool, task_name: str, act: Act, num_episodes: int) -> list[Game]:
    """All episodes, in order of their numbers.

    A slot takes the next episode when its own is over. `act` gets the observations of every slot,
    and the episode and step that each is at; idle slots repeat their last observation.
    """
    games: list[Game] = []
    slots: list[Game] = []
    busy = min(pool.num_slots, num_episodes)
    firsts = pool.ask("reset", [(slot, episode_seed(task_name, slot)) for slot in range(busy)])
    slots = [Game(episode, first) for episode, first in enumerate(firsts)]
    games.extend(slots)
    running = set(range(busy))
    while running:
        shown = slots + [slots[0]] * (pool.num_slots - busy)
        episodes = np.array([game.episode for game in shown], np.int32)
        steps = np.array([game.length for game in shown], np.int32)
        actions = act(np.stack([game.observation for game in shown]), episodes, steps)
        order = sorted(running)
        results = pool.ask("step", [(slot, actions[slot]) for slot in order])
        over = []
        for slot, result in zip(order, results, strict=True):
            slots[slot].add(result)
            if result.is_over:
                over.append(slot)
        fresh = [(slot, len(games) + number) for number, slot in enumerate(over) if len(games) + number < num_episodes]
        running -= set(over)
        if fresh:
            firsts = pool.ask("reset", [(slot, episode_seed(task_name, episode)) for slot, episode in fresh])
            for (slot, episode), first in zip(fresh, firsts, strict=True):
                slots[slot] = Game(episode, first)
                games.append(slots[slot])
                running.add(slot)
    return games


@partial(jax.jit, static_argnames="agent")
def _act(agent: Agent, state: LearnerState, observation: Array, episode: Array, step: Array, key: Array) -> Array:
    """Actions (slots, action_dim), each from the key of its episode and step."""
    keys = jax.vmap(lambda e, s: jax.random.fold_in(jax.random.fold_in(key, e), s))(episode, step)
    return jax.vmap(agent.act, in_axes=(None, 0, 0))(state, observation, keys)


def policy(agent: Agent, state: LearnerState, scaling: Scaling, key: Array) -> Act:
    """The learner as a function of what the simulators show."""

    def act(observation: np.ndarray, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        seen = jnp.asarray(scaling.observations(observation))
        return np.asarray(_act(agent, state, seen, jnp.asarray(episode), jnp.asarray(step), key))

    return act


def score(task: Task, game: Game) -> float:
    """100 for success at the last step and 0 otherwise on OGBench; the D4RL-normalised return on Adroit."""
    if task.kind == "adroit":
        return adroit.normalised_score(adroit.hand_of(task), game.total)
    return 100.0 * game.success


def evaluate(
    agent: Agent,
    state: LearnerState,
    task: Task,
    pool: SimulatorPool,
    *,
    num_episodes: int,
    step: int,
    scaling: Scaling | None = None,
) -> Evaluation:
    """Raw scores of `num_episodes` episodes of one learner after `step` gradient steps."""
    act = policy(agent, state, scaling or Scaling(), jax.random.key(0))
    games = play(pool, task.name, act, num_episodes)
    return Evaluation(
        step=step,
        scores=tuple(score(task, game) for game in games),
        returns=tuple(game.total for game in games),
        lengths=tuple(game.length for game in games),
        successes=tuple(game.success for game in games),
    )


class TaskEvaluator:
    """Evaluates the learners of a run in simulators that are made at the first use."""

    def __init__(self, task: Task, settings: EvaluationSettings, scaling: Scaling, num_workers: int = 0) -> None:
        self.task, self.settings, self.scaling, self.num_workers = task, settings, scaling, num_workers
        self.pool: SimulatorPool | None = None

    def __call__(self, agent: Agent, state: LearnerState, step: int) -> Evaluation:
        if self.pool is None:
            spec = environment_spec(self.task, self.settings)
            self.pool = SimulatorPool(spec, self.settings.num_slots, self.num_workers)
        count = self.settings.num_episodes
        return evaluate(agent, state, self.task, self.pool, num_episodes=count, step=step, scaling=self.scaling)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None


# --- video ------------------------------------------------------------------------------------------

PANEL_COLOUR = np.array([31, 119, 180], np.uint8)
MEAN_COLOUR = np.array([200, 30, 30], np.uint8)


def return_panel(
    returns: np.ndarray, return_range: tuple[float, float], height: int, width: int, num_bins: int = 40
) -> np.ndarray:
    """Picture (height, width, 3) of a histogram of `returns` over `return_range`, its mean as a red line."""
    panel = np.full((height, width, 3), 255, np.uint8)
    low, high = return_range
    counts, _ = np.histogram(np.clip(returns, low, high), bins=num_bins, range=(low, high))
    edges = np.linspace(0, width, num_bins + 1).astype(int)
    tops = (height - 1 - counts / max(counts.max(), 1) * (height - 8)).astype(int)
    for left, right, top in zip(edges[:-1], edges[1:], tops, strict=True):
        panel[top : height - 1, left : max(right - 1, left + 1)] = PANEL_COLOUR
    column = int(np.clip((returns.mean() - low) / (high - low) * (width - 1), 0, width - 1))
    panel[:, column] = MEAN_COLOUR
    panel[-1] = 0
    return panel


def record_video(
    agent: Agent,
    state: LearnerState,
    task: Task,
    path: Path,
    *,
    settings: EvaluationSettings,
    scaling: Scaling | None = None,
    episode: int = 0,
    return_range: tuple[float, float] | None = None,
    num_returns: int = 256,
    frame_rate: int = 20,
) -> int:
    """Write an episode as mp4 or gif, beside the critic's return distribution of each step if it has one.

    Returns the number of frames.
    """
    import imageio.v2 as imageio

    scaling = scaling or Scaling()
    spec = environment_spec(task, settings)
    if task.kind != "pixel":
        spec = EnvironmentSpec(**{**vars(spec), "options": (*spec.options, ("render_mode", "rgb_array"))})
    env = make_environment(spec)
    act = policy(agent, state, scaling, jax.random.key(0))
    returns = _return_sampler(agent, state, num_returns) if return_range else None
    frames = []
    try:
        observation, _ = env.reset(seed=episode_seed(task.name, episode))
        for step in range(spec.episode_limit or task.episode_limit):
            shown = np.asarray(observation)[None]
            shown = shown if shown.dtype == np.uint8 else shown.astype(np.float32)
            action = act(shown, np.array([episode]), np.array([step]))
            frame = np.asarray(env.render(), np.uint8)
            if returns is not None and return_range is not None:
                sample = returns(jnp.asarray(scaling.observations(shown[0])), jnp.asarray(action[0]), step)
                frame = np.concatenate([frame, return_panel(sample, return_range, *frame.shape[:2])], axis=1)
            frames.append(frame)
            observation, _, terminated, truncated, _ = env.step(action[0])
            if terminated or truncated:
                break
    finally:
        env.close()
    _write_frames(imageio, Path(path), frames, frame_rate)
    return len(frames)


def _return_sampler(agent: Any, state: LearnerState, num_returns: int) -> Callable[..., np.ndarray] | None:
    """Returns of one state and action from the critic, or None for a method without a return distribution."""
    sampler: ReturnSampler | None = agent if hasattr(agent, "sample_returns") else None
    if sampler is None:
        return None

    @jax.jit
    def sample(observation: Array, action: Array, step: Array) -> Array:
        return sampler.sample_returns(state, observation, action, jax.random.key(step), num_returns)

    return lambda observation, action, step: np.asarray(sample(observation, action, step)).ravel()


def _write_frames(imageio: Any, path: Path, frames: Sequence[np.ndarray], frame_rate: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gif":
        imageio.mimwrite(path, frames, duration=1000 / frame_rate, loop=0)
    elif path.suffix == ".mp4":
        imageio.mimwrite(path, frames, fps=frame_rate, macro_block_size=None)
    else:
        raise ValueError(f"`{path}` is neither .mp4 nor .gif; choose one of the two endings.")
