"""The population fixed point of the velocity regression: what infinite data and a perfect network would learn.

A learner of return flows regresses the target u on the point Z_t; with infinite data it finds the conditional mean
v(t, z | s) = E[u | Z_t = z, s] over transitions (R, S' | s) and noise X_0, and the next round takes its successor flows
ψ' from that v. `solve` iterates this map to its fixed point without networks, for

    linear path (eq:current-path, eq:lambda_target)   Z_t = (1-t) X_0 + t (R + γ̃X'),
                                                      u = Y + λ̃ (v'(t, Z'_t) - (X' - X_0)),
    flow path                                         Z_t = (1-t) X_0 + t (R + γ̃X') + γ̃λ (Ẑ_t - Z'_t),
                                                      u = dZ_t/dt = Y + γ̃λ (v'(t, Ẑ_t) - (X' - X_0)),

where X' = ψ'_1(X_0), Z'_t = (1-t) X_0 + tX', Ẑ_t = ψ'_t(X_0) and Y = R + γ̃X' - X_0. On the flow path u is the
velocity of the path, so the fixed point is the return law at every λ; on the linear path it is so at λ = 0 only.

**Method.** On the line a flow is monotone, hence known by the trajectories of a grid of noises. Given a transition
and t, Z_t is an increasing function of the noise; change of variables turns the conditional mean into a finite sum
over transitions (weights p_i φ(x_i(z)) dx_i/dz). With independent noises the successor's noise is summed over its
grid and the current one has the Gaussian density of width 1-t. Trajectories follow the conditional mean by the
midpoint rule, which asks for no field at t = 1, where atoms make it singular.

**Convergence**, in the number of midpoint steps and of noises together: second order for smooth laws (the normal
one), first order where the field has a seam (Bernoulli) and for laws with atoms, where every jump of ψ_1 is known to
one cell of the grid. With atoms the constant is large: the variance of targets at λ = 0 is overestimated (Solitaire:
0.93 on the default grid, 0.70 by simulation), and the linear path at λ > 0 need not settle, since a small change of the
field sends a noise to another atom; `relaxation` < 1 and a `tolerance` of 1e-2 then find an approximate law. Many
noises need many steps: trajectories beside a seam part faster than long steps can follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from pcbf_core.mrp import FiniteProcess, MarkovRewardProcess, finite_process
from pcbf_core.mrp.laws import normal_density
from pcbf_core.types import Values

__all__ = ["PopulationFlow", "regress", "resting_flow", "solve"]

Path = Literal["linear", "flow"]

_TAIL = 5.5  # the grid of noises spans ± this; the normal mass beyond is 4e-8


# ------------------------------------------------------------------------------------ the flow of every state


@dataclass(frozen=True, eq=False)
class PopulationFlow:
    """Flows of all states at the fixed point: trajectories of a grid of noises.

    Attributes:
      process: what was solved.
      noise: the grid, (points,).
      flow_times: nodes t_k = k / 2N for k < 2N, (times,); trajectories end at 1, in `returns`.
      points: ψ_t(x | s), (times, states, points).
      velocities: v(t, ψ_t(x | s) | s), (times, states, points).
      returns: ψ_1(x | s), (states, points).
      target_variance: E Var(u | Z_t, s), mean over flow times, (states,).
      num_iterations: how often v' ← v was applied.
      residual: largest over states and times of E |ψ_t - ψ'_t| in the last of them.
    """

    process: FiniteProcess
    noise: Values
    flow_times: Values
    points: Values = field(repr=False)
    velocities: Values = field(repr=False)
    returns: Values = field(repr=False)
    target_variance: Values
    num_iterations: int
    residual: float

    @property
    def weights(self) -> Values:
        """Normal probabilities of the grid of noises."""
        return _normal_weights(self.noise)

    def quantile(self, levels: ArrayLike) -> Values:
        """Quantiles of the learned law, (states, levels): ψ_1 at the noises of these levels."""
        noise = ndtri(np.asarray(levels, float))
        return np.stack([np.interp(noise, self.noise, row) for row in self.returns])

    @property
    def exact_returns(self) -> Values:
        """Exact quantiles at the levels of the grid, (states, points)."""
        return np.stack([law.quantile(ndtr(self.noise)) for law in self.process.laws])

    @property
    def wasserstein1(self) -> Values:
        """W1 between learned and exact law, (states,): ∫ |ψ_1(x) - Q(Φ(x))| φ(x) dx."""
        return np.abs(self.returns - self.exact_returns) @ self.weights

    @property
    def std(self) -> Values:
        """Standard deviation of the learned law, (states,)."""
        mean = self.returns @ self.weights
        return np.sqrt((self.returns - mean[:, None]) ** 2 @ self.weights)

    @property
    def exact_std(self) -> Values:
        """Standard deviation of the exact law, (states,)."""
        return np.array([law.std for law in self.process.laws])

    @property
    def std_ratio(self) -> Values:
        """Learned over exact standard deviation, (states,)."""
        return self.std / self.exact_std


def solve(
    process: FiniteProcess | MarkovRewardProcess,
    *,
    path: Path,
    control_weight: float,
    shared_noise: bool = True,
    num_flow_steps: int = 100,
    num_points: int = 401,
    tolerance: float = 1e-5,
    max_iterations: int = 400,
    relaxation: float = 1.0,
    start: PopulationFlow | None = None,
) -> PopulationFlow:
    """The flows at the fixed point of v ← E[u | Z_t = ·, s], from zero velocity or from `start`.

    Args:
      process: lists of transitions, or a process that `finite_process` knows.
      path: "linear" or "flow".
      control_weight: λ. On the linear path the map contracts by λ at t = 0, so λ < 1.
      shared_noise: False drives the successor by a noise of its own.
      num_flow_steps: N midpoint steps.
      num_points: noises in the grid.
      tolerance: stop when no state's trajectories move by more, in mean, as a share of the law's std.
      max_iterations: give up, with an error, after so many.
      relaxation: share of the new flows in their average with the old ones, as a slow target network would take them.
      start: a solution on the same grids, where the iteration begins.
    """
    if not 0 < relaxation <= 1:
        raise ValueError(f"`relaxation={relaxation}` must lie in (0, 1]; 1 takes each round's flows as they are.")
    grids = _noise_grid(num_points), _time_grid(num_flow_steps)
    problem = _problem(process, path, control_weight, shared_noise, *grids)
    flow = problem.initial() if start is None else problem.checked(start)
    scale = max(float(flow.exact_std.max()), 1e-12)
    with np.errstate(over="ignore", invalid="ignore"):
        for iteration in range(1, max_iterations + 1):
            flow = problem.regress(flow, iteration, relaxation)
            if flow.residual <= tolerance * scale:
                return problem.with_variance(flow)
            if not np.isfinite(flow.residual):
                break
    raise RuntimeError(
        f"no fixed point after {flow.num_iterations} iterations (residual {flow.residual:.2g}, wanted "
        f"{tolerance * scale:.2g}) with `path={path!r}`, `control_weight={control_weight}`; raise `max_iterations` or "
        "`tolerance`, or lower `control_weight` (the linear path diverges towards 1)."
    )


def resting_flow(
    process: FiniteProcess | MarkovRewardProcess, *, num_flow_steps: int, num_points: int
) -> PopulationFlow:
    """ψ_t(x) = x at every state, where `solve` begins."""
    return _problem(process, "linear", 0.0, True, _noise_grid(num_points), _time_grid(num_flow_steps)).initial()


def regress(
    process: FiniteProcess | MarkovRewardProcess,
    successor: PopulationFlow,
    *,
    path: Path,
    control_weight: float,
    shared_noise: bool = True,
) -> PopulationFlow:
    """One round v ← E[u | Z_t = ·, s] with targets of `successor`, on its grids."""
    problem = _problem(process, path, control_weight, shared_noise, successor.noise, successor.flow_times)
    return problem.regress(successor, successor.num_iterations + 1, relaxation=1.0)


def _problem(
    process: FiniteProcess | MarkovRewardProcess,
    path: Path,
    control_weight: float,
    shared_noise: bool,
    noise: Values,
    flow_times: Values,
) -> _Problem:
    lists = process if isinstance(process, FiniteProcess) else finite_process(process)
    return _Problem(lists, path, control_weight, shared_noise, noise, flow_times)


# ------------------------------------------------------------------------------------ one round of the iteration


@dataclass(frozen=True, eq=False)
class _Problem:
    """One regression problem on fixed grids; a round of the iteration maps flows to flows."""

    process: FiniteProcess
    path: Path
    control_weight: float
    shared_noise: bool
    noise: Values
    flow_times: Values

    def initial(self) -> PopulationFlow:
        """Flows at rest, ψ_t(x) = x."""
        rest = np.broadcast_to(self.noise, (len(self.flow_times), len(self.process.states), len(self.noise)))
        return self._flow(rest, np.zeros(rest.shape), np.array(rest[0]), 0, np.inf)

    def checked(self, start: PopulationFlow) -> PopulationFlow:
        expected = (len(self.flow_times), len(self.process.states), len(self.noise))
        if start.points.shape != expected:
            raise ValueError(
                f"`start` has (times, states, points) = {start.points.shape}, expected {expected}; "
                "solve it with the same `num_flow_steps` and `num_points`."
            )
        return start

    def regress(self, successor: PopulationFlow, iteration: int, relaxation: float) -> PopulationFlow:
        """Flows of the conditional mean of targets that `successor` provides: one v' ← v, by the midpoint rule."""
        points, velocities = np.empty(successor.points.shape), np.empty(successor.points.shape)
        step = 1 / len(self.flow_times)  # half of a midpoint step
        start = np.array(np.broadcast_to(self.noise, successor.returns.shape))
        for node in range(0, len(self.flow_times), 2):
            points[node] = start
            velocities[node] = self.velocity(successor, node, start)
            points[node + 1] = np.sort(start + step * velocities[node])  # trajectories cannot cross; long steps might
            velocities[node + 1] = self.velocity(successor, node + 1, points[node + 1])
            start = np.sort(start + 2 * step * velocities[node + 1])
        weights = _normal_weights(self.noise)
        old, new = (
            np.concatenate([all_times, [end]])
            for all_times, end in ((successor.points, successor.returns), (points, start))
        )
        moved = (np.abs(new - old) @ weights).max()
        if relaxation != 1:
            keep = 1 - relaxation
            points = relaxation * points + keep * successor.points
            velocities = relaxation * velocities + keep * successor.velocities
            start = relaxation * start + keep * successor.returns
        return self._flow(points, velocities, start, iteration, float(moved))

    def _flow(
        self, points: Values, velocities: Values, returns: Values, num_iterations: int, residual: float
    ) -> PopulationFlow:
        unknown = np.full(len(self.process.states), np.nan)
        return PopulationFlow(
            self.process, self.noise, self.flow_times, points, velocities, returns, unknown, num_iterations, residual
        )

    def pairs(self, successor: PopulationFlow, node: int) -> tuple[Values, Values]:
        """What the successor's noise adds to Z_t = (1-t) X_0 + … and to u = -X_0 + …, (states, columns, points)."""
        time, process, returns = self.flow_times[node], self.process, successor.returns
        straight = (1 - time) * self.noise + time * returns  # Z'_t
        on_flow = self.path == "flow"
        if on_flow or not self.control_weight:
            velocity = successor.velocities[node]
        else:
            velocity = _interpolate(successor.points[node], successor.velocities[node], straight)
        control = velocity - (returns - self.noise)  # C
        discount = process.effective_discount[..., None]
        weight = self.control_weight * (discount if on_flow else ~process.terminal[..., None])
        bellman = process.reward[..., None] + discount * returns[process.successor]
        point = time * bellman
        if on_flow:
            point = point + weight * (successor.points[node] - straight)[process.successor]
        return point, bellman + weight * control[process.successor]

    def velocity(self, successor: PopulationFlow, node: int, queries: Values) -> Values:
        """E[u | Z_t = z, s] at `queries`, (states, queries)."""
        point, target = self.pairs(successor, node)
        if self.shared_noise:
            scaled = (1 - self.flow_times[node]) * self.noise
            return _coupled_mean(scaled + point, target - self.noise, self.noise, self.process.probability, queries)
        return _independent_mean(
            point, target, _normal_weights(self.noise), self.process.probability, 1 - self.flow_times[node], queries
        )

    def with_variance(self, flow: PopulationFlow) -> PopulationFlow:
        """The same flow with E (u - v(t, Z_t))², mean over the middles of the steps."""
        nodes = range(1, len(self.flow_times), 2)
        variance = np.mean([self.squared_residual(flow, node) for node in nodes], axis=0)
        return replace(flow, target_variance=variance)

    def squared_residual(self, flow: PopulationFlow, node: int) -> Values:
        """E (u - v(t, Z_t))² of every state; independent noises are the points of a lattice."""
        point, target = self.pairs(flow, node)
        noise, weights = self.noise, _normal_weights(self.noise)
        if not self.shared_noise:
            count = 2 * len(noise)
            index = np.arange(count)
            noise, weights = ndtri((index + 0.5) / count), np.full(count, 1 / count)
            other = ndtri((index * (np.sqrt(5) - 1) / 2 + 0.5) % 1)
            cell, share = _locate(self.noise[None], other[None])
            point, target = (
                values[..., cell[0]] * (1 - share[0]) + values[..., cell[0] + 1] * share[0]
                for values in (point, target)
            )
        point, target = (1 - self.flow_times[node]) * noise + point, target - noise
        total = np.zeros(len(self.process.states))
        for column in range(point.shape[1]):
            error = target[:, column] - self.velocity(flow, node, point[:, column])
            total += self.process.probability[:, column] * (error**2 @ weights)
        return total


