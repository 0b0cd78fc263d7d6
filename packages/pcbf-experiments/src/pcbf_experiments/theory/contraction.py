"""Contraction of the path-coupled Bellman update in the shared-noise distance, on random finite MDPs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy import stats

from pcbf_core import theory
from pcbf_experiments.theory.formulas import Values
from pcbf_experiments.theory.rows import at_least, at_most
from pcbf_records.theory import CheckRow

LABEL = "prop:shared_noise_contraction"
NUM_PAIRS = 8  # of a state and an action


@dataclass(frozen=True)
class FiniteMDP:
    """A random MDP with a policy: P(s'|s,a), R(s,a,s'), π(a'|s'); pairs (s,a) are numbered row by row."""

    successor_weight: Values  # (pairs, pairs): P(s'|s,a) π(a'|s')
    reward: Values  # (pairs, pairs)
    discount: float

    @classmethod
    def draw(cls, rng: Generator, *, discount: float, num_states: int = 4, num_actions: int = 2) -> FiniteMDP:
        transition = rng.dirichlet(np.full(num_states, 0.5), (num_states, num_actions))
        policy = rng.dirichlet(np.ones(num_actions), num_states)
        reward = rng.standard_normal((num_states, num_actions, num_states))
        pairs = num_states * num_actions
        weight = (transition[..., None] * policy).reshape(pairs, pairs)
        return cls(weight, np.repeat(reward.reshape(pairs, num_states), num_actions, axis=1), discount)

    def update(self, generator: Values) -> Values:
        """T_pc of generator values (pairs, seeds): values (pairs, successor pairs × seeds)."""
        updated = self.reward[:, :, None] + self.discount * generator[None]
        return updated.reshape(len(generator), -1)

    def update_weight(self, seed_weight: Values) -> Values:
        """Probabilities of the columns of `update`."""
        return (self.successor_weight[:, :, None] * seed_weight).reshape(len(self.successor_weight), -1)


def gaussian_grid(largest: float, size: int) -> tuple[Values, Values]:
    """Evenly spread seeds in ±`largest` and their shares under N(0, 1)."""
    seeds = np.linspace(-largest, largest, size)
    return seeds, stats.norm.pdf(seeds) / stats.norm.pdf(seeds).sum()


def random_generator(rng: Generator, seeds: Values, num_pairs: int) -> Values:
    """Smooth random functions of the seed, one row per state-action pair."""
    level, slope, height, frequency, phase = rng.standard_normal((5, num_pairs, 1))
    return level + slope * seeds + height * np.sin(2 * frequency * seeds + phase)


def shared_noise_contraction(rng: Generator, num_samples: int) -> Iterator[CheckRow]:
    """D_p shrinks by tγ when both sides share their noise, and need not when they do not."""
    seeds, seed_weight = gaussian_grid(6, 201)
    for discount in (0.5, 0.95):
        mdp = FiniteMDP.draw(rng, discount=discount)
        pairs = [(random_generator(rng, seeds, NUM_PAIRS), random_generator(rng, seeds, NUM_PAIRS)) for _ in range(25)]
        for power in (1, 2):
            for time in (0.25, 0.75, 1.0):
                factor = "γ" if time == 1 else f"tγ at t = {time:g}"
                yield at_most(
                    f"contraction-gamma{discount:g}-p{power}-t{time:g}",
                    f"With shared noise D_{power} shrinks by {factor}, γ = {discount:g}: largest ratio over 25 pairs "
                    "of generators on a random MDP",
                    LABEL,
                    largest_ratio(mdp, pairs, seeds, seed_weight, flow_time=time, power=power),
                    time * discount,
                )
    yield from independent_coupling(rng)


def largest_ratio(
    mdp: FiniteMDP,
    pairs: Sequence[tuple[Values, Values]],
    seeds: Values,
    seed_weight: Values,
    *,
    flow_time: float,
    power: int,
) -> float:
    """Largest D_p of two updated generators' paths at `flow_time` over D_p of the generators."""
    weight, noise = mdp.update_weight(seed_weight), np.tile(seeds, NUM_PAIRS)
    ratios = []
    for first, second in pairs:
        before = theory.shared_noise_distance(first, second, weight=seed_weight, power=power)
        ends = ((1 - flow_time) * noise + flow_time * mdp.update(values) for values in (first, second))
        ratios.append(theory.shared_noise_distance(*ends, weight=weight, power=power) / before)
    return max(ratios)


def independent_coupling(rng: Generator) -> Iterator[CheckRow]:
    """The same distance when the two sides draw their successor seeds independently."""
    discount = 0.95
    seeds, seed_weight = gaussian_grid(5, 61)
    mdp = FiniteMDP.draw(rng, discount=discount)
    generator = random_generator(rng, seeds, NUM_PAIRS)
    shifted = generator + 0.1
    both = np.outer(seed_weight, seed_weight).ravel()
    first, second = np.repeat(generator, len(seeds), axis=1), np.tile(shifted, len(seeds))
    for power in (1, 2):
        before = theory.shared_noise_distance(generator, shifted, weight=seed_weight, power=power)
        after = theory.shared_noise_distance(
            mdp.update(first), mdp.update(second), weight=mdp.update_weight(both), power=power
        )
        yield at_least(
            f"contraction-independent-p{power}",
            f"For information: with independent successor seeds D_{power} need not shrink (ratio for H = G + 0.1 "
            f"exceeds γ = {discount:g})",
            LABEL,
            after / before,
            discount,
        )
