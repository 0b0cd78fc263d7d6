"""What several figures share: intervals over seeds, exact laws and flows as curves, legends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, StepPatch
from numpy.typing import NDArray
from scipy.special import stdtrit

from pcbf_analysis import theme
from pcbf_analysis.results import Results, Setting, chosen_coefficient
from pcbf_analysis.theme import Style
from pcbf_core.mrp import MRPS, DiscreteLaw, ReturnLaw
from pcbf_records.arrays import Floats
from pcbf_records.toy import PAPER_PROCESSES, FlowRecord, ToyRecord

RETURN_RANGES = {"solitaire": (-4.0, 10.0), "bernoulli": (-3.0, 3.0), "chain": (-5.0, 25.0)}  # of the flow maps
CDF_RANGES = {"solitaire": (-1.0, 10.5), "bernoulli": (-0.5, 2.5), "chain": (-2.0, 22.0)}
CELLS: dict[str, dict[str, Any]] = {  # arguments of common_cells; the chain's parity makes single atoms alternate
    "solitaire": {"min_width": 0.4},
    "bernoulli": {"min_width": 0.25},
    "chain": {"min_width": 0.5, "atoms_per_cell": 2},
}
AREA = "#B3D5E8"  # a tint of PCBF's blue
HEADROOM = 1.45  # top of a density axis over the exact law's tallest cell
LOG_DENSITY_FLOOR = 1e-3
MAX_CURVE_POINTS = 200  # more are not seen in print and only make the files large
MIN_STEP = 1 / 400  # of a panel's width; finer steps of a distribution function are drawn as one


def mean_interval(values: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Mean over the last axis and half-width of Student's interval for it, ignoring nan.

    The half-width is nan where fewer than two values are there: one seed says nothing about spread.
    """
    known = np.isfinite(values)
    count = known.sum(axis=-1)
    total = np.where(known, values, 0.0).sum(axis=-1)
    mean = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    squares = np.where(known, (values - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    variance = np.divide(squares, count - 1, out=np.full(count.shape, np.nan), where=count > 1)
    quantile = stdtrit(np.maximum(count - 1, 1), 0.5 + confidence / 2)
    return mean, quantile * np.sqrt(variance / np.maximum(count, 1))


def draw_mean(axes: Axes, style: Style, places: Floats, values: Floats) -> None:
    """The mean of `values` (places, seeds) as a line with Student's 95 % interval as bars at each place."""
    mean, half = mean_interval(values)
    look: dict[str, Any] = {"color": style.colour, "linestyle": style.linestyle, "marker": style.marker}
    axes.plot(places, mean, **look, zorder=3)
    known = np.isfinite(half)
    bars: dict[str, Any] = {"fmt": "none", "ecolor": style.colour, "elinewidth": 0.7, "capsize": 2, "capthick": 0.7}
    axes.errorbar(places[known], mean[known], yerr=half[known], **bars, zorder=2)


def panel_title(setting: Setting) -> str:
    """Short name of a setting for the top of a panel."""
    name = theme.PROCESSES[setting.process].label
    return name if len(MRPS[setting.process].live_states) == 1 else f"{name}, s = {setting.state}"


def thinned(size: int, limit: int = MAX_CURVE_POINTS) -> NDArray[np.integer]:
    """At most `limit` evenly spaced indices of an axis, both ends among them."""
    return np.unique(np.linspace(0, size - 1, min(size, limit)).round().astype(int))


def spaced(ordered: Floats, gap: float) -> Floats:
    """Those of increasing values that are at least `gap` above the one kept before."""
    kept: list[float] = []
    for value in ordered:
        if not kept or value - kept[-1] >= gap:
            kept.append(float(value))
    return np.array(kept)


def exact_cdf(law: ReturnLaw, low: float, high: float) -> tuple[Floats, Floats]:
    """Corners of the exact distribution function on [low, high], ready for a plain line."""
    if isinstance(law, DiscreteLaw):
        inside = law.atoms[(law.atoms >= low) & (law.atoms <= high)]
        steps = np.union1d(spaced(inside, (high - low) * MIN_STEP), inside[-1:])
        values = np.concatenate([[low], np.repeat(steps, 2), [high]])
        corners = np.stack([law.cdf(np.nextafter(steps, -np.inf)), law.cdf(steps)], axis=1).ravel()
        return values, np.concatenate([law.cdf([low]), corners, law.cdf([high])])
    values = np.linspace(low, high, MAX_CURVE_POINTS)
    return values, law.cdf(values)


def common_cells(
    law: ReturnLaw, low: float, high: float, min_width: float, atoms_per_cell: int = 1
) -> tuple[Floats, Floats]:
    """Edges of cells over [low, high] in which a learned law is set against the exact one, and the exact heights.

    Height × width is the exact probability of a cell. Where the law has atoms, cells end midway between them, hold at
    least `atoms_per_cell` and are joined until they are `min_width` wide; elsewhere they are equally wide.
    """
    if isinstance(law, DiscreteLaw):
        middles = (law.atoms[1:] + law.atoms[:-1]) / 2
        candidates = np.concatenate([[2 * law.atoms[0] - middles[0]], middles])[::atoms_per_cell]
        inner = spaced(candidates, min_width)
        last = max(law.atoms[-1] + min_width / 2, inner[-1] + min_width)
        below = np.arange(inner[0] - min_width, low, -min_width)[::-1]
        bounds = np.concatenate([below, inner, [last], np.arange(last + min_width, high, min_width)])
    else:
        bounds = np.linspace(low, high, round((high - low) / min_width) + 1)
    return bounds, np.diff(law.cdf(bounds)) / np.diff(bounds)


def learned_heights(record: ToyRecord, state: int, edges: Floats) -> Floats:
    """The learned law in the same cells: its probability in each over the width, of the seed whose flow is recorded.

    It comes from quantiles, since a density is too sharp at an atom to be integrated from a few points.
    """
    curves = record.quantile_curves(state, record.flow.coefficient) if record.flow else None
    if curves is None:
        return np.full(len(edges) - 1, np.nan)
    below = np.interp(edges, np.maximum.accumulate(curves[0]), record.levels, left=0.0, right=1.0)
    return np.diff(below) / np.diff(edges)


def density_area(axes: Axes, edges: Floats, heights: Floats, *, horizontal: bool = False) -> StepPatch:
    """Draw the learned law's histogram as an area."""
    return axes.stairs(
        heights,
        edges,
        baseline=LOG_DENSITY_FLOOR / 10 if axes.get_yscale() == "log" or axes.get_xscale() == "log" else 0.0,
        orientation="horizontal" if horizontal else "vertical",
        fill=True,
        facecolor=AREA,
        edgecolor=theme.METHODS["pcbf"].colour,
        linewidth=0.6,
        zorder=2,
    )


def density_outline(axes: Axes, edges: Floats, heights: Floats, *, horizontal: bool = False) -> None:
    """Draw the exact law's histogram as a dashed outline."""
    axes.stairs(
        heights,
        edges,
        orientation="horizontal" if horizontal else "vertical",
        color=theme.EXACT_COLOUR,
        linewidth=0.8,
        linestyle=(0, (2.5, 1)),
        zorder=4,
    )


def density_limits(heights: Floats, *, is_log: bool) -> tuple[float, float]:
    """Range of a density axis that shows the exact law; a taller learned cell is cut at the top."""
    return (LOG_DENSITY_FLOOR, 3 * float(heights.max())) if is_log else (0.0, HEADROOM * float(heights.max()))


def density_legend(coefficient: float | None = None) -> list[Artist]:
    """Handles for learned law (with its λ, if there is one for the whole figure) and exact law."""
    at = "" if coefficient is None else f" (λ = {theme.number(coefficient)})"
    look: dict[str, Any] = {"facecolor": AREA, "linewidth": 0.6}
    learned = Patch(label=f"learned law{at}", edgecolor=theme.METHODS["pcbf"].colour, **look)
    exact = Style(f"{theme.EXACT_LABEL}, in the same cells", theme.EXACT_COLOUR, linestyle="--")
    return [learned, *legend_lines([(exact.label, exact)])]


def flow_lines(flow: FlowRecord, index: int, max_particles: int, max_times: int) -> list[tuple[Floats, Floats]]:
    """Times and returns of at most `max_particles` paths at `max_times` times, ordered by their noise."""
    paths, at = flow.paths[index], thinned(len(flow.times), max_times)
    kept = np.argsort(paths[0])[thinned(paths.shape[1], max_particles)]
    return [(flow.times[at], paths[at, particle]) for particle in kept]


@dataclass(frozen=True)
class Curve:
    """One method of a CDF figure: its look and its coefficient on each process that has one."""

    method: str
    style: Style
    coefficients: dict[str, float]


def cdf_curves(results: Results) -> list[Curve]:
    """PCBF at the chosen λ of each process, Value Flows at dcfm 0, ½ and 1."""
    chosen = {process: chosen_coefficient(results, process) for process in PAPER_PROCESSES}
    known = {process: value for process, value in chosen.items() if value is not None}
    flows = theme.VALUE_FLOWS_SHADES.items()
    return [
        Curve("pcbf", theme.METHODS["pcbf"], known),
        *(Curve("value_flows", style, dict.fromkeys(PAPER_PROCESSES, dcfm)) for dcfm, style in flows),
    ]


def draw_cdfs(axes: Axes, results: Results, setting: Setting, curves: list[Curve]) -> None:
    """CDFs in one setting: the mean quantile function over seeds and its range, over the exact law."""
    low, high = CDF_RANGES[setting.process]
    axes.plot(*exact_cdf(setting.law, low, high), **theme.EXACT_LINE, zorder=2)
    drawn = False
    for curve in curves:
        record, coefficient = results.toy(setting.process, curve.method), curve.coefficients.get(setting.process)
        if record is None or coefficient is None:
            continue
        quantiles = record.quantile_curves(setting.state, coefficient)
        if quantiles is None:
            continue
        drawn = True
        at, colour = thinned(len(record.levels)), curve.style.colour
        levels, quantiles = record.levels[at], quantiles[:, at]
        lowest, highest = quantiles.min(axis=0), quantiles.max(axis=0)
        axes.fill_betweenx(levels, lowest, highest, color=colour, alpha=0.2, linewidth=0, rasterized=True)
        order = 4 if curve.method == "pcbf" else 3
        axes.plot(quantiles.mean(axis=0), levels, color=colour, linestyle=curve.style.linestyle, zorder=order)
    if not drawn:
        theme.empty_panel(axes)
    axes.set(xlim=(low, high), ylim=(-0.02, 1.02), yticks=[0, 0.25, 0.5, 0.75, 1])


def chosen_label(coefficients: dict[str, float]) -> str:
    """PCBF's legend entry with the λ that was chosen for each process."""
    short = {"solitaire": "Solitaire", "bernoulli": "Bernoulli", "chain": "MC chain"}
    parts = [f"{short[process]} {theme.number(value)}" for process, value in coefficients.items()]
    return f"PCBF (λ: {', '.join(parts)})" if parts else f"PCBF ({theme.NO_RECORDS})"


def cdf_legend(curves: list[Curve]) -> list[Line2D]:
    """Handles for the exact law and all methods of a CDF figure."""
    named = [(chosen_label(c.coefficients) if c.method == "pcbf" else c.style.label, c.style) for c in curves]
    return [Line2D([], [], label=theme.EXACT_LABEL, **theme.EXACT_LINE), *legend_lines(named)]


def legend_lines(styles: list[tuple[str, Style]], *, markers: bool = False) -> list[Line2D]:
    """Handles for a legend: one line per style."""
    looks: list[dict[str, Any]] = [{"color": s.colour, "linestyle": s.linestyle, "label": label} for label, s in styles]
    marks = [style.marker if markers else "" for _, style in styles]
    return [Line2D([], [], marker=mark, **look) for mark, look in zip(marks, looks, strict=True)]
