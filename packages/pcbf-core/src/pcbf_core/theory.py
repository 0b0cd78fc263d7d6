"""Closed forms of the paper's theory and the quantities that its claims are checked with.

Three settings. The linear-Gaussian one has closed forms (app:gaussian_bias). A finite law of reward and
successor return with an independent Gaussian source makes every conditional expectation a finite sum
(eq:P_density_main). The Bellman residual of integrated paths needs two velocity fields only (eq:rcorr).
`corrected_residual` is JAX and may be jitted; all else is NumPy in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import null_space
from scipy.special import ndtr, softmax

from pcbf_core.flow import Velocity, flow_times, flow_trajectory
from pcbf_core.mrp.laws import normal_density
from pcbf_core.targets import optimal_control_weight
from pcbf_core.types import Values

__all__ = [
    "SuccessorVelocity",
    "TransitionLaw",
    "approximation_error",
    "approximation_residual",
    "corrected_residual",
    "dcfm_null_space",
    "euler_target_bound",
    "expectation",
    "gaussian_bias_slope",
    "gaussian_density_ratio_norm",
    "gaussian_target_variance",
    "implied_noise",
    "interpolant_norm",
    "interpolated_cdf",
    "interpolated_density",
    "intrinsic_bias",
    "intrinsic_residual",
    "optimal_control_weight",
    "optimal_successor_velocity",
    "posterior_mean",
    "posterior_velocity",
    "shared_noise_distance",
    "successor_velocity_slope",
]

SuccessorVelocity = Callable[[float, Values, NDArray[np.integer]], Values]  # v̄(t, z', s')

_TAIL = 9.0  # standard deviations; the normal mass beyond is below 1e-18


# ---------------------------------------------------------------------------- the linear-Gaussian case


def successor_velocity_slope(flow_time: ArrayLike, *, successor_std: float) -> Values:
    """Slope of the population successor velocity, β = (tσ² - (1-t)) / (t²σ² + (1-t)²) (app:gaussian_bias).

    For X' ~ N(μ, σ²) independent of its noise, E[X' - X_0' | Z'_t = z'] = μ + β (z' - tμ).
    """
    time, variance = np.asarray(flow_time, float), successor_std**2
    return (time * variance - (1 - time)) / (time**2 * variance + (1 - time) ** 2)


def gaussian_bias_slope(
    flow_time: ArrayLike, *, discount: float, successor_std: float, noise_correlation: float = 1.0
) -> Values:
    """Slope κ of the control variate's mean given the current point (prop:bias_bound_main, app:gaussian_bias).

    E[C | Z_t = x] = κ (x - t(r + γμ)) with

        κ = t(1-t) σ² (ρ - γ) / ([t²σ² + (1-t)²] [(γt)²σ² + (1-t)²]),

    when X' ~ N(μ, σ²) is independent of the noise pair (X_0, X_0') of correlation ρ.
    """
    time, variance = np.asarray(flow_time, float), successor_std**2
    successor_variance = time**2 * variance + (1 - time) ** 2
    current_variance = (discount * time) ** 2 * variance + (1 - time) ** 2
    return time * (1 - time) * variance * (noise_correlation - discount) / (successor_variance * current_variance)


def gaussian_target_variance(
    flow_time: ArrayLike,
    *,
    control_weight: ArrayLike,
    discount: float,
    successor_std: float,
    noise_correlation: float = 1.0,
) -> Values:
    """Variance of the λ-target, 1 + γ²σ² + σ² (λ² - 2λ λ*(t)) / (t²σ² + (1-t)²) (app:gaussian_bias).

    Same assumptions as `gaussian_bias_slope`; λ*(t) is `optimal_control_weight`, which minimises it.
    """
    time, weight, variance = np.asarray(flow_time, float), np.asarray(control_weight, float), successor_std**2
    best = discount * (1 - time) + noise_correlation * time
    successor_variance = time**2 * variance + (1 - time) ** 2
    return 1 + discount**2 * variance + variance / successor_variance * (weight**2 - 2 * weight * best)


def gaussian_density_ratio_norm(mean: ArrayLike, std: ArrayLike, *, reference_std: float) -> Values:
    """Ω = ‖dμ/dν‖ in L2(ν) for μ = N(mean, std²), ν = N(0, reference_std²) (cor:pointwise_density_ratio_bias)."""
    mean, variance, reference = np.asarray(mean, float), np.asarray(std, float) ** 2, reference_std**2
    if (variance >= 2 * reference).any():
        raise ValueError("the density ratio is not square integrable; `std` must be below √2 `reference_std`.")
    spread = 2 * reference - variance
    return np.sqrt(reference / np.sqrt(variance * spread) * np.exp(mean**2 / spread))


# ---------------------------------------------- finite transition laws with an independent Gaussian source


@dataclass(frozen=True, eq=False)
class TransitionLaw:
    """Finite joint law of (R, X', S') given (s, a); the noise X_0 ~ N(0, 1) is independent of it.

    Entry i of the four arrays is one outcome. The successor action is part of `successor_state`.
    """

    probability: Values
    reward: Values
    successor_return: Values
    successor_state: NDArray[np.integer]

    def __post_init__(self) -> None:
        shapes = {name: np.shape(value) for name, value in vars(self).items()}
        if len(set(shapes.values())) != 1 or np.ndim(self.probability) != 1:
            raise ValueError(f"the four arrays must be vectors of one length, got shapes {shapes}.")
        if (self.probability <= 0).any() or abs(self.probability.sum() - 1) > 1e-9:
            raise ValueError(
                f"`probability` must be positive and sum to 1, got {self.probability}; drop null outcomes."
            )

    def bellman_target(self, discount: float) -> Values:
        """R + γ X' of every outcome."""
        return self.reward + discount * self.successor_return


