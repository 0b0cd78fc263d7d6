"""A role: one of an agent's networks with its own image encoder and its ensemble members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from flax import linen as nn
from jax import Array

from pcbf_core.encoders import blank_observation, observation_encoder
from pcbf_core.learner import LearnerConfig
from pcbf_core.networks import ConditionedMLP, by_rows, init_ensemble, over_members
from pcbf_core.types import PyTree, TaskSpec


@dataclass(frozen=True)
class Role:
    """A network on observation features.

    Its parameters are those of `module`, members stacked on axis 0, or with an encoder
    {"encoder": ..., "network": ...}; the members share the encoder, so an observation is encoded once.

    Attributes:
      module: has `context(features, …)` for what stays the same, `__call__(context, …)` for what varies
        and `everything(features, …)` to initialise it.
      encoder: turns observations into features; None if they are features already.
      members: size of the ensemble; None for one network without a member axis.
    """

    module: Any
    encoder: nn.Module | None = None
    members: int | None = None

    def init(self, key: Array, spec: TaskSpec, *parts: Array) -> PyTree:
        """Fresh parameters; `parts` are blanks of what `context` takes behind the observation."""
        features = blank_observation(spec)
        if self.encoder is None:
            return self._init_network(key, features, *parts)
        encoder_key, network_key = jax.random.split(key)
        encoder = self.encoder.init(encoder_key, features)
        features = self.features({"encoder": encoder}, features)
        return {"encoder": encoder, "network": self._init_network(network_key, features, *parts)}

    def _init_network(self, key: Array, *parts: Array) -> PyTree:
        if self.members is None:
            return self.module.init(key, *parts, method="everything")
        return init_ensemble(self.module, key, self.members, *parts, method="everything")

    def network(self, params: PyTree) -> PyTree:
        """The parameters without those of the encoder."""
        return params if self.encoder is None else params["network"]

    def features(self, params: PyTree, observation: Array) -> Any:
        """Encoded observations, (*batch, features)."""
        return observation if self.encoder is None else self.encoder.apply(params["encoder"], observation)

    def at(
        self,
        params: PyTree,
        observation: Array,
        *parts: Array,
        own_inputs: bool = False,
        for_gradient: bool = False,
    ) -> Callable[..., Array]:
        """The network at these observations, a function of what varies; the rest is computed here, once.

        Its inputs have leading axes that broadcast against those of `observation`; its output has them too,
        behind an axis of members if there are any. With `own_inputs` each member has its own inputs on axis 0.
        `for_gradient` says that the output will be differentiated by the parameters; only a matter of speed.
        """
        features, network = self.features(params, observation), self.network(params)

        def context_of(member: PyTree) -> Array:
            return self.module.apply(member, features, *parts, method="context")

        apply = by_rows(self.module.apply, for_gradient=for_gradient)
        if self.members is None:
            return partial(apply, network, context_of(network))
        contexts = jax.vmap(context_of)(network)

        def call(*inputs: Array) -> Array:
            members = over_members(apply, num_shared=0 if own_inputs else len(inputs))
            return members(network, contexts, *inputs)

        return call


def make_role(
    spec: TaskSpec,
    config: LearnerConfig,
    *,
    input_dim: int,
    output_dim: int,
    extra_context: int = 0,
    members: int | None = None,
    hidden_sizes: tuple[int, ...] | None = None,
    layer_norm: bool | None = None,
    output_scale: float = 1.0,
) -> Role:
    """An MLP on [observation, extra context, inputs], its encoder chosen by the task.

    `hidden_sizes` and `layer_norm` are those of `config` unless given.
    """
    encoder, features = observation_encoder(spec, config)
    module = ConditionedMLP(
        context_dim=features + extra_context,
        input_dim=input_dim,
        hidden_sizes=config.hidden_sizes if hidden_sizes is None else hidden_sizes,
        output_dim=output_dim,
        layer_norm=config.layer_norm if layer_norm is None else layer_norm,
        activation=config.activation,
        output_scale=output_scale,
    )
    return Role(module, encoder, members)


def over_candidates(observation: Array, spec: TaskSpec) -> Array:
    """The observation with an axis of size 1 behind its batch axes, to stand beside several actions."""
    return observation[(..., None, *(slice(None),) * len(spec.observation_shape))]
