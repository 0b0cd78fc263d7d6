"""Datasets generated here in the official formats and under the official names, marked as local in and beside the file.

Arms (cube-*, scene, puzzle): OGBench's scripted plan oracles, a new target whenever one is done.
Point mazes: the direction of OGBench's shortest-path subgoal plus noise. Ant mazes have no expert in
the package: smoothed random actions, enough to run the pipeline and nothing more. Images: rendered
from the states of the same episodes, or of a state file. Adroit: given policy weights.

Episode e of a split is made from the seed (seed, split, e) alone, so the number of processes does
not change a byte.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from tqdm import tqdm

from pcbf_baselines.datasets import adroit
from pcbf_baselines.datasets.download import MARK, DatasetError, local_mark, unreadable, write_receipt
from pcbf_baselines.datasets.ogbench import dataset_files
from pcbf_baselines.datasets.tasks import Task
from pcbf_baselines.wrappers import hold_action_space, make_environment, own_generator
from pcbf_core.config import check_range
from pcbf_core.files import atomic_write

POLICIES_VARIABLE = "PCBF_ADROIT_POLICIES"
PLAN_NOISE, PLAN_SMOOTHING = 0.1, 0.5
POINT_NOISE = 0.5
STACK_RANGE = {"cube-double": (0.0, 0.25), "cube-triple": (0.05, 0.35)}  # chance of a stacking target, per episode
MAX_ATTEMPTS = 20
Episode = dict[str, np.ndarray]


@dataclass(frozen=True)
class LocalSettings:
    """How much to generate, and from what.

    Attributes:
      num_episodes, num_validation_episodes: episodes of the training and the validation file.
      episode_length: transitions per episode (1000 in the official files; Adroit episodes end by themselves).
      seed: of everything random.
      state_file: for image datasets, a state file to render instead of new episodes.
      policies: folder of Adroit policy weights `<hand>.npz`.
    """

    num_episodes: int = 100
    num_validation_episodes: int = 10
    episode_length: int = 1000
    seed: int = 0
    state_file: Path | None = None
    policies: Path | None = None

    def __post_init__(self) -> None:
        for name in ("num_episodes", "num_validation_episodes", "episode_length"):
            check_range(name, getattr(self, name), at_least=1)
        check_range("seed", self.seed, at_least=0)


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to make; plain values, so that a worker process can be told."""

    task: Task
    settings: LocalSettings
    split: int  # 0 training, 1 validation
    number: int

    def seed(self, attempt: int = 0) -> int:
        entropy = (self.settings.seed, self.split, self.number, attempt)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def make_local(
    task: Task,
    data_dir: Path,
    settings: LocalSettings,
    *,
    num_workers: int = 1,
    overwrite: bool = False,
    progress: bool = True,
) -> list[Path]:
    """The files written for the dataset of `task`. What is there already is kept unless it is local and `overwrite`."""
    if task.kind == "minari":
        raise DatasetError(
            f"{task.name} brings its own simulator, for which there is no generator; make its dataset with Minari, as "
            "docs/adding-a-task.md shows, or fetch it."
        )
    if task.kind == "adroit":
        return [_make_adroit(task, Path(data_dir), settings, num_workers, overwrite, progress)]
    files = dataset_files(task, Path(data_dir))
    for file in files:
        _check_free(file, overwrite)
    for split, (file, count) in enumerate(
        zip(files, (settings.num_episodes, settings.num_validation_episodes), strict=True)
    ):
        jobs = [EpisodeJob(task, settings, split, number) for number in range(count)]
        mark = describe_local(task, settings, split)
        _write_npz(file, list(_collect(_ogbench_episode, jobs, num_workers, file.stem, progress)), mark)
    return list(files)


def describe_local(task: Task, settings: LocalSettings, split: int = 0) -> dict[str, Any]:
    """What a generated file says of itself."""
    import mujoco

    values = asdict(settings)
    values.pop("state_file")
    policies = values.pop("policies")
    return {
        "source": "local",
        "dataset": task.dataset,
        "behaviour": behaviour(task),
        "split": ("training", "validation")[split],
        **values,
        **({"rendered_from": settings.state_file.name} if settings.state_file else {}),
        **({"policies": [f"{adroit.hand_of(task)}.npz"]} if policies and task.kind == "adroit" else {}),
        "mujoco": mujoco.__version__,
    }


