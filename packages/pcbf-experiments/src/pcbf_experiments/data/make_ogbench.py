"""OGBench datasets generated here in the official format and under the official names, marked as local.

Arms (cube-*, scene, puzzle): OGBench's scripted plan oracles, a new target whenever one is done. Point mazes: the
direction of OGBench's shortest-path subgoal plus noise. Ant mazes have no expert in the package: smoothed random
actions, enough to run the pipeline and nothing more. Images: rendered from the states of the same episodes, or of a
state file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from pcbf_experiments.data.download import MARK, DatasetError, local_mark, unreadable, write_receipt
from pcbf_experiments.data.local import Episode, EpisodeJob, LocalSettings, collect, mark
from pcbf_experiments.simulators import hold_action_space, own_generator, render_without_screen
from pcbf_records.files import atomic_write, open_npz
from pcbf_records.sheets import Task

PLAN_NOISE, PLAN_SMOOTHING = 0.1, 0.5
POINT_NOISE = 0.5
STACK_RANGE = {"cube-double": (0.0, 0.25), "cube-triple": (0.05, 0.35)}  # chance of a stacking target, per episode
MAX_ATTEMPTS = 20


def make_ogbench(
    task: Task,
    files: Sequence[Path],
    settings: LocalSettings,
    *,
    num_workers: int = 1,
    overwrite: bool = False,
    progress: bool = True,
) -> list[Path]:
    """The training and the validation file, written. What is there already is kept unless local and `overwrite`."""
    for file in files:
        _check_free(file, overwrite)
    render_without_screen()  # before `mark` brings MuJoCo
    counts = (settings.num_episodes, settings.num_validation_episodes)
    rendered_from = {"rendered_from": settings.state_file.name} if settings.state_file else {}
    for split, (file, count) in enumerate(zip(files, counts, strict=True)):
        jobs = [EpisodeJob(task, settings, split, number) for number in range(count)]
        said = mark(task, settings, behaviour(task), split, **rendered_from)
        _write_npz(file, list(collect(_episode, jobs, num_workers, file.stem, progress)), said)
    return list(files)


def behaviour(task: Task) -> str:
    """Who acts in the generated episodes of a task, in words."""
    if "pointmaze" in task.name:
        return f"shortest-path direction plus normal noise {POINT_NOISE}"
    if "maze" in task.name:
        return "smoothed random actions: no expert, not comparable with the official data"
    return f"scripted plan oracles with noise {PLAN_NOISE}"


def _check_free(file: Path, overwrite: bool) -> None:
    if not file.exists():
        return
    if not overwrite:
        raise DatasetError(f"{file} exists; pass --overwrite to replace a local file, or another --data-dir.")
    if fault := unreadable(file):
        raise DatasetError(f"{file} is truncated or corrupt ({fault}) and is not replaced; move it away first.")
    if local_mark(file) is None:
        raise DatasetError(f"{file} was not generated here and is not replaced; move it away first.")


def _write_npz(file: Path, episodes: Sequence[Episode], said: dict[str, Any]) -> None:
    arrays = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
    with atomic_write(file, "wb") as stream:
        arrays[MARK] = np.array(json.dumps(said, sort_keys=True))
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    write_receipt(file, "local")


def _episode(job: EpisodeJob) -> Episode:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if job.task.is_pixel and job.settings.state_file is not None:
            return _rendered(job.task, _stored_episode(job))
        episode = _maze_episode(job) if "maze" in job.task.name else _arm_episode(job)
        if job.task.is_pixel:
            episode = _rendered(job.task, episode)
    return {name: _official_type(name, array) for name, array in episode.items()}


def _official_type(name: str, array: np.ndarray) -> np.ndarray:
    if name == "terminals":
        return array.astype(bool)
    if name == "button_states":
        return array.astype(np.int64)
    return array if array.dtype == np.uint8 else array.astype(np.float32)


@lru_cache(maxsize=2)
def _simulator(id: str, **options: Any) -> gymnasium.Env:
    """A simulator for generating, kept from episode to episode, and the one that draws its images."""
    render_without_screen()
    import ogbench  # noqa: F401 - registers its ids

    env = gymnasium.make(id, disable_env_checker=True, **options)
    hold_action_space(env)
    return env


@contextmanager
def _seeded(env: gymnasium.Env, seed: int) -> Iterator[None]:
    """Every generator that an episode draws from set by `seed` inside the block: NumPy's and the action space's."""
    with own_generator(None):
        np.random.seed(seed)  # noqa: NPY002 - oracles and mazes draw from it
        env.unwrapped.action_space.seed(seed)
        yield


def _base_id(task: Task) -> str:
    """Id of the state simulator without a fixed task: cube-double-v0 of visual-cube-double-play-v0."""
    return "-".join(task.dataset.removeprefix("visual-").split("-")[:-2]) + "-v0"


def _arm_episode(job: EpisodeJob) -> Episode:
    """An episode of the scripted arm; one in which a block leaves the table is made again from the next seed."""
    for attempt in range(MAX_ATTEMPTS):
        episode = _try_arm_episode(job, job.seed(attempt))
        if _is_healthy(job.task, episode):
            return episode
    raise RuntimeError(f"{job.task.dataset}: no healthy episode in {MAX_ATTEMPTS} attempts at episode {job.number}.")


def _try_arm_episode(job: EpisodeJob, seed: int) -> Episode:
    rows = job.settings.episode_length + 1
    env = _simulator(_base_id(job.task), terminate_at_goal=False, mode="data_collection", max_episode_steps=rows)
    record: dict[str, list[np.ndarray]] = {}
    with _seeded(env, seed):
        observation, info = env.reset(seed=seed)
        domain = job.task.domain.removeprefix("visual-").removesuffix("-play")
        stack_chance = float(np.random.uniform(*STACK_RANGE.get(domain, (0.5, 0.5))))  # noqa: NPY002
        oracles = _oracles(env, job.task)
        oracle = oracles[info["privileged/target_task"]]
        oracle.reset(observation, info)
        for _ in range(rows):
            action = np.clip(oracle.select_action(observation, info), -1, 1)
            before = observation
            observation, _, _, _, info = env.step(action)
            _append(record, before, action, info)
            if oracle.done:
                target = env.unwrapped.set_new_target(p_stack=stack_chance)  # type: ignore[attr-defined]
                oracle = oracles[target[1]["privileged/target_task"]]
                oracle.reset(*target)
    return _closed(record)


def _append(record: dict[str, list[np.ndarray]], observation: Any, action: np.ndarray, info: dict[str, Any]) -> None:
    """Add a row: what was seen and done, and the simulator's state before it."""
    row = {"observations": observation, "actions": action, "qpos": info["prev_qpos"], "qvel": info["prev_qvel"]}
    if "prev_button_states" in info:
        row["button_states"] = info["prev_button_states"]
    for name, value in row.items():
        record.setdefault(name, []).append(np.array(value))


