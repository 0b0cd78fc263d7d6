"""The registry of figures and tables by the paper's labels, and how they become files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pcbf_analysis import tables, theme
from pcbf_analysis.figures import (
    ablations,
    calibration,
    cdf_comparison,
    exact_control,
    flow_chain,
    flow_path,
    flowmap_combined,
    flowmap_mc,
    hyper_abla,
    ogbench,
    pcbf_architecture,
    performance_profiles,
    residual,
    toy_cdf_comparison,
    toy_sen,
    var_reduction,
)
from pcbf_analysis.results import Results
from pcbf_analysis.tables import (
    Table,
    aggregated,
    contest,
    control_suite,
    cost,
    domain_hyperparameters,
    exact,
    fullogbench_comparison,
    hyperparameters,
    overview,
    paper_comparison,
    probability_of_improvement,
    setting_effects,
    tuning,
    variants,
)
from pcbf_analysis.tables import calibration as calibration_table
from pcbf_analysis.tables import performance_profiles as profile_table
from pcbf_records.files import atomic_write
from pcbf_records.layout import THEORY_CHECKS, TOY_W1

# What a file says about its making: nothing that changes from day to day or from one patch release to the next.
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
}


@dataclass(frozen=True)
class _Described:
    """What every artefact has: its label in the paper, what it shows, and the records it reads.

    Attributes:
      inputs: files and folders, by their names in the results folder.
    """

    label: str
    title: str
    caption: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class FigureArtefact(_Described):
    """A figure and the function that draws it."""

    draw: Callable[[Results], Figure]
    formats: ClassVar[tuple[str, ...]] = ("pdf", "png", "svg")
    folder: ClassVar[str] = "figures"
    command: ClassVar[str] = "pcbf-figure"

    def render(self, results: Results) -> dict[str, bytes]:
        """The figure's bytes in each format; equal records give equal bytes."""
        with theme.context():
            figure = self.draw(results)
            FigureCanvasAgg(figure)
            figure.draw_without_rendering()
            with matplotlib.rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
                figure.set_layout_engine(None)  # placed once: formats agree, and none is drawn twice to place it again
            return {name: figure_bytes(figure, name) for name in self.formats}


@dataclass(frozen=True)
class TableArtefact(_Described):
    """A table and the function that computes it."""

    compute: Callable[[Results], Table]
    formats: ClassVar[tuple[str, ...]] = ("csv", "tex", "md")
    folder: ClassVar[str] = "tables"
    command: ClassVar[str] = "pcbf-table"

    def render(self, results: Results) -> dict[str, bytes]:
        """The table's bytes in each format; equal records give equal bytes."""
        table = self.compute(results)
        texts = {
            "csv": tables.to_csv(table),
            "tex": tables.to_tex(table, label=self.label, caption=self.caption),
            "md": tables.to_markdown(table, title=self.title, caption=self.caption),
        }
        return {name: texts[name].encode() for name in self.formats}


@dataclass(frozen=True)
class AnimationArtefact(_Described):
    """A moving picture and the function that draws it."""

    animate: Callable[[Results], bytes]
    formats: ClassVar[tuple[str, ...]] = ("gif",)
    folder: ClassVar[str] = "figures"
    command: ClassVar[str] = "pcbf-figure"

    def render(self, results: Results) -> dict[str, bytes]:
        """The animation's bytes; equal records give equal bytes."""
        with theme.context():
            return {"gif": self.animate(results)}


Artefact = FigureArtefact | TableArtefact | AnimationArtefact


def _figure(label: str, module: ModuleType) -> FigureArtefact:
    return FigureArtefact(label, module.TITLE, module.CAPTION, module.INPUTS, module.draw)


def _table(label: str, module: ModuleType) -> TableArtefact:
    return TableArtefact(label, module.TITLE, module.CAPTION, module.INPUTS, module.compute)


FIGURES: dict[str, FigureArtefact] = {
    label: _figure(label, module)
    for label, module in {
        "pcbf-architecture": pcbf_architecture,
        "flowmap_combined": flowmap_combined,
        "toy_cdf_comparison": toy_cdf_comparison,
        "toy_sen": toy_sen,
        "ablations": ablations,
        "ogbench": ogbench,
        "var-reduction": var_reduction,
        "hyper_abla": hyper_abla,
        "cdf_comparison": cdf_comparison,
        "flowmap_mc": flowmap_mc,
        "residual": residual,
        "performance_profiles": performance_profiles,
        "flow_path": flow_path,
        "exact_control": exact_control,
        "calibration": calibration,
    }.items()
}

ANIMATIONS: dict[str, AnimationArtefact] = {
    "flow_chain": AnimationArtefact(
        "flow_chain", flow_chain.TITLE, flow_chain.CAPTION, flow_chain.INPUTS, flow_chain.animate
    ),
}

