"""Loading of run records: toy runs (npz), collected csv files, theory checks, the paper's numbers, the manifest.

A file that is not there yet is an ordinary case and gives `None` or an empty frame; a file that is there
but does not have the agreed form raises `RecordError` with what is wrong and how to remake it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pcbf_core.config import check_choice
from pcbf_core.mrp import MRPS, ReturnLaw

ENVIRONMENTS = ("solitaire", "bernoulli", "chain")
TOY_METHODS = ("pcbf", "pcbf-independent", "value_flows")
W1_COLUMNS = ("env", "state", "method", "coefficient", "seed", "w1")
LOSS_STD_COLUMNS = ("env", "method", "coefficient", "seed", "loss_std")
PAPER_W1_COLUMNS = ("env", "state", "method", "coefficient", "w1", "source")
THEORY_COLUMNS = ("id", "statement", "label", "measured", "expected", "relation", "margin", "holds")

# one letter per axis; equal letters must have equal lengths within one record
_SHAPES = {
    "coefficients": "C",
    "seeds": "S",
    "states": "N",
    "levels": "L",
    "quantiles": "CSNL",
    "w1": "CSN",
    "loss_history": "CSH",
    "loss_std": "CS",
}
_FLOW_SHAPES = {
    "flow_times": "T",
    "flow_paths": "NTP",
    "density_values": "NV",
    "density": "NV",
    "arrow_times": "A",
    "arrow_points": "NZ",
    "arrow_velocity": "NAZ",
}
_MODEL_SHAPES = {"flow_coefficient": ""}  # of the model behind flow and residual
_RESIDUAL_SHAPES = {
    "residual_steps": "K",
    "residual_times": "KG",
    "residual_shared": "SKG",
    "residual_independent": "SKG",
}

Floats = NDArray[np.floating]


class RecordError(ValueError):
    """A record that exists but cannot be read as agreed."""


@dataclass(frozen=True)
class Setting:
    """One return law of the toy evaluation: a state of an environment."""

    env: str
    state: int

    @property
    def title(self) -> str:
        process = MRPS[self.env]
        return process.title if len(process.live_states) == 1 else f"{process.title}, s = {self.state}"

    @property
    def law(self) -> ReturnLaw:
        return MRPS[self.env].return_law(self.state)


def evaluation_settings() -> tuple[Setting, ...]:
    """The six settings of fig:cdf_comparison."""
    return tuple(Setting(env, state) for env in ENVIRONMENTS for state in MRPS[env].evaluation_states)


@dataclass(frozen=True, eq=False)
class FlowRecord:
    """The flow of one trained model: particle paths, end density and velocity field, per state."""

    coefficient: float
    times: Floats  # (T+1,)
    paths: Floats  # (N, T+1, P)
    density_values: Floats  # (N, V)
    density: Floats  # (N, V)
    arrow_times: Floats  # (A,)
    arrow_points: Floats  # (N, Z)
    arrow_velocity: Floats  # (N, A, Z)


@dataclass(frozen=True, eq=False)
class ResidualRecord:
    """r_corr(t, N) of eq:rcorr on the grid of each solver budget, nan where a grid has no such point."""

    coefficient: float
    steps: NDArray[np.integer]  # (K,)
    times: Floats  # (K, G)
    shared: Floats  # (S, K, G)
    independent: Floats  # (S, K, G)


@dataclass(frozen=True, eq=False)
class ToyRecord:
    """What one toy job wrote: every coefficient and seed of one method on one environment."""

    env: str
    method: str
    coefficients: Floats  # (C,)
    seeds: NDArray[np.integer]  # (S,)
    states: NDArray[np.integer]  # (N,)
    levels: Floats  # (L,)
    quantiles: Floats  # (C, S, N, L)
    w1: Floats  # (C, S, N)
    loss_history: Floats  # (C, S, H)
    loss_std: Floats  # (C, S)
    metadata: Mapping[str, Any]
    flow: FlowRecord | None
    residual: ResidualRecord | None

    def state_index(self, state: int) -> int | None:
        found = np.flatnonzero(self.states == state)
        return int(found[0]) if found.size else None

    def coefficient_index(self, coefficient: float) -> int | None:
        found = np.flatnonzero(np.isclose(self.coefficients, coefficient, rtol=0, atol=1e-6))
        return int(found[0]) if found.size else None

    def quantile_curves(self, state: int, coefficient: float) -> Floats | None:
        """Quantiles (S, L) of the learned return law, one row per seed; None if they were not recorded."""
        at_state, at_coefficient = self.state_index(state), self.coefficient_index(coefficient)
        if at_state is None or at_coefficient is None:
            return None
        return self.quantiles[at_coefficient, :, at_state]


@dataclass(frozen=True)
class Results:
    """A results folder (`results/<scale>` or `results/published/<scale>`) and the paper's numbers beside it."""

    root: Path
    paper: Path = Path("data/paper")

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise RecordError(
                f"`results={self.root.as_posix()}` is not a folder; pass one that a run has made, "
                "such as results/smoke or results/published/laptop."
            )

    def toy_path(self, env: str, method: str) -> Path:
        return self.root / "toy" / "runs" / env / f"{method}.npz"

    def toy(self, env: str, method: str) -> ToyRecord | None:
        """The record of one toy job, or None when the job has not run yet."""
        check_choice("env", env, ENVIRONMENTS)
        check_choice("method", method, TOY_METHODS)
        path = self.toy_path(env, method)
        return load_toy_record(path) if path.exists() else None

    def w1(self) -> pd.DataFrame:
        frame = load_table(self.root / "toy" / "w1.csv", W1_COLUMNS, remake="pcbf-toy collect")
        doubled = frame.duplicated(list(W1_COLUMNS[:-1]))
        if doubled.any():
            cell = ", ".join(f"{name} {value}" for name, value in frame[doubled].iloc[0][list(W1_COLUMNS[:-1])].items())
            raise RecordError(f"toy/w1.csv has more than one row for {cell}; remake it with `pcbf-toy collect`.")
        return frame

    def loss_std(self) -> pd.DataFrame:
        return load_table(self.root / "toy" / "loss_std.csv", LOSS_STD_COLUMNS, remake="pcbf-toy collect")

    def theory_checks(self) -> pd.DataFrame:
        frame = load_table(self.root / "theory" / "checks.csv", THEORY_COLUMNS, remake="pcbf-theory")
        return frame.assign(holds=[_truth(value) for value in frame["holds"]])

    def paper_w1(self) -> pd.DataFrame:
        """The W1 distances that the paper reports; an empty coefficient is one that it does not state."""
        path = self.paper / "toy_w1.csv"
        if not path.exists():
            raise RecordError(
                f"the paper's numbers are not at {path.as_posix()}; "
                "run from the top folder of the repository or pass --paper with the folder that holds toy_w1.csv."
            )
        return load_table(path, PAPER_W1_COLUMNS, remake="git checkout")

    def manifest(self) -> dict[str, Any]:
        """Provenance of the folder, {} when no manifest was written yet."""
        path = self.root / "manifest.json"
        if not path.exists():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise RecordError(f"{path.as_posix()} is not JSON ({error}); delete it and write it again.") from error
        if not isinstance(content, dict):
            raise RecordError(f"{path.as_posix()} holds a {type(content).__name__}; a manifest is a JSON object.")
        return content


