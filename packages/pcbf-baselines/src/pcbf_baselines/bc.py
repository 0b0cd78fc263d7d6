"""Behaviour cloning: the proposal flow alone, one candidate, no critic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from jax import Array

from pcbf_core.agent import PlainAgent
from pcbf_core.config import Count
from pcbf_core.learner import LearnerState
from pcbf_core.policy import Proposal, ProposalConfig
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class BehaviorCloningConfig(ProposalConfig):
    """Settings of behaviour cloning; with one candidate there is nothing to choose."""

    num_candidates: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_candidates != 1:
            raise ValueError(
                f"`num_candidates={self.num_candidates}` needs a critic to choose; pass 1, or use another method."
            )


@final
@dataclass(frozen=True)
class BehaviorCloning(PlainAgent):
    """π_β itself."""

    config: BehaviorCloningConfig
    spec: TaskSpec

    @property
    def proposal(self) -> Proposal:
        return Proposal(self.config, self.spec)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        return {"proposal": self.proposal.init_params(key)}

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Flow matching on the data's actions."""
        loss = self.proposal.loss(params["proposal"], batch.observation, batch.action, key)
        return loss, {"proposal_loss": loss}

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """One sample of the cloned flow."""
        return self.proposal.sample(state.params["proposal"], observation, key)
