"""Calibration: evaluate the behaviour that made the data, hold the learned law against returns of other episodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_baselines.c51 import CategoricalCritic, CategoricalCriticConfig
from pcbf_baselines.codac import ConservativeCritic, ConservativeCriticConfig
from pcbf_baselines.gaussian import GaussianCritic, GaussianCriticConfig
from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_baselines.value_flows import ValueFlowsCritic, ValueFlowsCriticConfig
from pcbf_core.config import Count, Positive, Range, check_choice, config_from
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig
from pcbf_core.dataset import Dataset
from pcbf_core.flow_critic import FlowCritic
from pcbf_core.learner import LearnerConfig, LearnerState, ReturnCritic
from pcbf_core.noise import even_levels
from pcbf_core.types import TaskSpec, Transition
from pcbf_experiments.data.make_calibration import load_data
from pcbf_experiments.data.rows import Rows
from pcbf_experiments.scoring import scores
from pcbf_experiments.seeds import SeedSettings, made_by, train_seeds
from pcbf_records.arrays import Floats
from pcbf_records.calibration import CALIBRATED, COVERAGES, MARGINAL, MONTE_CARLO
from pcbf_records.variants import base_method

OpenShare = Annotated[float, Range(above=0, below=1)]
MARGIN = 0.1  # how far the range of returns goes beyond those of the data, in shares of their width
LEAST_DEVIATION = 1e-3  # of an observation that is standardised


@dataclass(frozen=True)
class CalibrationSettings(SeedSettings):
    """How critics are trained and judged on a dataset; see `SeedSettings` for the training.

    Attributes:
      discount: γ.
      held_out: share of the episodes whose returns judge, never trained on.
      split_seed: of the choice of those episodes, and of the states among them that are judged.
      truncation: a return is known once γ^H is below this after H steps, or when it has ended.
      return_width: rewards are scaled so that the range of returns has this width for the learners.
      num_states: states at most at which laws are judged.
      num_levels, num_eval_steps: even quantiles of each law, and solver steps of flows that give them.
      tolerance: returns nearer than this, in standard deviations, count as equal (`randomised_pit`).
    """

    discount: OpenShare = 0.98
    held_out: OpenShare = 0.2
    split_seed: Annotated[int, Range(at_least=0)] = 0
    truncation: OpenShare = 0.01
    return_width: Positive = 4.0
    num_states: Count = 1500
    num_levels: Annotated[int, Range(at_least=2)] = 64
    num_eval_steps: Count = 10
    tolerance: Annotated[float, Range(at_least=0)] = 0.02

    @property
    def horizon(self) -> int:
        """H: the steps after which γ^H < `truncation`."""
        return math.floor(math.log(self.truncation) / math.log(self.discount)) + 1


@dataclass(frozen=True)
class Entry:
    """How a method takes part: its classes, what is fixed for it."""

    critic: type[ReturnCritic]
    config: type[LearnerConfig]
    settings: Mapping[str, Any] = field(default_factory=dict)


ENTRIES = {
    "pcbf_flow": Entry(PCBFCritic, PCBFCriticConfig, {"path": "flow"}),
    "pcbf": Entry(PCBFCritic, PCBFCriticConfig, {"path": "linear"}),
    "value_flows": Entry(ValueFlowsCritic, ValueFlowsCriticConfig),
    "iqn": Entry(QuantileCritic, QuantileCriticConfig),
    "codac": Entry(ConservativeCritic, ConservativeCriticConfig),
    "c51": Entry(CategoricalCritic, CategoricalCriticConfig),
    "gaussian": Entry(GaussianCritic, GaussianCriticConfig),
    MONTE_CARLO: Entry(PCBFCritic, PCBFCriticConfig, {"path": "flow"}),
}


def make_critic(
    method: str, spec: TaskSpec, discount: float, default: Mapping[str, Any], own: Mapping[str, Any]
) -> ReturnCritic:
    """The critic of a method or variant: `default` settings where it has them, then its `own`."""
    name = base_method(method)
    check_choice("method", name, CALIBRATED)
    entry = ENTRIES[name]
    known = {each.name for each in dataclasses.fields(entry.config)}
    shared = {name: value for name, value in {**default, "discount": discount}.items() if name in known}
    return entry.critic(config_from(entry.config, {**shared, **entry.settings, **own}), spec)


# --- returns ----------------------------------------------------------------------------------------------------------


def returns_to_go(rows: Rows, discount: float) -> Floats:
    """G = R + γ (1 - d) G' from every row to the end of its episode; 0 on the rows that close one."""
    found = np.zeros(len(rows.reward))
    rewards, continuation = rows.reward.astype(float).tolist(), (discount * (1.0 - rows.terminal)).tolist()
    closes, after = rows.is_last.tolist(), 0.0
    for row in range(len(found) - 1, -1, -1):
        after = 0.0 if closes[row] else rewards[row] + continuation[row] * after
        found[row] = after
    return found


