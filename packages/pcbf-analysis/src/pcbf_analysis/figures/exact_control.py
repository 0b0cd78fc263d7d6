"""Exact control: mean against CVaR of every method's policies, and the ways that the cliff's walkers take."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from pcbf_analysis import theme
from pcbf_analysis.figures.common import legend_lines, mean_interval
from pcbf_analysis.results import Results
from pcbf_analysis.tables.exact import OURS, TAIL, by_seed, methods_of, optimum, risk_levels_of
from pcbf_core.mdp import DIRECTIONS, MDPS, Cliff, occupancy
from pcbf_records.exact import MEAN, ExactRecord, measure_name
from pcbf_records.layout import EXACT_OPTIMA, EXACT_RESULTS, exact_run

TITLE = "Exact control: mean and tail of what each method does"
CAPTION = (
    f"Top: exact mean return from the start against exact CVaR at {TAIL:g}, means over seeds with Student's 95 % "
    "interval of both; a line leads from acting by the mean (filled) through acting by CVaR with the same critic,"
    " α falling (open). Stars are optima: of the mean, and of CVaR at each α among all policies with memory. "
    "Bottom: expected discounted visits of each cell of the cliff, mean over seeds, when PCBF on the flow path "
    f"acts by its mean and by its CVaR at {TAIL:g}; arrows are moves that it takes more often than not. Blue cells"
    " are slippery, dark ones the cliff or walls. "
    "BC and Random, which learn no value, are in the table only."
)
INPUTS = (EXACT_RESULTS, EXACT_OPTIMA, exact_run("cliff", OURS))
NOT_DRAWN = ("random", "bc")
GROUNDS = {"x": "#3A2A24", "#": "#777777", "~": "#CFE6F5"}
ARROW = {"arrowstyle": "->", "linewidth": 0.7, "color": "#222222"}
CLIFF = Cliff()


def draw(results: Results) -> Figure:
    """The figure: a panel per process, then two maps."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, len(MDPS), height_ratios=(3, 2))
    for axes, name in zip(top, MDPS, strict=True):
        draw_trade(axes, results, name)
    record = results.exact_record("cliff", OURS)
    for axes, level in zip(bottom, (MEAN, TAIL), strict=True):
        draw_map(axes, CLIFF, record, level)
    methods = dict.fromkeys(method for name in MDPS for method in drawn_methods(results, name))
    handles = legend_lines([(theme.METHODS[m].label, theme.METHODS[m]) for m in methods], markers=True)
    star = Line2D([], [], marker="*", linestyle="", color="#555555", label="optimum")
    figure.legend(handles=[*handles, star], loc="outside lower center", ncols=6)
    return figure


def draw_trade(axes: Axes, results: Results, name: str) -> None:
    """Mean against CVaR of all methods on one process."""
    levels = [MEAN, *reversed(risk_levels_of(results, name))]
    measures = "mean", measure_name(TAIL)
    for method in drawn_methods(results, name):
        style = theme.METHODS[method]
        points, halves = [], []
        for level in levels:
            seeds = np.array([list(by_seed(results, name, method, level, measure).values()) for measure in measures])
            if seeds.size:
                points.append(seeds.mean(axis=1))
                halves.append(np.nan_to_num(mean_interval(seeds)[1]))
        path, half = np.array(points), np.array(halves)
        axes.plot(*path.T, color=style.colour, linewidth=0.7, zorder=2)
        axes.errorbar(*path.T, xerr=half[:, 0], yerr=half[:, 1], fmt="none", ecolor=style.colour, elinewidth=0.4)
        look = {"color": style.colour, "marker": style.marker, "linestyle": "", "zorder": 3}
        axes.plot(*path[:1].T, **look)
        axes.plot(*path[1:].T, **look, markerfacecolor="white")
    best = np.array([[optimum(results, name, level, measure) for measure in measures] for level in levels])
    axes.plot(*best.T, marker="*", linestyle="", color="#555555", markersize=6, zorder=1)
    axes.set(title=MDPS[name].title, xlabel="exact mean return", ylabel=f"exact CVaR at {TAIL:g}")
    if not drawn_methods(results, name):
        theme.empty_panel(axes)


def drawn_methods(results: Results, name: str) -> list[str]:
    """The methods of a panel; those that learn no value lie far off and would hide the others."""
    return [method for method in methods_of(results, name) if method not in NOT_DRAWN]


def draw_map(axes: Axes, mdp: Cliff, record: ExactRecord | None, level: float) -> None:
    """The grid with the visits of the policies that act at a risk level."""
    width, height = len(mdp.rows[0]), len(mdp.rows)
    for x in range(width):
        for y in range(height):
            ground = mdp.ground((x, y))
            colour = GROUNDS.get(ground, "white")
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="#BBBBBB", linewidth=0.5))
            if ground in "SG^":
                axes.text(x - 0.4, y + 0.2, ground, fontsize=6, color="#333333")
    if record is not None and np.isclose(record.risk_levels, level).any():
        policies = record.policies[np.isclose(record.risk_levels, level).argmax()].astype(float)
        start = np.eye(mdp.num_states)[mdp.start]
        visits = np.mean([occupancy(mdp, policy / policy.sum(1, keepdims=True), start) for policy in policies], axis=0)
        for (x, y), visit, moves in zip(mdp.cells, visits, policies.mean(axis=0), strict=True):
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="#D55E00", alpha=min(0.7 * visit, 0.9)))
            if moves.max() > 0.5:
                dx, dy = 0.3 * DIRECTIONS[int(moves.argmax())]
                axes.annotate("", (x + dx, y + dy), (x - dx, y - dy), arrowprops=ARROW)
    else:
        theme.empty_panel(axes)
    told = "the mean" if level == MEAN else f"CVaR at {level:g}"
    axes.set(xlim=(-0.5, width - 0.5), ylim=(-0.5, height - 0.5), aspect="equal", xticks=[], yticks=[])
    axes.set_title(f"{theme.METHODS[OURS].label} acts by {told}")
    axes.grid(visible=False)
