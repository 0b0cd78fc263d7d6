"""Critics whose return law is a flow: the flow at (s, a), what is read out of it, and how it takes a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcbf_core.config import Count, Positive, check_range
from pcbf_core.encoders import observation_encoder
from pcbf_core.flow import Solver, Velocity, flow_map, flow_times, flow_trajectory, on_polygon
from pcbf_core.learner import LearnerConfig, LearnerState, ReturnCritic
from pcbf_core.networks import StateEmbedding, VelocityField, ensemble_velocity
from pcbf_core.noise import check_levels, even_levels, noise_and_times, noise_at_levels
from pcbf_core.roles import Role
from pcbf_core.types import PyTree, TaskSpec, Transition

Levels = Array | np.ndarray | np.generic | Sequence[float] | float
Aggregation = Literal["mean", "min"]
AGGREGATIONS: dict[str, Callable[..., Array]] = {"mean": jnp.mean, "min": jnp.min}


@dataclass(frozen=True)
class FlowCriticConfig(LearnerConfig):
    """Settings shared by critics whose return law is a flow; defaults from tab:hyperparameters.

    Attributes:
      num_critics: ensemble members, all trained.
      num_flow_steps: N of the successor's flow in the loss, and of read-outs unless told otherwise.
      solver, time_power: how flows are integrated, see `flow_map`.
      num_flow_times: flow times drawn per transition; they share its noise and successor return, so more
        of them cost no further flow.
      time_sampling_power: exponent p of the law t = 1 - U^p of flow times; 1 is uniform.
      successor_aggregation: how members agree on X' and its velocity, under common noise.
      return_aggregation: how members agree on a return when the law is read.
      clip_returns: keep flows inside `TaskSpec.return_range` after every step.
      stratified: spread the noises and flow times of a batch evenly instead of drawing them independently;
        each keeps its law.
    """

    num_critics: Count = 2
    num_flow_steps: Count = 10
    solver: Solver = "euler"
    time_power: Positive = 1.0
    time_sampling_power: Positive = 1.0
    num_flow_times: Count = 1
    successor_aggregation: Aggregation = "mean"
    return_aggregation: Aggregation = "mean"
    clip_returns: bool = False
    stratified: bool = False


def _like(asked: Levels, answer: Array) -> Array:
    """`answer` without its last axis if a single number was asked for."""
    return answer[..., 0] if np.ndim(asked) == 0 else answer


@dataclass(frozen=True)
class FlowPath:
    """One particle per row on its way from noise to return, on the polygon through the nodes that the solver visits.

    Attributes:
      velocities: dz/dt of every member, on points (members, *batch, samples).
      times, nodes: the solver's grid (nodes,), and the points there (nodes, members, *batch, 1).
      weights: share of each member (members, *batch, 1): alike for the mean, all of it for the one of least return. The
        velocity of the members' weighed path is their weighed velocity, each at its own point.
    """

    velocities: Velocity
    times: Array
    nodes: Array
    weights: Array

    @property
    def returns(self) -> Float[Array, "*batch 1"]:
        """X' = ψ_1(x_0)."""
        return (self.weights * self.nodes[-1]).sum(axis=0)

    def at(
        self, flow_time: Float[Array, "*batch samples"]
    ) -> tuple[Float[Array, "*batch samples"], Float[Array, "*batch samples"]]:
        """The point Ẑ_t = ψ_t(x_0) and its velocity v(t, Ẑ_t); one evaluation of the field for each time."""
        points = on_polygon(self.times, self.nodes, flow_time[None])
        velocities = self.velocities(flow_time[None], points)
        return (self.weights * points).sum(axis=0), (self.weights * velocities).sum(axis=0)


