"""The first screen: what was found, each in a plain sentence that the ledger's numbers fill, with one chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from pcbf_analysis import statistics, theme
from pcbf_analysis.claims import Decision, Finding
from pcbf_analysis.figures.exact_control import drawn_methods
from pcbf_analysis.figures.flow_path import fixed_points, with_zero
from pcbf_analysis.page.charts import Chart, Scale, interval_words, label, legend, rows_scale, scale_of
from pcbf_analysis.page.trade import trade_chart
from pcbf_analysis.results import Results, exact_law, late_losses, seed_means, short_task
from pcbf_analysis.tables.contest import contest
from pcbf_analysis.tables.exact import with_interval
from pcbf_analysis.tables.overview import QUESTIONS, asked, averaged, over_cloning, standing, suite_scores
from pcbf_records.toy import PROCESSES

HOLDS = "holds"
PAPER, LATER = "value_flows", "pcbf"  # whose colours the paper's and the later scores have
ROWS_LEFT = 104
OVER_CLONING = "points over cloning, 95 %"
SCORE = next(question for question in QUESTIONS if question.name == "score")
WALKERS = ("pcbf_flow", "value_flows", "iqn", "c51", "iql")  # on the cliff; the section below has all


@dataclass(frozen=True)
class Card:
    """One finding: what it says if the claims that it rests on hold, and its chart."""

    lead: str
    text: str
    chart: Markup
    claims: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # whose marks the chart has, where it does not name them itself


Decisions = Mapping[str, Decision]


def cards(results: Results, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """What the template shows of every finding that has records, with the verdicts it rests on."""
    decisions = {finding.claim.id: finding.decision for finding in findings}
    sentences = {finding.claim.id: finding.claim.claim for finding in findings}
    made = [make(results, decisions) for make in MAKERS]
    return [view(card, decisions, sentences) for card in made if card is not None]


def view(card: Card, decisions: Decisions, sentences: Mapping[str, str]) -> dict[str, Any]:
    """A card as shown: where a claim that it rests on does not hold, the claims speak with their verdicts instead."""
    verdicts = [(name, decisions[name].verdict) for name in card.claims]
    if all(verdict == HOLDS for _, verdict in verdicts):
        words = {"lead": card.lead, "text": card.text}
    else:
        told = " ".join(f"{sentences[name]} ({verdict})" for name, verdict in verdicts)
        words = {"lead": "Not settled by these records.", "text": told}
    return {**words, "chart": card.chart, "verdicts": verdicts, "legend": legend(card.methods)}


def no_tuning(results: Results, decisions: Decisions) -> Card | None:
    """W1 against λ on Bernoulli, on both paths, networks over the fixed points of infinite data."""
    w1, population, process = results.w1(), results.population(), "bernoulli"
    linear = seed_means(w1, process, "pcbf", in_deviations=True)
    flow = with_zero(seed_means(w1, process, "pcbf_flow", in_deviations=True), linear)
    if not len(linear[0]) or not len(flow[0]):
        return None
    curves = {"pcbf": linear, "pcbf_flow": flow}
    high = 1.1 * max(float(np.nanmax(values)) for _, values in curves.values())
    y = Scale(0.0, high, "W1 / std of the law", ticks=scale_of([0, high], zero=True).ticks)
    chart = Chart(Scale(-0.04, 1.04, "λ", ticks=(0, 0.25, 0.5, 0.75, 1)), y, "")
    for method, (weights, values) in curves.items():
        path = "flow" if method == "pcbf_flow" else "linear"
        at, distances, _ = fixed_points(population, process, path, "shared")
        chart.line(zip(at, distances / exact_law(process, 0).std, strict=True), method)
        for weight, seeds in zip(weights, values, strict=True):
            low, up = statistics.student_interval(seeds)
            chart.upright(float(weight), low, up, method)
            told = f"{label(method)}, λ = {weight:g}: {seeds.mean():.3f}"
            chart.mark(float(weight), float(seeds.mean()), method, told)
    means = {method: values.mean(axis=1) for method, (_, values) in curves.items()}
    chart.words(float(linear[0][-1]), float(means["pcbf"][-1]), "the paper’s path", "pcbf", lift=8)
    chart.words(float(flow[0][-1]), float(means["pcbf_flow"][-1]), "the flow path", "pcbf_flow", "end", lift=10)
    grown = float(means["pcbf"][-1] / means["pcbf"][0])
    chart.title = (
        f"Bernoulli: on the paper’s path W1 grows {grown:.1f}-fold from λ = 0 to {linear[0][-1]:g}, "
        f"on the flow path it is {means['pcbf_flow'][-1]:.3f} of the deviation at λ = 1. Lines: infinite data."
    )
    text = (
        f"On the paper’s path λ > 0 is biased even with infinite data (lines); on Bernoulli W1 grows {grown:.0f}-fold. "
        "On the flow path no λ is biased, and λ = 1 is nowhere behind a tuned λ by a hundredth of the law's deviation, "
        "on five processes."
    )
    return Card("λ needs no tuning.", text, chart.svg(), ("flow-path-needs-no-tuning", "population-bias"))


def sharing(results: Results, decisions: Decisions) -> Card | None:
    """How many times the variance independent noise has, by process."""
    ratios: dict[str, np.ndarray] = {}
    for process in PROCESSES:
        (weights, shared), (others, independent) = (
            late_losses(results, process, method) for method in ("pcbf", "pcbf-independent")
        )
        if 0 in weights and 0 in others:
            ratios[process] = independent[list(others).index(0)] / shared[list(weights).index(0)]
    if not ratios:
        return None
    means = {process: float(values.mean()) for process, values in ratios.items()}
    x = Scale(0.0, 1.1 * max(means.values()), "variance with independent over shared noise", ticks=range(0, 20, 1))
    x = Scale(x.low, x.high, x.label, ticks=[tick for tick in x.ticks if tick <= x.high])
    chart = Chart(x, rows_scale([theme.PROCESSES[name].label for name in ratios]), "", ROWS_LEFT)
    chart.rule(1.0)
    for row, (process, values) in enumerate(ratios.items()):
        chart.line([(1.0, row), (means[process], row)], "pcbf-independent", look="stem")
        chart.across(*statistics.student_interval(values), row, "pcbf-independent")
        chart.mark(means[process], row, "pcbf-independent", f"{theme.PROCESSES[process].label}: {means[process]:.2f}")
    chart.title = "; ".join(f"{theme.PROCESSES[name].label}: {value:.1f} times" for name, value in means.items())
    low, high = min(means.values()), max(means.values())
    text = (
        f"At λ = 0, independent noise has {low:.1f} to {high:.1f} times the variance in its targets. Without sharing, "
        "λ damps nothing and a large one diverges."
    )
    return Card("Sharing the noise does most of the work.", text, chart.svg(), ("sharing-cuts-variance",))


def no_best(results: Results, decisions: Decisions) -> Card | None:
    """W1 of every method on every process."""
    table = contest(results)
    rows = list(zip(*(table.column(name) for name in ("env", "method", "w1", "low", "high_w1")), strict=True))
    rows = [row for row in rows if row[1] != "pcbf-independent"]
    if not rows:
        return None
    processes = list(dict.fromkeys(row[0] for row in rows))
    x = scale_of((row[2] for row in rows), "W1 / std of the law, log", is_log=True)
    chart = Chart(x, rows_scale([theme.PROCESSES[name].label for name in processes]), "", ROWS_LEFT)
    best: dict[str, list[str]] = {}
    for process in processes:
        ranked = sorted((row for row in rows if row[0] == process), key=lambda row: row[2])
        best.setdefault(ranked[0][1], []).append(theme.PROCESSES[process].label)
        for _, method, value, _, _ in reversed(ranked):
            told = f"{label(method)} on {theme.PROCESSES[process].label}: {value:.4f}"
            chart.mark(value, processes.index(process), method, told)
    told = "; ".join(f"{label(method)} on {', '.join(names)}" for method, names in best.items())
    chart.title = f"Lowest W1: {told}."
    text = f"Lowest mean W1: {told}. Each method is clearly behind another somewhere."
    methods = tuple(dict.fromkeys(row[1] for row in rows))
    return Card("No critic has the best law everywhere.", text, chart.svg(), ("no-critic-is-best-everywhere",), methods)


def safe_way(results: Results, decisions: Decisions) -> Card | None:
    """Mean against CVaR on the cliff, and what acting by CVaR gains."""
    found = decisions["cvar-acting-takes-the-safe-way"].measured
    chart = trade_chart(results, "cliff", only=WALKERS)
    if chart is None or not math.isfinite(found.value):
        return None
    as_well = decisions["iql-has-the-better-mean"].verdict == HOLDS
    text = (
        f"Beside the cliff PCBF on the flow path gains {100 * found.value:.0f} %"
        f"{interval_words(100 * found.low, 100 * found.high, '.0f')} of what can be gained in the worst tenth, with "
        f"the critic it has for the mean.{' For the mean itself IQL does as well.' if as_well else ''}"
    )
    drawn = tuple(method for method in drawn_methods(results, "cliff") if method in WALKERS)
    return Card("Acting by CVaR takes the safe way.", text, chart, ("cvar-acting-takes-the-safe-way",), drawn)


def suite(results: Results, decisions: Decisions) -> Card | None:
    """What every method scores over cloning, seed by seed, mean over the tasks of the suite, and who is ahead."""
    gained = {method: own for method, own in averaged(over_cloning(results)).items() if own}
    if not gained:
        return None
    cells = {method: with_interval(np.array(list(own.values()))) for method, own in gained.items()}
    rows = sorted(cells.items(), key=lambda row: -row[1][0])
    scale = scale_of([value for _, cell in rows for value in cell if math.isfinite(value)], OVER_CLONING, zero=True)
    chart = Chart(scale, rows_scale([label(method) for method, _ in rows]), "", ROWS_LEFT)
    chart.rule(0.0)
    for place, (method, (over, low, high)) in enumerate(rows):
        chart.across(low, high, place, method)
        chart.mark(over, place, method, f"{label(method)}: {over:.1f}{interval_words(low, high)}")
    chart.title = "; ".join(
        f"{label(method)} {over:.1f}{interval_words(low, high)}" for method, (over, low, high) in rows
    )
    tasks = asked(suite_scores(results))
    where = short_task(next(iter(suite_scores(results)))) if len(tasks) == 1 else f"the mean of {len(tasks)} tasks"
    clear = [label(method) for method, (_, low, _) in rows if low > 0]
    told = f"{len(clear)} of {len(rows)} methods are clear of cloning ({'; '.join(clear) or 'none'})"
    best, level = standing(SCORE, averaged(suite_scores(results)))
    others = f" (not told from it: {'; '.join(map(label, level))})" if level else ", ahead of every other"
    seeds = max(map(len, gained.values()))
    text = f"On {where} {told}, by {seeds} seeds one by one. {label(best)} has the highest mean{others}."
    lead = "Agents learn; no method is ahead of all." if level else f"{label(best)} acts best."
    return Card(lead, text, chart.svg())


def code(results: Results, decisions: Decisions) -> Card | None:
    """The authors' later scores beside the paper's."""
    printed = results.paper_table("aggregated")
    ours = printed[printed["method"] == "pcbf"].set_index("domain")
    rerun = results.paper_table("rerun").query("aggregation == 'mean'")
    domains = [str(name) for name in rerun["domain"]]
    chart = Chart(Scale(0, 82, "score, ± deviation", ticks=range(0, 81, 20)), rows_scale(domains), "", ROWS_LEFT)
    pairs = []
    for row, (domain, mean, std) in enumerate(zip(domains, rerun["mean"], rerun["std"], strict=True)):
        first, spread = float(ours.loc[domain, "mean"]), float(ours.loc[domain, "std"])  # type: ignore[arg-type]
        for place, value, width, name, who in (
            (row - 0.14, first, spread, PAPER, "the paper"),
            (row + 0.14, float(mean), float(std), LATER, "later source"),
        ):
            chart.across(value - width, value + width, place, name)
            chart.mark(value, place, name, f"{domain}, {who}: {value:g} ± {width:g}")
        pairs.append((domain, first, float(mean)))
    chart.words(pairs[1][1] + 8, 0.9, "the paper", PAPER)
    chart.words(pairs[1][2] - 8, 1.3, "later source", LATER, "end")
    chart.title = "; ".join(f"{domain}: paper {first:g}, later source {later:g}" for domain, first, later in pairs)
    departures = decisions["released-source-departs"].measured.value
    text = (
        f"The source first released departs from Algorithm 1 in {departures:.0f} points. A later one does not, and "
        f"with it its authors report {pairs[0][2]:g} where the paper has {pairs[0][1]:g} on {pairs[0][0]}."
    )
    names = ("released-source-departs", "later-source-agrees", "later-source-falls-short")
    return Card("Paper and published code differ.", text, chart.svg(), names)


MAKERS: tuple[Callable[[Results, Decisions], Card | None], ...] = (no_tuning, sharing, no_best, safe_way, suite, code)