def _closed(record: dict[str, list[np.ndarray]]) -> Episode:
    arrays = {name: np.stack(values) for name, values in record.items()}
    rows = len(arrays["actions"])
    return {**arrays, "terminals": np.arange(rows) == rows - 1}


def _oracles(env: gymnasium.Env, task: Task) -> dict[str, Any]:
    from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
    from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
    from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
    from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

    noise = dict(noise=PLAN_NOISE, noise_smoothing=PLAN_SMOOTHING)
    return {
        "cube": CubePlanOracle(env=env, **noise),
        "button": ButtonPlanOracle(env=env, gripper_always_closed="puzzle" in task.name, **noise),
        "drawer": DrawerPlanOracle(env=env, **noise),
        "window": WindowPlanOracle(env=env, **noise),
    }


def _is_healthy(task: Task, episode: Episode) -> bool:
    """Whether every block of a scene stays near the table; the physics can throw one out of a moving drawer."""
    if "scene" not in task.name:
        return True
    block = episode["qpos"][:, 14:17]
    return bool(((block > [0.05, -0.55, -0.05]) & (block < [0.8, 0.55, 0.55])).all())


def _maze_episode(job: EpisodeJob) -> Episode:
    """An episode that walks from goal to goal; a point follows the shortest path, an ant moves at random."""
    rows = job.settings.episode_length + 1
    env = _simulator(_base_id(job.task), terminate_at_goal=False, max_episode_steps=rows)
    maze: Any = env.unwrapped
    seed = job.seed()
    rng = np.random.default_rng(seed)
    cells = [tuple(int(i) for i in cell) for cell in np.argwhere(maze.maze_map == 0)]
    record: dict[str, list[np.ndarray]] = {}
    act = _point_action if "pointmaze" in job.task.name else _ant_walk(rng, rows, env.action_space.shape)
    with _seeded(env, seed):
        start, goal = (cells[i] for i in rng.integers(len(cells), size=2))
        observation, _ = env.reset(seed=seed, options={"task_info": {"init_ij": start, "goal_ij": goal}})
        for _ in range(rows):
            action = act(maze, rng)
            before = observation
            observation, _, _, _, info = env.step(action)
            _append(record, before, action, info)
            if info["success"]:
                goal = cells[rng.integers(len(cells))]
                maze.set_goal(goal_xy=maze.add_noise(maze.ij_to_xy(goal)))
    return _closed(record)


