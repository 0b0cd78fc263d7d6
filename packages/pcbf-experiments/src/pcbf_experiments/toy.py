"""Toy experiments: train on a Markov reward process over a grid of coefficients, record the return law."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple

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
from pcbf_records.toy import RESIDUAL_STEPS, TOY_METHODS, TUNED_FIRST

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
        Where it is a learning rate (`TUNED_FIRST`), the others train at the chosen one only.
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
      coefficient: the setting that its grid varies; one of the config's `coefficients`, or, for those that are
        `TUNED_FIRST`, any other.
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

    if method in TUNED_FIRST:
        return [make(**{entry.coefficient: value}) for value in settings.coefficients]
    return [make()]


class Learners(NamedTuple):
    """Learners of one critic: its grid of coefficients, and for each all seeds."""

    critic: ReturnCritic
    states: LearnerState  # (learners, …)
    losses: np.ndarray  # (learners, steps)


def train(
    process: MarkovRewardProcess,
    method: str,
    critic: ReturnCritic,
    settings: ToySettings,
    seeds: Sequence[int],
    report: Callable[[int], None] = lambda step: None,
) -> Learners:
    """The critic's learners, one per seed and, if its coefficient varies by learner, per value of the grid.

    `report` hears how many steps all of them together have made.
    """
    entry = ENTRIES[method]
    source = ProcessSource(process, settings.absorbing_fraction, entry.group_size)
    varies = method not in TUNED_FIRST
    keys = jnp.tile(jax.vmap(jax.random.key)(jnp.array(seeds)), len(settings.coefficients) if varies else 1)
    states, losses = init_many(critic, keys), []
    if varies:
        values = jnp.repeat(jnp.array(settings.coefficients, jnp.float32), len(seeds))
        states = states.replace(coefficients={**states.coefficients, entry.coefficient: values})
    chunk = max(settings.num_steps // 50, 1)
    for start in range(0, settings.num_steps, chunk):
        num_steps = min(chunk, settings.num_steps - start)
        states, metrics = train_chunk(  # in turn: in lockstep a CPU takes a quarter longer
            critic, states, source, keys, start, num_steps=num_steps, batch_size=settings.batch_size, across="map"
        )
        losses.append(np.asarray(metrics["critic_loss"]))
        report(len(keys) * (start + num_steps))
    if not np.isfinite(losses[-1][:, -1]).all():
        raise FloatingPointError(f"{method} on {process.name} diverged: the last loss is NaN or infinite.")
    return Learners(critic, states, np.concatenate(losses, axis=1))


class Measured(NamedTuple):
    """What a record keeps of learners, (learners, …), or over a grid (coefficients, seeds, …)."""

    losses: np.ndarray  # (…, steps)
    quantiles: np.ndarray  # (…, states, levels)
    w1: np.ndarray  # (…, states), distance to the exact law


def all_seeds(settings: ToySettings) -> list[int]:
    """The reported seeds, then those of tuning."""
    return [*range(settings.num_seeds), *range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + settings.num_tuning_seeds)]


def evaluate(learners: Learners, process: MarkovRewardProcess, settings: ToySettings) -> Measured:
    """What a record keeps of every learner."""
    live = process.live_states
    fine, coarse = _quantiles(
        learners.critic, learners.states, live, settings.num_eval_samples, settings.num_eval_steps
    )
    laws = [process.return_law(state) for state in live]
    w1 = [
        [law.wasserstein1(returns) for law, returns in zip(laws, learner, strict=True)] for learner in np.asarray(fine)
    ]
    return Measured(learners.losses, np.asarray(coarse), np.array(w1))


@partial(jax.jit, static_argnums=(0, 2, 3, 4))
def _quantiles(
    critic: ReturnCritic, states: LearnerState, live: tuple[int, ...], num_samples: int, num_flow_steps: int
) -> tuple[Array, Array]:
    """Many quantiles of every learner at the live states, and those that a record keeps."""
    read = (
        partial(critic.quantiles, num_flow_steps=num_flow_steps) if isinstance(critic, FlowCritic) else critic.quantiles
    )
    here, nothing = jnp.array(live), jnp.zeros((len(live), 0))

    def of_one(state: LearnerState) -> tuple[Array, Array]:
        fine, coarse = (read(state, here, nothing, even_levels(count)) for count in (num_samples, NUM_LEVELS))
        return fine, jnp.sort(coarse, axis=-1)

    return jax.vmap(of_one)(states)


def best_coefficient(tuning_w1: np.ndarray, process: MarkovRewardProcess) -> int:
    """Index of the lowest W1 (coefficients, seeds, states), mean over seeds and the states that are reported."""
    reported = [process.live_states.index(state) for state in process.evaluation_states]
    return int(tuning_w1[..., reported].mean(axis=(1, 2)).argmin())


def tune_first(
    process: MarkovRewardProcess, method: str, settings: ToySettings, report: Callable[[int], None]
) -> Measured:
    """Every coefficient on the tuning seeds, the best of them on the others; what did not run is NaN.

    Each learner trains alone, so that all of one coefficient share one compiled program.
    """
    critics, seeds, count = make_critics(process, method, settings), all_seeds(settings), settings.num_seeds
    made = iter(range(len(seeds) * len(critics)))

    def one(critic: ReturnCritic, seed: int) -> Measured:
        before = next(made) * settings.num_steps
        learner = train(process, method, critic, settings, [seed], lambda step: report(before + step))
        return evaluate(learner._replace(critic=critics[0]), process, settings)

    def together(learners: Sequence[Measured]) -> Measured:
        return Measured(*(np.stack(part) for part in zip(*learners, strict=True)))

    tried = [[one(critic, seed) for seed in seeds[count:]] for critic in critics]
    best = best_coefficient(np.stack([together(learners).w1[:, 0] for learners in tried]), process)
    chosen = [one(critics[best], seed) for seed in seeds[:count]]
    skipped = [Measured(*(np.full_like(part, np.nan) for part in chosen[0]))] * count
    rows = [together([*(chosen if i == best else skipped), *tuning]) for i, tuning in enumerate(tried)]
    return Measured(*(part[:, :, 0] for part in together(rows)))


def measure(
    process: MarkovRewardProcess,
    method: str,
    settings: ToySettings,
    report: Callable[[int], None] = lambda step: None,
) -> tuple[Measured, Learners | None]:
    """Losses, quantiles and W1 over coefficients and seeds, tuning seeds last; the learners if they share a critic."""
    if method in TUNED_FIRST:
        return tune_first(process, method, settings, report), None
    seeds = all_seeds(settings)
    learners = train(process, method, make_critics(process, method, settings)[0], settings, seeds, report)
    grid = len(settings.coefficients), len(seeds)
    return Measured(*(x.reshape(*grid, *x.shape[1:]) for x in evaluate(learners, process, settings))), learners


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
    check_choice("method", method, TOY_METHODS)
    process = MRPS[name]
    measured, learners = measure(process, method, settings, report)
    record = _arrays(measured, process, settings)
    if learners and isinstance(learners.critic, FlowCritic) and method in PICTURED:
        best = best_coefficient(record["tuning_w1"], process)
        first = best * len(all_seeds(settings))
        chosen = jax.tree.map(lambda x: x[first : first + settings.num_seeds], learners.states)
        record["flow_coefficient"] = record["coefficients"][best]
        if method == "pcbf":
            one = jax.tree.map(lambda x: x[0], chosen)
            record |= flow_picture(learners.critic, one, process, settings.num_eval_steps)
        if name == "solitaire":
            record |= residual_curves(learners.critic, chosen, settings.num_eval_samples)
    return record


def _arrays(measured: Measured, process: MarkovRewardProcess, settings: ToySettings) -> dict[str, np.ndarray]:
    """What every record holds, from what was measured over its grid, the tuning seeds after the others."""
    seeds, count = all_seeds(settings), settings.num_seeds
    losses = measured.losses[:, :count]
    blocks = [part.mean(axis=-1) for part in np.array_split(losses, min(NUM_BLOCKS, settings.num_steps), axis=-1)]
    return {
        "coefficients": np.array(settings.coefficients, np.float64),
        "seeds": np.array(seeds[:count]),
        "tuning_seeds": np.array(seeds[count:]),
        "states": np.array(process.live_states),
        "levels": np.asarray(even_levels(NUM_LEVELS), np.float64),
        "quantiles": measured.quantiles[:, :count],
        "w1": measured.w1[:, :count],
        "tuning_w1": measured.w1[:, count:],
        "loss_history": np.stack(blocks, axis=-1),
        "loss_std": losses[..., -max(settings.num_steps // 10, 1) :].std(axis=-1, dtype=np.float64),
    }


def metadata(process: str, method: str, settings: ToySettings) -> dict[str, Any]:
    """What made a record: the job, its settings and the versions that decide its bits."""
    return {
        "environment": process,
        "method": method,
        "settings": dataclasses.asdict(settings),
        "jax": jax.__version__,
        "platform": jax.default_backend(),
    }