def known_rows(rows: Rows, length: int, horizon: int) -> np.ndarray:
    """Rows whose return-to-go is known, by their step alone, so that what becomes of an episode chooses nothing.

    `horizon` steps must fit between the row and step `length`, where all episodes are cut: those that end by themselves
    before would be over-represented otherwise.
    """
    step = np.concatenate([np.arange(count + 1) for count in rows.episode_lengths])
    count = np.repeat(rows.episode_lengths, rows.episode_lengths + 1)
    last = np.flatnonzero(rows.is_last) - 1  # the last transition of each episode
    has_ended = np.repeat(rows.terminal[last] > 0, rows.episode_lengths + 1)
    is_known = has_ended | (step + horizon <= count)
    return np.flatnonzero(~rows.is_last & is_known & (step + horizon <= length))


@dataclass(frozen=True)
class Problem:
    """A dataset ready for learning, with what judges the result.

    Attributes:
      data: transitions of the training episodes, with a' as recorded.
      outcomes: their states of known return, as transitions that end at once with that return.
      spec: shapes, and the range of returns in the learners' units.
      observation, action, returns: states of the held-out episodes, and their returns-to-go in the learners' units.
      deviation: standard deviation of the training returns in the learners' units; scores are told in it.
    """

    data: Dataset
    outcomes: Dataset
    spec: TaskSpec
    observation: Array
    action: Array
    returns: Floats
    deviation: float


def load_problem(path: Path, settings: CalibrationSettings) -> Problem:
    """The dataset in a file that `pcbf-calibrate data` wrote, split by episodes and scaled."""
    rows, length = load_data(path)
    rng = np.random.default_rng(settings.split_seed)
    episode = np.repeat(np.arange(rows.num_episodes), rows.episode_lengths + 1)
    judges = rng.permutation(rows.num_episodes)[: max(round(settings.held_out * rows.num_episodes), 1)]
    is_held_out = np.isin(episode, judges)
    returns, known = returns_to_go(rows, settings.discount), known_rows(rows, length, settings.horizon)
    of_training, of_judges = known[~is_held_out[known]], known[is_held_out[known]]
    if not len(of_training) or not len(of_judges) or np.ptp(returns[of_training]) == 0:
        raise ValueError(
            f"{path} has {len(of_training)} states to learn from and {len(of_judges)} to judge by, whose "
            f"{settings.horizon} next steps fit into its episodes of {length}, and needs two different returns; make "
            "more or longer episodes, or take a smaller `discount`."
        )
    low, high = float(returns[of_training].min()), float(returns[of_training].max())
    scale = settings.return_width / ((1 + 2 * MARGIN) * (high - low))
    margin = MARGIN * (high - low)
    judged = np.sort(rng.permutation(of_judges)[: settings.num_states])
    index = rows.transition_rows(next_actions=True)
    index = index[~is_held_out[index]]
    transitions = _scaled(rows.transitions(index, next_actions=True), rows, index, scale)
    outcomes = _scaled(rows.transitions(of_training), rows, index, 1.0)
    outcomes = outcomes.replace(
        reward=(returns[of_training] * scale).astype(np.float32),
        terminal=np.ones(len(of_training), np.float32),
        next_action=outcomes.action,
    )
    shown = _scaled(rows.transitions(judged), rows, index, 1.0)
    bounds = (low - margin) * scale, (high + margin) * scale
    return Problem(
        data=Dataset(transitions),
        outcomes=Dataset(outcomes),
        spec=TaskSpec(rows.observation.shape[1:], rows.action.shape[-1], return_range=bounds),
        observation=jnp.asarray(shown.observation),
        action=jnp.asarray(shown.action),
        returns=returns[judged] * scale,
        deviation=float(returns[of_training].std() * scale),
    )


