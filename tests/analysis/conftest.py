"""Synthetic records in the form of real ones: exact laws, blurred and disturbed by seeded noise."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pcbf_analysis.results import Results
from pcbf_core.mdp import MDPS
from pcbf_core.mrp import MRPS, ReturnLaw
from pcbf_records import layout
from pcbf_records.calibration import DATASETS, collect_calibration, save_calibration_record
from pcbf_records.canonical import readable_json
from pcbf_records.exact import collect_exact, save_exact_record
from pcbf_records.files import write_text
from pcbf_records.theory import CheckRow, PopulationRow, write_checks, write_population
from pcbf_records.toy import PROCESSES, RESIDUAL_STEPS, TOY_METHODS, collect_toys, save_toy_record

from ..calibration_records import calibration_arrays
from ..exact_records import exact_arrays
from .run_fixtures import REPOSITORY

Values = NDArray[np.float64]

NOISE = np.linspace(-4, 4, 801)  # where transport maps are tabulated
FLOW_TIMES = np.linspace(0, 1, 21)
STEPS = np.array(RESIDUAL_STEPS)
METADATA = {"settings": {"num_steps": 100, "batch_size": 32}, "versions": {"jax": "0"}, "wall_seconds": 1.5}


@cache
def exact_law(process: str, state: int) -> ReturnLaw:
    return MRPS[process].return_law(state)


@cache
def blurred_map(process: str, state: int) -> Values:
    """The exact map from noise to return, smoothed over the noise."""
    exact = exact_law(process, state).quantile(stats.norm.cdf(NOISE))
    kernel = stats.norm.pdf(np.linspace(-3, 3, 31))
    return np.array(np.convolve(np.pad(exact, 15, mode="edge"), kernel / kernel.sum(), mode="valid"), np.float64)


def transport_map(process: str, state: int, method: str, coefficient: float, seed: int) -> Values:
    """A plausible learned map from noise to return: the exact one, blurred, disturbed, and shrunk by dcfm."""
    law, blurred = exact_law(process, state), blurred_map(process, state)
    random = np.random.default_rng([seed, state, *(ord(c) for c in process + method), round(1000 * coefficient)])
    shift, wave = random.normal(0, [0.02, 0.03]) * law.std
    shrink = 0.75 * coefficient if method == "value_flows" else 0.1 * (coefficient - 0.4) ** 2
    shrink += 0.1 if method == "pcbf-independent" else 0.0
    learned = law.mean + (1 - shrink) * (blurred - law.mean) - 0.5 * shrink * law.mean + shift
    return np.maximum.accumulate(learned + wave * np.sin(2 * NOISE)) + 1e-3 * law.std * NOISE


def flow_arrays(process: str, coefficient: float, num_particles: int) -> dict[str, Any]:
    """Straight paths to the map's values, its density by change of variables, and its velocity field on a grid."""
    states = MRPS[process].live_states
    low, high = {
        "solitaire": (-4, 10),
        "bernoulli": (-3, 3),
        "chain": (-5, 25),
        "normal": (-3, 12),
        "crossroads": (-16, 10),
    }[process]
    start = stats.norm.ppf((np.arange(num_particles) + 0.5) / num_particles)
    arrow_times, arrow_points = np.linspace(0, 1, 12), np.linspace(low, high, 16)
    paths, values, density, velocity = [], [], [], []
    for state in states:
        learned = transport_map(process, state, "pcbf", coefficient, 0)
        ends = np.interp(start, NOISE, learned)
        paths.append((1 - FLOW_TIMES[:, None]) * start + FLOW_TIMES[:, None] * ends)
        values.append(learned[::4])
        density.append((stats.norm.pdf(NOISE) / np.gradient(learned, NOISE))[::4])
        sources = [np.interp(arrow_points, (1 - t) * NOISE + t * learned, NOISE) for t in arrow_times]
        velocity.append([np.interp(source, NOISE, learned) - source for source in sources])
    return {
        "flow_coefficient": np.float64(coefficient),
        "flow_times": FLOW_TIMES,
        "flow_paths": np.array(paths, np.float32),
        "density_values": np.array(values, np.float32),
        "density": np.array(density, np.float32),
        "arrow_times": arrow_times,
        "arrow_points": np.tile(arrow_points, (len(states), 1)),
        "arrow_velocity": np.array(velocity, np.float32),
    }


