"""C51: a categorical return law on a fixed grid; acts by the best of the proposal's candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.losses import categorical_projection, cross_entropy
from pcbf_baselines.values import EnsembleConfig, q_role
from pcbf_core.agent import GradientAgent, require_return_range
from pcbf_core.config import check_range
from pcbf_core.learner import LearnerState
from pcbf_core.policy import Proposal, RiskConfig
from pcbf_core.roles import Role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@final
@dataclass(frozen=True)
class C51Config(EnsembleConfig, RiskConfig):
    """Settings of C51; `value_aggregation` says how members agree on a candidate's score.

    Attributes:
      num_atoms: points of the even grid over `TaskSpec.return_range`.
    """

    num_atoms: int = 51

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_atoms", self.num_atoms, at_least=2)


@final
@dataclass(frozen=True)
class C51(GradientAgent):
    """Categorical return law with a cloned proposal."""

    target_roles: ClassVar[tuple[str, ...]] = ("critic",)

    config: C51Config
    spec: TaskSpec

    def __post_init__(self) -> None:
        require_return_range(self.spec, "C51")

    @property
    def critic(self) -> Role:
        return q_role(self.spec, self.config, self.config.num_atoms)

    @property
    def proposal(self) -> Proposal:
        return Proposal(self.config, self.spec)

    @property
    def support(self) -> Array:
        """The grid of returns, (atoms,)."""
        return jnp.linspace(*require_return_range(self.spec, "C51"), self.config.num_atoms)

    def init_params(self, key: Array) -> dict[str, PyTree]:
        critic_key, proposal_key = jax.random.split(key)
        return {
            "critic": self.critic.init(critic_key, self.spec),
            "proposal": self.proposal.init_params(proposal_key),
        }

    def logits(self, params: PyTree, observation: Array, action: Array) -> Array:
        """Logits of every member, (members, *batch, atoms)."""
        return self.critic.at(params, observation)(action)

    def loss(
        self, params: Mapping[str, PyTree], state: LearnerState, batch: Transition, key: Array
    ) -> tuple[Array, Metrics]:
        """Cross-entropy to the projected law of R + γ̃ Z⁻(s', a'), members averaged; plus behaviour cloning."""
        action_key, proposal_key = jax.random.split(key)
        next_action = self.proposal.best_of(
            state.params["proposal"], batch.next_observation, action_key, partial(self.score, state, tail=False)
        )
        next_logits = self.logits(state.target_params["critic"], batch.next_observation, next_action)
        next_probability = jax.nn.softmax(next_logits).mean(axis=0)
        continuation = self.config.discount * (1 - batch.terminal)
        value = batch.reward[:, None] + continuation[:, None] * self.support
        target = categorical_projection(self.support, value, next_probability)
        critic_loss = jnp.mean(cross_entropy(self.logits(params["critic"], batch.observation, batch.action), target))
        proposal_loss = self.proposal.loss(params["proposal"], batch.observation, batch.action, proposal_key)
        return critic_loss + proposal_loss, {"critic_loss": critic_loss, "proposal_loss": proposal_loss}

    def score(self, state: LearnerState, observation: Array, action: Array, key: Array, *, tail: bool) -> Array:
        """Mean or tail mean of each candidate's law, (*batch, candidates); exact, `key` is not used."""
        probability = jax.nn.softmax(self.logits(state.params["critic"], observation, action))
        config = self.config
        if tail and config.score == "cvar":
            weight = tail_masses(probability, config.risk_level, upper=config.risk_seeking) / config.risk_level
        else:
            weight = probability
        return config.aggregate(weight @ self.support)

    def act(self, state: LearnerState, observation: Array, key: Array) -> Array:
        """The best of K candidates by their mean or tail mean."""
        return self.proposal.best_of(state.params["proposal"], observation, key, partial(self.score, state, tail=True))

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels`, (*batch, levels), of the members' mean law: points of the grid."""
        probability = jax.nn.softmax(self.logits(state.params["critic"], observation, action)).mean(axis=0)
        below = jnp.cumsum(probability, axis=-1)[..., None, :] < jnp.asarray(levels)[..., None]
        return self.support[jnp.minimum(below.sum(axis=-1), self.config.num_atoms - 1)]

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        """Independent samples of the return, (*batch, samples)."""
        return self.quantiles(state, observation, action, jax.random.uniform(key, (*action.shape[:-1], num_samples)))


def tail_masses(probability: Array, level: float, *, upper: bool) -> Array:
    """The share of each atom's mass that lies in the lower (or upper) tail of mass `level`, same shape."""
    total = jnp.cumsum(probability, axis=-1)
    before = 1 - total if upper else total - probability
    return jnp.clip(level - before, 0.0, probability)
