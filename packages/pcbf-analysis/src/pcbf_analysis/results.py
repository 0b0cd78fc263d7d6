"""Loading of records: toy runs (npz), control runs and their cost (json), collected csv files, theory checks,
the paper's numbers, the manifest.

A file that is not there yet is an ordinary case and gives `None` or an empty frame; a file that is there
but does not have the agreed form raises `RecordError` with what is wrong and how to remake it.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from pcbf_analysis.control import ABLATED
from pcbf_core.config import check_choice
from pcbf_core.mrp import MRPS, ReturnLaw
from pcbf_core.records import RunRecord, load_record

ENVIRONMENTS = ("solitaire", "bernoulli", "chain")
TOY_METHODS = ("pcbf", "pcbf-independent", "value_flows")
W1_COLUMNS = ("env", "state", "method", "coefficient", "seed", "w1")
LOSS_STD_COLUMNS = ("env", "method", "coefficient", "seed", "loss_std")
PAPER_COLUMNS = {  # of the csv files in data/paper, see its README
    "toy_w1": ("env", "state", "method", "coefficient", "w1", "source"),
    "aggregated": ("domain", "num_tasks", "method", "mean", "std", "is_bold"),
    "fullogbench_comparison": ("task", "domain", "is_tuned", "num_seeds", "method", "mean", "std", "is_bold"),
    "cost": ("method", "memory_gb", "relative_time"),
    "hyperparameters": ("name", "value"),
    "domain_hyperparameters": (
        *("domain", "discount", "iql.alpha", "fql.alpha", "iqn.kappa", "iqn.alpha"),
        *("codac.alpha", "codac.lambda", "pcbf.lambda"),
    ),
    "statements": ("id", "value", "relation", "quantity", "label", "text"),
}
RUN_COLUMNS = (
    *("task", "domain", "kind", "method", "seed", "status", "score", "source"),
    *("steps", "num_evaluations", "num_episodes", "config_hash", "message", "path"),
)
EPISODE_COLUMNS = (
    *("task", "domain", "kind", "method", "seed", "source", "step", "is_final", "episode"),
    *("score", "return", "length", "success"),
)
COST_COLUMNS = (
    *("task", "domain", "method", "group", "num_seeds", "steps", "train_seconds", "evaluate_seconds"),
    *("steps_per_second", "peak_host_bytes", "peak_device_bytes", "device", "path"),
)
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

    @property
    def scale(self) -> str:
        """The scale that the folder is named after: `laptop` for results/laptop and results/published/laptop."""
        return self.root.resolve().name

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

    def paper_table(self, name: str) -> pd.DataFrame:
        """Numbers that the paper reports, by the label of the table; nan where it leaves a cell open."""
        check_choice("name", name, PAPER_COLUMNS)
        path = self.paper / f"{name}.csv"
        if not path.exists():
            raise RecordError(
                f"the paper's numbers are not at {path.as_posix()}; "
                f"run from the top folder of the repository or pass --paper with the folder that holds {path.name}."
            )
        return load_table(path, PAPER_COLUMNS[name], remake="git checkout")

    def paper_w1(self) -> pd.DataFrame:
        """The W1 distances that the paper reports; an empty coefficient is one that it does not state."""
        return self.paper_table("toy_w1")

    def method_settings(self) -> dict[str, Any]:
        """config/methods.yaml: the settings of every method per domain, printed beside used."""
        return self._config("methods.yaml")

    def scale_settings(self, scale: str) -> dict[str, Any]:
        """config/scales/<scale>.yaml, as it stands there."""
        return self._config(f"scales/{scale}.yaml")

    def _config(self, name: str) -> dict[str, Any]:
        """A file of config/ in the repository that the paper's numbers lie in."""
        path = self.paper.parent.parent / "config" / name
        if not path.exists():
            raise RecordError(
                f"{path.as_posix()} is not there; run from the top folder of the repository, "
                "or pass --paper with the data/paper of a whole checkout."
            )
        return yaml.safe_load(path.read_text(encoding="utf-8"))

    def manifest(self) -> dict[str, Any]:
        """Provenance of the folder, {} when no manifest was written yet."""
        path = self.root / "manifest.json"
        if not path.exists():
            return {}
        return _json_object(path, "delete it and write it again.")


def run_records(results: Results) -> list[RunRecord]:
    """All control runs of a results folder, ordered by task, method and seed."""
    return [_run_record(path) for path in _run_files(results.root)]


def run_frame(results: Results) -> pd.DataFrame:
    """One row per control run: which task, method and seed, its score, and what stands behind it.

    `score` is nan for a run that diverged; `num_evaluations` and `num_episodes` count what the score averages;
    `source` is that of the data ("local" for data that were generated here); `path` is relative to the results.
    """
    return _frame(_run_rows(results.root, _run_files(results.root)), RUN_COLUMNS)


