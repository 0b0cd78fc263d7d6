"""Agents that act by the best of K candidates of a cloned proposal (app:policy-extraction)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import jax
from jax import Array

from pcbf_core.config import Count, OneOf, PositiveShare
from pcbf_core.learner import LearnerState
from pcbf_core.proposing import ProposingAgent, ProposingConfig
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class CandidateConfig(ProposingConfig):
    """How candidates are compared when acting, and how often the targets' are.

    Attributes:
      score: "mean" for the mean return, "cvar" for the mean of a tail of the return law.
      risk_level: α, the share of returns in that tail; 1 is the mean.
      risk_seeking: False scores by the worst share, True by the best.
      action_reuse: n, for how many steps the a' chosen for a transition's target serves. 1 chooses anew at every
        step; n > 1 divides the cost of the choice by n and makes it up to n² steps old (see `train_chunk`).
    """

    scores: ClassVar[tuple[str, ...]] = ("mean", "cvar")

    score: Annotated[str, OneOf("scores")] = "mean"
    risk_level: PositiveShare = 0.25
    risk_seeking: bool = False
    action_reuse: Count = 1

    def tail_levels(self, levels: Array) -> Array:
        """Uniform levels in [0, 1] moved into the tail that `score` looks at."""
        if self.score != "cvar":
            return levels
        return 1 - self.risk_level * levels if self.risk_seeking else self.risk_level * levels


@dataclass(frozen=True)
class CandidateAgent(ProposingAgent):
    """A critic and a proposal, trained together; subclasses say what the critic is and how it scores candidates.

    An update chooses a' at s', then takes one gradient step on the losses of both; on the critic's alone if the
    proposal is frozen, see `ProposingConfig`.
    """

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: CandidateConfig
    spec: TaskSpec

    @abstractmethod
    def init_critic(self, key: Array) -> PyTree:
        """Fresh parameters of the critic."""

    @abstractmethod
    def choose_next_action(self, state: LearnerState, batch: Transition, key: Array) -> Array:
        """a' at s', (batch, action_dim), from the online networks; most often the `best_action` there."""

    @abstractmethod
    def critic_loss(self, params: PyTree, state: LearnerState, batch: Transition, key: Array) -> tuple[Array, Metrics]:
        """Loss of the critic, with a' in the batch, and what to log."""

    @abstractmethod
    def score(self, state: LearnerState, observation: Array, action: Array, key: Array, *, for_target: bool) -> Array:
        """Scores (*batch, candidates) of actions (*batch, candidates, action_dim) by the online critic.

        The observation has an axis of size 1 for the candidates. `for_target` says whether a' of a target is
        chosen, or an action to take.
        """

    @property
    def action_reuse(self) -> int:
        """For how many steps a chosen a' serves, see `train_chunk`."""
        return self.config.action_reuse

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, proposal_key = jax.random.split(key)
        return {"critic": self.init_critic(critic_key), **self.trained_proposal(proposal_key)}

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """One gradient step of `loss` on the batch, with a' chosen for this step alone."""
        prepare_key, loss_key = jax.random.split(key)
        return self.learn(state, self.prepare(state, batch, prepare_key), loss_key)

    def prepare(self, state: LearnerState, batch: Transition, key: Array) -> Transition:
        """The batch with a' at s', (batch, action_dim), and without the candidates that it was chosen among."""
        return batch.replace(next_action=self.choose_next_action(state, batch, key), next_candidates=None)

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """The critic's loss plus behaviour cloning of the proposal, unless that is frozen."""
        critic_key, proposal_key = jax.random.split(key)
        critic_loss, metrics = self.critic_loss(params["critic"], state, batch, critic_key)
        if self.is_frozen:
            return critic_loss, metrics
        proposal_loss = self.proposal.loss(params["proposal"], batch.observation, batch.action, proposal_key)
        return critic_loss + proposal_loss, {**metrics, "proposal_loss": proposal_loss}

    def best_action(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """argmax over K candidates a_k ~ π_β(·|s) of their score, (*batch, action_dim), to be taken."""
        score = partial(self.score, state, for_target=False)
        return self.proposal.best_of(self.proposal_params(state), observation, key, score)

    def best_next_action(self, state: LearnerState, batch: Transition, key: Array) -> Array:
        """argmax over K candidates a_k ~ π_β(·|s') of their score, (*batch, action_dim), for targets.

        The candidates are the batch's, if it has them.
        """
        score = partial(self.score, state, for_target=True)
        params, given = self.proposal_params(state), batch.next_candidates
        return self.proposal.best_of(params, batch.next_observation, key, score, given)

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """The best of K candidates (app:policy-extraction)."""
        return self.best_action(state, observation, key)
