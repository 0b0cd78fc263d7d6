"""Toy experiments: train on a Markov reward process over a grid of coefficients, record the return law."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from pcbf_baselines.c51 import CategoricalCritic, CategoricalCriticConfig
from pcbf_baselines.flow_iqn import SortedFlowCritic, SortedFlowCriticConfig
from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_baselines.value_flows import ValueFlowsCritic, ValueFlowsCriticConfig
from pcbf_core.config import Count, OneOf, Positive, PositiveShare, Range, Share, Sizes, check_choice, tidy
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig
from pcbf_core.flow import Solver, flow_times
from pcbf_core.flow_critic import FlowCritic
from pcbf_core.learner import LearnerConfig, LearnerState, ReturnCritic
from pcbf_core.mrp import MRPS, MarkovRewardProcess
from pcbf_core.networks import ACTIVATIONS
from pcbf_core.noise import even_levels, noise_at_levels
from pcbf_core.theory import corrected_residual
from pcbf_core.training import init_many, train_chunk
from pcbf_core.types import Transition
from pcbf_records.toy import RESIDUAL_STEPS, TOY_METHODS

FIRST_TUNING_SEED = 1000
IQN_SETTINGS = {
    "quantile_features": 32,
    "num_cosines": 16,
    "num_levels": 8,
    "huber_threshold": 0.1,
}  # of the size of the other networks
PICTURED = ("pcbf", "pcbf-independent")  # of which figures of the paper show a flow or a residual
NUM_LEVELS = 256  # quantiles kept per law
NUM_BLOCKS = 100  # points kept of a loss history
NUM_PARTICLES = 24  # flow lines kept for pictures
NUM_PATH_STEPS = 60


@dataclass(frozen=True)
class ToySettings:
    """One method on one process: the grid, the training and the evaluation.

    Attributes:
      coefficients: the settings tried: values of λ (PCBF), of the DCFM weight (Value Flows), and of the learning rate
        for methods without such a weight (IQN, C51, FlowIQN).
      num_seeds: learners per coefficient, seeded 0, 1, …; a seed sees the same batches at every coefficient.
      num_tuning_seeds: further learners, seeded 1000, 1001, …, on which a coefficient is chosen; never reported.
      num_steps, batch_size: gradient steps, and transitions per step.
      num_flow_times: flow times per transition that share one successor flow.
      num_eval_steps, num_eval_samples: solver steps and evenly spread noises of the evaluation.
      absorbing_fraction: share of a batch that starts in absorbing states, see `MarkovRewardProcess.sample`.

    The others are those of `FlowCriticConfig`.
    """

    coefficients: tuple[Share, ...] = (0.0, 0.5)
    num_seeds: Count = 1
    num_tuning_seeds: Count = 1
    num_steps: Count = 10_000
    batch_size: Count = 128
    num_flow_times: Count = 4
    hidden_sizes: Sizes = (32, 32, 32)
    activation: Annotated[str, OneOf(tuple(ACTIVATIONS))] = "relu"
    learning_rate: Positive = 1e-2
    polyak_rate: PositiveShare = 0.05
    hold_fraction: Share = 0.5
    num_flow_steps: Count = 12
    solver: Solver = "midpoint"
    time_power: Positive = 1.5
    stratified: bool = True
    num_eval_steps: Count = 50
    num_eval_samples: Annotated[int, Range(at_least=2)] = 4096
    absorbing_fraction: Annotated[float, Range(at_least=0, below=1)] = 0.1

    def __post_init__(self) -> None:
        tidy(self)


class ProcessSource(struct.PyTreeNode):
    """Batches of a process, a share of them from its absorbing states, in groups of equal states if asked."""

    process: MarkovRewardProcess = struct.field(pytree_node=False)
    absorbing_fraction: float = struct.field(pytree_node=False)
    group_size: int = struct.field(pytree_node=False, default=1)

    def sample(self, key: Array, batch_size: int) -> Transition:
        return self.process.sample(key, batch_size, self.absorbing_fraction, self.group_size)


@dataclass(frozen=True)
class Entry:
    """How a method takes part.

    Attributes:
      critic, config: its classes.
      coefficient: the setting that its grid varies; one of the config's `coefficients` trains side by side, another in
        turn.
      settings: what is fixed for it.
      group_size: rows of a batch that start in one state.
    """

    critic: type[ReturnCritic]
    config: type[LearnerConfig]
    coefficient: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    group_size: int = 1


ENTRIES = {
    "pcbf": Entry(PCBFCritic, PCBFCriticConfig, "control_weight", {"path": "linear"}),
    "pcbf-independent": Entry(
        PCBFCritic, PCBFCriticConfig, "control_weight", {"path": "linear", "shared_noise": False}
    ),
    "value_flows": Entry(ValueFlowsCritic, ValueFlowsCriticConfig, "dcfm_weight"),
    "pcbf_flow": Entry(PCBFCritic, PCBFCriticConfig, "control_weight", {"path": "flow"}),
    "flow_iqn": Entry(SortedFlowCritic, SortedFlowCriticConfig, "learning_rate", {"group_size": 8}, group_size=8),
    "iqn": Entry(QuantileCritic, QuantileCriticConfig, "learning_rate", IQN_SETTINGS),
    "c51": Entry(CategoricalCritic, CategoricalCriticConfig, "learning_rate"),
}


def make_critics(process: MarkovRewardProcess, method: str, settings: ToySettings) -> list[ReturnCritic]:
    """The critics of a method: one whose coefficient varies by learner, or one for every value of the setting."""
    check_choice("method", method, TOY_METHODS)
    entry = ENTRIES[method]
    known = {field.name for field in dataclasses.fields(entry.config)}
    taken = {name: value for name, value in dataclasses.asdict(settings).items() if name in known}
    fixed: dict[str, Any] = {
        **taken,
        "discount": process.discount,
        "layer_norm": False,
        "num_critics": 1,
        "decay_steps": settings.num_steps,
        **entry.settings,
    }
    spec = dataclasses.replace(process.spec, return_range=process.return_range)

    def make(**changes: Any) -> ReturnCritic:
        return entry.critic(entry.config(**fixed | changes), spec)

    if entry.coefficient in make().config.coefficients:
        return [make()]
    return [make(**{entry.coefficient: value}) for value in settings.coefficients]


def train(
    process: MarkovRewardProcess,
    method: str,
    settings: ToySettings,
    report: Callable[[int], None] = lambda step: None,
) -> tuple[ReturnCritic, LearnerState, np.ndarray]:
    """A critic that reads all learners of the grid, their states (learners, …) and losses (coefficients, seeds, steps).

    `report` hears how many steps all learners together have made.
    """
    entry, critics, seeds = ENTRIES[method], make_critics(process, method, settings), all_seeds(settings)
    source = ProcessSource(process, settings.absorbing_fraction, entry.group_size)
    side_by_side = len(settings.coefficients) // len(critics)
    keys = jnp.tile(jax.vmap(jax.random.key)(jnp.array(seeds)), side_by_side)
    chunk = max(settings.num_steps // 50, 1)
    trained, histories = [], []
    for done, critic in enumerate(critics):
        states, losses = init_many(critic, keys), []
        if entry.coefficient in states.coefficients:
            values = jnp.repeat(jnp.array(settings.coefficients, jnp.float32), len(seeds))
            states = states.replace(coefficients={**states.coefficients, entry.coefficient: values})
        for start in range(0, settings.num_steps, chunk):
            num_steps = min(chunk, settings.num_steps - start)
            states, metrics = train_chunk(
                critic, states, source, keys, start, num_steps=num_steps, batch_size=settings.batch_size
            )
            losses.append(np.asarray(metrics["critic_loss"]))
            report(len(keys) * (done * settings.num_steps + start + num_steps))
        trained.append(states)
        histories.append(np.concatenate(losses, axis=1))
    shape = (len(settings.coefficients), len(seeds), settings.num_steps)
    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trained)
    return critics[0], together, np.concatenate(histories).reshape(shape)


def all_seeds(settings: ToySettings) -> list[int]:
    """The reported seeds, then those of tuning."""
    return [*range(settings.num_seeds), *range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + settings.num_tuning_seeds)]


def evaluate(
    critic: ReturnCritic, states: LearnerState, process: MarkovRewardProcess, settings: ToySettings
) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles (learners, states, levels) and W1 to the exact law (learners, states)."""
    live = jnp.array(process.live_states)
    read = critic.quantiles
    if isinstance(critic, FlowCritic):
        read = partial(critic.quantiles, num_flow_steps=settings.num_eval_steps)

    @jax.jit
    @jax.vmap
    def quantiles(state: LearnerState) -> tuple[Array, Array]:
        levels = (even_levels(settings.num_eval_samples), even_levels(NUM_LEVELS))
        nothing = jnp.zeros((len(live), 0))
        fine, coarse = (read(state, live, nothing, u) for u in levels)
        return fine, jnp.sort(coarse, axis=-1)

    fine, coarse = (np.asarray(x) for x in quantiles(states))
    laws = [process.return_law(state) for state in process.live_states]
    w1 = [[law.wasserstein1(returns) for law, returns in zip(laws, learner, strict=True)] for learner in fine]
    return coarse, np.array(w1)


