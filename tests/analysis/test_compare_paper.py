"""The comparison with the paper: verdicts follow the numbers, and what is not comparable is never compared."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pcbf_analysis import artefacts
from pcbf_analysis.results import Results
from pcbf_analysis.statistics import Interval
from pcbf_analysis.tables.paper_comparison import Comparison, against_one, aggregate_error, comparisons

from .run_fixtures import CUBE, PEN, REPOSITORY, collected, write_cost, write_runs


def found(results: Results, table: str, row: str, method: str) -> Comparison:
    cells = [c for c in comparisons(results) if (c.table, c.row, c.method) == (table, row, method)]
    assert len(cells) == 1
    return cells[0]


@pytest.mark.parametrize(
    ("ours", "interval", "obstacle", "verdict"),
    [
        (72.0, Interval(-3, 5), "", "consistent"),
        (75.0, Interval(0.4, 7), "", "consistent"),  # zero is reached by the rounding of the printed number
        (75.0, Interval(0.6, 7), "", "higher"),
        (60.0, Interval(-15, -0.6), "", "lower"),
        (71.4, Interval(math.nan, math.nan), "", "consistent"),  # both round to 71
        (72.0, Interval(math.nan, math.nan), "", "undecided"),
        (71.0, Interval(-1, 1), "local data", "not comparable"),
        (math.nan, Interval(math.nan, math.nan), "local data", "missing"),
    ],
)
def test_a_verdict_follows_from_the_interval(ours: float, interval: Interval, obstacle: str, verdict: str) -> None:
    cell = Comparison("aggregated", "x", "pcbf", 71, 0.5, ours=ours, interval=interval, obstacle=obstacle)
    assert cell.verdict == verdict
    assert (cell.reason is None) == (verdict not in ("undecided", "not comparable"))


def test_official_scores_at_the_papers_scale_are_compared(tmp_path: Path) -> None:
    root = tmp_path / "paper"
    write_runs(root, CUBE, "pcbf", [90, 91, 93, 94])  # printed 92 ± 3
    write_runs(root, CUBE, "value_flows", [60, 61, 62, 63])  # printed 97 ± 1
    write_runs(root, PEN, "iql", [60, 61])  # printed 83 without a ±
    results = collected(root)
    cell = found(results, "fullogbench_comparison", CUBE, "pcbf")
    assert (cell.ours, cell.paper, cell.num_seeds, cell.verdict) == (92, 92, 4, "consistent")
    welch = stats.ttest_ind_from_stats(92, np.std([90, 91, 93, 94], ddof=1), 4, 92, 3, 8, equal_var=False)
    assert welch.pvalue == 1
    assert found(results, "fullogbench_comparison", CUBE, "value_flows").verdict == "lower"
    assert found(results, "fullogbench_comparison", PEN, "iql").verdict == "undecided"
    assert found(results, "fullogbench_comparison", CUBE, "iqn").verdict == "missing"
    domain = found(results, "aggregated", "cube-double-play", "pcbf")
    assert (domain.verdict, domain.reason) == ("not comparable", "1 of 5 tasks")


def test_a_whole_domain_is_compared_by_the_errors_of_its_tasks(tmp_path: Path) -> None:
    root = tmp_path / "paper"
    means = {1: 92, 2: 74, 3: 81, 4: 22, 5: 84}  # the paper's, of which the mean is 70.6
    for number, mean in means.items():
        write_runs(root, f"cube-double-play-singletask-task{number}-v0", "pcbf", [mean - 1, mean + 1])
    cell = found(collected(root), "aggregated", "cube-double-play", "pcbf")
    assert cell.ours == pytest.approx(70.6)
    assert cell.verdict == "consistent"
    ours = math.sqrt(5 * 2 / 2) / 5  # variance 2 of two seeds in each of five tasks
    theirs = math.sqrt((9 + 49 + 64 + 25 + 9) / 8) / 5
    half = 1.96 * math.hypot(ours, theirs)
    assert cell.interval == pytest.approx((70.6 - 71 - half, 70.6 - 71 + half))
    assert math.isnan(aggregate_error([(1.0, 2), (math.nan, 2)]))


@pytest.mark.parametrize(
    ("scale", "source", "reason"),
    [
        ("paper", "local", "local data"),
        ("laptop", "official", "scale laptop"),
        ("laptop", "local", "local data, scale laptop"),
    ],
)
def test_local_data_and_other_scales_are_never_compared(tmp_path: Path, scale: str, source: str, reason: str) -> None:
    write_runs(tmp_path / scale, CUBE, "pcbf", [92, 92], source=source)
    cell = found(collected(tmp_path / scale), "fullogbench_comparison", CUBE, "pcbf")
    assert (cell.verdict, cell.reason) == ("not comparable", reason)
    assert all(math.isnan(value) for value in cell.values()[10:12] if isinstance(value, float))


def test_distances_to_exact_laws_are_always_compared(complete: Results) -> None:
    cells = [cell for cell in comparisons(complete) if cell.table == "cdf_comparison"]
    assert len(cells) == 24
    assert {cell.verdict for cell in cells} <= {"consistent", "higher", "lower"}
    flows = [cell for cell in cells if (cell.row, cell.method) == ("Bernoulli", "value_flows")]
    assert [cell.coefficient for cell in flows] == [0, 0.5, 1]


def test_one_number_of_the_paper_counts_as_one_seed() -> None:
    low, high = against_one(np.array([0.1, 0.2, 0.3]), 0.25)
    half = 4.302653 * 0.1 * math.sqrt(4 / 3)  # t(0.975; 2) s √(1 + 1/3)
    assert (low, high) == pytest.approx((-0.05 - half, -0.05 + half), rel=1e-5)
    assert all(map(math.isnan, against_one(np.array([0.1]), 0.2)))


def test_a_cpu_is_not_an_a100(tmp_path: Path) -> None:
    for scale, device in (("laptop", "cpu"), ("paper", "NVIDIA A100-SXM4-80GB")):
        write_cost(tmp_path / scale, CUBE, "iql", train_seconds=10.0, device=device)
        write_cost(tmp_path / scale, CUBE, "pcbf", train_seconds=25.2, device=device)
    row = "time relative to IQL"
    ours = found(Results(tmp_path / "laptop", REPOSITORY), "cost", row, "pcbf")
    assert (ours.ours, ours.verdict, ours.reason) == (2.52, "not comparable", "device cpu")
    assert found(Results(tmp_path / "paper", REPOSITORY), "cost", row, "pcbf").verdict == "consistent"
    assert found(Results(tmp_path / "paper", REPOSITORY), "cost", row, "fql").verdict == "missing"


def test_the_csv_has_every_cell_and_the_page_those_we_have(complete: Results) -> None:
    texts = artefacts.TABLES["paper_comparison"].render(complete)
    frame: Any = pd.read_csv(io.BytesIO(texts["csv"]))
    # W1, domains and tasks without the cells that the paper leaves open, time and memory
    assert len(frame) == 24 + (49 - 4) + (266 - 20) + 8
    assert frame["verdict"].value_counts()["missing"] == len(frame) - 24
    page = texts["md"].decode()
    assert sum(line.startswith("| ") for line in page.splitlines()) == 2 + 24
    assert f"Of {len(frame)} cells:" in page
    assert f"{len(frame) - 24} missing." in page
