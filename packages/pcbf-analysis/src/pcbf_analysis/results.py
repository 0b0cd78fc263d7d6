"""A results folder as analysis sees it: toy records, the collected control suite, costs, checks, the paper's numbers.

A file that is not there yet is an ordinary case and gives `None` or an empty frame; a file that is there
but does not have the agreed form raises `RecordError` with what is wrong and how to remake it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from pcbf_analysis.control import Control, load_control
from pcbf_core.config import check_choice
from pcbf_core.mrp import MRPS, ReturnLaw
from pcbf_records import layout
from pcbf_records.calibration import RESULT_COLUMNS as CALIBRATION_COLUMNS
from pcbf_records.calibration import CalibrationRecord, load_calibration_record
from pcbf_records.errors import RecordError
from pcbf_records.exact import OPTIMUM_COLUMNS, RESULT_COLUMNS, ExactRecord, load_exact_record
from pcbf_records.sheets import LOADER, Sheets, load_sheets
from pcbf_records.theory import CHECK_COLUMNS, POPULATION_COLUMNS
from pcbf_records.toy import (
    LOSS_STD_COLUMNS,
    PAPER_PROCESSES,
    PROCESSES,
    TOY_METHODS,
    W1_COLUMNS,
    Floats,
    ToyRecord,
    load_toy_record,
)

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
    "sources": ("id", "quantity", "paper", "source", "repository", "commit", "place"),
    "rerun": ("domain", "aggregation", "mean", "std", "num_seeds"),
}
Cells = dict[tuple[Any, ...], list[tuple[Any, ...]]]
LATE = 0.1  # share of training whose mean loss stands for the target's variance
COST_COLUMNS = (
    *("task", "method", "group", "num_seeds", "steps", "train_seconds"),
    *("steps_per_second", "peak_host_bytes", "peak_device_bytes", "device", "path"),
)


@dataclass(frozen=True)
class Setting:
    """One return law of the toy evaluation: a state of a process."""

    process: str
    state: int

    @property
    def title(self) -> str:
        process = MRPS[self.process]
        return process.title if len(process.live_states) == 1 else f"{process.title}, s = {self.state}"

    @property
    def law(self) -> ReturnLaw:
        return exact_law(self.process, self.state)


@lru_cache(maxsize=128)
def exact_law(process: str, state: int) -> ReturnLaw:
    """The exact return law of a state; worked out once."""
    return MRPS[process].return_law(state)


def evaluation_settings() -> tuple[Setting, ...]:
    """The six settings of fig:cdf_comparison."""
    return tuple(Setting(name, state) for name in PAPER_PROCESSES for state in MRPS[name].evaluation_states)


@dataclass(frozen=True, eq=False)
class Results:
    """A results folder (`results/<scale>` or `results/published/<scale>`) of a repository.

    What the tables share is read and computed once for each object; make another one when records have changed.

    Attributes:
      root: the results folder.
      repository: top folder of the repository, whose `config` and paper's numbers are read.
    """

    root: Path
    repository: Path = Path()

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

    @cached_property
    def control(self) -> Control:
        """The control suite and its ablations, as collected; read once."""
        return load_control(self.root)

    @cached_property
    def sheets(self) -> Sheets:
        """Tasks and methods of the repository."""
        return load_sheets(self._in_repository(f"{layout.CONFIG}/tasks.tsv"))

    def toy(self, process: str, method: str) -> ToyRecord | None:
        """The record of one toy job, or None when the job has not run yet."""
        check_choice("process", process, PROCESSES)
        check_choice("method", method, TOY_METHODS)
        path = self.root / layout.toy_run(process, method)
        return _read_once(load_toy_record, path) if path.exists() else None

    def w1(self) -> pd.DataFrame:
        return self._distances(layout.TOY_W1)

    def tuning_w1(self) -> pd.DataFrame:
        """W1 of the seeds on which coefficients are chosen."""
        return self._distances(layout.TOY_TUNING_W1)

    def _distances(self, name: str) -> pd.DataFrame:
        path = self.root / name
        return _read_once(_distances, path) if path.exists() else _distances(path)

    def loss_std(self) -> pd.DataFrame:
        return load_table(self.root / layout.TOY_LOSS_STD, LOSS_STD_COLUMNS, remake="pcbf-toy collect")

    def exact(self) -> pd.DataFrame:
        """Measures of exact control, a row for each process, method, seed, risk level and measure."""
        return self._exact_tables[0]

    def exact_optima(self) -> pd.DataFrame:
        """What no policy exceeds on each process."""
        return self._exact_tables[1]

    @cached_property
    def _exact_tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        remake = "pcbf-exact collect"
        return (
            load_table(self.root / layout.EXACT_RESULTS, RESULT_COLUMNS, remake=remake),
            load_table(self.root / layout.EXACT_OPTIMA, OPTIMUM_COLUMNS, remake=remake),
        )

    @cached_property
    def exact_cells(self) -> Cells:
        """Risk level, seed and value of every row of `exact` by process, method and measure."""
        return _cells(self.exact(), ("mdp", "method", "measure"), ("risk_level", "seed", "value"))

    def exact_record(self, mdp: str, method: str) -> ExactRecord | None:
        """The record of one method on one small decision process, or None when the job has not run yet."""
        path = self.root / layout.exact_run(mdp, method)
        return load_exact_record(path) if path.exists() else None

    @cached_property
    def calibration(self) -> pd.DataFrame:
        """Measures of calibration, a row for each dataset, method, seed and measure."""
        path = self.root / layout.CALIBRATION_RESULTS
        return load_table(path, CALIBRATION_COLUMNS, remake="pcbf-calibrate collect")

    @cached_property
    def calibration_cells(self) -> Cells:
        """Seed and value of every row of `calibration` by dataset, method and measure."""
        return _cells(self.calibration, ("dataset", "method", "measure"), ("seed", "value"))

    def calibration_record(self, dataset: str, method: str) -> CalibrationRecord | None:
        """The record of one critic on one dataset, or None when the job has not run yet."""
        path = self.root / layout.calibration_run(dataset, method)
        return load_calibration_record(path) if path.exists() else None

    def theory_checks(self) -> pd.DataFrame:
        frame = load_table(self.root / layout.THEORY_CHECKS, CHECK_COLUMNS, remake="pcbf-theory")
        return frame.assign(holds=[_truth(value) for value in frame["holds"]])

    def population(self) -> pd.DataFrame:
        """Fixed points that infinite data would reach."""
        return load_table(self.root / layout.THEORY_POPULATION, POPULATION_COLUMNS, remake="pcbf-theory")

    def paper_table(self, name: str) -> pd.DataFrame:
        """Numbers that the paper reports, by the label of the table; nan where it leaves a cell open."""
        check_choice("name", name, PAPER_COLUMNS)
        file = f"{layout.PAPER_NUMBERS}/{name}.csv"
        return load_table(self._in_repository(file) / file, PAPER_COLUMNS[name], remake="git checkout")

    def paper_w1(self) -> pd.DataFrame:
        """The W1 distances that the paper reports; an empty coefficient is one that it does not state."""
        return self.paper_table("toy_w1")

    def method_settings(self) -> dict[str, Any]:
        """config/methods.yaml: the settings of every method per domain, printed beside used."""
        return yaml.load(self.config("methods.yaml").read_text(encoding="utf-8"), Loader=LOADER)

    def scale_settings(self, scale: str) -> dict[str, Any]:
        """config/scales/<scale>.yaml, as it stands there."""
        return yaml.load(self.config(f"scales/{scale}.yaml").read_text(encoding="utf-8"), Loader=LOADER)

    def config(self, name: str) -> Path:
        """A file of the repository's config."""
        return self._in_repository(f"{layout.CONFIG}/{name}") / layout.CONFIG / name

    def _in_repository(self, name: str) -> Path:
        """The repository, in which `name` is there."""
        if not (self.repository / name).exists():
            raise RecordError(
                f"{(self.repository / name).as_posix()} is not there; run from the top folder of the repository, "
                "or pass --root with the top folder of a whole checkout."
            )
        return self.repository

    def manifest(self) -> dict[str, Any]:
        """Provenance of the folder, {} when no manifest was written yet."""
        path = self.root / layout.MANIFEST
        return json_object(path, "delete it and write it again.") if path.exists() else {}