TABLES: dict[str, TableArtefact] = {
    artefact.label: artefact
    for artefact in (
        _table("overview", overview),
        TableArtefact(
            "toy_w1",
            "W1 distance to the exact return law, ours beside the paper's",
            tables.TOY_W1_CAPTION,
            (TOY_W1,),
            tables.toy_w1,
        ),
        TableArtefact(
            "toy_w1_sweep",
            "W1 distance to the exact return law at every coefficient",
            tables.TOY_W1_SWEEP_CAPTION,
            (TOY_W1,),
            tables.toy_w1_sweep,
        ),
        TableArtefact("toy_contest", contest.CONTEST_TITLE, contest.CONTEST_CAPTION, contest.INPUTS, contest.contest),
        TableArtefact("toy_paired", contest.PAIRED_TITLE, contest.PAIRED_CAPTION, contest.INPUTS, contest.paired),
        TableArtefact("exact_control", exact.CONTROL_TITLE, exact.CONTROL_CAPTION, exact.INPUTS, exact.control),
        TableArtefact("exact_risk", exact.RISK_TITLE, exact.RISK_CAPTION, exact.INPUTS, exact.risk),
        TableArtefact("exact_paired", exact.PAIRED_TITLE, exact.PAIRED_CAPTION, exact.INPUTS, exact.paired),
        TableArtefact(
            "ablations_exact", variants.EXACT_TITLE, variants.EXACT_CAPTION, variants.EXACT_INPUTS, variants.of_exact
        ),
        _table("calibration", calibration_table),
        TableArtefact(
            "calibration_paired",
            calibration_table.PAIRED_TITLE,
            calibration_table.PAIRED_CAPTION,
            calibration_table.INPUTS,
            calibration_table.paired,
        ),
        TableArtefact(
            "ablations_calibration",
            variants.CALIBRATION_TITLE,
            variants.CALIBRATION_CAPTION,
            variants.CALIBRATION_INPUTS,
            variants.of_calibration,
        ),
        TableArtefact(
            "theory_checks",
            "The paper's theory as executable checks",
            tables.THEORY_CAPTION,
            (THEORY_CHECKS,),
            tables.theory_checks,
        ),
        _table("aggregated", aggregated),
        _table("fullogbench_comparison", fullogbench_comparison),
        _table("control_suite", control_suite),
        _table("probability_of_improvement", probability_of_improvement),
        _table("performance_profiles", profile_table),
        _table("cost", cost),
        _table("setting_effects", setting_effects),
        _table("tuning", tuning),
        _table("hyperparameters", hyperparameters),
        _table("domain_hyperparameters", domain_hyperparameters),
        _table("paper_comparison", paper_comparison),
    )
}


def figure_bytes(figure: Figure, file_format: str) -> bytes:
    """`figure` as the content of a pdf, png or svg file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, metadata=_METADATA[file_format])
    return numbered_ids(buffer.getvalue()) if file_format == "svg" else buffer.getvalue()


def numbered_ids(svg: bytes) -> bytes:
    """An svg with the names that matplotlib makes up from coordinates replaced by numbers, in order of appearance.

    Such a name is a hash of unrounded coordinates, which differ between processors in their last bits.
    """
    found = re.findall(rb'id="([A-Za-z]{1,2}[0-9a-f]{10})"', svg)
    names = {name: b"id%d" % number for number, name in enumerate(dict.fromkeys(found))}
    pattern = re.compile(b"|".join(map(re.escape, names)) or b"$^")
    return pattern.sub(lambda match: names[match[0]], svg)


def output_path(root: Path, artefact: Artefact, file_format: str) -> Path:
    return root / artefact.folder / f"{artefact.label}.{file_format}"


def remake_command(root: Path, artefact: Artefact) -> str:
    """The command that makes the artefact again from the records."""
    return f"{artefact.command} {artefact.label} --results {shown_path(root)}"


def shown_path(path: Path) -> str:
    """`path` from the working folder where it lies inside it, else as given."""
    return (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix()


def write(results: Results, artefact: Artefact) -> list[Path]:
    """Paths of the files written for one artefact."""
    return [
        write_atomically(output_path(results.root, artefact, file_format), content)
        for file_format, content in artefact.render(results).items()
    ]


def write_atomically(path: Path, content: bytes) -> Path:
    """`path`, which now holds `content`; a reader never sees a part of it."""
    with atomic_write(path, "wb") as file:
        file.write(content)
    return path


def of_kind(kind: str) -> Mapping[str, Artefact]:
    """All artefacts of a kind, "figure" (animations are among them) or "table", in the paper's order."""
    return {"figure": {**FIGURES, **ANIMATIONS}, "table": TABLES}[kind]
