"""An animation of the learned flow on the Discrete Monte Carlo chain: particles on their way from noise to return."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

from pcbf_analysis import theme
from pcbf_analysis.figures.common import (
    CELLS,
    LOG_DENSITY_FLOOR,
    RETURN_RANGES,
    Floats,
    common_cells,
    density_area,
    density_outline,
    learned_heights,
)
from pcbf_analysis.results import Results
from pcbf_core.mrp import MRPS
from pcbf_records.layout import toy_run
from pcbf_records.toy import FlowRecord, ToyRecord

TITLE = "The learned flow of the Discrete MC chain, animated"
CAPTION = (
    "Particles drawn from N(0, 1) at t = 0 move along the recorded PCBF flow to the return law at t = 1, in the four "
    "states that the paper evaluates; colour orders them by their noise. Above, once they arrive: the learned law "
    "(blue) and the exact one (dashed) in the same cells, on a logarithmic axis."
)
INPUTS = (toy_run("chain", "pcbf"),)
STATES = MRPS["chain"].evaluation_states
NUM_MOVES = 25  # frames from t = 0 to t = 1
HOLD = 16  # times a frame's duration, for the last one
FRAME_MS = 100
SIZE, DPI = (6.4, 3.0), 100
NUM_COLOURS = 64


def animate(results: Results) -> bytes:
    """The content of a gif file; equal records give equal bytes. Without records it is one frame that says so."""
    record = results.toy("chain", "pcbf")
    flow = record.flow if record else None
    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    tops, bottoms = draw_panels(figure)
    bundles: list[Particles] = []
    densities: list[Artist] = []
    for state, top, bottom in zip(STATES, tops, bottoms, strict=True):
        index = record.state_index(state) if record else None
        if record is None or flow is None or index is None:
            theme.empty_panel(bottom)
        else:
            bundles.append(Particles(bottom, flow, index))
            densities.append(draw_density(top, record, state))
    name = "PCBF on the Discrete MC chain" + (f" (λ = {theme.number(flow.coefficient)})" if flow else "")
    heading = figure.suptitle(f"{name}, t = 0.00", fontsize=8)
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # placed once; afterwards only what moves is drawn again
    moving = [heading, *(artist for particles in bundles for artist in (particles.lines, particles.dots))]
    for artist in moving:
        artist.set_animated(True)
    frames, still = [], {}
    for time in np.linspace(0, 1, NUM_MOVES) if bundles else np.zeros(1):
        arrived = bool(time == 1)
        if arrived not in still:
            for density in densities:
                density.set_visible(arrived)
            canvas.draw()
            still[arrived] = canvas.copy_from_bbox(figure.bbox)
        canvas.restore_region(still[arrived])
        heading.set_text(f"{name}, t = {time:.2f}" if bundles else name)
        for particles in bundles:
            particles.move(float(time))
        for artist in moving:
            figure.draw_artist(artist)
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return gif(frames)


def draw_panels(figure: Figure) -> tuple[list[Axes], list[Axes]]:
    """The axes of densities and of paths, one pair per state, with the exact law drawn."""
    panels = figure.subplots(2, len(STATES), sharex=True, height_ratios=[1, 1.5])
    for column, (state, top, bottom) in enumerate(zip(STATES, *panels, strict=True)):
        density_outline(top, *state_cells(state))
        top.set(title=f"s = {state}", yscale="log", ylim=(LOG_DENSITY_FLOOR, 2))
        bottom.set(xlim=RETURN_RANGES["chain"], ylim=(0, 1.03), yticks=[0, 0.5, 1], xlabel="return")
        for axes in (top, bottom):
            axes.tick_params(labelleft=column == 0)
    panels[0, 0].set_ylabel("density (log)")
    panels[1, 0].set_ylabel("flow time t")
    return list(panels[0]), list(panels[1])


def state_cells(state: int) -> tuple[Floats, Floats]:
    """The cells of a state's law, and the exact heights in them."""
    return common_cells(MRPS["chain"].return_law(state), *RETURN_RANGES["chain"], **CELLS["chain"])


def draw_density(axes: Axes, record: ToyRecord, state: int) -> Artist:
    """The learned law at t = 1, as an area."""
    edges, _ = state_cells(state)
    return density_area(axes, edges, learned_heights(record, state, edges))


class Particles:
    """The particles of one state, drawn where they are and with the way they have come."""

    def __init__(self, axes: Axes, flow: FlowRecord, index: int) -> None:
        self.times = flow.times
        self.paths: Floats = flow.paths[index][:, np.argsort(flow.paths[index, 0])].T  # (particle, time)
        colours = theme.particle_colours(len(self.paths))
        self.lines = LineCollection([], colors=colours, linewidths=0.7, alpha=0.6)
        axes.add_collection(self.lines, autolim=False)
        start = np.zeros(len(self.paths))
        self.dots = axes.scatter(self.paths[:, 0], start, c=colours, s=9, zorder=3, clip_on=False)

    def move(self, time: float) -> None:
        """Put every particle where it is at `time`."""
        here = np.array([np.interp(time, self.times, path) for path in self.paths])
        past = self.times < time
        times = np.append(self.times[past], time)
        ways = [np.append(path[past], end) for path, end in zip(self.paths, here, strict=True)]
        self.lines.set_segments([np.stack([way, times], axis=1) for way in ways])
        self.dots.set_offsets(np.stack([here, np.full(len(here), time)], axis=1))


def gif(frames: list[Image.Image]) -> bytes:
    """The frames as an endless gif in the colours of the last one, which is held."""
    palette = frames[-1].quantize(NUM_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    indexed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [FRAME_MS] * (len(indexed) - 1) + [FRAME_MS * HOLD]
    buffer = io.BytesIO()
    options: dict[str, Any] = {"save_all": True, "duration": durations, "loop": 0, "optimize": False}
    indexed[0].save(buffer, format="gif", append_images=indexed[1:], **options)
    return buffer.getvalue()