def implied_noise(
    point: ArrayLike, flow_time: float, *, reward: ArrayLike, successor_return: ArrayLike, discount: float
) -> Values:
    """The noise that leads through `point` at t < 1, u = (x - t(r + γx')) / (1-t) (eq:implied_noise)."""
    if not 0 <= flow_time < 1:
        raise ValueError(f"`flow_time={flow_time}` does not determine the noise; pass one in [0, 1).")
    target = np.asarray(reward, float) + discount * np.asarray(successor_return, float)
    return (np.asarray(point, float) - flow_time * target) / (1 - flow_time)


def _outcome_noise(law: TransitionLaw, point: ArrayLike, flow_time: float, discount: float) -> Values:
    """`implied_noise` of every outcome, along a new last axis."""
    point = np.asarray(point, float)[..., None]
    return implied_noise(point, flow_time, reward=law.reward, successor_return=law.successor_return, discount=discount)


def interpolated_density(law: TransitionLaw, point: ArrayLike, flow_time: float, *, discount: float) -> Values:
    """Density of the current interpolant, P(x, t) = E[φ(u(x, X', R, t))] / (1-t) (eq:P_density_main)."""
    kernel = normal_density(_outcome_noise(law, point, flow_time, discount))
    return (law.probability * kernel).sum(-1) / (1 - flow_time)


def interpolated_cdf(law: TransitionLaw, point: ArrayLike, flow_time: float, *, discount: float) -> Values:
    """Distribution function of the current interpolant, E[Φ(u(x, X', R, t))] (def:P_density)."""
    return (law.probability * ndtr(_outcome_noise(law, point, flow_time, discount))).sum(-1)


def posterior_mean(
    law: TransitionLaw, function: Callable[[Values], Values], point: ArrayLike, flow_time: float, *, discount: float
) -> Values:
    """The posterior operator B[g](x, t) = E[g | X_t = x] by Bayes' rule (def:posterior_operator_main).

    Args:
      law: the finite law of what is not noise.
      function: g, called with the implied noise, one column per outcome of `law` along the last axis; returns
        the values of g for these outcomes.
      point: x, any shape.
      flow_time: t in [0, 1).
      discount: γ.
    """
    noise = _outcome_noise(law, point, flow_time, discount)
    weight = softmax(np.log(law.probability) - noise**2 / 2, axis=-1)
    return (weight * function(noise)).sum(-1)