def _cells(frame: pd.DataFrame, places: tuple[str, ...], values: tuple[str, ...]) -> Cells:
    """The rows of a frame by their place: what asks for one place after another need not search the frame each time."""
    found: Cells = {}
    rows = zip(*(frame[name].tolist() for name in (*places, *values)), strict=True)
    for row in rows:
        found.setdefault(row[: len(places)], []).append(row[len(places) :])
    return found


def _distances(path: Path) -> pd.DataFrame:
    frame = load_table(path, W1_COLUMNS, remake="pcbf-toy collect")
    doubled = frame.duplicated(list(W1_COLUMNS[:-1]))
    if doubled.any():
        cell = ", ".join(f"{name} {value}" for name, value in frame[doubled].iloc[0][list(W1_COLUMNS[:-1])].items())
        raise RecordError(f"toy/{path.name} has more than one row for {cell}; remake it with `pcbf-toy collect`.")
    return frame


def _read_once(load: Callable[[Path], Any], path: Path) -> Any:
    """What `load` reads from a file; read again only when the file has changed."""
    stat = path.stat()
    return _read(load, path, (stat.st_ino, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=128)
def _read(load: Callable[[Path], Any], path: Path, stamp: tuple[int, ...]) -> Any:
    return load(path)


def cost_frame(folder: Path) -> pd.DataFrame:
    """One row per cost record of a folder: time and memory of a group of seeds that one call trained together."""
    rows = []
    for path in layout.cost_files(folder):
        task, method, group = layout.group_place(path)
        cost = json_object(path, "delete it; the next run of its command writes it again.")
        missing = [name for name in ("seeds", "steps", "train_seconds", "device") if name not in cost]
        if missing:
            raise RecordError(f"{path} lacks {', '.join(missing)}; delete it and run its command again.")
        place = {"task": task, "method": method, "group": group}
        more = {"num_seeds": len(cost["seeds"]), "path": path.relative_to(folder).as_posix()}
        rows.append({**dict.fromkeys(COST_COLUMNS, np.nan), **cost, **place, **more})
    return _frame(rows, COST_COLUMNS)


def short_task(task: str) -> str:
    """The name of a task without what all have in common: `cube-double-play-task1`, `pen-cloned`."""
    return re.sub(r"-v\d+$", "", task).replace("-singletask", "")


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


def chosen_coefficient(results: Results, process: str, method: str = "pcbf") -> float | None:
    """The coefficient that does best on tuning seeds; the seeds that are reported have no say. None without records."""
    return lowest_coefficient(results.tuning_w1(), process, method)


def lowest_coefficient(w1: pd.DataFrame, process: str, method: str = "pcbf") -> float | None:
    """The coefficient with the lowest mean W1 over seeds and evaluation states; None without records.

    Only seeds that have every evaluation state count; of equal coefficients the smaller one wins.
    """
    coefficients, values = seed_means(w1, process, method)
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
    return select(w1, "w1", env=setting.process, state=setting.state, method=method, coefficient=coefficient)


def reported_w1(paper: pd.DataFrame, setting: Setting, method: str, coefficient: float | None) -> float:
    """The paper's W1 for a cell, nan where it reports none; PCBF's value stands for any λ, as the paper names none."""
    where = {"env": setting.process, "state": setting.state, "method": method}
    if method != "pcbf":
        where["coefficient"] = np.nan if coefficient is None else coefficient
    found = select(paper, "w1", **where)
    return float(found[0]) if len(found) else np.nan


def seed_means(w1: pd.DataFrame, process: str, method: str, *, in_deviations: bool = False) -> tuple[Floats, Floats]:
    """Coefficients (C,) and, for each, W1 (C, S) of every seed as the mean over the evaluation states.

    nan stands where a seed does not have all states. `in_deviations` takes W1 in each state in standard deviations of
    its law.
    """
    cells = {
        (float(coefficient), int(seed), int(state)): float(distance)
        for name, state, kind, coefficient, seed, distance in zip(*(_values(w1, c) for c in W1_COLUMNS), strict=True)
        if name == process and kind == method
    }
    coefficients, seeds = sorted({key[0] for key in cells}), sorted({key[1] for key in cells})
    units = {s: Setting(process, s).law.std if in_deviations else 1.0 for s in MRPS[process].evaluation_states}
    means = [
        [np.mean([cells.get((c, seed, s), np.nan) / unit for s, unit in units.items()]) for seed in seeds]
        for c in coefficients
    ]
    return np.array(coefficients), np.array(means).reshape(len(coefficients), len(seeds))


def loss_by_seed(loss_std: pd.DataFrame, process: str, method: str) -> tuple[Floats, Floats]:
    """Coefficients (C,) and the standard deviation of the loss (C, S), nan where a seed has no value."""
    rows = loss_std[(loss_std["env"] == process) & (loss_std["method"] == method)]
    if rows.empty:
        return np.empty(0), np.empty((0, 0))
    wide = rows.pivot(index="coefficient", columns="seed", values="loss_std").sort_index()
    return wide.index.to_numpy(dtype=float), wide.to_numpy(dtype=float)


def late_losses(results: Results, process: str, method: str) -> tuple[Floats, Floats]:
    """The coefficients of a record, and the mean late loss (coefficients, seeds); empty without a record."""
    record = results.toy(process, method)
    if record is None:
        return np.empty(0), np.empty((0, 0))
    count = max(round(LATE * record.loss_history.shape[-1]), 1)
    return record.coefficients, record.loss_history[..., -count:].mean(axis=-1)


def _frame(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns))


def json_object(path: Path, remedy: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path.as_posix()} is not JSON ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path.as_posix()} holds a {type(content).__name__}, not a JSON object; {remedy}")
    return content


def _values(frame: pd.DataFrame, name: str) -> NDArray[Any]:
    return np.asarray(frame[name])


def _truth(value: object) -> bool:
    """True or False from a csv cell."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise RecordError(
            f"`holds={value!r}` in the record of theory checks is neither True nor False; remake it with `pcbf-theory`."
        )
    return text == "true"
