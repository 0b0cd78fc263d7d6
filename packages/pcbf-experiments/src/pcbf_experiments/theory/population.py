"""The population fixed point on every process: what λ does to law and target variance, without networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pcbf_core.mrp import MRPS
from pcbf_core.population import PopulationFlow, solve
from pcbf_experiments.theory.rows import at_least, at_most
from pcbf_records.theory import CheckRow, PopulationRow

SMOOTH = ("bernoulli", "normal")  # processes whose laws have no atoms and one state, where the solver converges fast
ATOMS = ("solitaire", "chain")  # where each round is averaged with the one before
WEIGHTS = {  # λ on the linear and on the flow path, those of the networks among them
    "bernoulli": ((0.0, 0.1, 0.2, 0.3, 0.4, 0.5), (0.25, 0.5, 0.75, 1.0)),
    "normal": ((0.0, 0.2, 0.4, 0.6, 0.8), (0.25, 0.5, 0.75, 1.0)),
}
OTHER_WEIGHTS = ((0.0, 0.4, 0.8), (0.5, 1.0))
MAX_ITERATIONS = 200
LABEL = "beyond:flow-path"
BIAS = {"bernoulli": (0.5, 0.05), "normal": (0.8, 0.01)}  # a weight of the linear path, W1 / std it does not fall below


@dataclass(frozen=True)
class Problem:
    """One regression problem whose fixed point is recorded."""

    process: str
    path: Literal["linear", "flow"]
    control_weight: float
    shared_noise: bool = True


def problems(processes: Iterable[str]) -> Iterator[Problem]:
    """λ on both paths with shared noise on each process, and independent noise on those of one state."""
    for name in processes:
        process = MRPS[name]
        linear, flow = WEIGHTS.get(name, OTHER_WEIGHTS)
        yield from (Problem(name, "linear", weight) for weight in linear)
        yield from (Problem(name, "flow", weight) for weight in flow)
        if len(process.live_states) == 1:
            yield Problem(name, "linear", 0.0, shared_noise=False)


def solved(problem: Problem, *, num_flow_steps: int, num_points: int) -> PopulationFlow | None:
    """The fixed point, None where the iteration does not settle: on the linear path a small change of the field sends a
    noise to another atom. Processes with atoms or several states, and independent noises, which cost a product of
    grids, have half the grid and a coarser tolerance.
    """
    is_fine = problem.process in SMOOTH and problem.shared_noise
    try:
        return solve(
            MRPS[problem.process],
            path=problem.path,
            control_weight=problem.control_weight,
            shared_noise=problem.shared_noise,
            num_flow_steps=num_flow_steps if is_fine else max(num_flow_steps // 2, 25),
            num_points=num_points if is_fine else max(num_points // 2, 101),
            tolerance=1e-5 if is_fine else 1e-2,
            relaxation=0.5 if problem.process in ATOMS else 1.0,
            max_iterations=MAX_ITERATIONS,
        )
    except RuntimeError:
        return None


def population_rows(processes: Iterable[str], *, num_flow_steps: int, num_points: int) -> list[PopulationRow]:
    """One row per problem."""
    return [
        row_of(problem, solved(problem, num_flow_steps=num_flow_steps, num_points=num_points))
        for problem in problems(processes)
    ]


def row_of(problem: Problem, flow: PopulationFlow | None) -> PopulationRow:
    """What is recorded of a fixed point: means over states, of its evaluation states alone for W1; nan without one."""
    place = {
        "process": problem.process,
        "path": problem.path,
        "noise": "shared" if problem.shared_noise else "independent",
        "control_weight": problem.control_weight,
    }
    if flow is None:
        return PopulationRow(**place, num_iterations=MAX_ITERATIONS)
    process = MRPS[problem.process]
    reported = [process.live_states.index(state) for state in process.evaluation_states]
    return PopulationRow(
        **place,
        w1=float(np.mean(flow.wasserstein1[reported])),
        relative_w1=float(np.mean((flow.wasserstein1 / flow.exact_std)[reported])),
        std_ratio=float(np.mean(flow.std_ratio[reported])),
        target_variance=float(np.mean(flow.target_variance)),
        num_flow_steps=len(flow.flow_times) // 2,
        num_points=len(flow.noise),
        num_iterations=flow.num_iterations,
    )


def population_checks(rows: list[PopulationRow]) -> Iterator[CheckRow]:
    """No bias on the flow path, a bias on the linear one, and what noise and λ do to the target's variance."""
    for name in SMOOTH:
        here = [row for row in rows if row.process == name]
        if not here:
            continue
        shared = [row for row in here if row.noise == "shared"]
        flow = [row for row in shared if row.path == "flow"]
        coarseness = (100 / max(row.num_flow_steps for row in flow)) ** 2
        yield at_most(
            f"population-flow-{name}",
            f"The fixed point on the flow path is the return law at every λ: largest W1 / std, {name}",
            LABEL,
            max(row.relative_w1 for row in flow),
            1e-3 * max(1.0, coarseness),
        )
        weight, bound = BIAS[name]
        (biased,) = (row for row in shared if row.path == "linear" and np.isclose(row.control_weight, weight))
        yield at_least(
            f"population-linear-{name}",
            f"The fixed point on the linear path is biased: W1 / std at λ = {weight:g}, {name}",
            LABEL,
            biased.relative_w1,
            bound,
        )
        (start,) = (row for row in shared if row.path == "linear" and row.control_weight == 0)
        (end,) = (row for row in flow if row.control_weight == 1)
        yield at_most(
            f"population-variance-{name}",
            f"On the flow path λ = 1 has no more target variance than λ = 0: ratio, {name}",
            LABEL,
            end.target_variance / start.target_variance,
            1.0,
        )
        (independent,) = (row for row in here if row.noise == "independent" and row.path == "linear")
        yield at_least(
            f"population-sharing-{name}",
            f"Sharing the noise cuts the target's variance: independent over shared at λ = 0, {name}",
            LABEL,
            independent.target_variance / start.target_variance,
            1.0,
        )
