"""How settings were chosen: every trial of the search, the best of each method, and what the suite uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pcbf_analysis import statistics, theme
from pcbf_analysis.control import Control, Run
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_analysis.tables.scores import Cell
from pcbf_records.layout import CONTROL_EVALUATIONS, changed

TITLE = "How settings were chosen: the trials of every method"
CAPTION = (
    "The search for settings: a trial is one setting changed. A scale has as many trials for every method, on seeds "
    "that no other table reports. The mean is over final evaluations and seeds; a trial has none if a seed diverged. "
    "The best trials of a method are those of its highest mean. A trial is the suite's if the suite's own runs of the "
    "method have its value."
)
INPUTS = (CONTROL_EVALUATIONS,)
COLUMNS = (
    Column("task", "Task", is_number=False),
    Column("method", "Method", is_number=False),
    Column("setting", "Setting", is_number=False),
    Column("value", "Value", is_number=False),
    Column("num_seeds", "Seeds", digits=0),
    Column("num_episodes", "Episodes", digits=0),
    Column("mean", "Mean", digits=1),
    Column("is_best", "Best", is_number=False),
    Column("is_used", "Suite's", is_number=False),
)

Trials = Mapping[Cell, Mapping[str, Sequence[Run]]]  # the runs of every trial of a method on a task, by change


def compute(results: Results) -> Table:
    """One row per method and trial."""
    rows = []
    trials = trials_of(results.control)
    for cell, of_cell in trials.items():
        means = {change: statistics.mean([run.score for run in runs]) for change, runs in of_cell.items()}
        best = max((mean for mean in means.values() if mean == mean), default=None)
        for change, runs in of_cell.items():
            num_episodes = sum(run.episodes.size for run in runs)
            row = (*cell, *changed(change), len(runs), num_episodes, means[change], means[change] == best)
            rows.append((*row, is_used(results.control, runs[0])))
    return Table(COLUMNS, tuple(rows), note(results, trials), is_dense=True)


def trials_of(control: Control) -> Trials:
    """All trials of a results folder: by task and method, as tables show them, then by setting and value."""
    trials: dict[Cell, dict[str, list[Run]]] = {}
    for run in control.tuning:
        trials.setdefault(Cell(run.task, run.method), {}).setdefault(run.change, []).append(run)
    return {
        cell: trials[cell] for cell in sorted(trials, key=lambda cell: (cell.task, theme.method_order(cell.method)))
    }


def is_used(control: Control, trial: Run) -> bool | None:
    """Whether the suite's own runs of the method, those on the trial's task if there are any, have the trial's value.

    None without such runs.
    """
    setting, _ = changed(trial.change)
    own = [run for run in control.suite if run.method == trial.method]
    own = [run for run in own if run.task == trial.task] or own
    if not own or setting not in trial.config.get("agent", {}):
        return None
    return all(run.setting(setting) == trial.setting(setting) for run in own)


def note(results: Results, trials: Trials) -> str:
    """What these very records say of the search: how many trials methods have, and on which seeds."""
    if not trials:
        return f"Scale: {results.scale}; {theme.NO_RECORDS}."
    counts = {cell: len(of_cell) for cell, of_cell in trials.items()}
    seeds = sorted({run.seed for run in results.control.tuning})
    reported = sorted({*seeds} & {run.seed for run in results.control.suite})
    unequal = ", ".join(f"{cell.method} has {count} trials" for cell, count in counts.items())
    told = (
        f"not an equal search: {unequal}"
        if len({*counts.values()}) > 1
        else f"trials for every method: {max(counts.values())}"
    )
    known = f", of which the suite reports {', '.join(map(str, reported))}" if reported else ""
    return f"Scale: {results.scale}; {told}; seeds {', '.join(map(str, seeds))}{known}."
