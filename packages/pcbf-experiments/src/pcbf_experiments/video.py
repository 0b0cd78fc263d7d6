"""An episode as a video, beside the critic's return distribution of each step."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from pcbf_records.files import atomic_write
from pcbf_records.sheets import Task

PANEL_COLOUR = np.array([31, 119, 180], np.uint8)
MEAN_COLOUR = np.array([200, 30, 30], np.uint8)
SMALL_BYTES = 500_000  # of a video on a page
FRAME_RATE = 20


@dataclass
class Watched:
    """An episode that was played to be looked at.

    Attributes:
      frames: a picture for every step, none without a renderer.
      returns: samples of the critic's return law at every step, none for an agent without a law or a range of returns.
    """

    frames: list[np.ndarray] = field(default_factory=list)
    returns: list[np.ndarray] = field(default_factory=list)
    total: float = 0.0
    success: float = 0.0
    length: int = 0


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


def play_episode(
    snapshot: Snapshot,
    task: Task,
    *,
    settings: EvaluationSettings,
    episode: int = 0,
    num_returns: int = 256,
    is_rendered: bool = True,
) -> Watched:
    """Episode number `episode` as an evaluation with these settings plays it, step by step."""
    agent, state, scaling = snapshot.agent, snapshot.state, snapshot.scaling
    spec = suite_of(task).simulator(
        task,
        episode_limit=settings.episode_limit,
        success_timing=settings.success_timing,
        **({"render_mode": "rgb_array"} if is_rendered and not task.is_pixel else {}),
    )
    env = make_simulator(spec)
    act = policy(agent, state, scaling, jax.random.key(0))
    returns = _return_sampler(agent, state, num_returns) if snapshot.spec.return_range else None
    watched, slot = Watched(), episode % settings.num_slots
    try:
        observation, _ = env.reset(seed=episode_seed(task.name, episode))
        for step in range(spec.episode_limit or task.episode_limit):
            shown = np.repeat(
                plain_observation(observation)[None], settings.num_slots, axis=0
            )  # one program, one result
            action = act(shown, np.full(len(shown), episode), np.full(len(shown), step))[slot]
            if is_rendered:
                watched.frames.append(np.asarray(env.render(), np.uint8))
            if returns is not None:
                seen = jnp.asarray(scaling.observations(shown[0]))
                watched.returns.append(returns(seen, jnp.asarray(action), step) / scaling.reward_scale)
            observation, reward, terminated, truncated, info = env.step(action)
            watched.length, watched.total = step + 1, watched.total + float(reward)
            watched.success = float(info.get("success", 0.0))
            if terminated or truncated:
                break
    finally:
        env.close()
    return watched


def record_video(
    snapshot: Snapshot,
    task: Task,
    path: Path,
    *,
    settings: EvaluationSettings,
    episode: int = 0,
    num_returns: int = 256,
    frame_rate: int = FRAME_RATE,
) -> int:
    """Write an episode as mp4 or gif, beside the critic's return distribution of each step if it has one.

    Returns the number of frames.
    """
    watched = play_episode(snapshot, task, settings=settings, episode=episode, num_returns=num_returns)
    write_video(path, watched, frame_rate=frame_rate)
    return len(watched.frames)


def write_video(path: Path, watched: Watched, *, every: int = 1, frame_rate: int = FRAME_RATE) -> None:
    """Every so many frames of an episode as mp4 or gif, in the time that they took."""
    import imageio.v2 as imageio

    _write_frames(imageio, Path(path), composed(watched, every), max(frame_rate // every, 1))


def write_small_gif(path: Path, watched: Watched) -> None:
    """An episode as a gif of at most `SMALL_BYTES`: as many frames and colours as that leaves."""
    from PIL import Image

    content = io.BytesIO()
    for every in (2, 3, 4, 6, 8):
        frames = composed(watched, every)
        pictures = [Image.fromarray(frame) for frame in frames]
        swatches = [np.full((len(frames[0]), 24, 3), colour, np.uint8) for colour in (PANEL_COLOUR, MEAN_COLOUR)]
        shown = np.concatenate([frames[0], frames[-1], *swatches], axis=1)  # the colours of all frames
        palette = Image.fromarray(shown).quantize(64, dither=Image.Dither.NONE)
        first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
        duration = 1000 * every // FRAME_RATE
        content = io.BytesIO()
        first.save(content, "gif", save_all=True, append_images=rest, duration=duration, loop=0, optimize=True)
        if content.tell() <= SMALL_BYTES:
            break
    with atomic_write(path, "wb") as file:
        file.write(content.getvalue())


def composed(watched: Watched, every: int = 1) -> list[np.ndarray]:
    """Every so many frames of an episode and its last, each beside the law at its step, all laws on one axis."""
    numbers = sorted({*range(0, len(watched.frames), every), len(watched.frames) - 1})
    if not watched.returns:
        return [watched.frames[number] for number in numbers]
    spread = np.quantile(np.concatenate(watched.returns), [0.002, 0.998])
    margin = 0.05 * float(spread[1] - spread[0]) + 1e-6
    shown = float(spread[0]) - margin, float(spread[1]) + margin
    panels = [return_panel(watched.returns[number], shown, *watched.frames[number].shape[:2]) for number in numbers]
    return [
        np.concatenate([watched.frames[number], labelled(panel, shown)], axis=1)
        for number, panel in zip(numbers, panels, strict=True)
    ]


def labelled(panel: np.ndarray, shown: tuple[float, float]) -> np.ndarray:
    """The panel with the ends of its axis, and what it is."""
    from PIL import Image, ImageDraw

    picture = Image.fromarray(panel)
    draw, (width, height) = ImageDraw.Draw(picture), picture.size
    draw.text((4, 2), "return, as the critic sees it", fill=(60, 60, 60))
    draw.text((4, height - 14), f"{shown[0]:.3g}", fill=(0, 0, 0))
    draw.text((width - 4, height - 14), f"{shown[1]:.3g}", fill=(0, 0, 0), anchor="ra")
    return np.asarray(picture)


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
