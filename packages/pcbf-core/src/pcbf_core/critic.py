"""The PCBF critic: its loss (alg:pcbf-train) and what its return distribution tells."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final, get_args

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pcbf_core.config import check_choice, check_range
from pcbf_core.encoders import observation_encoder
from pcbf_core.flow import SOLVERS, Solver, Velocity, flow_map, flow_trajectory
from pcbf_core.learner import LearnerConfig, LearnerState, gradient_step, make_optimizer
from pcbf_core.networks import StateEmbedding, VelocityField, ensemble_velocity
from pcbf_core.paths import current_point, successor_point
from pcbf_core.roles import Role
from pcbf_core.targets import optimal_control_weight, velocity_target
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition

ControlWeight = float | Literal["optimal"] | Callable[[Array], Array]
Path = Literal["linear", "blended"]
LambdaScale = Literal["paper", "inside_discount"]
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

    num_critics: int = 2
    num_flow_steps: int = 10
    solver: Solver = "euler"
    time_power: float = 1.0
    time_sampling_power: float = 1.0
    num_flow_times: int = 1
    successor_aggregation: Aggregation = "mean"
    return_aggregation: Aggregation = "mean"
    clip_returns: bool = False
    stratified: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_critics", self.num_critics, at_least=1)
        check_range("num_flow_steps", self.num_flow_steps, at_least=1)
        check_range("num_flow_times", self.num_flow_times, at_least=1)
        check_range("time_power", self.time_power, above=0)
        check_range("time_sampling_power", self.time_sampling_power, above=0)
        check_choice("solver", self.solver, SOLVERS)
        check_choice("successor_aggregation", self.successor_aggregation, AGGREGATIONS)
        check_choice("return_aggregation", self.return_aggregation, AGGREGATIONS)


@dataclass(frozen=True)
class PCBFCriticConfig(FlowCriticConfig):
    """Settings of the PCBF critic.

    Attributes:
      control_weight: λ of eq:lambda_target: a constant, "optimal" for λ*(t) = γ(1-t) + ρt, or any
        function of flow time.
      shared_noise: True drives successor and current path by one noise (ρ = 1); False is the ablation
        with independent noises (ρ = 0).
      trained_critics: how many members the loss trains and asks for targets; None for all of them. The
        paper's repository trains one of two.
      path: "linear" is the paper's path (eq:current-path); "blended" moves the share λ of the successor
        point onto the integrated flow, as code compiled into the paper's repository does.
      lambda_scale: "paper" weighs the control variate by λ (eq:lambda_target); "inside_discount" writes
        R + γ̃ (X' + λ (c_t - X')) + (λ - 1) X_0, as that compiled code does (biased by λ X_0 at terminals).
    """

    control_weight: ControlWeight = 0.0
    shared_noise: bool = True
    trained_critics: int | None = None
    path: Path = "linear"
    lambda_scale: LambdaScale = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.control_weight, str):
            check_choice("control_weight", self.control_weight, ["optimal"])
        elif not callable(self.control_weight):
            check_range("control_weight", self.control_weight, at_least=0, at_most=1)
        if self.trained_critics is not None:
            check_range("trained_critics", self.trained_critics, at_least=1, at_most=self.num_critics)
        check_choice("path", self.path, get_args(Path))
        check_choice("lambda_scale", self.lambda_scale, get_args(LambdaScale))


def path_coupled_pair(
    target_velocity: Velocity,
    *,
    noise: Array,
    successor_noise: Array,
    successor_return: Array,
    flow_time: Array,
    reward: Array,
    terminal: Array,
    discount: float,
    control_weight: Array,
) -> tuple[Array, Array]:
    """Input and regression target (Z^s_t, u^λ_t) of one transition, as in the loop of alg:pcbf-train.

    `target_velocity(t, z)` is v_{θ⁻}(t, z | s', a'); terminal transitions get γ̃ = λ̃ = 0.
    """
    effective_discount = discount * (1 - terminal)
    effective_control_weight = control_weight * (1 - terminal)
    successor = successor_point(noise=successor_noise, successor_return=successor_return, flow_time=flow_time)
    point = current_point(
        noise=noise,
        successor_return=successor_return,
        reward=reward,
        flow_time=flow_time,
        effective_discount=effective_discount,
    )
    target = velocity_target(
        noise=noise,
        successor_return=successor_return,
        reward=reward,
        successor_velocity=target_velocity(flow_time, successor),
        effective_discount=effective_discount,
        effective_control_weight=effective_control_weight,
        successor_noise=successor_noise,
    )
    return point, target


def blended_pair(
    target_velocity: Velocity,
    *,
    noise: Array,
    successor_noise: Array,
    successor_return: Array,
    flow_point: Array | None,
    flow_time: Array,
    reward: Array,
    terminal: Array,
    discount: float,
    control_weight: Array,
    lambda_scale: LambdaScale,
) -> tuple[Array, Array]:
    """Input and regression target of the forms compiled into the paper's repository, see `PCBFCriticConfig`.

    With Ẑ_t = `flow_point`, the successor flow stopped at t (None for the linear path),

        Z = t R + γ̃ (Z^{s'}_t + λ (Ẑ_t - Z^{s'}_t)) + (1-t)(1-γ̃) X_0.
    """
    effective_discount = discount * (1 - terminal)
    linear = successor_point(noise=successor_noise, successor_return=successor_return, flow_time=flow_time)
    successor = linear if flow_point is None else flow_point
    mixed = linear + control_weight * (successor - linear)
    point = flow_time * reward + effective_discount * mixed + (1 - flow_time) * (1 - effective_discount) * noise
    successor_velocity = target_velocity(flow_time, successor)
    if lambda_scale == "paper":
        return point, velocity_target(
            noise=noise,
            successor_return=successor_return,
            reward=reward,
            successor_velocity=successor_velocity,
            effective_discount=effective_discount,
            effective_control_weight=control_weight * (1 - terminal),
            successor_noise=successor_noise,
        )
    mixed_return = successor_return + control_weight * (successor_velocity - successor_return)
    return point, reward + effective_discount * mixed_return + control_weight * successor_noise - noise


def noise_and_times(
    key: Array, batch_size: int, num_times: int = 1, *, stratified: bool = False, time_power: float = 1.0
) -> tuple[Array, Array]:
    """One X_0 ~ N(0, 1), (batch, 1), and `num_times` flow times, (batch, times), per transition.

    The times are t = 1 - U^p with U ~ U[0, 1]; p = 1 is the paper's uniform law. Stratified draws are
    a lattice with a random shift: each number keeps its law, together they cover the plane of noise
    and time evenly.
    """
    noise_key, time_key = jax.random.split(key)
    if stratified:
        row, column = jnp.arange(batch_size)[:, None], jnp.arange(num_times)
        golden = (math.sqrt(5) - 1) / 2
        noise = noise_at_levels((row * golden + jax.random.uniform(noise_key)) % 1)
        level = ((row + batch_size * column) / (batch_size * num_times) + jax.random.uniform(time_key)) % 1
    else:
        noise = jax.random.normal(noise_key, (batch_size, 1))
        level = jax.random.uniform(time_key, (batch_size, num_times))
    return noise, 1 - level**time_power


def noise_at_levels(levels: Array) -> Array:
    """Standard normal quantiles, kept finite at levels 0 and 1."""
    return jax.scipy.special.ndtri(jnp.clip(levels, 1e-6, 1 - 1e-6))


def even_levels(num_samples: int) -> Array:
    """Middles of `num_samples` equal parts of [0, 1]."""
    return (jnp.arange(num_samples) + 0.5) / num_samples


@dataclass(frozen=True)
class FlowCritic:
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

    @abstractmethod
    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Training loss of the velocity field and what to log."""

    @property
    @abstractmethod
    def coefficients(self) -> dict[str, float]:
        """Scalars of the loss that a sweep may vary without compiling again."""

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

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return make_optimizer(self.config)

    def init_params(self, key: Array) -> PyTree:
        """Fresh parameters of the velocity field."""
        return self.role.init(key, self.spec, jnp.zeros(self.spec.action_dim))

    def init(self, key: Array) -> LearnerState:
        params = {"critic": self.init_params(key)}
        coefficients = {name: jnp.asarray(value, jnp.float32) for name, value in self.coefficients.items()}
        return LearnerState(params, jax.tree.map(jnp.copy, params), self.optimizer.init(params), coefficients)

    def update(self, state: LearnerState, batch: Transition, key: Array) -> tuple[LearnerState, Metrics]:
        """One step of alg:pcbf-train: gradient, Adam, then the slow copy."""
        return gradient_step(
            lambda params: self.loss(params["critic"], state.target_params["critic"], batch, key, state.coefficients),
            self.optimizer,
            state,
            polyak_rate=self.config.polyak_rate,
        )

    def flow_options(self) -> dict[str, Any]:
        clip_range = self.spec.return_range if self.config.clip_returns else None
        return {"solver": self.config.solver, "time_power": self.config.time_power, "clip_range": clip_range}

    def ensemble(self, params: PyTree, observation: Array, action: Array, **options: Any) -> Velocity:
        """The members' velocities at (s, a); batch axes of `observation` broadcast against those of `action`."""
        role = self.role
        features = role.features(params, observation)
        return ensemble_velocity(role.module, role.network(params), features, action, **options)

    def member_returns(
        self, params: PyTree, observation: Array, action: Array, noise: Array, num_flow_steps: int | None = None
    ) -> Array:
        """Terminal returns of every member, (members, *batch, samples), from noise (*batch, samples)."""
        velocity = self.ensemble(params, observation, action, sample_axes=1)
        batch = jnp.shape(action)[:-1]
        start = jnp.broadcast_to(noise, (self.config.num_critics, *batch, noise.shape[-1]))
        return flow_map(velocity, start, num_flow_steps or self.config.num_flow_steps, **self.flow_options())

    def returns_at(
        self, state: LearnerState, observation: Array, action: Array, noise: Array, num_flow_steps: int | None = None
    ) -> Array:
        """Terminal returns ψ¹(x_0 | s, a), (*batch, samples), for noise (samples,) or (*batch, samples)."""
        members = self.member_returns(state.params["critic"], observation, action, noise, num_flow_steps)
        return AGGREGATIONS[self.config.return_aggregation](members, axis=0)

    def one_step_returns(self, state: LearnerState, observation: Array, action: Array, noise: Array) -> Array:
        """One Euler step for the whole flow, x_0 + v(0, x_0 | s, a), (*batch, samples).

        For the optimal field this is E[R + γ ψ¹(x_0 | S', A')]: its mean over x_0 is the mean return,
        its law is not that of the return.
        """
        params = state.params["critic"]
        velocity = self.ensemble(params, observation, action, sample_axes=1)
        batch = jnp.shape(action)[:-1]
        start = jnp.broadcast_to(noise, (self.config.num_critics, *batch, noise.shape[-1]))
        members = flow_map(velocity, start, 1, clip_range=self.flow_options()["clip_range"])
        return AGGREGATIONS[self.config.return_aggregation](members, axis=0)

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
        self, state: LearnerState, observation: Array, action: Array, levels: Array, num_flow_steps: int | None = None
    ) -> Array:
        """Return quantiles at `levels` in (0, 1), (*batch, levels)."""
        returns = self.returns_at(state, observation, action, noise_at_levels(jnp.asarray(levels)), num_flow_steps)
        return jnp.sort(returns, axis=-1)

    def cdf(
        self, state: LearnerState, observation: Array, action: Array, values: Array, num_samples: int = 1024
    ) -> Array:
        """P(Z ≤ value), (*batch, values), to a resolution of 1 / num_samples."""
        returns = self.quantiles(state, observation, action, even_levels(num_samples))
        return (returns[..., None, :] <= jnp.asarray(values)[:, None]).mean(axis=-1)

    def cvar(
        self,
        state: LearnerState,
        observation: Array,
        action: Array,
        level: float,
        num_samples: int = 256,
        *,
        upper: bool = False,
    ) -> Array:
        """Mean of the worst `level` share of returns, CVaR_α(Z), (*batch,); level 1 is the mean.

        With `upper` it is the mean of the best share.
        """
        check_range("level", level, above=0, at_most=1)
        levels = level * even_levels(num_samples)
        noise = noise_at_levels(1 - levels if upper else levels)
        return self.returns_at(state, observation, action, noise).mean(axis=-1)

    def density(
        self,
        state: LearnerState,
        observation: Array,
        action: Array,
        values: Array,
        num_flow_steps: int = 100,
        num_points: int = 2001,
    ) -> Array:
        """Density of the return at `values`, (*batch, values), by p(ψ(x_0)) = φ(x_0) / ψ'(x_0).

        ψ' comes from differentiating the flow along the way; values between the images of
        `num_points` noises are interpolated.
        """
        noise = jnp.linspace(-5.0, 5.0, num_points)
        returns, slope = jax.jvp(
            lambda x: self.returns_at(state, observation, action, x, num_flow_steps),
            (noise,),
            (jnp.ones_like(noise),),
        )
        density = jax.scipy.stats.norm.pdf(noise) / jnp.maximum(slope, 1e-9)
        interpolate = partial(jnp.interp, jnp.asarray(values), left=0.0, right=0.0)
        return jnp.vectorize(interpolate, signature="(n),(n)->(m)")(jax.lax.cummax(returns, returns.ndim - 1), density)

    def trajectories(
        self, state: LearnerState, observation: Array, action: Array, noise: Array, num_flow_steps: int
    ) -> Array:
        """Paths of the particles `noise` (samples,), as (steps + 1, *batch, samples), members averaged."""
        velocity = self.ensemble(state.params["critic"], observation, action, sample_axes=1)
        batch = jnp.shape(action)[:-1]
        start = jnp.broadcast_to(noise, (self.config.num_critics, *batch, noise.shape[-1]))
        paths = flow_trajectory(velocity, start, num_flow_steps, **self.flow_options())
        return AGGREGATIONS[self.config.return_aggregation](paths, axis=1)


