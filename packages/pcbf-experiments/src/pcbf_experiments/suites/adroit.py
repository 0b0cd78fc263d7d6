"""D4RL's Adroit through Minari: with the rewards and stops of D4RL, and D4RL-normalised scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from pcbf_experiments.data.checks import Check, fraction
from pcbf_experiments.data.download import Source
from pcbf_experiments.data.local import LocalSettings
from pcbf_experiments.data.rows import DatasetInfo, Rows, summarise
from pcbf_experiments.simulators import (
    DistanceSign,
    SimulatorSpec,
    StopOnDrop,
    SuccessTiming,
    corrected_reward,
    hand_distance,
    is_dropped,
)
from pcbf_experiments.suites import minari
from pcbf_experiments.suites.base import Suite
from pcbf_records.sheets import Task

REFERENCE_RETURNS = {
    "pen": (96.262799, 3076.8331017826877),
    "door": (-56.512833, 2880.5693087298737),
    "hammer": (-274.856578, 12794.134825156867),
    "relocate": (-6.425911, 4233.877797728884),
}
SHAPES = {"pen": (45, 24), "door": (39, 28), "hammer": (46, 26), "relocate": (39, 30)}
REACHING = ("door", "hammer", "relocate")  # have a distance term
EARLY_STEPS = 8  # steps of an episode in which only the hand moves
LOWEST_REWARD = -100.0  # costs of distance and speed: no sharp bound
HIGHEST_REWARD = {"pen": 61.0, "door": 20.0, "hammer": 102.0, "relocate": 31.0}  # every bonus, no cost


class Adroit(Suite):
    """Pen, door, hammer and relocate, scored by D4RL's normalised return."""

    name: ClassVar[str] = "adroit"
    num_final_evaluations: ClassVar[int] = 1

    def check(self, task: Task) -> None:
        if hand_of(task) not in SHAPES or task.simulator:
            raise ValueError(
                f"{task.name} is no Adroit task; its name must begin with one of {', '.join(SHAPES)}, and the suite "
                "knows the simulator."
            )

    def load_rows(self, task: Task, data_dir: Path) -> tuple[Rows, DatasetInfo]:
        """The rows with D4RL's rewards, which data made here has already.

        Pen episodes end where the pen falls: what was recorded after that is left out.
        """
        receipt = minari.check_dataset(task, data_dir)
        hand, episodes = hand_of(task), minari.read_episodes(task, data_dir)
        is_paid = hand in REACHING and receipt["source"] != "local" and distance_slope(hand, episodes) > 0
        rows = minari.joined([_episode_rows(hand, episode, is_paid) for episode in episodes])
        left_out = sum(len(episode.actions) for episode in episodes) - rows.num_transitions
        details = {
            **minari.details(receipt, episodes),
            "distance_sign_corrected": is_paid,
            "steps_after_drop_left_out": left_out,
        }
        return rows, summarise(task.dataset, rows, receipt["source"], receipt["files"], details)

    def reward_bounds(self, info: DatasetInfo) -> tuple[float, float]:
        return info.reward_range

    def fetch(self, task: Task, data_dir: Path, sources: Sequence[Source]) -> list[dict[str, Any]]:
        return [minari.fetch(task, data_dir, sources)]

    def make_local(
        self, task: Task, data_dir: Path, settings: LocalSettings, *, num_workers: int, overwrite: bool, progress: bool
    ) -> list[Path]:
        from pcbf_experiments.data.make_adroit import make_adroit

        folder = make_adroit(task, data_dir, settings, num_workers=num_workers, overwrite=overwrite, progress=progress)
        return [folder]

    def shapes(self, task: Task) -> tuple[tuple[int, ...], int]:
        dims, actions = SHAPES[hand_of(task)]
        return (dims,), actions

    def checks(self, task: Task, rows: Rows, info: DatasetInfo, data_dir: Path | None) -> list[Check]:
        hand, index = hand_of(task), rows.transition_rows()
        reward, num_terminal = rows.reward[index], int((rows.terminal[index] > 0).sum())
        low, high = LOWEST_REWARD, HIGHEST_REWARD[hand]
        return [
            *minari.recorded_checks(rows, info),
            Check(
                "reward range",
                f"[{reward.min():.4g}, {reward.max():.4g}]",
                f"within [{low:g}, {high:g}]",
                bool(reward.min() >= low and reward.max() <= high),
            ),
            Check(
                "terminal transitions",
                f"{num_terminal}",
                "only the pen's" if hand == "pen" else "0",
                hand == "pen" or not num_terminal,
            ),
            fraction("transitions with reward above 5", float((reward > 5).mean())),
        ]

    def simulator(
        self, task: Task, *, episode_limit: int | None = None, success_timing: SuccessTiming = "pre", **options: Any
    ) -> SimulatorSpec:
        """D4RL's horizon, stop and reward."""
        hand = hand_of(task)
        return SimulatorSpec(
            simulator_id(task),
            registered_by="gymnasium_robotics",
            wrappers=(StopOnDrop,) if hand == "pen" else (partial(DistanceSign, hand=hand),),
            episode_limit=episode_limit or task.episode_limit,
            options=tuple(options.items()),
        )

    def score(self, task: Task, episode_return: float, success: float) -> float:
        return normalised_score(hand_of(task), episode_return)

    def views(self, task: Task, env: gymnasium.Env) -> list[np.ndarray]:
        return [minari.start_view(env)]


def hand_of(task: Task) -> str:
    """What the hand does: the first word of the task's name, as D4RL has it."""
    return task.name.split("-")[0]


def simulator_id(task: Task) -> str:
    return f"AdroitHand{hand_of(task).capitalize()}-v1"


def normalised_score(hand: str, episode_return: float) -> float:
    """100 · (return - random) / (expert - random) with D4RL's reference returns."""
    low, high = REFERENCE_RETURNS[hand]
    return 100.0 * (episode_return - low) / (high - low)


def distance_slope(hand: str, episodes: Sequence[Any]) -> float:
    """Least-squares slope of the reward in the palm's distance over the first steps of each episode.

    About -0.1 in D4RL; +0.1 in data made with a release of gymnasium-robotics that has the sign
    wrong. Only the hand moves in those steps, so the other terms stay put.
    """
    distances, rewards = [], []
    for episode in episodes:
        distance = hand_distance(hand, np.asarray(episode.observations)[1 : EARLY_STEPS + 1])
        reward = np.asarray(episode.rewards)[:EARLY_STEPS]
        distances.append(distance - distance.mean())
        rewards.append(reward - reward.mean())
    x, y = np.concatenate(distances), np.concatenate(rewards)
    return float((x @ y) / max(x @ x, 1e-12))


def _episode_rows(hand: str, episode: Any, is_paid: bool) -> dict[str, np.ndarray]:
    """Arrays of one episode with D4RL's reward and stop."""
    observation = np.asarray(episode.observations)
    reward = np.asarray(episode.rewards, np.float64)
    terminal = np.asarray(episode.terminations, bool)
    if hand == "pen":
        terminal = terminal | is_dropped(observation[1:])
    if is_paid:
        reward = corrected_reward(hand, reward, observation[1:])
    return minari.episode_rows(episode, reward, terminal)