def _coupled_mean(points: Values, targets: Values, noise: Values, probability: Values, queries: Values) -> Values:
    """E[u | Z = z, s] where Z and u are functions of one noise, given on a grid for every transition.

    ∑_i p_i φ(x_i(z)) (dx_i/dz) u_i(z) / ∑_i p_i φ(x_i(z)) (dx_i/dz) with x_i the inverse of the increasing Z_i.
    """
    shape = (*probability.shape, queries.shape[-1])
    flat = points.reshape(-1, points.shape[-1])
    cell, share = _locate(flat, np.broadcast_to(queries[:, None], shape).reshape(len(flat), -1))
    spacing = noise[1] - noise[0]
    sources = (noise[0] + spacing * (cell + share)).reshape(shape)
    slopes = _blend(np.asarray(np.gradient(flat, spacing, axis=1)), cell, np.clip(share, 0, 1)).reshape(shape)
    means = _blend(targets.reshape(flat.shape), cell, share).reshape(shape)
    with np.errstate(divide="ignore"):
        logits = np.log(probability)[..., None] - sources**2 / 2 - np.log(slopes)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return (weights * means).sum(1) / weights.sum(1)


def _independent_mean(
    point: Values, target: Values, weights: Values, probability: Values, width: float, queries: Values
) -> Values:
    """E[u | Z = z, s] for Z = width · X_0 + `point`, u = `target` - X_0 and X_0 independent of both."""
    result = np.empty(queries.shape)
    with np.errstate(divide="ignore"):
        prior = np.log(probability)[..., None] + np.log(weights)
    for state in range(len(queries)):
        noise = (queries[state][:, None] - point[state].reshape(1, -1)) / width
        logits = prior[state].reshape(1, -1) - noise**2 / 2
        share = np.exp(logits - logits.max(1, keepdims=True))
        result[state] = (share * (target[state].reshape(1, -1) - noise)).sum(1) / share.sum(1)
    return result