@final
@dataclass(frozen=True)
class PCBFCritic(FlowCritic):
    """Path-coupled Bellman flow critic (alg:pcbf-train)."""

    config: PCBFCriticConfig
    spec: TaskSpec

    @property
    def coefficients(self) -> dict[str, float]:
        weight = self.config.control_weight
        return {} if isinstance(weight, str) or callable(weight) else {"control_weight": weight}

    def control_weight(self, flow_time: Array, coefficients: Mapping[str, Array]) -> Array:
        """λ at a flow time: the constant, λ*(t), or the caller's own function."""
        weight = self.config.control_weight
        if callable(weight):
            return weight(flow_time)
        if weight == "optimal":
            correlation = 1.0 if self.config.shared_noise else 0.0
            return optimal_control_weight(flow_time, discount=self.config.discount, noise_correlation=correlation)
        return coefficients["control_weight"]

    def loss(
        self, params: PyTree, target_params: PyTree, batch: Transition, key: Array, coefficients: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Mean over members and batch of |v_θ(t, Z^s_t | s, a) - sg(u^λ_t)|² (alg:pcbf-train)."""
        config = self.config
        draw = partial(
            noise_and_times,
            batch_size=batch.reward.shape[0],
            num_times=config.num_flow_times,
            stratified=config.stratified,
            time_power=config.time_sampling_power,
        )
        draw_key, successor_key = jax.random.split(key)
        noise, flow_time = draw(draw_key)
        successor_noise = noise if config.shared_noise else draw(successor_key)[0]

        num_members = config.trained_critics or config.num_critics
        aggregate = partial(AGGREGATIONS[config.successor_aggregation], axis=0)
        members = (num_members, *flow_time.shape)
        successor = self.ensemble(
            self.first_members(target_params, num_members),
            batch.next_observation,
            batch.successor_action,
            sample_axes=1,
        )
        start = jnp.broadcast_to(successor_noise, (num_members, *noise.shape))
        successor_return = aggregate(flow_map(successor, start, config.num_flow_steps, **self.flow_options()))
        inputs: dict[str, Any] = dict(
            noise=noise,
            successor_noise=successor_noise,
            successor_return=successor_return,
            flow_time=flow_time,
            reward=batch.reward[:, None],
            terminal=batch.terminal[:, None],
            discount=config.discount,
            control_weight=self.control_weight(flow_time, coefficients),
        )

        def target_velocity(t: Array, z: Array) -> Array:
            return aggregate(successor(t[None], jnp.broadcast_to(z, members)))

        if config.path == "linear" and config.lambda_scale == "paper":
            pair = path_coupled_pair(target_velocity, **inputs)
        else:
            flow_point = None
            if config.path == "blended":
                start = jnp.broadcast_to(successor_noise, members)
                options: dict[str, Any] = self.flow_options() | {"end_time": flow_time[None]}
                flow_point = aggregate(flow_map(successor, start, config.num_flow_steps, **options))
            pair = blended_pair(target_velocity, flow_point=flow_point, lambda_scale=config.lambda_scale, **inputs)
        point, target = jax.lax.stop_gradient(pair)
        trained = self.first_members(params, num_members)
        online = self.ensemble(trained, batch.observation, batch.action, sample_axes=1, for_gradient=True)
        prediction = online(flow_time[None], jnp.broadcast_to(point, members))
        loss = jnp.mean((prediction - target) ** 2)
        return loss, {"critic_loss": loss}

    def first_members(self, params: PyTree, num_members: int) -> PyTree:
        """The parameters of the first members of the ensemble, with their encoder."""
        if num_members == self.config.num_critics:
            return params
        role = self.role
        first = jax.tree.map(lambda leaf: leaf[:num_members], role.network(params))
        return first if role.encoder is None else {**params, "network": first}