def flow_picture(
    critic: FlowCritic, state: LearnerState, process: MarkovRewardProcess, num_steps: int
) -> dict[str, np.ndarray]:
    """Flow lines, density and velocity field of one learner at every live state."""
    live = jnp.array(process.live_states)
    nothing = jnp.zeros((len(live), 0))
    laws = [process.return_law(s) for s in process.live_states]
    low = np.array([law.quantile(0.001) - 5.0 for law in laws])
    high = np.array([law.quantile(0.999) + 5.0 for law in laws])
    values = np.linspace(low, high, 400, axis=1)
    arrow_times = np.linspace(0, 0.95, 12)
    arrow_points = np.linspace(np.minimum(low, -3), np.maximum(high, 3), 16, axis=1)

    def picture(state: LearnerState, values: Array, points: Array) -> tuple[Array, Array, Array]:
        particles = noise_at_levels(even_levels(NUM_PARTICLES))
        paths = critic.trajectories(state, live, nothing, particles, NUM_PATH_STEPS)
        density = jax.vmap(lambda s, x: critic.density(state, s, jnp.zeros(0), x, num_steps, 8001))(live, values)
        field = critic.ensemble(state.params["critic"], live, nothing, sample_axes=1)
        arrows = jax.vmap(lambda t: field(t, points[None])[0])(jnp.asarray(arrow_times, jnp.float32))
        return paths, density, arrows

    inputs = (jnp.asarray(values, jnp.float32), jnp.asarray(arrow_points, jnp.float32))
    paths, density, arrows = jax.jit(picture)(state, *inputs)
    time_power = critic.config.time_power
    return {
        "flow_times": np.asarray(flow_times(NUM_PATH_STEPS, time_power=time_power), np.float64),
        "flow_paths": np.moveaxis(np.asarray(paths), 0, 1),
        "density_values": values.astype(np.float32),
        "density": np.asarray(density),
        "arrow_times": arrow_times,
        "arrow_points": arrow_points,
        "arrow_velocity": np.moveaxis(np.asarray(arrows), 0, 1),
    }