def residual_arrays(num_seeds: int, scale: float = 1.0) -> dict[str, Any]:
    """Residuals that start at 0 with shared noise and at a positive value with independent noise."""
    times = np.full((len(STEPS), 33), np.nan)
    for row, steps in enumerate(STEPS):
        times[row, : steps + 1] = np.arange(steps + 1) / steps
    seeds = scale + 0.05 * np.arange(num_seeds)[:, None, None]
    coarse = (4 / STEPS)[:, None]
    return {
        "residual_steps": STEPS,
        "residual_times": times,
        "residual_shared": seeds * (0.4 * times + 0.3 * coarse * times * (1 - times)),
        "residual_independent": seeds * (1.0 - 0.3 * times + 0.9 * times**2 + 0.3 * coarse * times),
    }


def toy_record(
    process: str, method: str, coefficients: Iterable[float], num_seeds: int, num_levels: int
) -> dict[str, Any]:
    """All arrays of one toy record."""
    mrp, coefficients = MRPS[process], np.array(list(coefficients))
    levels = (np.arange(num_levels) + 0.5) / num_levels
    noise = stats.norm.ppf(levels)
    quantiles = np.array(
        [
            [
                [np.interp(noise, NOISE, transport_map(process, s, method, c, seed)) for s in mrp.live_states]
                for seed in range(num_seeds)
            ]
            for c in coefficients
        ]
    )
    laws = [exact_law(process, s) for s in mrp.live_states]
    w1 = [
        [[law.wasserstein1(q) for law, q in zip(laws, by_state, strict=True)] for by_state in by_seed]
        for by_seed in quantiles
    ]
    spread = (
        (1 - 0.6 * coefficients / max(mrp.discount, coefficients.max()))[:, None]
        * (1 + 0.03 * np.arange(num_seeds))
        * laws[0].std
    )
    spread = spread if method == "pcbf" else 1.2 * np.abs(spread) ** 0.9
    record: dict[str, Any] = {
        "coefficients": coefficients,
        "seeds": np.arange(num_seeds),
        "states": np.array(mrp.live_states),
        "levels": levels,
        "quantiles": np.array(quantiles, np.float32),
        "w1": np.array(w1),
        "tuning_seeds": np.array([1000]),
        "tuning_w1": np.array(w1)[:, :1],
        "loss_history": np.ones((len(coefficients), num_seeds, 10), np.float32),
        "loss_std": spread,
    }
    if method == "pcbf":
        record |= flow_arrays(process, float(coefficients[len(coefficients) // 2]), num_particles=40)
    if process == "solitaire" and method != "value_flows":
        record |= residual_arrays(num_seeds, scale=1.0 if method == "pcbf" else 1.3)
        record["flow_coefficient"] = np.float64(coefficients[len(coefficients) // 2])
    return record


def write_theory(root: Path) -> None:
    """Write theory/checks.csv with two checks that hold and one that fails."""
    write_checks(
        root / layout.THEORY_CHECKS,
        [
            CheckRow("path-endpoint", "Z_1 = R + γX′ at t = 1", "eq:current-path", 1.2e-7, 1e-5, "<="),
            CheckRow("contraction", "W̄(t) ≤ γ·W & nothing more", "thm:contraction", 0.81, 0.9, "<="),
            CheckRow(
                "euler-bound", "endpoint error below the bound, 100 % of draws", "prop:euler-lambda", 2.0, 1.5, "<="
            ),
        ],
    )
    rows = [
        PopulationRow(process, path, "shared", weight, 20, 100, 401, w1, w1, 1.0, 0.5)
        for process in ("bernoulli", "normal")
        for path, weight, w1 in (("linear", 0.0, 1e-3), ("linear", 0.5, 0.05), ("flow", 1.0, 1e-3))
    ]
    write_population(root / layout.THEORY_POPULATION, rows)


def write_exact(root: Path) -> None:
    """Records of exact control: two methods that act by CVaR as well, one that does not."""
    for mdp in MDPS.values():
        for method in ("pcbf_flow", "iqn", "iql", "pcbf_flow-independent"):
            arrays = exact_arrays(num_states=mdp.num_states)
            if method == "iql":
                arrays |= {name: arrays[name][:1] for name in ("risk_levels", "policies", "cvar")}
                arrays["w1"] = np.full_like(arrays["w1"], np.nan)
            if method in ("iqn", "pcbf_flow-independent"):
                arrays["w1"] = arrays["w1"] + 0.2
            save_exact_record(root / layout.exact_run(mdp.name, method), arrays, METADATA)
    optima = [
        (mdp, policy, level, measure, 30.0 - index)
        for mdp in MDPS
        for policy, level in (("optimum", 1.0), ("optimum", 0.1), ("exact critic", 0.1))
        for index, measure in enumerate(("mean", "cvar_0.1"))
    ]
    collect_exact(root, {name: mdp.start for name, mdp in MDPS.items()}, optima)


def write_calibration(root: Path) -> None:
    """Records of calibration: two critics, the references, and two variants."""
    shifts = {"pcbf_flow": 0.0, "iqn": 0.1, "monte_carlo": -0.1, "marginal": 0.4}
    shifts |= {"pcbf_flow-weight0": 0.05, "pcbf_flow-mean": 0.2}
    for dataset in DATASETS:
        for method, shift in shifts.items():
            path = root / layout.calibration_run(dataset, method)
            save_calibration_record(path, calibration_arrays(shift=shift), METADATA)
    collect_calibration(root)


def build_results(
    root: Path,
    *,
    processes: Iterable[str] = PROCESSES,
    methods: Iterable[str] = TOY_METHODS,
    num_coefficients: int = 3,
    num_seeds: int = 2,
    num_levels: int = 50,
) -> Path:
    """`root`, filled with records of the given jobs."""
    methods = tuple(methods)
    for process in processes:
        for method in methods:
            top = 1.0 if method in ("value_flows", "pcbf_flow") else MRPS[process].discount
            arrays = toy_record(process, method, np.linspace(0, top, num_coefficients), num_seeds, num_levels)
            save_toy_record(root / layout.toy_run(process, method), arrays, METADATA)
    if layout.toy_files(root):
        collect_toys(root)
    if "pcbf_flow" in methods:
        write_exact(root)
        write_calibration(root)
    write_theory(root)
    manifest = {
        "config_hash": "ab12",
        "code": {"pcbf-core": "0.1.0", "commit": "c0ffee"},
        "records": {layout.TOY_W1: "5e1f"},
    }
    write_text(root / layout.MANIFEST, readable_json(manifest))
    return root


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`build_results` with a folder for each choice of options, built once; do not write into it."""
    folders: dict[str, Path] = {}

    def make(**options: Any) -> Path:
        if repr(options) not in folders:
            folders[repr(options)] = build_results(tmp_path_factory.mktemp("built"), **options)
        return folders[repr(options)]

    return make


@pytest.fixture(scope="session")
def complete(built: Callable[..., Path]) -> Results:
    """A results folder with every toy job; do not write into it."""
    return Results(built(), REPOSITORY)


@pytest.fixture(scope="session")
def partial(built: Callable[..., Path]) -> Results:
    """A results folder with PCBF and its ablation on Solitaire and Bernoulli only; do not write into it."""
    return Results(built(processes=PROCESSES[:2], methods=TOY_METHODS[:2]), REPOSITORY)


@pytest.fixture
def empty(tmp_path: Path) -> Results:
    """A results folder without any record."""
    return Results(tmp_path, REPOSITORY)


@pytest.fixture
def build(tmp_path: Path, built: Callable[..., Path]) -> Callable[..., Results]:
    """Gives a test that changes records a results folder of its own."""

    def make(**options: Any) -> Results:
        return Results(Path(shutil.copytree(built(**options), tmp_path / "results")), REPOSITORY)

    return make