def posterior_velocity(law: TransitionLaw, point: ArrayLike, flow_time: float, *, discount: float) -> Values:
    """The population velocity v*(x, t) = B[(R + γX') - X_0](x, t) (eq:vstar_main)."""
    target = law.bellman_target(discount)
    return posterior_mean(law, lambda noise: target - noise, point, flow_time, discount=discount)


def optimal_successor_velocity(
    law: TransitionLaw, flow_time: float, point: ArrayLike, successor_state: ArrayLike
) -> Values:
    """The population successor velocity v̄*(z', t, s') = E[X' - X_0 | X'_t = z', S' = s'] (app:proof-bias-bound)."""
    noise = implied_noise(
        np.asarray(point, float)[..., None],
        flow_time,
        reward=0.0,
        successor_return=law.successor_return,
        discount=1.0,
    )
    possible = np.asarray(successor_state)[..., None] == law.successor_state
    weight = softmax(np.where(possible, np.log(law.probability) - noise**2 / 2, -np.inf), axis=-1)
    return (weight * (law.successor_return - noise)).sum(-1)


def _successor_points(law: TransitionLaw, flow_time: float, noise: Values) -> Values:
    return (1 - flow_time) * noise + flow_time * law.successor_return


def intrinsic_residual(law: TransitionLaw, flow_time: float, noise: Values) -> Values:
    """E_int = v̄*(X'_t, t, S') - (X' - X_0) of every outcome, last axis of `noise` (app:proof-bias-bound)."""
    point = _successor_points(law, flow_time, noise)
    best = optimal_successor_velocity(law, flow_time, point, law.successor_state)
    return best - (law.successor_return - noise)


def approximation_residual(law: TransitionLaw, flow_time: float, noise: Values, velocity: SuccessorVelocity) -> Values:
    """E_app = v̄(X'_t, t, S') - v̄*(X'_t, t, S') of every outcome, last axis of `noise` (app:proof-bias-bound)."""
    point = _successor_points(law, flow_time, noise)
    best = optimal_successor_velocity(law, flow_time, point, law.successor_state)
    return velocity(flow_time, point, law.successor_state) - best


def expectation(law: TransitionLaw, function: Callable[[Values], Values], *, num_nodes: int = 1201) -> float:
    """E[g] over outcomes and independent noise, by the trapezoidal rule in the noise.

    `function` receives noise of shape (nodes, outcomes) and returns the values of g in that shape.
    """
    nodes = np.linspace(-_TAIL, _TAIL, num_nodes)
    weight = normal_density(nodes)[:, None] * law.probability
    values = function(np.broadcast_to(nodes[:, None], weight.shape))
    return float((weight * values).sum() / weight.sum())


def interpolant_norm(
    law: TransitionLaw,
    function: Callable[[Values], Values],
    flow_time: float,
    *,
    discount: float,
    num_nodes: int = 4001,
) -> float:
    """‖h‖ = E[h(X_t)²]^½ in L2(P_{s,a,t}) of a function of the current point (app:proof-bias-bound)."""
    centre, width = flow_time * law.bellman_target(discount), _TAIL * (1 - flow_time)
    point = np.linspace(centre.min() - width, centre.max() + width, num_nodes)
    density = interpolated_density(law, point, flow_time, discount=discount)
    return float(np.sqrt((density * function(point) ** 2).sum() / density.sum()))


def approximation_error(law: TransitionLaw, flow_time: float, velocity: SuccessorVelocity) -> float:
    """ε_app = E[|v̄ - v̄*|²]^½ at the successor point (app:proof-bias-bound)."""
    return float(np.sqrt(expectation(law, lambda noise: approximation_residual(law, flow_time, noise, velocity) ** 2)))


