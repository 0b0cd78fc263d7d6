"""The proposal policy π_β, a flow cloned from the data, and the choice among its candidates (app:policy-extraction)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pcbf_core.config import Count, Sizes
from pcbf_core.flow import Solver, flow_map
from pcbf_core.learner import LearnerConfig
from pcbf_core.roles import Role, make_role, over_candidates
from pcbf_core.types import PyTree, TaskSpec

ActionClip = Literal["every_step", "end"]


@dataclass(frozen=True)
class ActorConfig(LearnerConfig):
    """Settings of learners with an actor network.

    Attributes:
      actor_hidden_sizes: hidden layers of the actors; None for `hidden_sizes`.
      actor_layer_norm: LayerNorm in the actors.
    """

    actor_hidden_sizes: Sizes | None = None
    actor_layer_norm: bool = True


@dataclass(frozen=True)
class ProposalConfig(ActorConfig):
    """Settings of the proposal flow; defaults from tab:hyperparameters.

    Attributes:
      num_action_steps, action_solver: steps of the action flow and their kind, see `flow_map`.
      action_clip: whether actions are clipped to [-1, 1] at the "end" of the flow or after "every_step". The
        latter, common in published code, cuts the noise itself: about a quarter of all samples sits at ±1
        after the first step, and the outer parts of the data's actions are never proposed.
      num_candidates: K, the candidates among which a critic chooses.
    """

    num_action_steps: Count = 10
    action_solver: Solver = "euler"
    action_clip: ActionClip = "end"
    num_candidates: Count = 16


def clip_action(action: Array) -> Array:
    """The action inside [-1, 1]."""
    return jnp.clip(action, -1.0, 1.0)


@dataclass(frozen=True)
class Proposal:
    """π_β: a velocity field on actions, trained by flow matching on the data's actions."""

    config: ProposalConfig
    spec: TaskSpec

    @property
    def role(self) -> Role:
        """An MLP on [observation, action point, flow time]."""
        return make_role(
            self.spec,
            self.config,
            input_dim=self.spec.action_dim + 1,
            output_dim=self.spec.action_dim,
            hidden_sizes=self.config.actor_hidden_sizes,
            layer_norm=self.config.actor_layer_norm,
        )

    def init_params(self, key: Array) -> PyTree:
        return self.role.init(key, self.spec)

    def loss(self, params: PyTree, observation: Array, action: Array, key: Array) -> Array:
        """Mean over batch and coordinates of |f(t, (1-t) x_0 + t a | s) - (a - x_0)|², x_0 ~ N(0, I), t ~ U[0, 1]."""
        noise_key, time_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, action.shape)
        flow_time = jax.random.uniform(time_key, (*action.shape[:-1], 1))
        point = (1 - flow_time) * noise + flow_time * action
        prediction = self.role.at(params, observation)(point, flow_time)
        return jnp.mean((prediction - (action - noise)) ** 2)

    def flow(self, params: PyTree, observation: Array, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """Actions in [-1, 1] that the flow makes of `noise`.

        Batch axes of the observation broadcast against those of the noise; its part of the network is
        computed once for all Euler steps and candidates.
        """
        field = self.role.at(params, observation)
        config = self.config
        action = flow_map(
            lambda time, point: field(point, jnp.broadcast_to(time, (*point.shape[:-1], 1))),
            noise,
            config.num_action_steps,
            solver=config.action_solver,
            clip_range=(-1.0, 1.0) if config.action_clip == "every_step" else None,
        )
        return clip_action(action)

    def sample(self, params: PyTree, observation: Array, key: Array) -> Array:
        """One action per observation, (*batch, action_dim)."""
        batch = observation.shape[: observation.ndim - len(self.spec.observation_shape)]
        return self.flow(params, observation, jax.random.normal(key, (*batch, self.spec.action_dim)))

    def candidates(self, params: PyTree, observation: Array, key: Array) -> Array:
        """K independent actions per observation, (*batch, candidates, action_dim)."""
        batch = observation.shape[: observation.ndim - len(self.spec.observation_shape)]
        noise = jax.random.normal(key, (*batch, self.config.num_candidates, self.spec.action_dim))
        return self.flow(params, over_candidates(observation, self.spec), noise)

    def best_of(
        self,
        params: PyTree,
        observation: Array,
        key: Array,
        score: Callable[[Array, Array, Array], Array],
        candidates: Array | None = None,
    ) -> Array:
        """The best of K candidates by `score(observation, candidates, key)`, (*batch, action_dim).

        The observation that `score` gets has an axis of size 1 for the candidates, so that work on it is
        done once. One candidate needs no score. `candidates` are those to choose among if they are drawn already.
        """
        candidate_key, score_key = jax.random.split(key)
        if candidates is None:
            candidates = self.candidates(params, observation, candidate_key)
        if candidates.shape[-2] == 1:
            return candidates[..., 0, :]
        return best_candidate(candidates, score(over_candidates(observation, self.spec), candidates, score_key))


@partial(jax.jit, static_argnames=("proposal", "block_size"))
def draw_candidates(
    proposal: Proposal, params: PyTree, observation: Array, key: Array, *, block_size: int = 4096
) -> Array:
    """K independent actions at each of many observations, (observations, candidates, action_dim).

    For a proposal that no longer changes: the candidates of all s' of a dataset at once, `Transition.next_candidates`.
    So many observations at a time are flowed, which bounds the memory and changes nothing but rounding.
    """
    size = observation.shape[0]
    block_size = min(block_size, size)
    noise = jax.random.normal(key, (size, proposal.config.num_candidates, proposal.spec.action_dim))
    blocks = jnp.arange(-(-size // block_size) * block_size).reshape(-1, block_size) % size  # the last begins anew

    def one_block(rows: Array) -> Array:
        return proposal.flow(params, over_candidates(observation[rows], proposal.spec), noise[rows])

    return jax.lax.map(one_block, blocks).reshape(-1, *noise.shape[1:])[:size]


def best_candidate(
    candidates: Float[Array, "*batch K dim"], scores: Float[Array, "*batch K"]
) -> Float[Array, "*batch dim"]:
    """The candidate of highest score."""
    best = jnp.argmax(scores, axis=-1)[..., None, None]
    return jnp.take_along_axis(candidates, best, axis=-2)[..., 0, :]
