"""fig:ablations: score against λ, one panel per task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pcbf_analysis import theme
from pcbf_analysis.control import Run
from pcbf_analysis.figures.common import draw_mean, legend_lines, mean_interval
from pcbf_analysis.results import Results, short_task
from pcbf_records.arrays import Floats
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Score of PCBF against λ"
CAPTION = (
    "Score after training PCBF with each λ, everything else held fixed. Points are seeds, lines their mean, bars "
    "Student's 95 % interval of the mean (none where there is one seed); the star marks the λ with the highest mean, "
    "of equal ones the smallest. Success rate in per cent on OGBench, normalised return on Adroit. A title that ends "
    "in “local” is of data generated here, which is not the paper's. Tasks of the paper's figure that have no records "
    "are named below the panels, and runs that diverged are counted in theirs."
)
INPUTS = (CONTROL_EVALUATIONS,)
PAPER_TASKS = (
    "scene-play-singletask-task2-v0",
    "cube-double-play-singletask-task2-v0",
    "puzzle-4x4-play-singletask-task4-v0",
    "visual-antmaze-teleport-navigate-singletask-task1-v0",
    "hammer-cloned-v1",
    "hammer-expert-v1",
)
COLUMNS = 3
STYLE = theme.METHODS["pcbf"]
STAR: dict[str, Any] = {"color": "#D55E00", "markeredgecolor": "black", "markeredgewidth": 0.5}


def draw(results: Results) -> Figure:
    """The figure: the paper's tasks that have records, then others; all of the paper's when there is no record."""
    runs = results.control.ablation()
    recorded = list(dict.fromkeys(run.task for _, run in runs))
    tasks = [*(t for t in PAPER_TASKS if t in recorded), *(t for t in recorded if t not in PAPER_TASKS)] or PAPER_TASKS
    columns = min(COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 0.8 + 1.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, task in zip(panels, tasks, strict=False):
        draw_panel(axes, task, [(weight, run) for weight, run in runs if run.task == task])
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    missing = [short_task(task) for task in PAPER_TASKS if recorded and task not in recorded]
    note = f"{theme.NO_RECORDS}: {', '.join(missing)}" if missing else None
    handles = legend_lines([("PCBF, mean over seeds", STYLE)], markers=True)
    star = Line2D([], [], linestyle="", marker="*", markersize=7, label="best mean", **STAR)
    figure.legend(handles=[*handles, star], loc="outside lower center", ncols=2, title=note, title_fontsize=6)
    return figure


def draw_panel(axes: Axes, task: str, rows: Sequence[tuple[float, Run]]) -> None:
    """Seeds, mean, interval and best λ of one task."""
    is_local = any(run.source == "local" for _, run in rows)
    is_adroit = any(run.suite == "adroit" for _, run in rows)
    axes.set(title=f"{short_task(task)}{', local' if is_local else ''}", xlabel="λ", xlim=(-0.05, 1.05))
    axes.set_ylabel("normalised return" if is_adroit else "success (%)")
    weights, scores = by_seed(rows)
    if not np.isfinite(scores).any():
        axes.set_yticks([])
        theme.empty_panel(axes, theme.NO_RECORDS if not rows else "all runs diverged")
        return
    mean, _ = mean_interval(scores)
    axes.plot(np.repeat(weights, scores.shape[1]), scores.ravel(), ".", color=STYLE.colour, markersize=2.5)
    draw_mean(axes, STYLE, weights, scores)
    best = int(np.nanargmax(mean))
    axes.plot(weights[best], mean[best], "*", markersize=8, zorder=6, **STAR)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.0), high)
    diverged = sum(run.status == "diverged" for _, run in rows)
    if diverged:
        look: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "fontsize": 5.5, "color": "#A33C00"}
        axes.text(0.98, 0.03, f"{diverged} of {len(rows)} runs diverged", **look)


def by_seed(rows: Sequence[tuple[float, Run]]) -> tuple[Floats, Floats]:
    """λ (C,) and scores (C, S), nan where a seed has none."""
    scores = {(weight, run.seed): run.score for weight, run in rows}
    weights, seeds = sorted({key[0] for key in scores}), sorted({key[1] for key in scores})
    values = [[scores.get((weight, seed), np.nan) for seed in seeds] for weight in weights]
    return np.array(weights), np.array(values).reshape(len(weights), len(seeds))