def residual_curves(critic: FlowCritic, states: LearnerState, num_samples: int) -> dict[str, np.ndarray]:
    """r_corr(t, N) on the going-on transition of Solitaire Dice (R = 1, s' = s), for every learner (eq:rcorr).

    The independent noise is a fixed shuffle of the same evenly spread one.
    """
    noise = noise_at_levels(even_levels(num_samples))
    shuffled = jax.random.permutation(jax.random.key(0), noise)
    width = max(RESIDUAL_STEPS) + 1

    def curves(state: LearnerState) -> list[Array]:
        field = critic.ensemble(state.params["critic"], jnp.zeros((), int), jnp.zeros(0), sample_axes=1)

        def velocity(time: Array, point: Array) -> Array:
            return field(time, point[None])[0]

        residual = partial(
            corrected_residual,
            velocity,
            velocity,
            noise=noise,
            reward=jnp.ones(1),
            discount=critic.config.discount,
        )
        return [
            jnp.pad(
                jnp.stack([residual(successor_noise=other, num_flow_steps=n) for other in (noise, shuffled)]),
                ((0, 0), (0, width - n - 1)),
                constant_values=jnp.nan,
            )
            for n in RESIDUAL_STEPS
        ]

    both = np.stack(jax.jit(jax.vmap(curves))(states), axis=2).astype(np.float64)  # (seeds, noises, steps, times)
    times = np.full((len(RESIDUAL_STEPS), width), np.nan)
    for row, n in zip(times, RESIDUAL_STEPS, strict=True):
        row[: n + 1] = np.linspace(0, 1, n + 1)
    return {
        "residual_steps": np.array(RESIDUAL_STEPS),
        "residual_times": times,
        "residual_shared": both[:, 0],
        "residual_independent": both[:, 1],
    }