def intrinsic_bias(law: TransitionLaw, flow_time: float, *, discount: float) -> float:
    """ε_int = ‖B[E_int]‖ in L2(P_{s,a,t}), the bias of conditioning on X_t instead of X'_t (app:proof-bias-bound)."""

    def bias(point: Values) -> Values:
        return posterior_mean(
            law, lambda noise: intrinsic_residual(law, flow_time, noise), point, flow_time, discount=discount
        )

    return interpolant_norm(law, bias, flow_time, discount=discount)


# ------------------------------------------------------------------------- bounds, distances, conditions


def euler_target_bound(
    *,
    discount: float,
    control_weight: float,
    lipschitz: float,
    flow_time: ArrayLike,
    endpoint_error: ArrayLike,
) -> Values:
    """Bound on the change of the λ-target when X' is off by δ, (|γ-λ| + |λ| L_t t) |δ| (prop:euler-lambda).

    The paper writes λ for |λ|, which is the same for the λ ≥ 0 it uses.
    """
    factor = abs(discount - control_weight) + abs(control_weight) * lipschitz * np.asarray(flow_time, float)
    return factor * np.abs(np.asarray(endpoint_error, float))


def shared_noise_distance(
    first: Float[np.ndarray, "pairs seeds"],
    second: Float[np.ndarray, "pairs seeds"],
    *,
    weight: Float[np.ndarray, "*pairs seeds"],
    power: float,
) -> float:
    """D_p(G, H) = sup_{s,a} E_ξ[|G_{s,a}(ξ) - H_{s,a}(ξ)|^p]^{1/p} (prop:shared_noise_contraction).

    Column j of `first` and `second` belongs to the same seed, whose probability is `weight[..., j]`.
    """
    if power < 1:
        raise ValueError(f"`power={power}` is no L_p distance; pass at least 1.")
    return float(((weight * np.abs(first - second) ** power).sum(-1) ** (1 / power)).max())


def dcfm_null_space(*, discount: float, rewards: Sequence[float], degree: int, scaled: bool) -> Values:
    """Polynomial velocity fields for which the same-time DCFM loss vanishes (app:dcfm).

    Columns are orthonormal coefficient vectors of 1, z, …, z^degree spanning the solutions of

        v(R + γz) = v(z)  (unscaled)  or  v(R + γz) = γ v(z)  (scaled)  for every R in `rewards`.
    """
    keep = discount if scaled else 1.0
    condition = []
    for reward in rewards:
        shifted = np.zeros((degree + 1, degree + 1))  # column k: coefficients of (R + γz)^k
        for k in range(degree + 1):
            for j in range(k + 1):
                shifted[j, k] = comb(k, j) * reward ** (k - j) * discount**j
        condition.append(shifted - keep * np.eye(degree + 1))
    return null_space(np.concatenate(condition))


# ---------------------------------------------------------------------------------- integrated paths


def corrected_residual(
    current_velocity: Velocity,
    successor_velocity: Velocity,
    *,
    noise: Float[Array, " batch"],
    successor_noise: Float[Array, " batch"] | None = None,
    reward: Float[Array, " #batch"],
    discount: float | Float[Array, " #batch"],
    num_flow_steps: int,
) -> Float[Array, " {num_flow_steps}+1"]:
    """Corrected Bellman residual r_corr(t, N) at the N+1 grid times t = i/N (eq:rcorr).

        r_corr = E| Ẑ^s_t - (t R + γ̃ Ẑ^{s'}_t + (1-t)(1-γ̃) X_0) |

    Args:
      current_velocity: v(t, z) of the current state(s).
      successor_velocity: v(t, z) of the successor state(s).
      noise: X_0, where the current path starts.
      successor_noise: where the successor path starts; None means shared noise.
      reward: R of the transitions.
      discount: γ̃, the effective discount.
      num_flow_steps: Euler steps N of both paths.
    """
    start = noise if successor_noise is None else successor_noise
    current = flow_trajectory(current_velocity, noise, num_flow_steps)
    successor = flow_trajectory(successor_velocity, start, num_flow_steps)
    time = flow_times(num_flow_steps).astype(noise.dtype)[:, None]
    bellman = time * reward + discount * successor + (1 - time) * (1 - discount) * noise
    return jnp.abs(current - bellman).mean(axis=-1)