# ------------------------------------------------------------------------------------ grids and interpolation


def _noise_grid(num_points: int) -> Values:
    if num_points < 3:
        raise ValueError(f"`num_points={num_points}` spans no grid of noises; pass at least 3, better hundreds.")
    return np.linspace(-_TAIL, _TAIL, num_points)


def _time_grid(num_flow_steps: int) -> Values:
    if num_flow_steps < 1:
        raise ValueError(f"`num_flow_steps={num_flow_steps}` makes no step; pass a positive count.")
    return np.arange(2 * num_flow_steps) / (2 * num_flow_steps)


def _normal_weights(noise: Values) -> Values:
    density = normal_density(noise)
    return density / density.sum()


def _locate(nodes: Values, queries: Values) -> tuple[NDArray[np.integer], Values]:
    """Cell of every query among increasing nodes, and its place in the cell: outside [0, 1] beyond the ends.

    Rows are searched at once, one after the other on a common line.
    """
    low = min(nodes.min(), queries.min())
    shift = (max(nodes.max(), queries.max()) - low + 1.0) * np.arange(len(nodes))[:, None] - low
    cell = np.searchsorted((nodes + shift).ravel(), (queries + shift).ravel(), side="right").reshape(queries.shape)
    cell = np.clip(cell - 1 - nodes.shape[1] * np.arange(len(nodes))[:, None], 0, nodes.shape[1] - 2)
    left = np.take_along_axis(nodes, cell, 1)
    width = np.take_along_axis(nodes, cell + 1, 1) - left
    return cell, (queries - left) / np.maximum(width, 1e-300)


def _blend(values: Values, cell: NDArray[np.integer], share: Values) -> Values:
    return np.take_along_axis(values, cell, 1) * (1 - share) + np.take_along_axis(values, cell + 1, 1) * share


def _interpolate(nodes: Values, values: Values, queries: Values) -> Values:
    """Rows of a piecewise linear function, continued beyond its ends."""
    return _blend(values, *_locate(nodes, queries))