def behaviour(task: Task) -> str:
    """Who acts in the generated episodes of a task, in words."""
    if task.kind == "adroit":
        if "cloned" in task.name:
            return "proxy for cloned: every other episode from the given policy with its noise, the rest with noise 0.5"
        return "given policy with its own noise"
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


def _collect(
    make: Callable[[EpisodeJob], Episode], jobs: Sequence[EpisodeJob], num_workers: int, name: str, progress: bool
) -> Iterator[Episode]:
    """Episodes in the order of `jobs`, made by several processes if asked."""
    with tqdm(total=len(jobs), unit="episode", desc=name, disable=not progress) as bar:
        if num_workers <= 1:
            for job in jobs:
                yield make(job)
                bar.update()
            return
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(num_workers, len(jobs))) as pool:
            for episode in pool.imap(make, jobs):
                yield episode
                bar.update()


def _write_npz(file: Path, episodes: Sequence[Episode], mark: dict[str, Any]) -> None:
    arrays = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
    with atomic_write(file, "wb") as stream:
        arrays[MARK] = np.array(json.dumps(mark, sort_keys=True))
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    write_receipt(file, "local")


# --- OGBench ----------------------------------------------------------------------------------------


def _ogbench_episode(job: EpisodeJob) -> Episode:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if job.task.kind == "pixel" and job.settings.state_file is not None:
            return _rendered(job.task, _stored_episode(job))
        episode = _maze_episode(job) if "maze" in job.task.name else _arm_episode(job)
        if job.task.kind == "pixel":
            episode = _rendered(job.task, episode)
    return {name: _official_type(name, array) for name, array in episode.items()}


def _official_type(name: str, array: np.ndarray) -> np.ndarray:
    if name == "terminals":
        return array.astype(bool)
    if name == "button_states":
        return array.astype(np.int64)
    return array if array.dtype == np.uint8 else array.astype(np.float32)


@cache
def _simulator(environment: str, **options: Any) -> gymnasium.Env:
    """A simulator for generating, one per process and kind."""
    import ogbench  # noqa: F401 - registers its environments

    env = gymnasium.make(environment, disable_env_checker=True, **options)
    hold_action_space(env)
    return env


@contextmanager
def _seeded(env: gymnasium.Env, seed: int) -> Iterator[None]:
    """Every generator that an episode draws from set by `seed` inside the block: NumPy's and the action space's."""
    with own_generator(None):
        np.random.seed(seed)  # noqa: NPY002 - oracles and mazes draw from it
        env.unwrapped.action_space.seed(seed)
        yield


def _base_environment(task: Task) -> str:
    """State environment without a fixed task: cube-double-v0 of visual-cube-double-play-v0."""
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
    env = _simulator(
        _base_environment(job.task), terminate_at_goal=False, mode="data_collection", max_episode_steps=rows
    )
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
    env = _simulator(_base_environment(job.task), terminate_at_goal=False, max_episode_steps=rows)
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
    with np.load(file, allow_pickle=False) as arrays:
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
    environment = f"visual-{_base_environment(task)}"
    is_maze = "maze" in task.name
    env = _simulator(environment, **({} if is_maze else {"mode": "data_collection"}))
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


# --- Adroit -----------------------------------------------------------------------------------------


def find_policies(folder: Path | None = None) -> Path:
    """Folder of Adroit policy weights: the one given, PCBF_ADROIT_POLICIES, or `../shared/adroit_policies`."""
    places = [folder, os.environ.get(POLICIES_VARIABLE), Path.cwd().parent / "shared" / "adroit_policies"]
    for place in places:
        if place and Path(place).is_dir():
            return Path(place)
    raise DatasetError(
        f"no policy weights; pass --policies FOLDER or set {POLICIES_VARIABLE} to a folder with pen.npz, door.npz, "
        "hammer.npz and relocate.npz (arrays w0 b0 w1 b1 w2 b2 in_shift in_scale out_shift out_scale log_std)."
    )


@cache
def load_policy(file: Path) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}


