"""From observations to features: the small IMPALA network for images, an embedding for discrete states."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from pcbf_core.learner import LearnerConfig
from pcbf_core.networks import StateEmbedding
from pcbf_core.precision import convolution, dense_product
from pcbf_core.types import TaskSpec


class ImpalaStack(nn.Module):
    """Convolution, 3×3 max-pooling with stride 2, then one residual block of two convolutions."""

    channels: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        def convolve(x: Array) -> Array:
            kernel_init = nn.initializers.xavier_uniform()
            return nn.Conv(self.channels, (3, 3), kernel_init=kernel_init, conv_general_dilated=convolution())(x)

        x = nn.max_pool(convolve(x), (3, 3), strides=(2, 2), padding="SAME")
        return x + convolve(nn.relu(convolve(nn.relu(x))))


class ImpalaEncoder(nn.Module):
    """Features (*batch, features) of images (*batch, height, width, channels) with values 0…255.

    A stack per entry of `channels`, then ReLU, one dense layer and GELU. The images stay uint8 until here.
    """

    channels: Sequence[int] = (16, 32, 32)
    features: int = 512

    @nn.compact
    def __call__(self, image: Array) -> Array:
        x = image.astype(jnp.float32) / 255
        for channels in self.channels:
            x = ImpalaStack(channels)(x)
        x = nn.relu(x).reshape(*image.shape[:-3], -1)
        dense = nn.Dense(self.features, kernel_init=nn.initializers.xavier_uniform(), dot_general=dense_product())
        return nn.gelu(dense(x))


def observation_encoder(spec: TaskSpec, config: LearnerConfig) -> tuple[nn.Module | None, int]:
    """The encoder that a network on this task's observations needs (None for vectors), and its number of features."""
    if spec.num_states is not None:
        return StateEmbedding(spec.num_states, config.state_features), config.state_features
    if len(spec.observation_shape) == 1:
        return None, spec.observation_shape[0]
    if len(spec.observation_shape) == 3:
        return ImpalaEncoder(config.encoder_channels, config.encoder_features), config.encoder_features
    raise ValueError(
        f"`observation_shape={spec.observation_shape}` is neither a vector nor an image; "
        "pass (features,) or (height, width, channels)."
    )


def blank_observation(spec: TaskSpec) -> Array:
    """An observation of zeros in the task's shape and type: integer states, uint8 images, float vectors."""
    if spec.num_states is not None:
        return jnp.zeros(spec.observation_shape, jnp.int32)
    return jnp.zeros(spec.observation_shape, jnp.uint8 if len(spec.observation_shape) == 3 else jnp.float32)