def _scaled(transitions: Transition, rows: Rows, training: np.ndarray, reward_scale: float) -> Transition:
    """Observations with zero mean and unit deviation over the training rows, rewards times `reward_scale`."""
    mean = rows.observation[training].mean(axis=0, dtype=np.float64)
    std = rows.observation[training].std(axis=0, dtype=np.float64)
    std = np.where(std < LEAST_DEVIATION, 1.0, std)
    fields: dict[str, Any] = {
        name: ((getattr(transitions, name) - mean) / std).astype(np.float32)
        for name in ("observation", "next_observation")
    }
    return transitions.replace(
        **fields, reward=(transitions.reward * reward_scale).astype(np.float32), trajectory_end=None
    )


# --- laws -------------------------------------------------------------------------------------------------------------


def learned_laws(critic: ReturnCritic, states: LearnerState, problem: Problem, settings: CalibrationSettings) -> Floats:
    """Even quantiles of the law at every judged state, (seeds, states, levels)."""
    levels = even_levels(settings.num_levels)
    read = critic.quantiles
    if isinstance(critic, FlowCritic):
        read = partial(critic.quantiles, num_flow_steps=settings.num_eval_steps)
    of_seed = jax.jit(lambda state: read(state, problem.observation, problem.action, levels))
    seeds = [jax.tree.map(lambda leaf, seed=seed: leaf[seed], states) for seed in range(settings.num_seeds)]
    return np.stack([np.asarray(of_seed(state), np.float64) for state in seeds])


def marginal_laws(problem: Problem, settings: CalibrationSettings) -> Floats:
    """The law of all training returns, whatever the state, in the form of `learned_laws`."""
    levels = np.asarray(even_levels(settings.num_levels))
    quantiles = np.quantile(np.asarray(problem.outcomes.transitions.reward, np.float64), levels)
    return np.broadcast_to(quantiles, (settings.num_seeds, len(problem.returns), settings.num_levels))


def make_record(
    data: Path,
    method: str,
    settings: CalibrationSettings,
    default: Mapping[str, Any],
    own: Mapping[str, Any],
    report: Callable[[int], None] = lambda step: None,
) -> dict[str, np.ndarray]:
    """The arrays that one job records; returns are told in standard deviations of the training returns."""
    problem = load_problem(data, settings)
    if method == MARGINAL:
        laws = marginal_laws(problem, settings)
    else:
        critic = make_critic(method, problem.spec, settings.discount, default, own)
        source = problem.outcomes if base_method(method) == MONTE_CARLO else problem.data
        laws = learned_laws(critic, train_seeds(critic, source, settings, report), problem, settings)
    uniform = np.random.default_rng(settings.split_seed).uniform(size=len(problem.returns))
    unit = problem.deviation
    found = [scores(law / unit, problem.returns / unit, uniform, settings.tolerance) for law in laws]
    return {
        "seeds": settings.seeds,
        "num_states": np.array([len(problem.returns)]),
        "coverage_levels": np.array(COVERAGES),
        **{name: np.stack([each[name] for each in found]) for name in found[0]},
    }


def metadata(
    dataset: str, method: str, settings: CalibrationSettings, default: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    """What made a record: the job, and see `made_by`."""
    return {"dataset": dataset, **made_by(method, settings, default, own)}
