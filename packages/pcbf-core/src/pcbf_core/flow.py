"""Integration of velocity fields: the flow map ψ and what follows from it in one dimension.

A velocity is any function `velocity(flow_time, point)` that returns dz/dt with the shape of `point`;
`flow_time` broadcasts against `point`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Velocity = Callable[[Array, Array], Array]
Solver = Literal["euler", "midpoint", "heun"]
SOLVERS: tuple[str, ...] = get_args(Solver)


def _euler(velocity: Velocity, time: Array, step: Array, point: Array) -> Array:
    return point + step * velocity(time, point)


def _midpoint(velocity: Velocity, time: Array, step: Array, point: Array) -> Array:
    half = point + 0.5 * step * velocity(time, point)
    return point + step * velocity(time + 0.5 * step, half)


def _heun(velocity: Velocity, time: Array, step: Array, point: Array) -> Array:
    slope = velocity(time, point)
    end_slope = velocity(time + step, point + step * slope)
    return point + 0.5 * step * (slope + end_slope)


_STEPPERS = {"euler": _euler, "midpoint": _midpoint, "heun": _heun}


def flow_times(num_steps: int, *, time_power: float = 1.0) -> Float[Array, " {num_steps}+1"]:
    """Grid 0 = t_0 < … < t_N = 1 with t_i = 1 - (1 - i/N)^p; p > 1 puts more steps near t = 1."""
    if num_steps < 1:
        raise ValueError(f"`num_steps={num_steps}` integrates nothing; pass at least 1.")
    if time_power <= 0:
        raise ValueError(f"`time_power={time_power}` gives no increasing grid; pass a positive number.")
    return 1 - (1 - jnp.linspace(0.0, 1.0, num_steps + 1)) ** time_power


ClipRange = tuple[float | Array, float | Array]


def _stepping(
    velocity: Velocity,
    noise: Array,
    num_steps: int,
    *,
    solver: str,
    time_power: float,
    end_time: float | Array,
    clip_range: ClipRange | None,
) -> tuple[Callable[[Array, tuple[Array, Array]], Array], tuple[Array, Array]]:
    """One solver step, and the (begin, end) of every step as fractions of `end_time`."""
    if solver not in _STEPPERS:
        raise ValueError(f"`solver={solver!r}` is unknown; choose one of {', '.join(SOLVERS)}.")
    stepper = _STEPPERS[solver]
    grid = flow_times(num_steps, time_power=time_power).astype(noise.dtype)

    def one_step(point: Array, interval: tuple[Array, Array]) -> Array:
        begin, end = interval
        point = stepper(velocity, end_time * begin, end_time * (end - begin), point)
        return point if clip_range is None else jnp.clip(point, *clip_range)

    return one_step, (grid[:-1], grid[1:])


def flow_map(
    velocity: Velocity,
    noise: Float[Array, "*shape"],
    num_steps: int,
    *,
    solver: str = "euler",
    time_power: float = 1.0,
    end_time: float | Array = 1.0,
    clip_range: ClipRange | None = None,
) -> Float[Array, "*shape"]:
    """Terminal point ψ¹(x_0) of dz/dt = v(t, z) from z_0 = `noise` (eq:fm_ode, eq:succ-sample).

    Args:
      velocity: function of flow time and point; the time arrives as a scalar, or with the shape of `end_time`.
      noise: where the trajectories start.
      num_steps: number of steps N; midpoint and Heun evaluate the field twice per step.
      solver: one of `SOLVERS`: "euler" (first order), "midpoint" or "heun" (second order).
      time_power: exponent of the time grid, see `flow_times`; 1 is uniform.
      end_time: flow time at which to stop; an array broadcasts against `noise`.
      clip_range: bounds applied to the point after every step; None for no bounds.
    """
    one_step, intervals = _stepping(
        velocity, noise, num_steps, solver=solver, time_power=time_power, end_time=end_time, clip_range=clip_range
    )
    point, _ = jax.lax.scan(lambda z, dt: (one_step(z, dt), None), noise, intervals)
    return point


def on_polygon(
    times: Float[Array, " nodes"], nodes: Float[Array, "nodes *#shape"], flow_time: Float[Array, "*#shape"]
) -> Float[Array, "*shape"]:
    """Points at `flow_time` on the polygon through `nodes`, which stand at `times`; shapes broadcast."""
    times = times.reshape(-1, *[1] * max(nodes.ndim - 1, jnp.ndim(flow_time)))
    share = jnp.clip((flow_time - times[:-1]) / (times[1:] - times[:-1]), 0, 1)
    return nodes[0] + ((nodes[1:] - nodes[:-1]) * share).sum(axis=0)


def flow_trajectory(
    velocity: Velocity,
    noise: Float[Array, "*shape"],
    num_steps: int,
    *,
    solver: str = "euler",
    time_power: float = 1.0,
    end_time: float | Array = 1.0,
    clip_range: ClipRange | None = None,
) -> Float[Array, "{num_steps}+1 *shape"]:
    """All points of `flow_map` at its N+1 grid times, `noise` first; same arguments."""
    one_step, intervals = _stepping(
        velocity, noise, num_steps, solver=solver, time_power=time_power, end_time=end_time, clip_range=clip_range
    )

    def record(point: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        point = one_step(point, interval)
        return point, point

    _, points = jax.lax.scan(record, noise, intervals)
    return jnp.concatenate([noise[None], points])
