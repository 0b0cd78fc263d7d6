"""Performance profiles of the control suite: the share of runs above every score."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures.common import legend_lines
from pcbf_analysis.results import Results
from pcbf_analysis.tables.performance_profiles import FEWEST_TASKS, SUITES, THRESHOLDS, Profile, profiles
from pcbf_analysis.tables.scores import load_suite
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Performance profiles of the control suite"
CAPTION = (
    "Share of runs (seeds of all tasks, every task counting the same) that score above a threshold: the higher the "
    "curve, the better; a curve above another everywhere dominates it. Bands are 95 % stratified-bootstrap intervals "
    "(seeds drawn within tasks), drawn for PCBF and Value Flows only; tables/performance_profiles.csv has all of them. "
    "A method that lacks a task of its suite is left out, and there is no profile below five tasks."
)
INPUTS = (CONTROL_EVALUATIONS,)
TOO_FEW = f"no profile below {FEWEST_TASKS} tasks"
BANDS = ("pcbf", "value_flows")  # more of them hide each other


def draw(results: Results) -> Figure:
    """The figure: one panel per suite that has runs."""
    found = profiles(load_suite(results))
    suites = [name for name in SUITES if any(profile.suite == name for profile in found)]
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 2.8 if suites else 1.2), layout="constrained")
    panels = figure.subplots(1, max(len(suites), 1), sharey=True, squeeze=False)[0]
    for axes, suite in zip(panels, suites or ["OGBench"], strict=True):
        members = [profile for profile in found if profile.suite == suite]
        for profile in members:
            draw_profile(axes, profile)
        if not members:
            theme.empty_panel(axes, TOO_FEW if results.control.suite else theme.NO_RECORDS)
        count = f" ({members[0].num_tasks} task{'s' * (members[0].num_tasks > 1)})" if members else ""
        axes.set(title=f"{suite}{count}", xlabel=f"score τ ({SUITES[suite]}, %)", xlim=(0, 100), ylim=(-0.02, 1.02))
    panels[0].set_ylabel("share of runs with score > τ")
    drawn = sorted({profile.method for profile in found}, key=theme.method_order, reverse=True)
    if drawn:
        named = [(theme.METHODS[method].label, theme.METHODS[method]) for method in drawn]
        figure.legend(handles=legend_lines(named, markers=True), loc="outside right center")
    return figure


def draw_profile(axes: Axes, profile: Profile) -> None:
    """One curve as steps, with a few markers so that it can be told without colour."""
    style = theme.METHODS[profile.method]
    order = 4 if profile.method == "pcbf" else 3
    if profile.method in BANDS:
        axes.fill_between(THRESHOLDS, profile.low, profile.high, color=style.colour, alpha=0.15, lw=0, step="post")
    axes.step(
        THRESHOLDS,
        profile.share,
        where="post",
        color=style.colour,
        linestyle=style.linestyle,
        marker=style.marker,
        markevery=(2 * theme.method_order(profile.method) % 10, 10),
        zorder=order,
    )
