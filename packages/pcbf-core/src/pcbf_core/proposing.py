"""Agents with a proposal π_β: it is cloned beside what else they learn, or was cloned before and is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_core.agent import GradientAgent
from pcbf_core.config import LATER
from pcbf_core.learner import LearnerState
from pcbf_core.policy import Proposal, ProposalConfig
from pcbf_core.types import PyTree, TaskSpec

ProposalTraining = Literal["joint", "frozen"]


@dataclass(frozen=True)
class ProposingConfig(ProposalConfig):
    """How the proposal of an agent comes about.

    Attributes:
      proposal_training: "joint" clones the proposal beside the critic, as the papers do; "frozen" takes one that was
        cloned before (`ProposingAgent.with_proposal`), so that several methods can start from the same.
    """

    proposal_training: ProposalTraining = field(default="joint", metadata=LATER)


@dataclass(frozen=True)
class ProposingAgent(GradientAgent):
    """An agent whose policy rests on a proposal."""

    config: ProposingConfig
    spec: TaskSpec

    @property
    def proposal(self) -> Proposal:
        return Proposal(self.config, self.spec)

    @property
    def is_frozen(self) -> bool:
        """Whether the proposal is given and not trained."""
        return self.config.proposal_training == "frozen"

    def trained_proposal(self, key: Array) -> dict[str, PyTree]:
        """Fresh parameters of the proposal under its role, none if it is given."""
        return {} if self.is_frozen else {"proposal": self.proposal.init_params(key)}

    def with_proposal(self, state: LearnerState, params: PyTree) -> LearnerState:
        """The state with a copy of the parameters of a cloned proposal; for states side by side, `vmap` it."""
        if not self.is_frozen:
            raise ValueError('`proposal_training="joint"` trains its own proposal; set "frozen" to give it one.')
        wanted = jax.eval_shape(self.proposal.init_params, jax.random.key(0))
        if _forms(params) != _forms(wanted):
            raise ValueError(
                "the parameters are not those of this agent's proposal network; clone it with the same `hidden_sizes` "
                "or `actor_hidden_sizes`, `actor_layer_norm` and encoder, on the same task."
            )
        return state.replace(frozen={"proposal": jax.tree.map(jnp.copy, params)})  # `train_chunk` donates the state

    def proposal_params(self, state: LearnerState) -> PyTree:
        """The proposal's parameters, trained or given."""
        if not self.is_frozen:
            return state.params["proposal"]
        if "proposal" not in state.frozen:
            raise ValueError(
                '`proposal_training="frozen"` needs the parameters of a cloned proposal; put them into the state with '
                '`agent.with_proposal(state, params)`, or set "joint".'
            )
        return state.frozen["proposal"]


def takes_proposal(agent: Any) -> TypeGuard[ProposingAgent]:
    """Whether an agent must be given a proposal, with `with_proposal`, before it can train or act."""
    return isinstance(agent, ProposingAgent) and agent.is_frozen


def _forms(tree: PyTree) -> tuple[Any, list[Any]]:
    """Structure, shapes and types of a tree."""
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]
