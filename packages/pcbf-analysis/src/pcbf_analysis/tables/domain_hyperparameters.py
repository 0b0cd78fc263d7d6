"""tab:domain_hyperparameters: settings per domain, used beside printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pcbf_analysis import theme
from pcbf_analysis.control import Run
from pcbf_analysis.results import Results
from pcbf_analysis.tables.form import Column, Table
from pcbf_records.layout import CONTROL_EVALUATIONS

TITLE = "Hyperparameters per domain"
CAPTION = (
    "Settings per domain or task that are used at the paper's scale (config/methods.yaml); where the paper prints "
    "another value, it stands in brackets. The paper's headings seem shifted: what it prints under IQN are CODAC's "
    "settings and under CODAC Value Flows' (VF), which is how they are read here. λ_b and τ_c are Value Flows' BCFM "
    "weight and confidence temperature, κ the Huber threshold, α the distillation weight (FQL, CODAC) or inverse "
    "temperature (IQL). The csv has every setting of every method with what the paper prints, why another value is "
    "used, and what the runs of this folder recorded."
)
INPUTS = (CONTROL_EVALUATIONS,)
SYMBOLS = (  # method, setting, symbol
    ("iql", "inverse_temperature", "α"),
    ("fql", "distillation_weight", "α"),
    ("iqn", "huber_threshold", "κ"),
    ("codac", "huber_threshold", "κ"),
    ("codac", "distillation_weight", "α"),
    ("value_flows", "bcfm_weight", "λ_b"),
    ("value_flows", "confidence_temperature", "τ_c"),
    ("pcbf", "control_weight", "λ"),
)
SHORT = {"value_flows": "VF"}
DETAILS = tuple(
    Column(name, name, is_number=False)
    for name in ("domain", "method", "setting", "used", "printed", "printed_as", "agrees", "reason", "runs")
)


def compute(results: Results) -> Table:
    """One row per domain; the csv has one per domain, method and setting."""
    settings, records = results.method_settings(), results.control.suite
    headings = {target: printed for printed, target in settings["headings"].items()}
    rows, details = [], []
    for domain, entry in settings["domains"].items():
        rows.append((domain, shown(entry["discount"]), *(cell(entry, headings, m, s) for m, s, _ in SYMBOLS)))
        details.append((domain, "all", "discount", shown(entry["discount"]), None, None, None, None, None))
        for method in sorted(entry["methods"], key=theme.method_order):
            for setting, used in entry["methods"][method].items():
                printed_as = headings.get(f"{method}.{setting}")
                details.append(
                    (
                        *(domain, method, setting, shown(used)),
                        *printed_value(entry, printed_as, used),
                        reason(settings, entry, printed_as),
                        recorded(records, domain, method, setting),
                    )
                )
    symbols = tuple(
        Column(f"{method}.{setting}", f"{SHORT.get(method, theme.METHODS[method].label)} {symbol}", is_number=False)
        for method, setting, symbol in SYMBOLS
    )
    columns = (Column("domain", "Domain or task", is_number=False), Column("discount", "γ", is_number=False), *symbols)
    return Table(columns, tuple(rows), details=Table(DETAILS, tuple(details)), is_dense=True)


def shown(value: Any) -> str:
    """A setting as text: numbers short, lists in brackets."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(shown, value))})"
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def cell(entry: Mapping[str, Any], headings: Mapping[str, str], method: str, setting: str) -> str | None:
    """The used value, followed in brackets by the printed one where that is another."""
    used = entry["methods"].get(method, {}).get(setting)
    if used is None:
        return None
    printed, _, agrees = printed_value(entry, headings.get(f"{method}.{setting}"), used)
    return f"{shown(used)} ({printed})" if agrees is False else shown(used)


def printed_value(
    entry: Mapping[str, Any], printed_as: str | None, used: Any
) -> tuple[str | None, str | None, bool | None]:
    """What the paper prints for a setting, under which of its headings, and whether that is the used value."""
    if printed_as is None:
        return None, None, None
    method, symbol = printed_as.split(".")
    value = entry["printed"].get(method, {}).get(symbol)
    return (None, printed_as, None) if value is None else (shown(value), printed_as, math.isclose(value, used))


def reason(settings: Mapping[str, Any], entry: Mapping[str, Any], printed_as: str | None) -> str | None:
    """Why the used value is not the printed one, where that is so."""
    key = entry.get("reasons", {}).get(printed_as)
    return settings["reason_texts"][key] if key else None


def is_of(entry: str, run: Run) -> bool:
    """Whether an entry of config/methods.yaml holds for a run: it is named after its domain, or begins its task."""
    return run.domain == entry or run.task.startswith(f"{entry}-")


def recorded(records: Sequence[Run], domain: str, method: str, setting: str) -> str | None:
    """The values that this folder's runs of the method on the domain were made with."""
    values = {
        shown(record.config["agent"][setting]): None
        for record in records
        if record.method == method and is_of(domain, record) and setting in record.config["agent"]
    }
    return "; ".join(values) or None
