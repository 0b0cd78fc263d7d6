"""Small charts as SVG text. Colours are classes of the page's style, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb

from pcbf_analysis import theme

SIZE = (360, 166)  # of every chart, in its own units; the page sets several side by side or one below the other
MARGIN = {"left": 46, "right": 10, "top": 8, "bottom": 34}
MARK = 4.2  # half the size of a mark
PAGES = {"light": "#ffffff", "dark": "#12161b"}
CONTRAST = 4.5  # of marks, lines and words to the page, WCAG 1.4.3
MARKS = {  # matplotlib's marker: its outline in a square of two
    "o": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "s": "M-.9-.9h1.8v1.8h-1.8z",
    "^": "M0-1.1L1 .8H-1z",
    "v": "M0 1.1L1-.8H-1z",
    "<": "M-1.1 0L.8-1V1z",
    ">": "M1.1 0L-.8-1V1z",
    "D": "M0-1.2L1.2 0 0 1.2-1.2 0z",
    "d": "M0-1.3L.8 0 0 1.3-.8 0z",
    "P": "M-.4-1.1h.8v.7h.7v.8h-.7v.7h-.8v-.7h-.7v-.8h.7z",
    "X": "M-.6-1.1L0-.5 .6-1.1 1.1-.6 .5 0 1.1 .6 .6 1.1 0 .5-.6 1.1-1.1 .6-.5 0-1.1-.6z",
    "p": "M0-1.15L1.1-.35 .7.95H-.7L-1.1-.35z",
    "*": "M0-1.4L.4-.5 1.35-.45 .6.2 .85 1.15 0 .6-.85 1.15-.6.2-1.35-.45-.4-.5z",
    "h": "M0-1.1L.95-.55V.55L0 1.1-.95.55V-.55z",
}
MARKS |= {"+": MARKS["P"], "x": MARKS["X"]}


def contrast(colour: str, page: str) -> float:
    """The ratio of luminances of two colours as WCAG defines it, 1 to 21."""
    values = [np.array(to_rgb(name)) for name in (colour, page)]
    linear = [np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4) for v in values]
    light, dark = sorted((float(v @ [0.2126, 0.7152, 0.0722]) for v in linear), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def readable(colour: str, page: str) -> str:
    """`colour`, moved as little as need be away from the page until it can be told from it."""
    sign = -1 if page == PAGES["light"] else 1
    if sign > 0 and colour == theme.EXACT_COLOUR:
        return "#ffffff"  # black by day is white by night
    for step in range(10):
        moved = theme.shade(colour, sign * step / 10) if step else colour
        if contrast(moved, page) >= CONTRAST:
            return moved
    return "#000000" if sign < 0 else "#ffffff"


def colour_style() -> Markup:
    """CSS that gives every method its colour, once for light and once for dark."""

    def rules(page: str) -> str:
        return "".join(f".m-{name}{{--c:{readable(style.colour, page)}}}" for name, style in theme.METHODS.items())

    return Markup(f"{rules(PAGES['light'])}\n@media (prefers-color-scheme: dark) {{{rules(PAGES['dark'])}}}")


@dataclass(frozen=True)
class Scale:
    """An axis: its range, whether it is logarithmic, where its ticks are and what stands beside them."""

    low: float
    high: float
    label: str = ""
    is_log: bool = False
    ticks: Sequence[float] = ()
    names: Sequence[str] = ()

    def at(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high one."""
        low, high, place = (math.log(x) if self.is_log else x for x in (self.low, self.high, value))
        return (place - low) / (high - low)


