"""C51: a categorical return law on a fixed grid; acts by the best of the proposal's candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, final

import jax
import jax.numpy as jnp
from jax import Array

from pcbf_baselines.laws import LawAgent
from pcbf_baselines.losses import categorical_projection, cross_entropy
from pcbf_baselines.values import EnsembleConfig, q_role
from pcbf_core.agent import require_return_range
from pcbf_core.candidates import CandidateConfig
from pcbf_core.config import Range
from pcbf_core.learner import LearnerState, ReturnCritic
from pcbf_core.roles import Role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class CategoricalCriticConfig(EnsembleConfig):
    """Settings of the categorical critic.

    Attributes:
      num_atoms: points of the even grid over `TaskSpec.return_range`.
    """

    num_atoms: Annotated[int, Range(at_least=2)] = 51


@final
@dataclass(frozen=True)
class CategoricalCritic(ReturnCritic):
    """A return law with masses on the points of an even grid (C51's critic)."""

    config: CategoricalCriticConfig
    spec: TaskSpec

    def __post_init__(self) -> None:
        require_return_range(self.spec, "C51")

    @property
    def role(self) -> Role:
        return q_role(self.spec, self.config, self.config.num_atoms)

    @property
    def support(self) -> Array:
        """The grid of returns, (atoms,)."""
        return jnp.linspace(*require_return_range(self.spec, "C51"), self.config.num_atoms)

    def init_params(self, key: Array) -> PyTree:
        return self.role.init(key, self.spec)

    def logits(self, params: PyTree, observation: Array, action: Array) -> Array:
        """Logits of every member, (members, *batch, atoms)."""
        return self.role.at(params, observation)(action)

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Cross-entropy to the projected law of R + γ̃ Z⁻(s', a'), members averaged; no draws, no coefficients."""
        next_logits = self.logits(target_params, batch.next_observation, batch.successor_action)
        next_probability = jax.nn.softmax(next_logits).mean(axis=0)
        continuation = self.config.discount * (1 - batch.terminal)
        value = batch.reward[:, None] + continuation[:, None] * self.support
        target = categorical_projection(self.support, value, next_probability)
        loss = jnp.mean(cross_entropy(self.logits(params, batch.observation, batch.action), target))
        return loss, {"critic_loss": loss}

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels`, (*batch, levels), of the members' mean law: points of the grid."""
        probability = jax.nn.softmax(self.logits(state.params["critic"], observation, action)).mean(axis=0)
        below = jnp.cumsum(probability, axis=-1)[..., None, :] < jnp.asarray(levels)[..., None]
        return self.support[jnp.minimum(below.sum(axis=-1), self.config.num_atoms - 1)]


@final
@dataclass(frozen=True)
class C51Config(CategoricalCriticConfig, CandidateConfig):
    """Settings of C51; `value_aggregation` says how members agree on a candidate's score."""


@final
@dataclass(frozen=True)
class C51(LawAgent):
    """Categorical return law with a cloned proposal."""

    config: C51Config
    spec: TaskSpec

    def __post_init__(self) -> None:
        require_return_range(self.spec, "C51")

    @property
    def critic(self) -> CategoricalCritic:
        return CategoricalCritic(self.config, self.spec)

    def score(self, state: LearnerState, observation: Array, action: Array, key: Array, *, for_target: bool) -> Array:
        """Mean or tail mean of each candidate's law, (*batch, candidates); exact, `key` is not used."""
        probability = jax.nn.softmax(self.critic.logits(state.params["critic"], observation, action))
        config = self.config
        if config.score == "cvar" and not for_target:
            weight = tail_masses(probability, config.risk_level, upper=config.risk_seeking) / config.risk_level
        else:
            weight = probability
        return config.aggregate(weight @ self.critic.support)


def tail_masses(probability: Array, level: float, *, upper: bool) -> Array:
    """The share of each atom's mass that lies in the lower (or upper) tail of mass `level`, same shape."""
    total = jnp.cumsum(probability, axis=-1)
    before = 1 - total if upper else total - probability
    return jnp.clip(level - before, 0.0, probability)
