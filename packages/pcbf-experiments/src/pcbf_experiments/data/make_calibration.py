"""Episodes of known behaviours on three simulators, whose returns-to-go say whether a learned law is right.

Each behaviour acts by what is observed and by noise of its own, so that the law of the return given (s, a) is what
Bellman's equation says: in the maze a walk to one goal by the shortest path, which leads over teleports; of the hopper
a spring to the upright posture. Only the arm that makes cube-single-play follows targets that are not observed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from pcbf_experiments.data.download import DatasetError
from pcbf_experiments.data.rows import Rows, clip_actions
from pcbf_experiments.simulators import hold_action_space, own_generator, render_without_screen
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
from pcbf_records.calibration import CUBE_TASK
from pcbf_records.errors import RecordError
from pcbf_records.files import atomic_write, open_npz

MAZE_GOAL, MAZE_TRAP = (7, 10), (1, 7)  # cells; from the closed one, where a teleport may lead, there is no way
MAZE_TELEPORTS = ((4, 6), (5, 1))
MAZE_NOISE = 0.5
HOPPER_STIFFNESS, HOPPER_DAMPING, HOPPER_NOISE = 2.0, 0.2, 1.0
FIELDS = ("observation", "action", "reward", "terminal", "is_last")

Step = tuple[np.ndarray, np.ndarray, float, bool]  # what was seen and done, the reward, whether the return ends
Episode = tuple[list[Step], np.ndarray]  # steps, and what is seen after the last


def make_data(name: str, output: Path, *, episodes: int, length: int, seed: int, data_dir: Path | None) -> None:
    """Write the rows of a dataset; `data_dir` has the files of cube-single-play, which `pcbf-data make-local` makes."""
    if name == "cube":
        if data_dir is None:
            raise ValueError("cube is read from files of `pcbf-data make-local`; pass their folder as --data-dir.")
        rows = suite_of(find_task(CUBE_TASK)).load_rows(find_task(CUBE_TASK), data_dir)[0]
    else:
        make = {"teleport": maze_episode, "hopper": hopper_episode}[name]
        seeds = np.random.SeedSequence((seed, len(name))).generate_state(episodes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = joined(map(partial(make, length=length), seeds.tolist()))
    if rows.episode_lengths.max() > length:
        raise DatasetError(f"{data_dir} has episodes of {rows.episode_lengths.max()} steps, --length says {length}.")
    arrays = {field: getattr(rows, field) for field in FIELDS}
    with atomic_write(output, "wb") as file:
        np.savez_compressed(file, **arrays, has_last_action=rows.has_last_action, length=length)


def load_data(path: Path) -> tuple[Rows, int]:
    """The rows of a dataset, and after how many steps its episodes were cut."""
    try:
        with open_npz(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        rows = Rows(**{name: arrays[name] for name in FIELDS}, has_last_action=bool(arrays["has_last_action"]))
        return rows, int(arrays["length"])
    except (OSError, KeyError, ValueError) as error:
        raise RecordError(f"{path} is no file that `pcbf-calibrate data` wrote ({error}); make it again.") from error


def joined(episodes: Iterator[Episode]) -> Rows:
    """Episodes end to end, each closed by a row whose action and reward do not count."""
    parts: dict[str, list[np.ndarray]] = {field: [] for field in FIELDS}
    for steps, last in episodes:
        observation, action, reward, terminal = map(np.array, zip(*steps, strict=True))
        parts["observation"].append(np.concatenate([observation, last[None]]))
        parts["action"].append(np.concatenate([action, np.zeros_like(action[:1])]))
        parts["reward"].append(np.append(reward, 0.0))
        parts["terminal"].append(np.append(terminal, False))
        parts["is_last"].append(np.arange(len(steps) + 1) == len(steps))
    arrays = {field: np.concatenate(values) for field, values in parts.items()}
    numbers = {field: arrays[field].astype(np.float32) for field in ("observation", "reward", "terminal")}
    return Rows(**numbers, action=clip_actions(arrays["action"]), is_last=arrays["is_last"], has_last_action=False)


# --- the maze with teleports ------------------------------------------------------------------------------------------


@cache
def maze() -> Any:
    render_without_screen()
    import ogbench  # noqa: F401 - registers its ids

    options = {"terminate_at_goal": False, "add_noise_to_goal": False, "disable_env_checker": True}
    env = gymnasium.make("pointmaze-teleport-v0", **options)
    hold_action_space(env)
    return env.unwrapped


@cache
def directions() -> dict[tuple[int, int], np.ndarray]:
    """Where the walker heads in each free cell: the middle of the next one on the shortest path."""
    goal = np.array(maze().ij_to_xy(MAZE_GOAL))
    cells = [(int(i), int(j)) for i, j in np.argwhere(maze().maze_map == 0)]
    found = {cell: np.array(maze().get_oracle_subgoal(maze().ij_to_xy(cell), goal)[0]) for cell in cells}
    return {**found, MAZE_GOAL: goal}


@cache
def starts() -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The cells from which the shortest path leads over a teleport, and all from which there is a path."""
    env, aims = maze(), directions()
    cells = [cell for cell in aims if cell not in (MAZE_GOAL, MAZE_TRAP)]

    def leads_over_a_teleport(cell: tuple[int, int]) -> bool:
        while cell != MAZE_GOAL:
            if cell in MAZE_TELEPORTS:
                return True
            cell = env.xy_to_ij(aims[cell])
        return False

    return [cell for cell in cells if leads_over_a_teleport(cell)], cells


def maze_episode(seed: int, length: int) -> Episode:
    """A walk to the goal, -1 for every step; a teleport leads to one of three places, one of them closed.

    Half of the walks begin where the path leads over a teleport, the others anywhere. Observed is where the point is
    after a jump.
    """
    env, aims, rng = maze(), directions(), np.random.default_rng(seed)
    cells = starts()[rng.integers(2)]
    start = cells[rng.integers(len(cells))]
    steps: list[Step] = []
    with own_generator(None):
        np.random.seed(seed)  # noqa: NPY002 - teleports draw from it
        env.unwrapped.action_space.seed(seed)
        env.reset(seed=seed, options={"task_info": {"init_ij": start, "goal_ij": MAZE_GOAL}})
        position, has_arrived = env.get_xy(), False
        while len(steps) < length and not has_arrived:
            way = aims[env.xy_to_ij(position)] - position
            action = np.clip(way / (np.linalg.norm(way) + 1e-6) + MAZE_NOISE * rng.standard_normal(2), -1, 1)
            has_arrived = bool(env.step(action)[-1]["success"])
            steps.append((position, action, -1.0, has_arrived))
            position = env.get_xy()
    return steps, position


# --- the hopper -------------------------------------------------------------------------------------------------------


@cache
def hopper(length: int) -> gymnasium.Env:
    return gymnasium.make("Hopper-v5", max_episode_steps=length, disable_env_checker=True)


def hopper_episode(seed: int, length: int) -> Episode:
    """A hopper that is drawn to its upright posture, with much noise, until it falls; the simulator's own rewards."""
    env, rng = hopper(length), np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    steps: list[Step] = []
    ended = False
    while not ended:
        angles, speeds = observation[2:5], observation[8:11]
        wanted = -HOPPER_STIFFNESS * angles - HOPPER_DAMPING * speeds + HOPPER_NOISE * rng.standard_normal(3)
        action = np.clip(wanted, -1, 1)
        before = observation
        observation, reward, has_fallen, is_cut, _ = env.step(action)
        steps.append((before, action, float(reward), bool(has_fallen)))
        ended = bool(has_fallen or is_cut)
    return steps, observation
