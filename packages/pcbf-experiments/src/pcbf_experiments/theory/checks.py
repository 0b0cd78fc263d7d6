"""All checks that need no training, by name, and how they are run."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pcbf_core.config import OneOf, Range, config_from, tidy
from pcbf_core.mrp import MRPS
from pcbf_experiments.theory.bias import lambda_bias_bound, lambda_decomposition, pointwise_bounds
from pcbf_experiments.theory.contraction import shared_noise_contraction
from pcbf_experiments.theory.fixed_points import dcfm_degeneracy, fixed_points
from pcbf_experiments.theory.flow_path import flow_path
from pcbf_experiments.theory.gaussian import bias_slope_order, gaussian_closed_forms, implemented_coupling
from pcbf_experiments.theory.paths import endpoint_laws, path_identities, source_mismatch
from pcbf_experiments.theory.population import SMOOTH
from pcbf_experiments.theory.rows import Check
from pcbf_experiments.theory.solver import euler_endpoint
from pcbf_experiments.theory.velocity import posterior_velocity
from pcbf_records.theory import CheckRow

# A check's name decides its random stream: under another name it measures other samples.
CHECKS: dict[str, Check] = {
    "path_identities": path_identities,
    "endpoint_laws": endpoint_laws,
    "posterior_velocity": posterior_velocity,
    "lambda_decomposition": lambda_decomposition,
    "lambda_bias_bound": lambda_bias_bound,
    "pointwise_bounds": pointwise_bounds,
    "gaussian_closed_forms": gaussian_closed_forms,
    "bias_slope_order": bias_slope_order,
    "implemented_coupling": implemented_coupling,
    "shared_noise_contraction": shared_noise_contraction,
    "euler_endpoint": euler_endpoint,
    "source_mismatch": source_mismatch,
    "dcfm_degeneracy": dcfm_degeneracy,
    "fixed_points": fixed_points,
    "flow_path": flow_path,
}


@dataclass(frozen=True)
class TheorySettings:
    """How many samples the Monte Carlo checks draw, from which seed; the population solver's grid and processes."""

    num_samples: Annotated[int, Range(at_least=1000)]
    seed: Annotated[int, Range(at_least=0)]
    num_flow_steps: Annotated[int, Range(at_least=10)] = 100
    num_points: Annotated[int, Range(at_least=41)] = 401
    population_processes: tuple[Annotated[str, OneOf(tuple(MRPS))], ...] = SMOOTH

    def __post_init__(self) -> None:
        tidy(self)


def parse_settings(text: str) -> TheorySettings:
    """Settings from JSON text; the error names what is wrong and what is allowed."""
    example = '{"num_samples": 200000, "seed": 0}'
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"`--settings {text}` is no JSON ({error}); pass for example '{example}'.") from None
    if not isinstance(values, dict) or not {"num_samples", "seed"} <= set(values):
        raise ValueError(f"`--settings {text}` must name `num_samples` and `seed`; pass for example '{example}'.")
    return config_from(TheorySettings, values)


def run_checks(settings: TheorySettings) -> list[CheckRow]:
    """Rows of `CHECKS`; each check draws from its own stream of `settings.seed`."""
    rows: list[CheckRow] = []
    for name, check in CHECKS.items():
        rng = np.random.default_rng([settings.seed, zlib.crc32(name.encode())])
        rows.extend(check(rng, settings.num_samples))
    return rows