def ablation_frame(results: Results) -> pd.DataFrame:
    """`run_frame` of the runs of fig:ablations, with the `control_weight` that each was trained with.

    On the tasks of the ablation the suite's own runs belong to it too, unless it has their weight already.
    """
    rows: list[dict[str, Any]] = []
    for folder in sorted((results.root / "ablations").glob("control_weight=*")):
        try:
            weight = float(folder.name.partition("=")[2])
        except ValueError as error:
            raise RecordError(f"ablations/{folder.name} does not end in a number; rename or remove it.") from error
        rows += [{"control_weight": weight, **row} for row in _run_rows(results.root, _run_files(folder))]
    tasks, present = {row["task"] for row in rows}, {(row["task"], row["control_weight"]) for row in rows}
    for path in _run_files(results.root):
        task, method = path.parts[-3:-1]
        if method != ABLATED or task not in tasks:
            continue
        weight = _run_record(path).config["agent"].get("control_weight")
        if isinstance(weight, int | float) and (task, float(weight)) not in present:
            rows += [{"control_weight": float(weight), **row} for row in _run_rows(results.root, [path])]
    rows.sort(key=lambda row: (row["task"], row["control_weight"], row["seed"]))
    return _frame(rows, ("control_weight", *RUN_COLUMNS))


def episode_frame(results: Results) -> pd.DataFrame:
    """One row per evaluation episode of the control runs; `is_final` marks those that the run's score averages."""
    return _frame((row for record in run_records(results) for row in _episode_rows(record)), EPISODE_COLUMNS)


def cost_frame(results: Results) -> pd.DataFrame:
    """One row per cost record: time and memory of a group of seeds that one call trained together."""
    rows = []
    for path in sorted((results.root / "cost").glob("*/*/*.json")):
        task, method = path.parts[-3:-1]
        cost = _json_object(path, "delete it; the next run of its command writes it again.")
        missing = [name for name in ("seeds", "steps", "train_seconds", "device") if name not in cost]
        if missing:
            raise RecordError(f"{_named(path)} lacks {', '.join(missing)}; delete it and run its command again.")
        place = {"task": task, "domain": task_domain(task), "method": method, "group": path.stem}
        more = {"num_seeds": len(cost["seeds"]), "path": path.relative_to(results.root).as_posix()}
        rows.append({**dict.fromkeys(COST_COLUMNS, np.nan), **cost, **place, **more})
    return _frame(rows, COST_COLUMNS)


def task_domain(task: str) -> str:
    """The row of tab:aggregated that a task belongs to: `cube-double-play`, `adroit`, …"""
    return task.partition("-singletask")[0] if "-singletask" in task else "adroit" if is_adroit(task) else task


def task_kind(task: str) -> str:
    """ "pixel", "adroit" or "state", by the task's name."""
    return "pixel" if task.startswith("visual-") else "adroit" if is_adroit(task) else "state"


def short_task(task: str) -> str:
    """The name of a task without what all have in common: `cube-double-play-task1`, `pen-cloned`."""
    return re.sub(r"-v\d+$", "", task).replace("-singletask", "")


def is_adroit(task: str) -> bool:
    """Whether the task is one of D4RL Adroit (`pen-cloned-v1`), scored by normalised return."""
    return task.split("-")[0] in ("pen", "door", "hammer", "relocate")


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


def _run_files(folder: Path) -> list[Path]:
    """The run records under a folder, ordered by task, method and seed."""
    found = (folder / "runs").glob("*/*/seed*.json")
    return sorted(found, key=lambda path: (*path.parts[-3:-1], len(path.stem), path.stem))


def _run_record(path: Path) -> RunRecord:
    try:
        record = load_record(path)
    except ValueError as error:
        raise RecordError(str(error)) from error
    named = (*path.parts[-3:-1], path.stem)
    if (record.task, record.method, f"seed{record.seed}") != named:
        raise RecordError(
            f"{_named(path)} holds {record.task}, {record.method}, seed {record.seed}; put it where its name says."
        )
    return record


def _place(record: RunRecord) -> dict[str, Any]:
    """What identifies a run in every frame."""
    names = {"task": record.task, "domain": task_domain(record.task), "kind": task_kind(record.task)}
    return {**names, "method": record.method, "seed": record.seed, "source": record.dataset.get("source")}


def _run_rows(root: Path, files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        record = _run_record(path)
        last = record.evaluations[-record.num_final_evaluations :] if record.status == "finished" else ()
        yield {
            **_place(record),
            "status": record.status,
            "score": np.nan if record.score is None else record.score,
            "steps": record.steps,
            "num_evaluations": len(last),
            "num_episodes": sum(len(evaluation.scores) for evaluation in last),
            "config_hash": record.config_hash,
            "message": record.message,
            "path": path.relative_to(root).as_posix(),
        }


def _episode_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    first_final = len(record.evaluations) - record.num_final_evaluations
    for index, evaluation in enumerate(record.evaluations):
        is_final = record.status == "finished" and index >= first_final
        columns = (evaluation.scores, evaluation.returns, evaluation.lengths, evaluation.successes)
        for episode, values in enumerate(zip(*columns, strict=True)):
            numbers = dict(zip(("score", "return", "length", "success"), values, strict=True))
            yield {**_place(record), "step": evaluation.step, "is_final": is_final, "episode": episode, **numbers}


def _frame(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns))


def _json_object(path: Path, remedy: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path.as_posix()} is not JSON ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path.as_posix()} holds a {type(content).__name__}, not a JSON object; {remedy}")
    return content


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
