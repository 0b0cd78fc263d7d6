"""An episode as a video, beside the critic's return distribution of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_core.agent import ReturnSampler
from pcbf_core.learner import LearnerState
from pcbf_experiments.evaluation import EvaluationSettings, episode_seed, policy
from pcbf_experiments.running.snapshot import Snapshot
from pcbf_experiments.simulators import make_simulator, plain_observation
from pcbf_experiments.suites import suite_of
from pcbf_records.sheets import Task

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
    snapshot: Snapshot,
    task: Task,
    path: Path,
    *,
    settings: EvaluationSettings,
    episode: int = 0,
    num_returns: int = 256,
    frame_rate: int = 20,
) -> int:
    """Write an episode as mp4 or gif, beside the critic's return distribution of each step if it has one.

    Returns the number of frames.
    """
    import imageio.v2 as imageio

    agent, state, scaling, return_range = snapshot.agent, snapshot.state, snapshot.scaling, snapshot.spec.return_range
    spec = suite_of(task).simulator(
        task,
        episode_limit=settings.episode_limit,
        success_timing=settings.success_timing,
        **({} if task.is_pixel else {"render_mode": "rgb_array"}),
    )
    env = make_simulator(spec)
    act = policy(agent, state, scaling, jax.random.key(0))
    returns = _return_sampler(agent, state, num_returns) if return_range else None
    frames = []
    try:
        observation, _ = env.reset(seed=episode_seed(task.name, episode))
        for step in range(spec.episode_limit or task.episode_limit):
            shown = plain_observation(observation)[None]
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
