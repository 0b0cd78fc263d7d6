"""The transition law that the exact checks work on, with its population-optimal and an imperfect velocity field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pcbf_core import theory
from pcbf_core.theory import TransitionLaw
from pcbf_experiments.theory import formulas
from pcbf_experiments.theory.formulas import Values

DISCOUNT = 0.8

# Two successor states, both with two modes; the reward depends on the successor state. Far from Gaussian.
EXAMPLE = TransitionLaw(
    probability=np.outer([0.18, 0.12, 0.2, 0.1, 0.08, 0.12, 0.12, 0.08], [0.35, 0.65]).ravel(),
    reward=np.array([[-0.5, 1.0]] * 4 + [[0.25, 1.5]] * 4).ravel(),
    successor_return=np.repeat([-1.5, -1.1, 1.6, 2.2, 0.2, 0.9, 3.0, 3.4], 2),
    successor_state=np.repeat([0, 1], 8),
)
EXAMPLE_TIMES = (0.3, 0.6, 0.85)


def crude_velocity(flow_time: float, point: Values, successor_state: NDArray[np.integer]) -> Values:
    """An imperfect successor field: linear where the optimal one for `EXAMPLE` bends."""
    return 0.6 + 0.8 * np.asarray(successor_state) - (0.9 - flow_time) * (point - flow_time)


def example_velocity(flow_time: float, point: Values) -> Values:
    """The population velocity v*(x, t) of `EXAMPLE`."""
    return theory.posterior_velocity(EXAMPLE, point, flow_time, discount=DISCOUNT)


def best_velocity(flow_time: float, point: Values, successor_state: NDArray[np.integer]) -> Values:
    """The population-optimal successor field of `EXAMPLE`."""
    return theory.optimal_successor_velocity(EXAMPLE, flow_time, point, successor_state)


@dataclass(frozen=True)
class ExampleSamples:
    """Independent draws of noise and transition from `EXAMPLE`."""

    noise: Values
    reward: Values
    successor_return: Values
    successor_state: NDArray[np.integer]

    @classmethod
    def draw(cls, rng: Generator, num_samples: int) -> ExampleSamples:
        outcome = rng.choice(len(EXAMPLE.probability), num_samples, p=EXAMPLE.probability)
        return cls(
            rng.standard_normal(num_samples),
            EXAMPLE.reward[outcome],
            EXAMPLE.successor_return[outcome],
            EXAMPLE.successor_state[outcome],
        )

    def current_point(self, flow_time: float) -> Values:
        return formulas.current_point(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.reward,
            flow_time=flow_time,
            effective_discount=DISCOUNT,
        )

    def successor_point(self, flow_time: float) -> Values:
        return formulas.successor_point(noise=self.noise, successor_return=self.successor_return, flow_time=flow_time)

    def velocity_target(self, flow_time: float, control_weight: float) -> Values:
        """u^λ with the imperfect field `crude_velocity`."""
        return formulas.velocity_target(
            noise=self.noise,
            successor_return=self.successor_return,
            reward=self.reward,
            successor_velocity=crude_velocity(flow_time, self.successor_point(flow_time), self.successor_state),
            effective_discount=DISCOUNT,
            effective_control_weight=control_weight,
        )
