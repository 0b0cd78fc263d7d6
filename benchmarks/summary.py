"""What `make bench` leaves behind: a table per group of benchmarks, the targets beside what was reached, one figure."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcbf_records.files import atomic_write, write_text

Row = Mapping[str, Any]
Rows = Sequence[Row]


def write_summary(folder: Path, groups: Mapping[str, Rows], peak: float) -> None:
    """Write the rows of this session; groups that were not measured keep their files."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {**machine(), "matmul_peak_gflops": round(peak, 1)}
    for name, rows in groups.items():
        write_text(
            folder / f"{name}.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.4g", lineterminator="\n")
        )
        write_text(
            folder / f"{name}.json", json.dumps({"machine": facts, "rows": rows}, indent=1, sort_keys=True) + "\n"
        )
    known = {path.stem: json.loads(path.read_text())["rows"] for path in folder.glob("*.json")}
    write_text(folder / "targets.md", targets_table(known))
    if "scaling" in known:
        draw_scaling(folder, known["scaling"])


def machine() -> dict[str, Any]:
    """What decides how fast this machine is, without its name."""
    import jax

    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }


Target = tuple[str, str, str, str, str]


def judged(work: str, sign: str, target: float, unit: str, value: float | None, limit: str = "") -> Target:
    """(work, target, reached, verdict, limit); the limit is what the machine allows, where known."""
    wanted = f"{sign} {target:g} {unit}".strip()
    if value is None:
        return work, wanted, "not measured", "", limit
    good = value >= target if sign == "≥" else value <= target
    return work, wanted, f"{value:.2f}", "reached" if good else "missed", limit


def row(groups: Mapping[str, Rows], group: str, **where: Any) -> Row:
    """The first row of a group with these values, empty if there is none."""
    found = (r for r in groups.get(group, ()) if all(r.get(name) == value for name, value in where.items()))
    return next(found, {})


def targets(groups: Mapping[str, Rows]) -> Iterator[Target]:
    """Every target with what was reached."""
    toy = row(groups, "toy", work="laptop run of PCBF on Solitaire").get("speedup_over_plain")
    yield judged("toy: laptop run against the plain per-step loop at equal W1", "≥", 30, "×", toy)
    yield from update_targets(groups)
    yield from acting_targets(groups)
    start = row(groups, "start", work="second start of a run").get("seconds_to_first_step")
    yield judged("second start of a run: seconds to the first step", "≤", 5, "s", start)
    for found in groups.get("makespan", ()):
        limit = f"{1 + found['evaluate_seconds'] / found['train_seconds']:.2f} ×, were evaluation for nothing"
        work = f"{found['work']}: evaluation beside the next training, against inside each job"
        yield judged(work, "≥", 1, "×", found["speedup"], limit)
    for found in groups.get("forecast", ()):
        yield judged(f"{found['work']}: hours forecast from a rehearsal", "≥", 0.75, "of the measured", found["ratio"])
        yield judged("the same", "≤", 1.33, "of the measured", found["ratio"])
    yield from wait_targets(groups)


WHEN = {"one-record": " after a change of one record", "bench-again": " again, its programs compiled"}


def wait_targets(groups: Mapping[str, Rows]) -> Iterator[Target]:
    """Of what people wait for, by the clock of this machine."""
    from waits import WAITS

    for name, wait in WAITS.items():
        found = row(groups, "waits", work=name)
        words = f"`{wait.command.removeprefix('.venv/bin/')}`{WHEN.get(name, '')}"
        if wait.most_minutes:
            unit, times = ("min", 1) if wait.most_minutes >= 1 else ("s", 60)
            value = found["minutes"] * times if found else None
            least = (
                f"{found['core_minutes'] * times / 2:.0f} {unit}, were two cores busy with it alone" if found else ""
            )
            yield judged(words, "≤", wait.most_minutes * times, unit, value, least)
        if wait.most_gb:
            yield judged(f"{words}, largest process", "≤", wait.most_gb, "GB", found.get("largest_process_gb"))


