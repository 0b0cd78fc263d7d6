"""One look for every artefact: colours, order and display names of methods, sizes and fonts."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

SINGLE_COLUMN = 3.25  # inches
DOUBLE_COLUMN = 6.75
EXACT_COLOUR = "#000000"
EXACT_LABEL = "exact law"
EXACT_LINE: dict[str, Any] = {"color": "#000000", "alpha": 0.35, "linewidth": 1.9, "solid_capstyle": "butt"}
NO_RECORDS = "no records yet"


@dataclass(frozen=True)
class Style:
    """How one line of a figure looks and what it is called."""

    label: str
    colour: str
    marker: str = "o"
    linestyle: str = "-"


# Blue, sky blue, vermilion, orange, green and purple are Okabe and Ito's; the remaining hues are Tol's "muted" set.
# Markers differ as well, so that no figure depends on colour alone.
METHODS: dict[str, Style] = {
    "random": Style("Random", "#AAAAAA", "x", ":"),
    "bc": Style("BC", "#777777", "+", ":"),
    "marginal": Style("Marginal law", "#DDCC77", "|", ":"),
    "monte_carlo": Style("Monte Carlo", "#AA4499", "*", ":"),
    "gaussian": Style("Gaussian", "#117733", "h"),
    "c51": Style("C51", "#882255", "v"),
    "iqn": Style("IQN", "#CC79A7", "^"),
    "flow_iqn": Style("FlowIQN", "#44AA99", "d"),
    "codac": Style("CODAC", "#999933", "<"),
    "floq": Style("FloQ", "#E69F00", ">"),
    "fql": Style("FQL", "#009E73", "P"),
    "iql": Style("IQL", "#332288", "X"),
    "value_flows": Style("Value Flows", "#D55E00", "s", "--"),
    "pcbf-independent": Style("PCBF, independent noise", "#56B4E9", "D", "-."),
    "pcbf_flow": Style("PCBF, flow path", "#000000", "p"),
    "pcbf": Style("PCBF", "#0072B2", "o"),
}

PROCESSES: dict[str, Style] = {
    "solitaire": Style("Solitaire Dice", "#0072B2", "o"),
    "bernoulli": Style("Bernoulli", "#E69F00", "s"),
    "chain": Style("Discrete MC chain", "#009E73", "^"),
    "normal": Style("Normal rewards", "#CC79A7", "D"),
    "crossroads": Style("Crossroads", "#882255", "v"),
}

COEFFICIENTS = {"pcbf": "λ", "pcbf_flow": "λ", "pcbf-independent": "λ", "value_flows": "dcfm"} | dict.fromkeys(
    ("flow_iqn", "iqn", "c51"), "learning rate"
)


def shade(colour: str, amount: float) -> str:
    """`colour` with its lightness moved by `amount` of the way to white (positive) or black (negative)."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    lightness += (1 - lightness) * amount if amount > 0 else lightness * amount
    return to_hex(colorsys.hls_to_rgb(hue, lightness, saturation))


_FLOW_COLOUR = METHODS["value_flows"].colour
VALUE_FLOWS_SHADES: dict[float, Style] = {
    0.0: Style("Value Flows, dcfm = 0", shade(_FLOW_COLOUR, 0.35), "s", "-"),
    0.5: Style("Value Flows, dcfm = 0.5", shade(_FLOW_COLOUR, -0.1), "s", "--"),
    1.0: Style("Value Flows, dcfm = 1", shade(_FLOW_COLOUR, -0.6), "s", ":"),
}


def method_order(method: str) -> int:
    """Place of `method` in tables and legends: the paper's order, ours last; unknown methods after all."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)


def in_order(methods: Iterable[str]) -> list[str]:
    """`methods` as tables and legends show them, unknown ones by name."""
    return sorted(methods, key=lambda name: (method_order(name), name))


def method_label(method: str) -> str:
    """How readers call a method; one of a plugin by its name."""
    return METHODS[method].label if method in METHODS else method


def particle_colours(count: int) -> NDArray[np.floating]:
    """Colours (count, 4) for the particles of a flow, ordered by their noise; readable in grey as well."""
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.9, count))


def number(value: float) -> str:
    """A coefficient as written in a legend: 0.475 -> 0.475, 0.0 -> 0."""
    return f"{value:.3g}"


@contextmanager
def context() -> Iterator[None]:
    """Matplotlib settings of all figures; artefacts are drawn and saved inside it."""
    import seaborn  # takes a second to load, which whoever makes no figure need not wait for

    settings: dict[Any, Any] = {
        **seaborn.axes_style("ticks"),
        "font.family": "DejaVu Sans",  # ships with matplotlib, so every machine has it
        "mathtext.fontset": "dejavusans",
        "font.size": 7,
        "axes.titlesize": 7.5,
        "axes.labelsize": 7,
        "xtick.labelsize": 6.5,
        "ytick.labelsize": 6.5,
        "legend.fontsize": 6.5,
        "figure.titlesize": 8.5,
        "axes.linewidth": 0.6,
        "axes.edgecolor": "#444444",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#E6E6E6",
        "grid.linewidth": 0.4,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "xtick.minor.size": 1.5,
        "ytick.minor.size": 1.5,
        "xtick.minor.width": 0.4,
        "ytick.minor.width": 0.4,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "legend.frameon": False,
        "legend.handlelength": 2.4,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "figure.dpi": 100,
        "savefig.dpi": 200,
        "pdf.fonttype": 42,
        "svg.fonttype": "path",
        "svg.hashsalt": "pcbf",
        "path.simplify": True,
    }
    with matplotlib.rc_context(rc=settings):
        yield


def empty_panel(axes: Axes, text: str = NO_RECORDS) -> None:
    """Say in the middle of a panel why it shows nothing."""
    axes.grid(False)
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": "#777777", "style": "italic", "zorder": 10}
    axes.text(0.5, 0.5, text, transform=axes.transAxes, bbox=box, **look)


def plain_log_axis(axis: Axis) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
