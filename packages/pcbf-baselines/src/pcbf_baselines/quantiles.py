"""The implicit quantile critic that IQN and CODAC share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from pcbf_baselines.losses import quantile_regression_loss
from pcbf_baselines.values import EnsembleConfig
from pcbf_core.config import Count, Positive
from pcbf_core.encoders import observation_encoder
from pcbf_core.learner import LearnerState, ReturnCritic
from pcbf_core.networks import MLP, glorot_uniform, product
from pcbf_core.precision import dense_product
from pcbf_core.roles import Role
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition


@dataclass(frozen=True)
class QuantileCriticConfig(EnsembleConfig):
    """Settings of the quantile critic; `value_aggregation` says how members agree on a quantile.

    Attributes:
      num_levels: quantile levels drawn per transition, for predictions and for targets.
      huber_threshold: κ of the loss.
      quantile_features, num_cosines: size of the product of embeddings, cosines that embed a level.
    """

    num_levels: Count = 16
    huber_threshold: Positive = 0.9
    quantile_features: Count = 512
    num_cosines: Count = 64


class QuantileNetwork(nn.Module):
    """Z(s, a, τ) of every member: MLPs on the product of linear embeddings of (s, a) and of cos(kπτ).

    The embeddings are shared by the members, which sit on the last axis of the output.
    """

    context_dim: int
    hidden_sizes: Sequence[int]
    members: int
    features: int
    num_cosines: int
    layer_norm: bool = True
    activation: str = "gelu"

    def setup(self) -> None:
        self.kernel = self.param("kernel", glorot_uniform, (self.context_dim, self.features))
        self.bias = self.param("bias", nn.initializers.zeros, (self.features,))
        self.level = nn.Dense(self.features, kernel_init=glorot_uniform, dot_general=dense_product())
        ensemble = nn.vmap(
            MLP,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=None,  # pyright: ignore[reportArgumentType]
            out_axes=-1,
            axis_size=self.members,
        )
        self.members_mlp = ensemble(self.hidden_sizes, 1, layer_norm=self.layer_norm, activation=self.activation)

    def context(self, features: Array, action: Array) -> Array:
        """Embedding of (s, a), (*batch, 1, features)."""
        return (product([features, action], self.kernel) + self.bias)[..., None, :]

    def __call__(self, context: Array, level: Array) -> Array:
        """Quantiles (*batch, levels, members) at `level` (*batch, levels, 1)."""
        frequency = jnp.pi * jnp.arange(1, self.num_cosines + 1)
        embedded = self.level(jnp.cos(level * frequency))
        return self.members_mlp(context * embedded)[..., 0, :]

    def everything(self, features: Array, action: Array) -> Array:
        """Touches every parameter once, for `init`."""
        return self(self.context(features, action), jnp.zeros((1, 1)))


@dataclass(frozen=True)
class QuantileCritic(ReturnCritic):
    """A return law given by its quantile function (IQN's critic)."""

    config: QuantileCriticConfig
    spec: TaskSpec

    @property
    def role(self) -> Role:
        config = self.config
        encoder, features = observation_encoder(self.spec, config)
        network = QuantileNetwork(
            context_dim=features + self.spec.action_dim,
            hidden_sizes=config.hidden_sizes,
            members=config.num_critics,
            features=config.quantile_features,
            num_cosines=config.num_cosines,
            layer_norm=config.layer_norm,
            activation=config.activation,
        )
        return Role(network, encoder)

    def init_params(self, key: Array) -> PyTree:
        return self.role.init(key, self.spec, jnp.zeros(self.spec.action_dim))

    def members(
        self, params: PyTree, observation: Array, action: Array, *, for_gradient: bool = False
    ) -> Callable[[Array], Array]:
        """The members' quantile functions at (s, a), from levels (*batch, n) to (members, *batch, n)."""
        network = self.role.at(params, observation, action, for_gradient=for_gradient)
        return lambda level: jnp.moveaxis(network(level[..., None]), -1, 0)

    def quantile(
        self, params: PyTree, observation: Array, action: Array, level: Array, *, for_gradient: bool = False
    ) -> Array:
        """Quantiles (*batch, n) on which the members agree, at levels (*batch, n) or (n,)."""
        return self.config.aggregate(self.members(params, observation, action, for_gradient=for_gradient)(level))

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Quantile regression with the batch's a'; there are no coefficients."""
        loss, _, _ = self.regression(params, target_params, batch, key)
        return loss, {"critic_loss": loss}

    def regression(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array
    ) -> tuple[Array, Array, Array]:
        """Quantile regression towards R + γ̃ Z⁻(s', a', τ'); also the levels and quantiles it was made with."""
        level_key, target_key = jax.random.split(key)
        shape = (batch.reward.shape[0], self.config.num_levels)
        next_level = jax.random.uniform(target_key, shape)
        next_quantile = self.quantile(target_params, batch.next_observation, batch.successor_action, next_level)
        continuation = self.config.discount * (1 - batch.terminal)
        target = batch.reward[:, None] + continuation[:, None] * next_quantile
        level = jax.random.uniform(level_key, shape)
        prediction = self.members(params, batch.observation, batch.action, for_gradient=True)(level)
        loss = quantile_regression_loss(prediction, level, target, self.config.huber_threshold)
        return loss, level, prediction

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels`, (*batch, levels)."""
        return self.quantile(state.params["critic"], observation, action, levels)
