"""tab:hyperparameters: what all methods have in common, as the paper prints it and as it is used here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcbf_analysis import theme
from pcbf_analysis.control import Run
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table, without
from pcbf_core.pcbf import PCBFConfig
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Common hyperparameters"
CAPTION = (
    "The paper's common hyperparameters, their values at our paper scale (PCBF as in the paper, batch size of "
    "config/scales/paper.yaml) and those that the runs of this folder were made with; methods are named where they "
    "differ. Layer norm in the actor is off in FQL, IQL and FloQ, and FloQ takes 8 flow steps, as in the code that "
    "their published results were made with."
)
INPUTS = (CONTROL_EVALUATIONS,)
DETAILS = (
    Column("name", "Hyperparameter", is_number=False, share=0.26),
    Column("setting", "Setting", is_number=False),
    Column("paper", "Paper", is_number=False),
    Column("paper_scale", "Our paper scale", is_number=False),
    Column("agrees", "Agrees", is_number=False),
    Column("runs", "In these runs", is_number=False, share=0.24),
)


@dataclass(frozen=True)
class Source:
    """Where the value of a printed hyperparameter comes from: a section and name of a run's config, or the code."""

    section: str = ""  # "agent" or "run"
    setting: str = ""
    fixed: str = ""  # what the code does, when there is no setting
    spoken: tuple[tuple[Any, str], ...] = ()  # values that the paper gives in words


SOURCES = {
    "optimizer": Source(fixed="Adam"),
    "batch size": Source("run", "batch_size"),
    "learning rate": Source("agent", "learning_rate"),
    "MLP hidden layer sizes": Source("agent", "hidden_sizes"),
    "MLP activation function": Source("agent", "activation", spoken=(("gelu", "GELU"),)),
    "use actor layer normalization": Source("agent", "actor_layer_norm"),
    "use value layer normalization": Source("agent", "layer_norm"),
    "number of flow steps in the Euler method": Source("agent", "num_flow_steps"),
    "number of candidates in rejection sampling": Source("agent", "num_candidates"),
    "target network update coefficient": Source("agent", "polyak_rate"),
    "number of Q ensembles": Source("agent", "num_critics"),
    "image encoder": Source("agent", "encoder_channels", spoken=(((16, 32, 32), "small IMPALA encoder"),)),
    "image augmentation method": Source(fixed="random cropping"),
    "image frame stack": Source(fixed="3"),
}


def compute(results: Results) -> Table:
    """One row per hyperparameter of the paper's table."""
    records = results.control.suite
    defaults = {
        "agent": dataclasses.asdict(PCBFConfig.variant("paper")),
        "run": results.scale_settings("paper")["control"]["run"],
    }
    printed = results.paper_table("hyperparameters")
    rows = []
    for name, paper in zip(printed["name"], printed["value"], strict=True):
        source = SOURCES[name]
        here = source.fixed or spoken(source, defaults[source.section][source.setting])
        recorded = source.fixed if source.fixed and records else in_runs(source, records)
        rows.append((name, source.setting or "in the code", paper, here, here == paper, recorded or None))
    return without(Table(DETAILS, tuple(rows)), ("setting",))


def spoken(source: Source, value: Any) -> str:
    """A value as the paper writes it."""
    value = tuple(value) if isinstance(value, list) else value
    for known, words in source.spoken:
        if value == known:
            return words
    return ("Yes" if value else "No") if isinstance(value, bool) else str(value)


def in_runs(source: Source, records: Iterable[Run]) -> str:
    """The values that runs recorded, with the methods of each where there is more than one."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        section: Mapping[str, Any] = record.config.get(source.section, {})
        if source.setting in section:
            found.setdefault(spoken(source, section[source.setting]), {})[record.method] = None
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{value}: {named(methods)}" for value, methods in found.items())


def named(methods: Iterable[str]) -> str:
    """Titles of methods in the order of all tables."""
    return ", ".join(theme.METHODS[method].label for method in sorted(methods, key=theme.method_order))
