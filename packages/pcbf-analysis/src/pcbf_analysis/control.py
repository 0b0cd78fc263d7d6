"""The control suite as collected from run and evaluation records: every run with its evaluations, read once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcbf_records import layout
from pcbf_records.arrays import Floats
from pcbf_records.control import EVALUATION_COLUMNS, Configs, load_configs
from pcbf_records.errors import RecordError

ABLATED_SETTING = "control_weight"  # of fig:ablations


@dataclass(frozen=True, eq=False)
class Judged:
    """The episodes played after a step."""

    step: int
    is_final: bool
    mean: float
    scores: Floats


@dataclass(frozen=True, eq=False)
class Run:
    """One seed of one method on one task.

    Attributes:
      change: what an ablation or a trial of the search for settings changed; empty for the suite's own runs.
      source: where the data come from; "local" for data that were generated here.
      config, dataset: what decided the run, and what it was trained on.
    """

    task: str
    domain: str
    suite: str
    method: str
    seed: int
    change: str
    status: str
    steps: int
    source: str
    message: str
    config_hash: str
    config: Mapping[str, Any]
    dataset: Mapping[str, Any]
    evaluations: tuple[Judged, ...]

    @property
    def final(self) -> tuple[Judged, ...]:
        """The evaluations that the score averages."""
        return tuple(evaluation for evaluation in self.evaluations if evaluation.is_final)

    @property
    def score(self) -> float:
        """Mean over the final evaluations, as the paper reports it; nan for a run that diverged."""
        final = self.final
        return sum(evaluation.mean for evaluation in final) / len(final) if final else math.nan

    @property
    def episodes(self) -> Floats:
        """Scores of all episodes behind the score."""
        return np.concatenate([np.empty(0), *(evaluation.scores for evaluation in self.final)])

    def setting(self, name: str) -> Any:
        """A setting of the agent; None if it has none of that name."""
        return self.config.get("agent", {}).get(name)


@dataclass(frozen=True)
class Control:
    """All runs of a results folder, ordered by task, method and seed."""

    runs: tuple[Run, ...]

    @property
    def suite(self) -> tuple[Run, ...]:
        """The suite's own runs, without ablations and trials."""
        return self.of_change("")

    @property
    def changes(self) -> list[str]:
        """What ablations changed: by setting, then by value, as a number where it is one."""
        found = {run.change for run in self.runs if run.change and not layout.is_tuning(run.change)}
        return sorted(found, key=_change_order)

    @property
    def tuning(self) -> tuple[Run, ...]:
        """The trials of the search for settings: by setting, then by value, then as all runs."""
        found = [run for run in self.runs if layout.is_tuning(run.change)]
        return tuple(sorted(found, key=lambda run: _change_order(run.change)))

    def of_change(self, change: str) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.change == change)

    def ablation(self) -> list[tuple[float, Run]]:
        """The runs of fig:ablations with the control weight of each, ordered by task, weight and seed.

        On the tasks of the ablation the suite's own runs belong to it too, unless it has their weight already.
        """
        changed = [change for change in self.changes if change.startswith(f"{ABLATED_SETTING}=")]
        found = [(_weight(change), run) for change in changed for run in self.of_change(change)]
        cells = {(run.task, run.method) for _, run in found}
        present = {(run.task, weight) for weight, run in found}
        for run in self.suite:
            weight = run.setting(ABLATED_SETTING)
            if (run.task, run.method) in cells and isinstance(weight, int | float):
                found += [(float(weight), run)] if (run.task, float(weight)) not in present else []
        return sorted(found, key=lambda item: (item[1].task, item[0], item[1].seed))


def load_control(folder: Path) -> Control:
    """The runs that `pcbf-collect` gathered in a results folder; none when it has not run yet."""
    path = folder / layout.CONTROL_EVALUATIONS
    if not path.exists():
        return Control(())
    table = _table(path)
    configs = load_configs(folder / layout.CONTROL_CONFIGS)
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in table:
        groups.setdefault((row["change"], row["task"], row["method"], row["seed"]), []).append(row)
    try:
        return Control(tuple(_run(rows, configs) for rows in groups.values()))
    except (KeyError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({error}); remake it with `pcbf-collect`.") from error


def _table(path: Path) -> list[dict[str, str]]:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is not a readable csv ({error}); remake it with `pcbf-collect`.") from error
    missing = [name for name in EVALUATION_COLUMNS if name not in frame.columns]
    if missing:
        raise RecordError(f"{path} lacks {', '.join(missing)}; remake it with `pcbf-collect`.")
    return frame.to_dict("records")  # type: ignore[return-value]


def _run(rows: list[dict[str, str]], configs: Configs) -> Run:
    row = rows[0]
    texts = ("task", "domain", "suite", "method", "change", "status", "source", "message")
    return Run(
        **{name: row[name] for name in texts},
        seed=int(row["seed"]),
        steps=int(row["steps"]),
        config_hash=row["config"],
        config=configs.configs[row["config"]],
        dataset=configs.datasets[row["dataset"]],
        evaluations=tuple(_judged(item) for item in rows if item["step"]),
    )


def _judged(row: dict[str, str]) -> Judged:
    scores = np.array(row["episodes"].split(), float)
    return Judged(int(row["step"]), row["is_final"] == "True", float(row["mean"]), scores)


def _weight(change: str) -> float:
    try:
        return float(layout.changed(change)[1])
    except ValueError as error:
        raise RecordError(f"{layout.ablation(change)} does not end in a number; rename or remove it.") from error


def _change_order(change: str) -> tuple[str, float, str]:
    setting, value = layout.changed(change)
    try:
        return setting, float(value), value
    except ValueError:
        return setting, math.inf, value
