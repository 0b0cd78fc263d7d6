"""fig:ogbench: the benchmark's tasks as their simulators render them."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.image import imread

from pcbf_analysis import theme
from pcbf_analysis.results import Results
from pcbf_records.errors import RecordError
from pcbf_records.layout import picture

TITLE = "The benchmark's tasks, rendered from their simulators"
CAPTION = (
    "One task of each domain. OGBench: the start of an evaluation episode (left) and the task's goal (right); the two "
    "visual domains as the agent sees them, in 64 × 64 pixels. Adroit: the start. Made by "
    "`pcbf-render`, which needs an OpenGL renderer; a task that has not been rendered is named."
)
OGBENCH_TASKS = {  # the starred task of each domain
    "cube-double-play": "cube-double-play-singletask-task2-v0",
    "cube-triple-play": "cube-triple-play-singletask-task1-v0",
    "scene-play": "scene-play-singletask-task2-v0",
    "puzzle-4x4-play": "puzzle-4x4-play-singletask-task4-v0",
    "visual-cube-double-play": "visual-cube-double-play-singletask-task1-v0",
    "visual-antmaze-teleport": "visual-antmaze-teleport-navigate-singletask-task1-v0",
}
ADROIT_TASKS = {hand: f"{hand}-expert-v1" for hand in ("pen", "door", "hammer", "relocate")}
TASKS = (*OGBENCH_TASKS.values(), *ADROIT_TASKS.values())
INPUTS = tuple(picture(task) for task in TASKS)


def draw(results: Results) -> Figure:
    """The figure: two rows of three OGBench domains, a row of four Adroit hands."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 4.6), layout="constrained")
    grid = figure.add_gridspec(3, 12, height_ratios=[1, 1, 1.25])
    for place, (name, task) in enumerate(OGBENCH_TASKS.items()):
        row, column = divmod(place, 3)
        draw_task(figure, grid[row, 4 * column : 4 * column + 4], name, results.root / picture(task))
    for column, (name, task) in enumerate(ADROIT_TASKS.items()):
        cell = grid[2, 3 * column : 3 * column + 3]
        draw_task(figure, cell, f"Adroit: {name}", results.root / picture(task))
    return figure


def draw_task(figure: Figure, cell: object, title: str, path: Path) -> None:
    """One picture under its name, or a frame that says that there is none."""
    axes = figure.add_subplot(cell)  # type: ignore[arg-type]
    axes.set(title=title, xticks=[], yticks=[])
    axes.grid(False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    if not path.exists():
        theme.empty_panel(axes, "not rendered yet")
        return
    try:
        picture = imread(path)
    except (OSError, SyntaxError, ValueError) as error:
        raise RecordError(f"{path.as_posix()} is not a png ({error}); delete it and render it again.") from error
    axes.imshow(picture, interpolation="nearest")
    if picture.shape[1] == 2 * picture.shape[0]:
        axes.axvline(picture.shape[0] - 0.5, color="white", linewidth=1.2)