def load_table(path: Path, columns: tuple[str, ...], *, remake: str) -> pd.DataFrame:
    """The csv at `path` with at least `columns`; an empty frame with these columns when there is no file."""
    if not path.exists():
        return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})
    try:
        frame = pd.read_csv(path)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise RecordError(f"{path.as_posix()} is not a readable csv ({error}); remake it with `{remake}`.") from error
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise RecordError(
            f"{path.as_posix()} lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}. "
            f"Remake it with `{remake}`."
        )
    return pd.DataFrame({name: frame[name] for name in columns})


def load_toy_record(path: Path) -> ToyRecord:
    """The toy record at `<env>/<method>.npz`, with every array's shape checked."""
    env, method = path.parent.name, path.stem
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RecordError(f"{_named(path)} is not a readable npz ({error}); {_remake(env, method)}") from error
    sizes: dict[str, int] = {}
    _check_shapes(path, arrays, _SHAPES, sizes)
    flow = residual = None
    if any(name in arrays for name in _FLOW_SHAPES):
        _check_shapes(path, arrays, _MODEL_SHAPES | _FLOW_SHAPES, sizes)
        flow = FlowRecord(
            coefficient=float(arrays["flow_coefficient"]),
            times=arrays["flow_times"],
            paths=arrays["flow_paths"],
            **{name: arrays[name] for name in _FLOW_SHAPES if not name.startswith("flow_")},
        )
    if any(name in arrays for name in _RESIDUAL_SHAPES):
        _check_shapes(path, arrays, _MODEL_SHAPES | _RESIDUAL_SHAPES, sizes)
        residual = ResidualRecord(
            coefficient=float(arrays["flow_coefficient"]),
            **{name.removeprefix("residual_"): arrays[name] for name in _RESIDUAL_SHAPES},
        )
    plain = {name: arrays[name] for name in _SHAPES}
    return ToyRecord(env, method, **plain, metadata=_metadata(path, arrays), flow=flow, residual=residual)


