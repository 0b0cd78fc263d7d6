"""Proposals that were cloned before: the last snapshots of runs of behaviour cloning, one per seed.

All methods of a seed that take the same file choose among the candidates of the same flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pcbf_baselines.bc import BehaviorCloning
from pcbf_core.agent import Agent
from pcbf_core.candidates import CandidateAgent
from pcbf_core.dataset import Dataset
from pcbf_core.learner import LearnerState
from pcbf_core.policy import draw_candidates
from pcbf_core.proposing import ProposingAgent, takes_proposal
from pcbf_core.training import init_many
from pcbf_core.types import PyTree
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.running.errors import RunError
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.running.snapshot import Snapshot, SnapshotError, load_snapshot, statistics
from pcbf_records.canonical import content_hash
from pcbf_records.files import sha256

TABLE_KEY = 2**32 - 1  # folded into a learner's key; no step has this number


@dataclass(frozen=True)
class GivenProposal:
    """The parameters of a cloned flow, the SHA-256 of its file, and the hash of the config that it was cloned with."""

    params: PyTree
    sha256: str
    config_hash: str


def load_proposals(
    paths: Sequence[Path], agent: Agent, *, task: str, data: Mapping[str, Any], scaling: Scaling
) -> dict[int, GivenProposal]:
    """The proposals of snapshot files by seed; one that does not belong to this agent, task and data is named.

    Args:
      data: hashes of the files of the task's dataset.
      scaling: of the observations that the agent will see.
    """
    if not takes_proposal(agent):
        if paths:
            raise RunError(
                f"{paths[0]} would not be used: the method trains its own proposal, or has none; leave the file out, "
                "or set proposal_training=frozen."
            )
        return {}
    given: dict[int, GivenProposal] = {}
    for path in paths:
        snapshot = load_snapshot(path)
        for fault, remedy in _faults(snapshot, agent, task=task, data=data, scaling=scaling):
            raise SnapshotError(f"{path} cannot serve as the proposal: it {fault}; {remedy}.")
        if snapshot.seed in given:
            raise SnapshotError(f"{path} is a second proposal of seed {snapshot.seed}; pass one per seed.")
        params = snapshot.state.params["proposal"]
        given[snapshot.seed] = GivenProposal(params, sha256(path), content_hash(snapshot.config))
    if len({proposal.config_hash for proposal in given.values()}) > 1:
        raise SnapshotError(
            f"{', '.join(map(str, paths))} were cloned with different settings; pass those of one group of seeds."
        )
    return given


def _faults(
    snapshot: Snapshot, agent: ProposingAgent, *, task: str, data: Mapping[str, Any], scaling: Scaling
) -> list[tuple[str, str]]:
    """What is wrong with a snapshot as the proposal of an agent, and what to do, worst first."""
    cloner, config = snapshot.agent, snapshot.config
    if not isinstance(cloner, BehaviorCloning):
        return [(f"is of {snapshot.method}", "pass a snapshot of bc")]
    ours, theirs = statistics(scaling), statistics(snapshot.scaling)
    is_scaled_alike = set(ours) == set(theirs) and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    checks = [
        (snapshot.task == task, f"was cloned on {snapshot.task}", f"clone it on {task}"),
        (config["data"] == data, "was cloned from other data", "clone it again"),
        (is_scaled_alike, "saw observations on another scale", "clone it with the same `standardise`"),
        (
            cloner.proposal.role == agent.proposal.role,
            "has another network",
            "clone it with the same `hidden_sizes`, `actor_hidden_sizes`, `actor_layer_norm`, `activation` and encoder",
        ),
        (
            snapshot.step == config["run"]["steps"],
            f"is of step {snapshot.step} of {config['run']['steps']}",
            "pass the last snapshot of its run",
        ),
    ]
    return [(fault, remedy) for is_good, fault, remedy in checks if not is_good]


def check_proposals(agent: Agent, proposals: Mapping[int, GivenProposal], seeds: Sequence[int], *, task: str) -> None:
    """Raise unless every seed has the proposal that the agent takes."""
    missing = [seed for seed in seeds if seed not in proposals]
    if takes_proposal(agent) and missing:
        told = " ".join(map(str, missing))
        raise RunError(
            f"proposal_training=frozen needs the cloned flow of every seed, and has none of seed {told}; clone it with "
            f"`pcbf-train {task} bc --seeds {told} …` and pass its last snapshots with --proposal."
        )


def begin(agent: Agent, keys: Array, seeds: Sequence[int], proposals: Mapping[int, GivenProposal]) -> LearnerState:
    """Fresh states side by side, each with the proposal of its seed if it takes one."""
    states = init_many(agent, keys)
    if not takes_proposal(agent):
        return states
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(proposals[seed].params for seed in seeds))
    return jax.vmap(agent.with_proposal)(states, params)


# --- drawn ahead ------------------------------------------------------------------------------------------------------


class Tables:
    """The candidates at every s' of a run's data, drawn ahead and drawn anew every `redraw_every` steps.

    Which ones a learner has at a step depends on its key and that step alone, so that a run that was stopped goes on
    with the same. There are none for data that are not rows on the device, such as images, or without `redraw_every`:
    learners then draw at every choice.
    """

    def __init__(self, agent: Agent, source: Any, settings: RunSettings) -> None:
        self.agent, self.every = agent, settings.redraw_every
        self.observation = source.transitions.next_observation if isinstance(source, Dataset) else None
        self.number: int | None = None
        self.drawn: Array | None = None

    def is_due(self, step: int) -> bool:
        """Whether there should be other candidates from this step on."""
        searches = isinstance(self.agent, CandidateAgent) and self.agent.is_frozen
        is_used = searches and self.every is not None and self.observation is not None
        return is_used and step // (self.every or 1) != self.number

    def draw(self, states: LearnerState, keys: Array, step: int) -> None:
        """Draw the candidates that learners have at this step."""
        assert isinstance(self.agent, CandidateAgent) and self.observation is not None and self.every is not None
        self.drawn = None  # frees the memory
        self.number = step // self.every
        self.drawn = jax.block_until_ready(
            _draw(self.agent, states.frozen["proposal"], self.observation, keys, self.number)
        )


@partial(jax.jit, static_argnames="agent")
def _draw(agent: CandidateAgent, params: PyTree, observation: Array, keys: Array, number: int | Array) -> Array:
    """Candidates (learner, observations, candidates, action_dim), one learner after the other."""

    def one(params: PyTree, key: Array) -> Array:
        own = jax.random.fold_in(jax.random.fold_in(key, TABLE_KEY), number)
        return draw_candidates(agent.proposal, params, observation, own)

    return jax.lax.map(lambda pair: one(*pair), (params, keys))