def make_record(
    name: str, method: str, settings: ToySettings, report: Callable[[int], None] = lambda step: None
) -> dict[str, np.ndarray]:
    """The arrays that one job records, by name."""
    check_choice("process", name, MRPS)
    process = MRPS[name]
    critic, states, losses = train(process, method, settings, report)
    if not np.isfinite(losses[..., -1]).all():
        raise FloatingPointError(f"{method} on {name} diverged: the last loss is NaN or infinite.")
    seeds, count = all_seeds(settings), settings.num_seeds
    quantiles, w1 = (x.reshape(*losses.shape[:2], *x.shape[1:]) for x in evaluate(critic, states, process, settings))
    losses, quantiles, w1, tuning_w1 = losses[:, :count], quantiles[:, :count], w1[:, :count], w1[:, count:]
    num_blocks = min(NUM_BLOCKS, settings.num_steps)
    blocks = [part.mean(axis=-1) for part in np.array_split(losses, num_blocks, axis=-1)]
    record = {
        "coefficients": np.array(settings.coefficients, np.float64),
        "seeds": np.array(seeds[:count]),
        "tuning_seeds": np.array(seeds[count:]),
        "states": np.array(process.live_states),
        "levels": np.asarray(even_levels(NUM_LEVELS), np.float64),
        "quantiles": quantiles,
        "w1": w1,
        "tuning_w1": tuning_w1,
        "loss_history": np.stack(blocks, axis=-1),
        "loss_std": losses[..., -max(settings.num_steps // 10, 1) :].std(axis=-1, dtype=np.float64),
    }
    if isinstance(critic, FlowCritic) and method in PICTURED:
        reported = [process.live_states.index(s) for s in process.evaluation_states]
        best = int(tuning_w1[..., reported].mean(axis=(1, 2)).argmin())
        first = best * len(seeds)
        chosen = jax.tree.map(lambda x: x[first : first + count], states)
        record["flow_coefficient"] = record["coefficients"][best]
        if method == "pcbf":
            one = jax.tree.map(lambda x: x[0], chosen)
            record |= flow_picture(critic, one, process, settings.num_eval_steps)
        if name == "solitaire":
            record |= residual_curves(critic, chosen, settings.num_eval_samples)
    return record


def metadata(process: str, method: str, settings: ToySettings) -> dict[str, Any]:
    """What made a record: the job, its settings and the versions that decide its bits."""
    return {
        "environment": process,
        "method": method,
        "settings": dataclasses.asdict(settings),
        "jax": jax.__version__,
        "platform": jax.default_backend(),
    }