@dataclass(frozen=True)
class ReturnFlow:
    """The flow from noise to returns at given (s, a), of an ensemble whose members share the noise.

    Attributes:
      velocities: dz/dt of every member, on points (members, *batch, samples).
      shape: (members, *batch).
      config: how the flow is integrated.
      aggregation: how the members agree on a return or a velocity.
      clip_range: bounds of the flow, None for no bounds.
    """

    velocities: Velocity
    shape: tuple[int, ...]
    config: FlowCriticConfig
    aggregation: Aggregation
    clip_range: tuple[float, float] | None

    def member_velocities(
        self, flow_time: Float[Array, "*batch samples"], point: Float[Array, "*batch samples"]
    ) -> Float[Array, "members *batch samples"]:
        """v(t, z | s, a) of every member at points common to them."""
        return self.velocities(flow_time[None], self._for_members(point))

    def velocity(
        self, flow_time: Float[Array, "*batch samples"], point: Float[Array, "*batch samples"]
    ) -> Float[Array, "*batch samples"]:
        """The velocity on which the members agree."""
        return self._agreed(self.member_velocities(flow_time, point))

    def returns(self, noise: Array, num_flow_steps: int | None = None) -> Array:
        """Terminal returns ψ¹(x_0 | s, a), (*batch, samples), for noise (samples,) or (*batch, samples)."""
        return self._agreed(self._flow(self._for_members(noise), num_flow_steps, end_time=1.0))

    def points(
        self, noise: Float[Array, "*batch #samples"], flow_time: Float[Array, "*batch samples"]
    ) -> Float[Array, "*batch samples"]:
        """The flow of `noise` stopped at `flow_time`."""
        start = jnp.broadcast_to(noise, (*self.shape, flow_time.shape[-1]))
        return self._agreed(self._flow(start, None, end_time=flow_time[None]))

    def path(self, noise: Float[Array, "*batch 1"]) -> FlowPath:
        """The flow of `noise` to its end and all that it passes, for the cost of `returns`."""
        config = self.config
        nodes = flow_trajectory(
            self.velocities,
            self._for_members(noise),
            config.num_flow_steps,
            solver=config.solver,
            time_power=config.time_power,
            clip_range=self.clip_range,
        )
        if self.aggregation == "mean":
            weights = jnp.full(nodes.shape[1:], 1 / nodes.shape[1])
        else:
            weights = jax.nn.one_hot(nodes[-1].argmin(axis=0), nodes.shape[1], axis=0)
        return FlowPath(
            self.velocities, flow_times(config.num_flow_steps, time_power=config.time_power), nodes, weights
        )

    def one_step_returns(self, noise: Array) -> Array:
        """One Euler step for the whole flow, x_0 + v(0, x_0 | s, a), (*batch, samples)."""
        return self._agreed(flow_map(self.velocities, self._for_members(noise), 1, clip_range=self.clip_range))

    def trajectories(self, noise: Array, num_flow_steps: int) -> Array:
        """Paths of `noise`, (steps + 1, *batch, samples)."""
        paths = flow_trajectory(
            self.velocities,
            self._for_members(noise),
            num_flow_steps,
            solver=self.config.solver,
            time_power=self.config.time_power,
            clip_range=self.clip_range,
        )
        return self._agreed(paths, axis=1)

    def _flow(self, start: Array, num_flow_steps: int | None, end_time: float | Array) -> Array:
        return flow_map(
            self.velocities,
            start,
            num_flow_steps or self.config.num_flow_steps,
            solver=self.config.solver,
            time_power=self.config.time_power,
            end_time=end_time,
            clip_range=self.clip_range,
        )

    def _for_members(self, value: Array) -> Array:
        return jnp.broadcast_to(value, (*self.shape, value.shape[-1]))

    def _agreed(self, members: Array, axis: int = 0) -> Array:
        return AGGREGATIONS[self.aggregation](members, axis=axis)


