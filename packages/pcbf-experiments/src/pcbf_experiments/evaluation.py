"""Playing episodes of the real simulators: one batched `act` per step, scores that depend on the seeds alone.

Episode e of a task is reset from a seed made of the task's name and e (and, if asked, of which evaluation of a run it
is), whatever was trained; its actions draw from keys of (e, step). Simulators run in lockstep in a fixed number of
slots, so the number of worker processes changes the speed and nothing else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.extend.core import jaxprs_in_params

from pcbf_core.agent import Agent
from pcbf_core.config import LATER, Count, recorded, tidy
from pcbf_core.learner import LearnerState
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.simulators import SimulatorPool, StepResult, SuccessTiming
from pcbf_experiments.suites import suite_of
from pcbf_records.canonical import plain
from pcbf_records.runs import Evaluation
from pcbf_records.sheets import Task


@dataclass(frozen=True)
class EvaluationSettings:
    """How a learner is judged.

    Attributes:
      num_episodes: 50 in the paper.
      num_slots: simulators that run in lockstep; decides the batch of `act`, so part of the result.
      episode_limit: cut episodes shorter than the task's own limit, for small machines; None keeps it.
      success_timing: see `OGBench.simulator`.
      fresh_starts: the first, second, … evaluation of a run has starts of its own, the same for all methods and seeds,
        so that a score over several evaluations rests on as many more starts; False repeats the same ones.
    """

    num_episodes: Count = 50
    num_slots: Count = 10
    episode_limit: Count | None = None
    success_timing: SuccessTiming = "pre"
    fresh_starts: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        tidy(self)

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings as evaluation records tell them."""
        return plain(recorded(self))