def chosen_coefficient(w1: pd.DataFrame, env: str, method: str = "pcbf") -> float | None:
    """The coefficient with the lowest mean W1 over seeds and evaluation states; None without records.

    Only seeds that have every evaluation state count; of equal coefficients the smaller one wins.
    """
    coefficients, values = seed_means(w1, env, method)
    means = {
        float(coefficient): float(seeds[np.isfinite(seeds)].mean())
        for coefficient, seeds in zip(coefficients, values, strict=True)
        if np.isfinite(seeds).any()
    }
    return min(means, key=lambda coefficient: (means[coefficient], coefficient)) if means else None


def select(frame: pd.DataFrame, value: str, **where: Any) -> Floats:
    """Finite values of a column in the rows that match `where`, ordered by seed; coefficients match up to 1e-6."""
    keep = np.ones(len(frame), bool)
    for name, wanted in where.items():
        column = _values(frame, name)
        if name == "coefficient":
            keep &= np.isclose(column.astype(float), wanted, rtol=0, atol=1e-6)
        else:
            keep &= column == wanted
    found = _values(frame, value)[keep].astype(float)
    if "seed" in frame.columns:
        found = found[np.argsort(_values(frame, "seed")[keep], kind="stable")]
    return found[np.isfinite(found)]


def recorded_w1(w1: pd.DataFrame, setting: Setting, method: str, coefficient: float | None) -> Floats:
    """Our W1 of every seed in a cell, empty where nothing was recorded or no coefficient is known."""
    if coefficient is None:
        return np.empty(0)
    return select(w1, "w1", env=setting.env, state=setting.state, method=method, coefficient=coefficient)


def reported_w1(paper: pd.DataFrame, setting: Setting, method: str, coefficient: float | None) -> float:
    """The paper's W1 for a cell, nan where it reports none; PCBF's value stands for any λ, as the paper names none."""
    where = {"env": setting.env, "state": setting.state, "method": method}
    if method != "pcbf":
        where["coefficient"] = np.nan if coefficient is None else coefficient
    found = select(paper, "w1", **where)
    return float(found[0]) if len(found) else np.nan


def seed_means(w1: pd.DataFrame, env: str, method: str) -> tuple[Floats, Floats]:
    """Coefficients (C,) and, for each, W1 (C, S) of every seed as the mean over the evaluation states.

    nan stands where a seed does not have all states.
    """
    cells = {
        (float(coefficient), int(seed), int(state)): float(distance)
        for name, state, kind, coefficient, seed, distance in zip(*(_values(w1, c) for c in W1_COLUMNS), strict=True)
        if name == env and kind == method
    }
    coefficients, seeds = sorted({key[0] for key in cells}), sorted({key[1] for key in cells})
    states = MRPS[env].evaluation_states
    means = [[np.mean([cells.get((c, seed, s), np.nan) for s in states]) for seed in seeds] for c in coefficients]
    return np.array(coefficients), np.array(means).reshape(len(coefficients), len(seeds))


def _values(frame: pd.DataFrame, name: str) -> NDArray[Any]:
    return np.asarray(frame[name])


def _named(path: Path) -> str:
    return "/".join(path.parts[-4:])


def _remake(env: str, method: str) -> str:
    return f"delete it and run the job again (`pcbf-toy run {env} {method}`)."


def _check_shapes(path: Path, arrays: Mapping[str, Any], shapes: Mapping[str, str], sizes: dict[str, int]) -> None:
    """Raise unless all arrays are there with consistent axes; `sizes` collects the length of each axis letter."""
    remake = _remake(path.parent.name, path.stem)
    missing = [name for name in shapes if name not in arrays]
    if missing:
        raise RecordError(f"{_named(path)} lacks {', '.join(missing)}; {remake}")
    for name, letters in shapes.items():
        shape = np.shape(arrays[name])
        if len(shape) != len(letters):
            raise RecordError(f"{_named(path)}: `{name}` has shape {shape}, expected {len(letters)} axes; {remake}")
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise RecordError(
                    f"{_named(path)}: `{name}` has shape {shape}, but its axis {letter} "
                    f"(of {letters}) has length {sizes[letter]} in the other arrays; {remake}"
                )


def _metadata(path: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    if "metadata" not in arrays:
        return {}
    try:
        content = json.loads(str(arrays["metadata"]))
    except json.JSONDecodeError as error:
        raise RecordError(f"{_named(path)}: `metadata` is not JSON ({error}).") from error
    return content if isinstance(content, dict) else {"metadata": content}


def _truth(value: object) -> bool:
    """True or False from a csv cell."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise RecordError(
            f"`holds={value!r}` in theory/checks.csv is neither True nor False; remake it with `pcbf-theory`."
        )
    return text == "true"