@dataclass(frozen=True)
class FlowCritic(ReturnCritic):
    """A return distribution given by a flow; subclasses say how the velocity field is trained.

    Read-outs take observations and actions with any leading batch axes (those of the observation may be
    of size 1 where several actions share it) and put samples, levels or values on a last axis. They read
    the online parameters and average (`return_aggregation`) the members' returns under common noise. In
    one dimension the flow map keeps the order of its inputs, so quantiles, tail means and densities come
    straight from quantiles of the noise.
    """

    config: FlowCriticConfig
    spec: TaskSpec

    def __post_init__(self) -> None:
        if self.config.clip_returns and self.spec.return_range is None:
            raise ValueError("`clip_returns=True` needs `TaskSpec.return_range`; set it, or turn clipping off.")

    @property
    def role(self) -> Role:
        """The velocity field with its members; discrete states are embedded by each member itself."""
        config, spec = self.config, self.spec
        if spec.num_states is None:
            embedding = None
            encoder, features = observation_encoder(spec, config)
        else:
            embedding = StateEmbedding(spec.num_states, config.state_features)
            encoder, features = None, config.state_features
        field = VelocityField(
            context_dim=features + spec.action_dim,
            hidden_sizes=config.hidden_sizes,
            layer_norm=config.layer_norm,
            activation=config.activation,
            encoder=embedding,
        )
        return Role(field, encoder, config.num_critics)

    # --- learning ---------------------------------------------------------------------------------

    def init_params(self, key: Array) -> PyTree:
        """Fresh parameters of the velocity field."""
        return self.role.init(key, self.spec, jnp.zeros(self.spec.action_dim))

    def draw(
        self, key: Array, batch: Transition
    ) -> tuple[Float[Array, "batch 1"], Float[Array, "batch {self.config.num_flow_times}"]]:
        """Noise and flow times for the loss on `batch`, see `noise_and_times`."""
        return noise_and_times(
            key,
            batch.reward.shape[0],
            self.config.num_flow_times,
            stratified=self.config.stratified,
            time_power=self.config.time_sampling_power,
        )

    # --- the flow ---------------------------------------------------------------------------------

    @property
    def clip_range(self) -> tuple[float, float] | None:
        """The bounds that flows are kept in, see `FlowCriticConfig.clip_returns`."""
        return self.spec.return_range if self.config.clip_returns else None

    def ensemble(
        self, params: PyTree, observation: Array, action: Array, *, sample_axes: int = 0, for_gradient: bool = False
    ) -> Velocity:
        """The members' velocities at (s, a), see `ensemble_velocity`; batch axes of the observation broadcast."""
        role = self.role
        features, network = role.features(params, observation), role.network(params)
        return ensemble_velocity(
            role.module, network, features, action, sample_axes=sample_axes, for_gradient=for_gradient
        )

    def flow_at(
        self,
        params: PyTree,
        observation: Array,
        action: Array,
        *,
        aggregation: Aggregation,
        for_gradient: bool = False,
    ) -> ReturnFlow:
        """The flow of all members in `params` at (s, a); `for_gradient` is only a matter of speed."""
        velocities = self.ensemble(params, observation, action, sample_axes=1, for_gradient=for_gradient)
        num_members = jax.tree.leaves(self.role.network(params))[0].shape[0]
        shape = (num_members, *jnp.shape(action)[:-1])
        return ReturnFlow(velocities, shape, self.config, aggregation, self.clip_range)

    # --- read-outs --------------------------------------------------------------------------------

    def read(self, state: LearnerState, observation: Array, action: Array) -> ReturnFlow:
        """The online flow at (s, a), from which all read-outs come."""
        aggregation = self.config.return_aggregation
        return self.flow_at(state.params["critic"], observation, action, aggregation=aggregation)

    def returns_at(
        self, state: LearnerState, observation: Array, action: Array, noise: Array, num_flow_steps: int | None = None
    ) -> Array:
        """Terminal returns ψ¹(x_0 | s, a), (*batch, samples), for noise (samples,) or (*batch, samples)."""
        return self.read(state, observation, action).returns(noise, num_flow_steps)

    def one_step_returns(self, state: LearnerState, observation: Array, action: Array, noise: Array) -> Array:
        """One Euler step for the whole flow, x_0 + v(0, x_0 | s, a), (*batch, samples).

        For the optimal field this is E[R + γ ψ¹(x_0 | S', A')]: its mean over x_0 is the mean return,
        its law is not that of the return.
        """
        return self.read(state, observation, action).one_step_returns(noise)

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        """Independent samples of the return, (*batch, samples)."""
        noise = jax.random.normal(key, (*jnp.shape(action)[:-1], num_samples))
        return self.returns_at(state, observation, action, noise)

    def mean_return(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        """Q̂ = (1/M) ∑ ψ¹(X_{0,m} | s, a) with the M noises common to the whole batch (eq:qhat-mean)."""
        noise = jax.random.normal(key, (num_samples,))
        return self.returns_at(state, observation, action, noise).mean(axis=-1)

    def quantiles(
        self, state: LearnerState, observation: Array, action: Array, levels: Levels, num_flow_steps: int | None = None
    ) -> Array:
        """Return quantiles at `levels` in [0, 1], in their order, (*batch, levels); (*batch,) for a single level."""
        check_levels(levels)
        wanted = jnp.atleast_1d(jnp.asarray(levels, jnp.float32))
        returns = self.returns_at(state, observation, action, noise_at_levels(wanted), num_flow_steps)
        rank = jnp.argsort(jnp.argsort(wanted))  # a higher level has the higher return, whatever the solver's error
        return _like(levels, jnp.sort(returns, axis=-1)[..., rank])

    def cdf(
        self, state: LearnerState, observation: Array, action: Array, values: Levels, num_samples: int = 1024
    ) -> Array:
        """P(Z ≤ value), (*batch, values), to a resolution of 1 / num_samples; (*batch,) for a single value."""
        returns = self.quantiles(state, observation, action, even_levels(num_samples))
        return _like(values, (returns[..., None, :] <= jnp.atleast_1d(jnp.asarray(values))[:, None]).mean(axis=-1))

    def cvar(
        self,
        state: LearnerState,
        observation: Array,
        action: Array,
        level: float | np.generic | Array,
        num_samples: int = 256,
        *,
        upper: bool = False,
    ) -> Array:
        """Mean of the worst `level` share of returns, CVaR_α(Z), (*batch,); level 1 is the mean.

        With `upper` it is the mean of the best share.
        """
        check_range("level", level, above=0, at_most=1)
        levels = float(level) * even_levels(num_samples)
        noise = noise_at_levels(1 - levels if upper else levels)
        return self.returns_at(state, observation, action, noise).mean(axis=-1)

    def density(
        self,
        state: LearnerState,
        observation: Array,
        action: Array,
        values: Levels,
        num_flow_steps: int = 100,
        num_points: int = 2001,
    ) -> Array:
        """Density of the return at `values`, (*batch, values), by p(ψ(x_0)) = φ(x_0) / ψ'(x_0).

        A single value gives (*batch,). ψ' comes from differentiating the flow along the way; values between the
        images of `num_points` noises are interpolated.
        """
        noise = jnp.linspace(-5.0, 5.0, num_points)
        returns, slope = jax.jvp(
            lambda x: self.returns_at(state, observation, action, x, num_flow_steps),
            (noise,),
            (jnp.ones_like(noise),),
        )
        density = jax.scipy.stats.norm.pdf(noise) / jnp.maximum(slope, 1e-9)
        interpolate = partial(jnp.interp, jnp.atleast_1d(jnp.asarray(values)), left=0.0, right=0.0)
        at_values = jnp.vectorize(interpolate, signature="(n),(n)->(m)")
        return _like(values, at_values(jax.lax.cummax(returns, returns.ndim - 1), density))

    def trajectories(
        self, state: LearnerState, observation: Array, action: Array, noise: Array, num_flow_steps: int
    ) -> Array:
        """Paths of the particles `noise` (samples,), as (steps + 1, *batch, samples), members averaged."""
        return self.read(state, observation, action).trajectories(noise, num_flow_steps)
