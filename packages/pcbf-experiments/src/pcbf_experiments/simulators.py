"""Simulators as the paper's scores need them, and worker processes that step them. Nothing here needs JAX.

Adroit: gymnasium-robotics differs from the D4RL environments in three ways. `make_environment`
undoes each: the pen's horizon is 100 steps, dropping the pen ends the episode (`StopOnDrop`), and
the distance term of door, hammer and relocate costs instead of pays (`DistanceSign`).

OGBench draws from NumPy's global generator and from action spaces as well as from its own
generator. `SeededEnvironment` seeds all three at every reset and keeps the global one apart for
each simulator, so an episode depends on its seed alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium

PEN_HEIGHT = 26  # where a pen observation holds the height of the pen
DROP_HEIGHT = 0.075


def hand_distance(hand: str, observation: np.ndarray) -> np.ndarray:
    """Distance from the palm to what it reaches for, read from Adroit observations (*batch, dims)."""
    if hand == "door":
        reach = observation[..., 35:38]
    elif hand == "hammer":
        reach = observation[..., 33:36] - observation[..., 36:39]
    elif hand == "relocate":
        reach = observation[..., 30:33]
    else:
        raise ValueError(f"`hand={hand!r}` has no distance term; pass door, hammer or relocate.")
    return np.linalg.norm(reach, axis=-1)


def corrected_reward(hand: str, reward: Any, next_observation: np.ndarray) -> Any:
    """D4RL's reward from the one of gymnasium-robotics v1, whose distance term +0.1·d should be -0.1·d."""
    if hand == "pen":
        return reward
    return reward - 0.2 * hand_distance(hand, next_observation)


def is_dropped(observation: np.ndarray) -> np.ndarray:
    """Whether the pen of a pen observation (*batch, 45) has fallen from the hand."""
    return observation[..., PEN_HEIGHT] < DROP_HEIGHT


class DistanceSign(gymnasium.Wrapper):
    """Door, hammer or relocate with the distance term of D4RL, -0.1·d."""

    def __init__(self, env: gymnasium.Env, hand: str) -> None:
        super().__init__(env)
        self.hand = hand

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(corrected_reward(self.hand, reward, observation)), terminated, truncated, info


class StopOnDrop(gymnasium.Wrapper):
    """Pen that ends its episode when the pen falls, as in D4RL."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, bool(terminated or is_dropped(observation)), truncated, info


class FrameStack(gymnasium.Wrapper):
    """Images with the last `num_frames` of the episode on the channel axis; the first one repeats."""

    def __init__(self, env: gymnasium.Env, num_frames: int) -> None:
        super().__init__(env)
        self.num_frames = num_frames
        self.frames: list[np.ndarray] = []

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        frame, info = self.env.reset(**options)
        self.frames = [frame] * self.num_frames
        return np.concatenate(self.frames, axis=-1), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = self.env.step(action)
        self.frames = [*self.frames[1:], frame]
        return np.concatenate(self.frames, axis=-1), reward, terminated, truncated, info


@contextmanager
def own_generator(state: Any) -> Iterator[Callable[[], Any]]:
    """NumPy's global generator at `state` (None leaves it) inside the block, as before after it."""
    before = np.random.get_state()  # noqa: NPY002 - the simulators draw from it
    if state is not None:
        np.random.set_state(state)  # noqa: NPY002
    try:
        yield np.random.get_state
    finally:
        np.random.set_state(before)  # noqa: NPY002


class SeededEnvironment(gymnasium.Wrapper):
    """A simulator whose episode depends on the seed given to `reset` and on nothing else."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.global_state: Any = None
        self.sampled_space = hold_action_space(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is None:
            raise ValueError("`reset` without a seed would draw from the clock; pass `seed`.")
        with own_generator(None) as current:
            np.random.seed(seed)  # noqa: NPY002 - OGBench draws from it
            self.sampled_space.seed(seed)
            result = self.env.reset(seed=seed, options=options)
            self.global_state = current()
        return result

    def step(self, action: Any) -> Any:
        with own_generator(self.global_state) as current:
            result = self.env.step(action)
            self.global_state = current()
        return result


def hold_action_space(env: gymnasium.Env) -> gymnasium.Space:
    """The space the simulator samples its own stabilising actions from, made to be the same at every access.

    OGBench's arms build a new space, seeded by the clock, whenever `action_space` is read; their
    class gets a copy whose space is one object.
    """
    inner = env.unwrapped
    space = inner.action_space
    if inner.action_space is not space:
        kind = type(inner)
        inner.__class__ = type(kind.__name__, (kind,), {"action_space": space})
    return space


@dataclass(frozen=True)
class EnvironmentSpec:
    """How to make one simulator; plain values, so that a worker process can be told.

    Attributes:
      environment: Gymnasium id.
      hand: the Adroit task, or None for OGBench.
      episode_limit: steps after which an episode is cut.
      num_frames: images to stack, 0 for state observations.
      options: further arguments of the simulator, as pairs.
    """

    environment: str
    hand: str | None = None
    episode_limit: int | None = None
    num_frames: int = 0
    options: tuple[tuple[str, Any], ...] = field(default=())


def make_environment(spec: EnvironmentSpec) -> gymnasium.Env:
    """The simulator that `spec` describes, with the Adroit corrections, seeded as a whole at every reset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both packages warn of what this module corrects, and of Box precision
        if spec.hand is None:
            import ogbench  # noqa: F401 - registers its environments
        else:
            import gymnasium_robotics

            gymnasium.register_envs(gymnasium_robotics)
        env = gymnasium.make(
            spec.environment,
            max_episode_steps=spec.episode_limit,
            disable_env_checker=True,
            **dict(spec.options),
        )
        if spec.hand == "pen":
            env = StopOnDrop(env)
        elif spec.hand is not None:
            env = DistanceSign(env, spec.hand)
        if spec.num_frames:
            env = FrameStack(env, spec.num_frames)
        return SeededEnvironment(env)


def plain_observation(observation: Any) -> np.ndarray:
    """The observation in the type learners see: uint8 images, float32 vectors."""
    array = np.asarray(observation)
    return array if array.dtype == np.uint8 else array.astype(np.float32)


@dataclass
class StepResult:
    """What one simulator says after a step."""

    observation: np.ndarray
    reward: float
    is_over: bool
    success: float


def step_once(env: gymnasium.Env, action: np.ndarray) -> StepResult:
    observation, reward, terminated, truncated, info = env.step(action)
    is_over = bool(terminated or truncated)
    return StepResult(plain_observation(observation), float(reward), is_over, float(info.get("success", 0.0)))


def serve(connection: Connection, spec: EnvironmentSpec, num_environments: int) -> None:
    """Body of a worker process: make simulators, then answer ("reset" | "step", [(index, value), …]) until None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        environments = [make_environment(spec) for _ in range(num_environments)]
        while (request := connection.recv()) is not None:
            try:
                connection.send(("ok", answer(environments, *request)))
            except Exception as error:  # told to the parent, which raises
                connection.send(("error", f"{type(error).__name__}: {error}"))
    for env in environments:
        env.close()
    connection.close()


def answer(environments: Sequence[gymnasium.Env], command: str, items: Sequence[tuple[int, Any]]) -> list[Any]:
    """First observations for ("reset", seeds), step results for ("step", actions)."""
    if command == "reset":
        return [plain_observation(environments[index].reset(seed=seed)[0]) for index, seed in items]
    return [step_once(environments[index], action) for index, action in items]