def episode_seed(starts: str, episode: int) -> int:
    """The seed of everything random in the simulator's episode; the same for every method and training seed."""
    digest = hashlib.sha256(f"{starts}/{episode}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass
class Episode:
    """An episode while it is played."""

    number: int
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


def play(pool: SimulatorPool, starts: str, act: Act, num_episodes: int) -> list[Episode]:
    """All episodes, in order of their numbers; `starts` is what their seeds are made of besides.

    A slot takes the next episode when its own is over. `act` gets the observations of every slot, and the episode and
    step that each is at; idle slots repeat their last observation.
    """
    busy = min(pool.num_slots, num_episodes)
    firsts = pool.ask("reset", [(slot, episode_seed(starts, slot)) for slot in range(busy)])
    slots = [Episode(number, first) for number, first in enumerate(firsts)]
    episodes = list(slots)
    running = set(range(busy))
    while running:
        shown = slots + [slots[0]] * (pool.num_slots - busy)
        numbers = np.array([episode.number for episode in shown], np.int32)
        steps = np.array([episode.length for episode in shown], np.int32)
        actions = act(np.stack([episode.observation for episode in shown]), numbers, steps)
        order = sorted(running)
        results = pool.ask("step", [(slot, actions[slot]) for slot in order])
        for slot, result in zip(order, results, strict=True):
            slots[slot].add(result)
        over = [slot for slot, result in zip(order, results, strict=True) if result.is_over]
        running -= set(over)
        fresh = list(zip(over, range(len(episodes), num_episodes), strict=False))
        if fresh:
            firsts = pool.ask("reset", [(slot, episode_seed(starts, number)) for slot, number in fresh])
            for (slot, number), first in zip(fresh, firsts, strict=True):
                slots[slot] = Episode(number, first)
                episodes.append(slots[slot])
                running.add(slot)
    return episodes


@partial(jax.jit, static_argnames="agent")
def _act(agent: Agent, state: LearnerState, observation: Array, episode: Array, step: Array, key: Array) -> Array:
    """Actions (states, action_dim), each from the key of its episode and step."""
    keys = jax.vmap(lambda e, s: jax.random.fold_in(jax.random.fold_in(key, e), s))(episode, step)
    return jax.vmap(agent.act, in_axes=(None, 0, 0))(state, observation, keys)


ACTING_BYTES = 7 * 2**18  # of two critics, which take turns: a layer of one and its kernel fit a cache of 1 MB


def states_at_once(agent: Agent, state: LearnerState, observation: np.ndarray) -> int:
    """How many of the observations' states act in one call, a divisor of their number.

    On a CPU as many as have `ACTING_BYTES` in their widest layer: candidates under many noises make all states together
    outgrow its caches, one state alone makes poor use of it. It depends on nothing else, so that actions are the same
    on any number of cores.
    """
    num_states = len(observation)
    if jax.default_backend() != "cpu":
        return num_states
    program = jax.make_jaxpr(agent.act)(state, observation[0], jax.random.key(0))
    most = max(ACTING_BYTES // max(widest_product(program.jaxpr), 1), 1)
    return max(n for n in range(1, num_states + 1) if num_states % n == 0 and n <= most)


def widest_product(program: Any) -> int:
    """Bytes of the largest result of a matrix product in a program, the programs inside it included."""
    found = [0]
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            found.append(equation.outvars[0].aval.size * equation.outvars[0].aval.dtype.itemsize)
        found.extend(map(widest_product, jaxprs_in_params(equation.params)))
    return max(found)


NUM_THREADS = int(os.environ.get("NPROC") or os.cpu_count() or 1)  # as many as JAX starts for its work on a CPU
_threads = ThreadPoolExecutor(NUM_THREADS)


def policy(agent: Agent, state: LearnerState, scaling: Scaling, key: Array) -> Act:
    """The learner as a function of what the simulators show.

    States act a block at a time, see `states_at_once`, and every thread has its share of the blocks: a program of small
    layers leaves all cores but one half idle.
    """
    state = state.replace(opt_state=None)  # a third of all arrays, and each costs time in every call
    sizes: dict[int, int] = {}  # of blocks, by the number of states

    def act(observation: np.ndarray, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        shown = scaling.observations(observation), episode, step
        size = sizes.get(len(observation)) or sizes.setdefault(len(observation), states_at_once(agent, state, shown[0]))

        def some(begins: np.ndarray) -> Any:
            blocks = ([each[begin : begin + size] for each in shown] for begin in begins)
            return jax.device_get([_act(agent, state, *block, key) for block in blocks])

        begins = np.arange(0, len(observation), size)
        shares = np.array_split(begins, min(NUM_THREADS, len(begins)))
        each = map if len(shares) == 1 else _threads.map
        return np.concatenate([actions for share in each(some, shares) for actions in share])

    return act


class Evaluator:
    """Judges agents on a task, in simulators that are made at the first use."""

    def __init__(self, task: Task, settings: EvaluationSettings, num_workers: int = 0) -> None:
        self.task, self.settings, self.num_workers = task, settings, num_workers
        self.pool: SimulatorPool | None = None

    def __call__(
        self,
        agent: Agent,
        state: LearnerState,
        scaling: Scaling,
        *,
        step: int,
        number: int = 0,
        snapshot: str | None = None,
    ) -> Evaluation:
        """Raw scores of the episodes of one agent after `step` gradient steps, as evaluation `number` of its run.

        `snapshot` is the hash of its file.
        """
        if self.pool is None:
            spec = suite_of(self.task).simulator(
                self.task,
                episode_limit=self.settings.episode_limit,
                success_timing=self.settings.success_timing,
            )
            self.pool = SimulatorPool(spec, self.settings.num_slots, self.num_workers)
        act = policy(agent, state, scaling, jax.random.key(0))
        starts = f"{self.task.name}/{number}" if self.settings.fresh_starts else self.task.name
        episodes = play(self.pool, starts, act, self.settings.num_episodes)
        suite = suite_of(self.task)
        return Evaluation(
            step=step,
            scores=tuple(suite.score(self.task, episode.total, episode.success) for episode in episodes),
            returns=tuple(episode.total for episode in episodes),
            lengths=tuple(episode.length for episode in episodes),
            successes=tuple(episode.success for episode in episodes),
            settings=self.settings.recorded,
            snapshot=snapshot,
        )

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
