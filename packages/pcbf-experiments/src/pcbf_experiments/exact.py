"""Exact control: train any method on a small decision process, and say exactly what its policies are worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_baselines.registry import METHODS, make_agent
from pcbf_core.agent import Agent
from pcbf_core.config import Count, PositiveShare, Range, Share, check_choice
from pcbf_core.dataset import Dataset
from pcbf_core.learner import LearnerState
from pcbf_core.mdp import (
    MDPS,
    NUM_MOVES,
    FiniteMDP,
    behaviour_policy,
    best_tail_law,
    draw_transitions,
    least_shortfall,
    move_of,
    optimal_policy,
    return_laws,
    tail_policy,
    task_spec,
)
from pcbf_core.mrp import DiscreteLaw
from pcbf_core.noise import even_levels
from pcbf_core.types import Values
from pcbf_experiments.seeds import SeedSettings, made_by, seed_keys, train_seeds
from pcbf_records.exact import MEAN, measure_name
from pcbf_records.variants import base_method

NUM_LEVELS = 128  # quantiles of the critic's law at each drawn action
NUM_LAW_ACTIONS = 32  # drawn actions whose laws are mixed at each state


@dataclass(frozen=True)
class ExactSettings(SeedSettings):
    """How methods are trained and judged on a decision process; see `SeedSettings` for the training.

    Attributes:
      data_size, data_seed: transitions that all seeds and methods share, and the seed they are drawn with.
      optimal_share: how often the behaviour takes the best move; else any, see `behaviour_policy`.
      risk_levels: α of acting by CVaR, with the critic that was trained for the mean; and those at which CVaR is told.
      num_draws: actions drawn in each state to learn a policy's probabilities.
    """

    data_size: Count = 100_000
    data_seed: Annotated[int, Range(at_least=0)] = 0
    optimal_share: Share = 0.25
    risk_levels: tuple[PositiveShare, ...] = (0.1, 0.25, 0.5)
    num_draws: Count = 256


def exact_agent(mdp: FiniteMDP, method: str, default: Mapping[str, Any], own: Mapping[str, Any]) -> Agent:
    """The agent of a method or variant: `default` settings where it has them, its `own`, and the process' discount."""
    method = base_method(method)
    check_choice("method", method, METHODS)
    known = {field.name for field in dataclasses.fields(METHODS[method].config)}
    shared = {name: value for name, value in {"discount": mdp.discount, **default}.items() if name in known}
    return make_agent(method, task_spec(mdp), {**shared, **own})


def make_data(mdp: FiniteMDP, settings: ExactSettings) -> Dataset:
    """The transitions of the behaviour."""
    behaviour = behaviour_policy(mdp, settings.optimal_share)
    return Dataset(draw_transitions(mdp, behaviour, np.random.default_rng(settings.data_seed), settings.data_size))


# --- policies and laws of what was trained ----------------------------------------------------------------------------


def acting_by(agent: Any, risk_level: float) -> Agent | None:
    """The agent itself at level 1, else one that acts by CVaR with the same critic; None if it has no such score."""
    if risk_level == MEAN:
        return agent
    if "cvar" not in getattr(agent.config, "scores", ()):
        return None
    return dataclasses.replace(agent, config=dataclasses.replace(agent.config, score="cvar", risk_level=risk_level))


def draw_actions(agent: Agent, mdp: FiniteMDP, states: LearnerState, settings: ExactSettings, num_draws: int) -> Array:
    """Actions (seeds, states, draws, 2) that the agent takes in each state."""

    def of_seed(pair: tuple[LearnerState, Array]) -> Array:
        state, key = pair

        def in_state(place: tuple[Array, Array]) -> Array:
            observation, action_key = place
            return agent.act(state, jnp.broadcast_to(observation, (num_draws, *observation.shape)), action_key)

        return jax.lax.map(in_state, (jnp.asarray(mdp.observations), jax.random.split(key, mdp.num_states)))

    acting_keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(seed_keys(settings))
    return jax.jit(lambda both: jax.lax.map(of_seed, both))((states, acting_keys))


