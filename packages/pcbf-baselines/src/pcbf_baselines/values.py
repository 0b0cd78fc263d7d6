"""Scalar critics that several baselines share: an ensemble of Q(s, a)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from pcbf_core.config import Count
from pcbf_core.flow_critic import AGGREGATIONS, Aggregation
from pcbf_core.learner import LearnerConfig
from pcbf_core.roles import Role, make_role
from pcbf_core.types import PyTree, TaskSpec


@dataclass(frozen=True)
class EnsembleConfig(LearnerConfig):
    """Settings of an ensemble of critics.

    Attributes:
      num_critics: members, all trained.
      value_aggregation: how members agree on the value of the successor.
    """

    num_critics: Count = 2
    value_aggregation: Aggregation = "mean"

    def aggregate(self, members: Array) -> Array:
        """One value from those of the members on axis 0."""
        return AGGREGATIONS[self.value_aggregation](members, axis=0)


def q_role(spec: TaskSpec, config: EnsembleConfig, output_dim: int = 1) -> Role:
    """An ensemble of MLPs on [observation, action]."""
    return make_role(spec, config, input_dim=spec.action_dim, output_dim=output_dim, members=config.num_critics)


def q_values(role: Role, params: PyTree, observation: Array) -> Callable[[Array], Array]:
    """Q(s, ·) as a function from actions (*batch, action_dim) to (members, *batch)."""
    network = role.at(params, observation)
    return lambda action: jnp.squeeze(network(action), axis=-1)
