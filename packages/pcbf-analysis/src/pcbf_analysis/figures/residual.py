"""fig:residual: corrected pathwise Bellman residual r_corr(t, N) on Solitaire Dice (eq:rcorr)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcbf_analysis import theme
from pcbf_analysis.figures.common import legend_lines, mean_interval
from pcbf_analysis.results import Results
from pcbf_analysis.theme import Style
from pcbf_records.arrays import Floats
from pcbf_records.layout import toy_run
from pcbf_records.toy import ResidualRecord

TITLE = "Corrected Bellman residual on Solitaire Dice"
CAPTION = (
    "r_corr(t, N) of eq:rcorr along the flow for N Euler steps, on non-terminal transitions. Blue: PCBF with the noise "
    "shared between the current and the successor path. Orange: the same trained model, the successor path started "
    "from independent noise. Sky blue: independent noise on a model that was also trained with independent noise; the "
    "paper does not say whether its ablation was retrained, so both readings are shown. Lines are means over seeds, "
    "bands Student's 95 % interval of the mean."
)
INPUTS = (toy_run("solitaire", "pcbf"), toy_run("solitaire", "pcbf-independent"))
BUDGETS = (4, 8, 16, 32)
CURVES = (  # method of the record, array of the record, look
    ("pcbf", "shared", Style("shared noise (PCBF)", theme.METHODS["pcbf"].colour)),
    ("pcbf", "independent", Style("independent noise, same model", "#E69F00", linestyle="--")),
    (
        "pcbf-independent",
        "independent",
        Style("independent noise, trained with it", theme.METHODS["pcbf-independent"].colour, linestyle="-."),
    ),
)


def draw(results: Results) -> Figure:
    """The figure: one panel per solver budget N."""
    figure = Figure(figsize=(theme.DOUBLE_COLUMN, 2.3), layout="constrained")
    records = {method: results.toy("solitaire", method) for method in ("pcbf", "pcbf-independent")}
    residuals = {method: record.residual for method, record in records.items() if record and record.residual}
    panels = figure.subplots(1, len(BUDGETS), sharey=True)
    for axes, budget in zip(panels, BUDGETS, strict=True):
        axes.set(title=f"N = {budget}", xlim=(0, 1), xticks=[0, 0.5, 1], xlabel="flow time t")
        axes.set_xticklabels(["0", "0.5", "1"])
        shown = [draw_curve(axes, residuals[m], name, style, budget) for m, name, style in CURVES if m in residuals]
        if not any(shown):
            theme.empty_panel(axes)
    panels[0].set(ylabel=r"$r_{\mathrm{corr}}(t, N)$", ylim=(0, None))
    named = [(f"{style.label}{at_coefficient(residuals.get(method))}", style) for method, _, style in CURVES]
    figure.legend(handles=legend_lines(named), loc="outside lower center", ncols=3)
    return figure


def at_coefficient(residual: ResidualRecord | None) -> str:
    """The λ of the model, for a legend."""
    return "" if residual is None else f", λ = {theme.number(residual.coefficient)}"


def draw_curve(axes: Axes, residual: ResidualRecord, name: str, style: Style, budget: int) -> bool:
    """One residual curve over flow time; False when the record has no such budget."""
    at = np.flatnonzero(residual.steps == budget)
    if not at.size:
        return False
    on_grid = np.isfinite(residual.times[at[0]])
    times: Floats = residual.times[at[0]][on_grid]
    values: Floats = {"shared": residual.shared, "independent": residual.independent}[name][:, at[0]][:, on_grid]
    mean, half = mean_interval(values.T)
    axes.fill_between(times, mean - half, mean + half, color=style.colour, alpha=0.2, linewidth=0)
    axes.plot(times, mean, color=style.colour, linestyle=style.linestyle)
    return True
