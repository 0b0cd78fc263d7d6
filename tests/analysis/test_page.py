"""What the page is made of: charts, findings, the explorer's data, learning curves, the workflow, agents."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pcbf_analysis import claims, theme
from pcbf_analysis.claims import Decision, Measure
from pcbf_analysis.page import agents, charts, curves, explorer, findings, runs, workflow
from pcbf_analysis.results import Results
from pcbf_core.mrp import MRPS
from pcbf_records import layout
from pcbf_records.files import write_text

from .run_fixtures import CUBE, CUBE_2, collected, write_cost, write_run


def test_ticks_are_round_and_values_lie_where_they_should() -> None:
    assert charts.round_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert charts.round_ticks(-30, 60) == [-20, 0, 20, 40, 60]
    assert charts.Scale(1, 100, is_log=True).at(10) == pytest.approx(0.5)
    assert charts.scale_of([0.02, 0.2], is_log=True).ticks == [0.02, 0.05, 0.1, 0.2]
    assert charts.scale_of([3, 9], zero=True).low == 0
    chart = charts.Chart(charts.Scale(0, 1), charts.Scale(0, 2), "a title", left=10)
    assert (chart.px(0), chart.px(1)) == (10, 350)
    assert (chart.py(0), chart.py(2)) == (132, 8)
    chart.mark(0.5, 1, "pcbf", "five < six")
    assert "five &lt; six" in chart.svg()
    assert 'aria-label="a title"' in chart.svg()


@pytest.mark.parametrize("page", list(charts.PAGES.values()))
def test_every_method_can_be_told_from_the_page(page: str) -> None:
    assert charts.contrast("#000000", "#ffffff") == pytest.approx(21)
    colours = [charts.readable(style.colour, page) for style in theme.METHODS.values()]
    assert min(charts.contrast(colour, page) for colour in colours) >= charts.CONTRAST
    assert len(set(colours)) == len(colours)


def test_a_finding_is_told_only_where_its_claims_hold() -> None:
    card = findings.Card("So it is.", "By 3.", charts.Markup("<svg></svg>"), ("one", "two"))
    held, sentences = Decision("holds", Measure(1.0), ""), {"one": "First.", "two": "Second."}
    assert findings.view(card, {"one": held, "two": held}, sentences)["lead"] == "So it is."
    open_one = replace(held, verdict="undecided at this scale")
    told = findings.view(card, {"one": held, "two": open_one}, sentences)
    assert told["lead"] == "Not settled by these records."
    assert told["text"] == "First. (holds) Second. (undecided at this scale)"


@pytest.mark.slow
def test_every_finding_has_a_chart_and_rests_on_claims_of_the_ledger(complete: Results) -> None:
    decided = claims.decide(complete)
    shown = findings.cards(complete, decided)
    assert len(shown) == 4  # no runs of the control suite here, and nothing to gain by CVaR
    assert all(str(card["chart"]).startswith('<svg class="chart"') for card in shown)
    assert {name for card in shown for name, _ in card["verdicts"]} <= {finding.claim.id for finding in decided}


def test_the_explorer_has_the_recorded_laws_and_shares_lambda_zero(complete: Results) -> None:
    data = explorer.explorer(complete)
    assert data is not None
    assert [view["name"] for view in data["processes"]] == list(theme.PROCESSES)
    view = next(view for view in data["processes"] if view["name"] == "chain")
    assert [state["state"] for state in view["states"]] == list(MRPS["chain"].live_states)
    linear, flow = view["paths"]["linear"], view["paths"]["flow"]
    assert linear["weights"] == [0, 0.475, 0.95]
    record = complete.toy("chain", "pcbf")
    assert record is not None
    middle = linear["stops"][1][4]  # λ = 0.475, s = 5
    np.testing.assert_allclose(middle["q"], record.quantiles[1, :, 4].mean(axis=0), rtol=1e-3, atol=1e-3)
    assert middle["w1"][0] == pytest.approx(record.w1[1, :, 4].mean(), rel=1e-3)
    state = view["states"][4]
    widths = np.diff(state["cells"])
    assert (np.array(state["heights"]) * widths).sum() == pytest.approx(1, abs=0.02)
    assert (np.array(middle["h"]) * widths).sum() == pytest.approx(1, abs=0.1)  # some learned mass may lie beside
    assert flow["weights"][0] == 0
    assert len(linear["losses"]) == len(linear["weights"])
    assert linear["losses"][1]["mean"] == [1.0] * 10  # what the records have
    text = str(explorer.as_script({"name": "</script>"}))
    assert "</script>" not in text
    assert json.loads(text) == {"name": "</script>"}


def test_at_zero_the_flow_path_borrows_the_papers_runs(build: Callable[..., Results]) -> None:
    results = build(processes=["bernoulli"], num_levels=10)
    linear, flow = (results.toy("bernoulli", method) for method in ("pcbf", "pcbf_flow"))
    assert linear is not None
    assert flow is not None
    only = replace(flow, coefficients=flow.coefficients[1:], quantiles=flow.quantiles[1:], w1=flow.w1[1:])
    exact = [explorer.state_view("bernoulli", 0)]
    view = explorer.path_view(only, [linear], [0], exact, np.arange(10))
    assert view["weights"] == [0, 0.5, 1]
    own = explorer.path_view(linear, [], [0], exact, np.arange(10))
    assert view["stops"][0] == own["stops"][0]


def test_learning_curves_have_the_steps_that_all_seeds_share_and_students_bands(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[0, 100], [100, 100]])
    write_run(empty.root, CUBE, "pcbf", 1, [[0, 0], [0, 100]])
    write_run(empty.root, CUBE, "iql", 0, [[0]])
    suite = collected(empty.root).control.suite
    scores = curves.scores_of(suite)
    steps, mean, low, high = curves.learning_curve(scores["pcbf"])
    assert steps.tolist() == [500, 1000]
    assert mean.tolist() == [25, 75]
    half = 12.706 * 25  # Student's quantile at one degree of freedom times 35.36 / √2
    np.testing.assert_allclose((low, high), [[25 - half, 75 - half], [25 + half, 75 + half]], atol=0.02)
    assert [item["label"] for item in curves.curve_views(suite)["legend"]] == ["PCBF"]  # one evaluation is no curve
    assert runs.task_views(suite)[0]["methods"][0]["score"] == "75.0 (-242.7 to 392.7)"


TWO_TASKS = {  # two seeds × four steps by method and task
    (CUBE, "pcbf"): ([0, 20, 40, 60], [10, 30, 50, 70]),
    (CUBE_2, "pcbf"): ([0, 0, 20, 40], [0, 10, 30, 50]),
    (CUBE, "bc"): ([5, 5, 5, 5], [5, 5, 5, 5]),
    (CUBE_2, "bc"): ([5, 5, 5, 5], [5, 5, 5, 5]),
    (CUBE, "iqn"): ([0, 10, 20, 30], [0, 10, 20, 30]),  # not run on the other task yet
}


def write_two_tasks(root: Path) -> None:
    """Runs that were evaluated from a quarter of training on, one of which diverged half-way."""
    for (task, method), seeds in TWO_TASKS.items():
        for seed, scores in enumerate(seeds):
            write_run(root, task, method, seed, [[score] for score in scores], steps=8000)
    write_run(root, CUBE_2, "pcbf", 2, [[90], [90]], status="diverged", steps=4000)


def test_several_tasks_have_a_panel_each_and_one_of_their_mean(empty: Results) -> None:
    write_two_tasks(empty.root)
    suite = collected(empty.root).control.suite
    views = curves.curve_views(suite)
    titles = [view["title"] for view in views["panels"]]
    assert titles == ["Mean over 2 tasks", "cube-double-play-task1", "cube-double-play-task2"]
    assert [(item["name"], item["is_on"]) for item in views["legend"]] == [("pcbf", True), ("iqn", False), ("bc", True)]
    first, second = (curves.scores_of([run for run in suite if run.task == task]) for task in (CUBE, CUBE_2))
    mean = curves.over_tasks([first, second])
    assert mean["pcbf"] == {0: {2000: 0, 4000: 10, 6000: 30, 8000: 50}, 1: {2000: 5, 4000: 20, 6000: 40, 8000: 60}}
    assert set(mean) == {"pcbf", "bc"}
    curve = curves.learning_curve(second["pcbf"])  # without the seed that diverged
    assert (curve.steps.tolist(), curve.mean.tolist()) == ([2000, 4000, 6000, 8000], [0, 5, 25, 45])
    charts_of = [str(view["chart"]) for view in views["panels"]]
    assert [text.count('class="band m-pcbf"') for text in charts_of] == [1, 1, 1]
    assert [text.count('class="mark m-pcbf"') for text in charts_of] == [4, 4, 4]
    assert [text.count('class="mark m-iqn"') for text in charts_of] == [0, 4, 0]
    assert "PCBF, step 8000: 65.0 (1.5 to 128.5)" in charts_of[1]
    assert '>0</text><path class="grid"' in charts_of[1]  # the axis of steps begins with training


def test_the_card_of_the_suite_speaks_of_the_mean_of_its_tasks(empty: Results) -> None:
    assert findings.suite(empty, {}) is None
    for task, gain in ((CUBE, 50), (CUBE_2, 10)):
        for seed in range(5):
            write_run(empty.root, task, "bc", seed, [[10 + seed]])
            write_run(empty.root, task, "pcbf", seed, [[10 + seed + gain + (-1) ** seed]])
            write_run(empty.root, task, "iql", seed, [[10 + seed + 15 * (-1) ** seed]])
    card = findings.suite(collected(empty.root), {})
    assert card is not None
    assert card.lead == "PCBF acts best."
    assert "On the mean of 2 tasks 1 of 2 methods are clear of cloning (PCBF), by 5 seeds" in card.text
    assert "PCBF: 30.2 (28.8 to 31.6)" in card.chart  # 30 ± 1, three seeds up and two down; t = 2.776
    write_run(empty.root, CUBE_2, "iql", 0, [[100]])
    card = findings.suite(collected(empty.root), {})
    assert card is not None
    assert card.lead == "Agents learn; no method is ahead of all."
    assert card.text.endswith("PCBF has the highest mean (not told from it: IQL).")


def test_a_band_ends_at_the_edges_and_is_not_drawn_for_one_seed() -> None:
    chart = charts.Chart(charts.Scale(0, 1), charts.Scale(0, 2), "", left=10)
    chart.band([0, 1], [-50, 1], [1, 50], "pcbf")
    assert chart.parts == [
        '<path class="band m-pcbf" data-method="pcbf" d="M10.0 132.0L350.0 70.0L350.0 8.0L10.0 70.0Z"/>'
    ]
    chart.band([0, 1], [math.nan] * 2, [math.nan] * 2, "iql")
    assert len(chart.parts) == 1


def test_the_workflow_adds_up_what_cost_records_tell(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[0, 100], [100, 100]])
    write_cost(empty.root, CUBE, "pcbf", train_seconds=7000.0, evaluate_seconds=80.0)
    write_cost(empty.root, CUBE, "iql", train_seconds=200.0)
    found = workflow.stages(collected(empty.root))
    assert found["train"].words == "1 runs, 2.0 h"
    assert found["evaluate"].words == "4 episodes, 80 s"
    assert found["toys"].words == "0 jobs"
    assert "training: 1 runs, 2.0 h" in workflow.graph(found)
    write_text(empty.root / "benchmarks/toy/chain/pcbf.jsonl", '{"s": 60.5}\n{"s": 40.0}\n')
    write_text(empty.root / "benchmarks/train/one/pcbf/seeds0.jsonl", '{"s": 30.0}\n')
    measured = workflow.stages(Results(empty.root, empty.repository))
    assert (measured["toys"].seconds, measured["train"].seconds) == (100.5, 30.0)  # Snakemake's clock goes before
    assert math.isnan(measured["exact"].seconds)


def test_agents_are_in_the_page_until_it_would_grow_too_large(empty: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agents.agent_views(empty) == []
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, format="gif")
    for name in ("first", "second"):
        path = empty.root / layout.agent_file(name, "gif")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(buffer.getvalue())
    write_text(
        empty.root / layout.agent_file("first", "json"), json.dumps({"summary": "20.5", "task": CUBE, "sha256": "1f"})
    )
    monkeypatch.setattr(agents, "MOST_BYTES", len(buffer.getvalue()) + 5)
    first, second = agents.agent_views(empty)
    assert first["facts"] == [("task", CUBE), ("summary", "20.5")]
    assert first["image"].startswith("data:image/gif;base64,")
    assert (second["image"], second["address"]) == ("", "../agents/second.gif")
