"""What the page is made of: charts, findings, the explorer's data, learning curves, the workflow, agents."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pcbf_analysis import claims, theme
from pcbf_analysis.claims import Decision, Measure
from pcbf_analysis.page import agents, charts, explorer, findings, runs, workflow
from pcbf_analysis.results import Results
from pcbf_core.mrp import MRPS
from pcbf_records import layout
from pcbf_records.files import write_text

from .run_fixtures import CUBE, collected, write_cost, write_run


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


def test_learning_curves_have_the_steps_that_all_seeds_share(empty: Results) -> None:
    write_run(empty.root, CUBE, "pcbf", 0, [[0, 100], [100, 100]])
    write_run(empty.root, CUBE, "pcbf", 1, [[0, 0], [0, 100]])
    write_run(empty.root, CUBE, "iql", 0, [[0]], status="diverged")
    results = collected(empty.root)
    seeds = [run for run in results.control.suite if run.method == "pcbf"]
    steps, mean, low, high = runs.learning_curve(seeds)
    assert steps.tolist() == [500, 1000]
    assert (mean.tolist(), low.tolist(), high.tolist()) == ([25, 75], [0, 50], [50, 100])
    views = runs.curve_views(results.control.suite)
    assert [item["label"] for view in views for item in view["legend"]] == ["PCBF"]  # one evaluation is no curve
    assert runs.task_views(results.control.suite)[0]["methods"][0]["score"] == "75.0 (-242.7 to 392.7)"


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