def policy_mean(weights: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """Mean action of a two-layer tanh policy with input and output scaling."""
    hidden = (observation - weights["in_shift"]) / (weights["in_scale"] + 1e-8)
    for layer in ("0", "1"):
        hidden = np.tanh(weights[f"w{layer}"] @ hidden + weights[f"b{layer}"])
    return (weights["w2"] @ hidden + weights["b2"]) * weights["out_scale"] + weights["out_shift"]


def _adroit_episode(job: EpisodeJob) -> Episode:
    hand = adroit.hand_of(job.task)
    assert job.settings.policies is not None
    weights = load_policy(job.settings.policies / f"{hand}.npz")
    is_worse = "cloned" in job.task.name and job.number % 2 == 1
    deviation = 0.5 if is_worse else np.exp(weights["log_std"])
    env = _adroit_simulator(job.task, job.settings.episode_length)
    seed = job.seed()
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    record: dict[str, list[Any]] = {"observations": [observation]}
    is_over = False
    while not is_over:
        action = policy_mean(weights, observation) + deviation * rng.standard_normal(len(weights["log_std"]))
        action = np.clip(action, -1, 1).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        is_over = terminated or truncated
        row = dict(
            observations=observation, actions=action, rewards=reward, terminations=terminated, truncations=truncated
        )
        for name, value in row.items():
            record.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in record.items()}


@cache
def _adroit_simulator(task: Task, episode_length: int) -> gymnasium.Env:
    limit = min(episode_length, task.episode_limit)
    return make_environment(adroit.environment_spec(task, episode_limit=limit))


def _make_adroit(
    task: Task, data_dir: Path, settings: LocalSettings, num_workers: int, overwrite: bool, progress: bool
) -> Path:
    """The folder of a Minari dataset made from policy weights; it takes its place only once it is complete."""
    settings = LocalSettings(**{**asdict(settings), "policies": find_policies(settings.policies)})
    folder = adroit.dataset_folder(task, data_dir)
    if folder.exists():
        if not overwrite:
            raise DatasetError(f"{folder} exists; pass --overwrite to replace local data, or another --data-dir.")
        if adroit.check_dataset(task, data_dir)["source"] != "local":
            raise DatasetError(f"{folder} was not generated here and is not replaced; move it away first.")
    jobs = [EpisodeJob(task, settings, 0, number) for number in range(settings.num_episodes)]
    episodes = list(_collect(_adroit_episode, jobs, num_workers, task.dataset, progress))
    mark = describe_local(task, settings)
    unfinished = data_dir / f".minari-{os.getpid()}"
    try:
        _write_minari(task, unfinished, episodes, mark)
        folder.parent.mkdir(parents=True, exist_ok=True)
        for level in (task.dataset.split("/")[0],):  # Minari wants its note about the namespace
            _copy_namespace(unfinished / "minari" / level, data_dir / "minari" / level)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(unfinished / "minari" / task.dataset, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    adroit.write_receipt(task, data_dir, "local", local=mark)
    return folder


def _copy_namespace(made: Path, wanted: Path) -> None:
    wanted.mkdir(parents=True, exist_ok=True)
    for note in made.glob("*.json"):
        if not (wanted / note.name).exists():
            with atomic_write(wanted / note.name, "wb") as copy:  # a job of another dataset may read it meanwhile
                copy.write(note.read_bytes())


def _write_minari(task: Task, data_dir: Path, episodes: Sequence[Episode], mark: dict[str, Any]) -> None:
    from minari.data_collector import EpisodeBuffer

    with adroit.minari_folder(data_dir) as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari

        root.mkdir(parents=True)
        low, high = adroit.REFERENCE_RETURNS[adroit.hand_of(task)]
        env = _adroit_simulator(task, task.episode_limit)
        dataset = minari.create_dataset_from_buffers(
            task.dataset,
            [EpisodeBuffer(id=number, **_buffer(episode)) for number, episode in enumerate(episodes)],
            env=task.environment,
            observation_space=env.observation_space,
            action_space=env.action_space,
            ref_min_score=low,
            ref_max_score=high,
            description=f"Generated locally; {mark['behaviour']}.",
            algorithm_name="local",
            author="local",
            author_email="none",
            code_permalink="none",
            data_format="hdf5",
        )
        dataset.storage.update_metadata({"pcbf_local": json.dumps(mark, sort_keys=True)})


def _buffer(episode: Episode) -> dict[str, Any]:
    """The episode as Minari's lists."""
    arrays = ("observations", "actions")
    return {name: list(array) if name in arrays else array.tolist() for name, array in episode.items()}