def move_probabilities(actions: Array) -> Values:
    """How often each move is among actions (…, draws, 2), (…, moves)."""
    moves = np.asarray(move_of(actions))
    return np.stack([(moves == move).mean(axis=-1) for move in range(NUM_MOVES)], axis=-1)


def critic_samples(agent: Any, mdp: FiniteMDP, states: LearnerState, actions: Array) -> np.ndarray | None:
    """Even quantiles of the critic's law at each action, (seeds, states, draws · levels); None without a law."""
    if not hasattr(agent, "quantiles"):
        return None
    observations = jnp.broadcast_to(jnp.asarray(mdp.observations)[:, None], (*actions.shape[1:-1], mdp.num_states))

    def of_seed(pair: tuple[LearnerState, Array]) -> Array:
        return agent.quantiles(pair[0], observations, pair[1], even_levels(NUM_LEVELS))

    quantiles = jax.jit(lambda both: jax.lax.map(of_seed, both))((states, actions))
    return np.asarray(quantiles).reshape(*quantiles.shape[:2], -1)


def make_record(
    name: str,
    method: str,
    settings: ExactSettings,
    default: Mapping[str, Any],
    own: Mapping[str, Any],
    report: Callable[[int], None] = lambda step: None,
) -> dict[str, np.ndarray]:
    """The arrays that one job records: policies by their draws, then everything about their returns exactly."""
    check_choice("mdp", name, MDPS)
    mdp = MDPS[name]
    agent = exact_agent(mdp, method, default, own)
    states = train_seeds(agent, make_data(mdp, settings), settings, report)
    cvar_levels = (MEAN, *settings.risk_levels)
    found = {level: variant for level in cvar_levels if (variant := acting_by(agent, level)) is not None}
    policies, cvar, w1 = [], [], np.full((settings.num_seeds, mdp.num_states), np.nan)
    for level, variant in found.items():
        actions = draw_actions(variant, mdp, states, settings, settings.num_draws)
        policies.append(move_probabilities(actions))
        laws = [return_laws(mdp, policy) for policy in policies[-1]]
        cvar.append([[seed[mdp.start].cvar(alpha) for alpha in cvar_levels] for seed in laws])
        samples = critic_samples(agent, mdp, states, actions[:, :, :NUM_LAW_ACTIONS]) if level == MEAN else None
        if samples is not None:
            w1[:] = [list(map(DiscreteLaw.wasserstein1, *pair)) for pair in zip(laws, samples, strict=True)]
    return {
        "seeds": settings.seeds,
        "risk_levels": np.array(list(found)),
        "policies": np.array(policies, np.float32),
        "cvar_levels": np.array(cvar_levels),
        "cvar": np.array(cvar),
        "w1": w1,
    }


def metadata(
    mdp: str, method: str, settings: ExactSettings, default: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    """What made a record: the job, its process, and see `made_by`."""
    process = dataclasses.asdict(MDPS[mdp])  # pyright: ignore[reportArgumentType]
    return {"mdp": mdp, "process": process, **made_by(method, settings, default, own)}


# --- what no policy can exceed ----------------------------------------------------------------------------------------


def optima(name: str, risk_levels: tuple[float, ...]) -> list[tuple[Any, ...]]:
    """Rows (mdp, policy, α, measure, value): exact mean and CVaR of what no learning can better.

    "optimum" is at level 1 the policy of highest mean, below it the one with the best CVaR_α among all policies with
    memory; "exact critic" acts by CVaR_α of the exact law of the policy of highest mean, as a perfect learner would.
    """
    mdp = MDPS[name]
    shortfall = least_shortfall(mdp)
    followed = return_laws(mdp, optimal_policy(mdp))
    laws = {("optimum", MEAN): followed[mdp.start]}
    for level in risk_levels:
        laws["optimum", level] = best_tail_law(mdp, shortfall, level)
        laws["exact critic", level] = return_laws(mdp, tail_policy(mdp, followed, level))[mdp.start]
    return [
        (name, policy, level, measure_name(alpha), law.cvar(alpha))
        for (policy, level), law in laws.items()
        for alpha in (MEAN, *risk_levels)
    ]