def _point_action(maze: Any, rng: np.random.Generator) -> np.ndarray:
    position, goal = np.array(maze.get_xy()), np.array(maze.cur_goal_xy)
    is_near = maze.xy_to_ij(position) == maze.xy_to_ij(goal)
    aim = goal if is_near else maze.get_oracle_subgoal(position, goal)[0]
    step = aim - position
    action = step / (np.linalg.norm(step) + 1e-6) + POINT_NOISE * rng.standard_normal(2)
    return np.clip(action, -1, 1)


def _ant_walk(rng: np.random.Generator, rows: int, shape: Any) -> Callable[..., np.ndarray]:
    """Actions of a slow random walk inside the box."""
    steps = rng.standard_normal((rows, *shape))
    walk = np.empty_like(steps)
    walk[0] = steps[0]
    for i in range(1, rows):
        walk[i] = 0.9 * walk[i - 1] + np.sqrt(1 - 0.9**2) * steps[i]
    actions = iter(np.clip(walk, -1, 1))
    return lambda maze, rng: next(actions)


def _stored_episode(job: EpisodeJob) -> Episode:
    """Episode `number` of a state file; the validation episodes come from the file's own validation file."""
    file = job.settings.state_file
    assert file is not None
    if job.split:
        file = file.with_name(f"{file.stem}-val.npz")
    with open_npz(file) as arrays:
        ends = np.flatnonzero(arrays["terminals"]) + 1
        if job.number >= len(ends):
            raise DatasetError(f"{file} has {len(ends)} episodes; ask for at most that many.")
        begin = 0 if job.number == 0 else int(ends[job.number - 1])
        end = min(int(ends[job.number]), begin + job.settings.episode_length + 1)
        names = [name for name in ("actions", "qpos", "qvel", "button_states") if name in arrays.files]
        episode = {name: arrays[name][begin:end] for name in names}
    return {**episode, "terminals": np.arange(end - begin) == end - begin - 1}


def _rendered(task: Task, episode: Episode) -> Episode:
    """The episode with images for observations, rendered from its states."""
    is_maze = "maze" in task.name
    env = _simulator(f"visual-{_base_id(task)}", **({} if is_maze else {"mode": "data_collection"}))
    inner: Any = env.unwrapped
    with _seeded(env, 0):
        env.reset(seed=0)
        look = inner.get_ob if is_maze else inner.compute_observation
        states = [episode[name] for name in ("qpos", "qvel", "button_states") if name in episode]
        frames = []
        for state in zip(*states, strict=True):
            inner.set_state(*(np.asarray(part, np.int64 if i == 2 else np.float64) for i, part in enumerate(state)))
            frames.append(np.array(look(), np.uint8))
    return {**episode, "observations": np.stack(frames)}
