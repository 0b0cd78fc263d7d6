"""Simulators as the paper's scores need them, and a pool of worker processes that step them. Nothing here needs JAX.

Adroit: gymnasium-robotics differs from D4RL's simulators in three ways, which the suite undoes: the pen's horizon is
100 steps, dropping the pen ends the episode (`StopOnDrop`), and the distance term of door, hammer and relocate costs
instead of pays (`DistanceSign`).

OGBench draws from NumPy's global generator and from action spaces as well as from its own generator.
`SeededSimulator` seeds all three at every reset and keeps the global one apart for each simulator, so an episode
depends on its seed alone.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

import gymnasium
import numpy as np

SuccessTiming = Literal["pre", "post"]

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


class SeededSimulator(gymnasium.Wrapper):
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
class SimulatorSpec:
    """How to make one simulator; it can be pickled, so that a worker process can be told.

    Attributes:
      id: Gymnasium id, `module:Id` if importing `module` registers it.
      registered_by: module whose import registers the id, if the id does not name it.
      wrappers: classes or functions that take the simulator and give it back changed, the innermost first.
      episode_limit: steps after which an episode is cut.
      options: further arguments of the simulator, as pairs.
    """

    id: str
    registered_by: str | None = None
    wrappers: tuple[Callable[[gymnasium.Env], gymnasium.Env], ...] = ()
    episode_limit: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


def render_without_screen() -> None:
    """Have MuJoCo render without a screen, unless the user chose otherwise; it asks once, when it is imported.

    Called before anything that brings MuJoCo is imported.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")


def make_simulator(spec: SimulatorSpec) -> gymnasium.Env:
    """The simulator that `spec` describes, seeded as a whole at every reset; it renders without a screen."""
    render_without_screen()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # packages warn of what our wrappers correct, and of Box precision
        if spec.registered_by is not None:
            importlib.import_module(spec.registered_by)
        env = gymnasium.make(
            spec.id, max_episode_steps=spec.episode_limit, disable_env_checker=True, **dict(spec.options)
        )
        for wrap in spec.wrappers:
            env = wrap(env)
        return SeededSimulator(env)


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


def serve(connection: Connection, spec: SimulatorSpec, num_simulators: int) -> None:
    """Body of a worker process: make simulators, then answer ("reset" | "step", [(index, value), …]) until None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        simulators = [make_simulator(spec) for _ in range(num_simulators)]
        while (request := _next_request(connection)) is not None:
            try:
                connection.send(("ok", answer(simulators, *request)))
            except Exception as error:  # told to the parent, which raises
                connection.send(("error", f"{type(error).__name__}: {error}"))
    for env in simulators:
        env.close()
    connection.close()


def _next_request(connection: Connection) -> Any:
    """What the parent asks; None if it is gone."""
    try:
        return connection.recv()
    except (EOFError, KeyboardInterrupt):
        return None


def answer(simulators: Sequence[gymnasium.Env], command: str, items: Sequence[tuple[int, Any]]) -> list[Any]:
    """First observations for ("reset", seeds), step results for ("step", actions)."""
    if command == "reset":
        return [plain_observation(simulators[index].reset(seed=seed)[0]) for index, seed in items]
    return [step_once(simulators[index], action) for index, action in items]


# --- many of them ---------------------------------------------------------------------------------------------------


class SimulatorPool:
    """Slots of one simulator, spread over worker processes; fewer than two keep them in this process."""

    def __init__(self, spec: SimulatorSpec, num_slots: int, num_workers: int = 0) -> None:
        self.num_slots = num_slots
        self.num_workers = min(num_workers, num_slots) if num_workers > 1 else 0
        self.stack = ExitStack()
        self.local = [] if self.num_workers else [make_simulator(spec) for _ in range(num_slots)]
        self.connections = [self._start(spec, worker) for worker in range(self.num_workers)]

    def _start(self, spec: SimulatorSpec, worker: int) -> Any:
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
                _send(connection, (command, share))
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


DIED = "a simulator process died, see above if it could say why; is there enough memory for this many slots?"


def _send(connection: Any, request: Any) -> None:
    try:
        connection.send(request)
    except OSError as error:
        raise ChildProcessError(DIED) from error


def _receive(connection: Any) -> list[Any]:
    try:
        status, value = connection.recv()
    except (EOFError, OSError) as error:
        raise ChildProcessError(DIED) from error
    if status == "error":
        raise ChildProcessError(f"a simulator failed: {value}")
    return value