def update_targets(groups: Mapping[str, Rows]) -> Iterator[Target]:
    """Of one gradient step."""

    def update(case: str) -> Row:
        return row(groups, "updates", case=case, size="4x512")

    def against_plain(work: str, case: str, target: float) -> Target:
        found = update(case)
        limit = f"{found['bound']:.2f} ×, were it all matrix products at peak" if found.get("bound") else ""
        return judged(work, "≥", target, "× plain", found.get("speedup_over_plain"), limit)

    share = update("pcbf, a' = batch action").get("share_of_peak")
    yield judged("PCBF update, a' = batch action", "≥", 0.6, "of matmul peak", share)
    alone = row(groups, "one_core", case="pcbf, a' = batch action").get("share_of_peak")
    bound = "activation and LayerNorm of small layers: docs/cost.md"
    yield judged("the same at 3x128, on one core as jobs run", "≥", 0.5, "of its matmul peak", alone, bound)
    yield against_plain("PCBF update with 16 candidates, exact", "pcbf", 2)
    yield against_plain("the same, amortised", "pcbf, amortised", 5)
    yield judged("the same, amortised", "≤", 2, "× IQL's step", update("pcbf, amortised").get("times_iql"))
    for case in ("iqn", "iqn, amortised", "codac", "value_flows", "value_flows, amortised", "floq"):
        yield against_plain(f"{case} update", case, 2)
    for size in ("4x512", "3x128"):
        timed = [r for r in groups.get("updates", ()) if r["size"] == size]
        least: Row = min(timed, key=lambda r: r["speedup_over_plain"], default={})
        told = f"the least is {least['case']}" if least else ""
        yield judged(f"fast form of every method, {size}", "≥", 1, "× plain", least.get("speedup_over_plain"), told)
    for case in ("floq", "codac"):
        found = row(groups, "one_core", case=case).get("speedup_over_plain")
        yield judged(f"{case} at 3x128, on one core as jobs run", "≥", 1, "× plain", found)
    for size in ("4x512", "3x128"):
        found = row(groups, "flow_path", size=size, num_flow_times=1)
        for name, words, target in (("over_no_weight", "λ = 0", 1.35), ("over_linear", "the paper's λ > 0", 1.02)):
            yield judged(f"flow path at λ = 1 against {words}, {size}", "≤", target, "×", found.get(name))
    work = "PCBF's step, frozen proposal, laptop scale"
    faster = row(groups, "first_release").get("speedup")
    yield judged(f"{work}, on one core", "≥", 2, "× the first release's, both amortised", faster)
    found = row(groups, "frozen", work="PCBF's step, laptop scale")
    limit = f"{found['bound']:.2f} ×, were the choice for nothing" if found else ""
    yield judged(work, "≥", 2, "× today's joint one, both amortised", found.get("speedup_over_joint"), limit)
    yield judged(work, "≤", 1.5, "× IQL's step", found.get("times_iql"))


def acting_targets(groups: Mapping[str, Rows]) -> Iterator[Target]:
    """Of choosing actions and of playing episodes."""
    for variant in ("default", "paper"):
        found = row(groups, "acting_together", work=f"a step of 50 episodes, {variant} scores")
        value, work = found.get("speedup_over_one_by_one"), f"acting in 50 episodes, PCBF's {variant} scores"
        limit = f"{found['bound']:.2f} ×, were it all matrix products at peak" if found.get("bound") else ""
        yield judged(f"{work}, against one by one", "≥", 4, "×", value, limit)
    cheap = row(groups, "ranking", score="default: 1 Euler step, 4 even noises")
    paper = row(groups, "ranking", score="paper: 16 full flows, shared noises")
    limit = f"{paper['spearman']:.2f} by the paper's scores" if paper else ""
    yield judged("default scores: rank correlation with 256 full flows", "≥", 0.95, "", cheap.get("spearman"), limit)
    played = {
        method: next((r for r in groups.get("acting", ()) if r["work"].endswith(f"steps, {method}")), {})
        for method in ("pcbf", "pcbf_flow", "iql")
    }
    paper_alone, ours = played["pcbf"].get("plain_ms"), played["pcbf_flow"].get("fast_ms")
    work = "50 episodes together by default scores, against one by one by the paper's"
    yield judged(work, "≥", 4, "×", paper_alone / ours if paper_alone and ours else None)
    for method, found in played.items():
        limit = f"{found['bound']:.2f} ×, were it all simulators on every core" if found.get("bound") else ""
        value = found.get("speedup_over_plain")
        yield judged(f"50 episodes, {method}, against one by one", "≥", 5, "×", value, limit)


def targets_table(groups: Mapping[str, Rows]) -> str:
    """The targets as Markdown."""
    lines = ["| work | target | reached | | most this machine allows |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in targets(groups))]) + "\n"


TITLES = {
    "seeds": "seeds side by side",
    "candidates": "candidates K",
    "flow_steps": "flow steps N",
    "transitions": "transitions",
}


def draw_scaling(folder: Path, rows: Rows) -> None:
    """`scaling.{pdf,png,svg}`: time of a PCBF step against what a user may turn up."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator

    from pcbf_analysis import theme
    from pcbf_analysis.artefacts import figure_bytes

    frame = pd.DataFrame(rows)
    with theme.context():
        figure = Figure(figsize=(theme.DOUBLE_COLUMN, 1.9), layout="constrained")
        axes = figure.subplots(1, len(TITLES), sharey=True)
        for panel, (quantity, title) in zip(axes, TITLES.items(), strict=True):
            part = frame[frame.quantity == quantity]
            panel.plot(part.value, part.step_ms, marker="o", color=theme.METHODS["pcbf"].colour)
            panel.set(xscale="log", yscale="log", xlabel=title)
            panel.xaxis.set_major_locator(FixedLocator(part.value))
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(EngFormatter(sep=""))
            panel.minorticks_off()
        axes[0].set_ylabel("ms per step")
        FigureCanvasAgg(figure)
        for kind in ("pdf", "png", "svg"):
            with atomic_write(folder / f"scaling.{kind}", mode="wb") as file:
                file.write(figure_bytes(figure, kind))