def scale_of(values: Iterable[float], label: str = "", *, is_log: bool = False, zero: bool = False) -> Scale:
    """An axis that shows all values, with round ticks."""
    known = [float(value) for value in values if math.isfinite(value) and (value > 0 or not is_log)]
    low, high = min(known, default=0.1), max(known, default=1.0)
    if is_log:
        low, high = low / 1.25, high * 1.25
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
        return Scale(low, high, label, True, ticks[:: 2 if len(ticks) > 6 else 1])
    low = min(low, 0.0) if zero else low
    pad = 0.06 * ((high - low) or 1.0)
    low, high = (low if zero and low == 0 else low - pad), high + pad
    return Scale(low, high, label, False, round_ticks(low, high))


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers between two bounds."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda m: abs(m - rough / power))
    first = math.ceil(low / step - 1e-9)
    return [round(step * index, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def rows_scale(names: Sequence[str]) -> Scale:
    """A vertical axis of named rows, the first at the top."""
    count = len(names)
    return Scale(count - 0.5, -0.5, ticks=range(count), names=names)


@dataclass
class Chart:
    """A chart under construction.

    Attributes:
      title: what it shows, in words; all that a screen reader tells of it.
      left: room for the names of the vertical axis.
    """

    x: Scale
    y: Scale
    title: str
    left: float = MARGIN["left"]
    size: tuple[int, int] = SIZE
    parts: list[str] = field(default_factory=list)

    def px(self, value: float) -> float:
        return self.left + (self.size[0] - self.left - MARGIN["right"]) * self.x.at(value)

    def py(self, value: float) -> float:
        return self.size[1] - MARGIN["bottom"] - (self.size[1] - MARGIN["top"] - MARGIN["bottom"]) * self.y.at(value)

    def line(self, points: Iterable[tuple[float, float]], name: str, *, look: str = "line") -> None:
        """A line through points that are there; `name` is the method whose colour it has."""
        known = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        path = "L".join(f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in known)
        if path:
            self.parts.append(f'<path class="{look} m-{name}" data-method="{name}" d="M{path}"/>')

    def band(self, xs: Iterable[float], low: Iterable[float], high: Iterable[float], name: str) -> None:
        """An area between two curves, cut at the edges of the chart; nothing where it is unknown."""
        known = [row for row in zip(xs, low, high, strict=True) if all(map(math.isfinite, row))]
        there = [(x, self._inside(y)) for x, y, _ in known]
        back = [(x, self._inside(y)) for x, _, y in known][::-1]
        path = "L".join(f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in (*there, *back))
        if path:
            self.parts.append(f'<path class="band m-{name}" data-method="{name}" d="M{path}Z"/>')

    def _inside(self, y: float) -> float:
        low, high = sorted((self.y.low, self.y.high))
        return min(max(y, low), high)

    def mark(self, x: float, y: float, name: str, told: str, *, is_hollow: bool = False, size: float = MARK) -> None:
        """The mark of a method, with what it stands for as a tooltip."""
        shape = MARKS[theme.METHODS[name].marker if name in theme.METHODS else "o"]
        look = "mark hollow" if is_hollow else "mark"
        place = f"translate({self.px(x):.1f} {self.py(y):.1f}) scale({size:g})"
        self.parts.append(
            f'<path class="{look} m-{name}" data-method="{name}" transform="{place}" d="{shape}">'
            f"<title>{escape(told)}</title></path>"
        )

    def across(self, low: float, high: float, y: float, name: str) -> None:
        """A horizontal interval, cut at the edges of the chart; nothing where it is unknown."""
        if math.isfinite(low) and math.isfinite(high):
            ends = [min(max(value, self.x.low), self.x.high) for value in (low, high)]
            self.line([(end, y) for end in ends], name, look="interval")

    def upright(self, x: float, low: float, high: float, name: str) -> None:
        """A vertical interval, cut at the edges of the chart; nothing where it is unknown."""
        if math.isfinite(low) and math.isfinite(high):
            self.line([(x, self._inside(end)) for end in (low, high)], name, look="interval")

    def words(self, x: float, y: float, text: str, name: str = "", anchor: str = "start", lift: float = 0) -> None:
        """Text beside a place."""
        look = f"words m-{name}" if name else "words plain"
        place = f'x="{self.px(x):.1f}" y="{self.py(y) - lift:.1f}"'
        self.parts.append(f'<text class="{look}" {place} text-anchor="{anchor}">{escape(text)}</text>')

    def rule(self, x: float) -> None:
        """An upright line at a value that others are held against."""
        top, bottom = MARGIN["top"], self.size[1] - MARGIN["bottom"]
        self.parts.append(f'<path class="rule" d="M{self.px(x):.1f} {top}V{bottom}"/>')

    def svg(self) -> Markup:
        """The whole chart."""
        width, height = self.size
        opening = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(self.title)}">'
        return Markup("".join([opening, *self._axes(), *self.parts, "</svg>"]))

    def _axes(self) -> Iterable[str]:
        bottom, right, top = self.size[1] - MARGIN["bottom"], self.size[0] - MARGIN["right"], MARGIN["top"]
        for value, name in _named(self.x):
            at = self.px(value)
            yield f'<path class="grid" d="M{at:.1f} {top}V{bottom}"/>'
            yield f'<text class="tick" x="{at:.1f}" y="{bottom + 13}" text-anchor="middle">{escape(name)}</text>'
        for value, name in _named(self.y):
            at = self.py(value)
            yield f'<path class="grid" d="M{self.left} {at:.1f}H{right}"/>'
            yield f'<text class="tick" x="{self.left - 5}" y="{at + 3.5:.1f}" text-anchor="end">{escape(name)}</text>'
        middle = (self.left + right) / 2
        place = f'x="{middle:.0f}" y="{self.size[1] - 5}" text-anchor="middle"'
        yield f'<text class="tick" {place}>{escape(self.x.label)}</text>'
        if self.y.label:
            turn = f'transform="translate(10 {(top + bottom) / 2:.0f}) rotate(-90)"'
            yield f'<text class="tick" {turn} text-anchor="middle">{escape(self.y.label)}</text>'


def _named(scale: Scale) -> list[tuple[float, str]]:
    names = scale.names or [f"{value:g}" for value in scale.ticks]
    return list(zip(scale.ticks, names, strict=True))


def legend(names: Iterable[str], hidden: Container[str] = ()) -> list[dict[str, Any]]:
    """The marks and labels of methods, ours first; those hidden at first are shown by a press."""
    ordered = sorted(names, key=lambda name: (theme.method_order(name), name), reverse=True)
    return [
        {"name": name, "label": label(name), "mark": MARKS[_marker(name)], "is_on": name not in hidden}
        for name in ordered
    ]


def interval_words(low: float, high: float, form: str = ".1f") -> str:
    """An interval in brackets after a number; nothing where it is unknown, as for one seed."""
    return f" ({low:{form}} to {high:{form}})" if math.isfinite(low) and math.isfinite(high) else ""


def label(method: str) -> str:
    """How readers call a method."""
    return theme.METHODS[method].label if method in theme.METHODS else method


def _marker(method: str) -> str:
    marker = theme.METHODS[method].marker if method in theme.METHODS else "o"
    return marker if marker in MARKS else "o"
