"""Tables: hand-worked numbers, missing cells, and the three file formats."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pcbf_analysis import artefacts, cli, tables
from pcbf_analysis.results import Results, Setting
from pcbf_analysis.tables import Column, Table, contest, tex_escape, w1_row
from pcbf_analysis.tables.scores import ahead_of_all
from pcbf_core.mrp import MRPS
from pcbf_records import layout
from pcbf_records.layout import ablation
from pcbf_records.toy import SHAPES, TOY_METHODS, W1_COLUMNS, collect_toys, load_toy_record, save_toy_record

from .run_fixtures import CUBE, CUBE_2, REPOSITORY, collected, write_cost, write_run, write_runs

SMALL = Table(
    (Column("id", "Name", is_number=False), Column("x", "Value", digits=2), Column("ok", "Fine", is_number=False)),
    (("a_b", 0.125, True), ("c|d", math.nan, None)),
)


def rendered(label: str, results: Results) -> dict[str, str]:
    return {name: content.decode() for name, content in artefacts.TABLES[label].render(results).items()}


def test_a_row_holds_mean_sample_deviation_seeds_ratio_and_verdict(empty: Results) -> None:
    values = [("solitaire", 0, "pcbf", 0.5, seed, w1) for seed, w1 in enumerate((0.1, 0.2, 0.3))]
    w1 = pd.DataFrame(values, columns=list(W1_COLUMNS))
    row = w1_row(Setting("solitaire", 0), "pcbf", 0.5, w1, empty.paper_w1())
    assert row[:4] == ("solitaire", 0, "pcbf", 0.5)
    assert row[4] == pytest.approx(0.2)
    assert row[5] == pytest.approx(0.1)
    assert row[6:8] == (3, 0.116)
    assert row[8] == pytest.approx(0.2 / 0.116)
    assert row[9] is False
    lower = w1_row(Setting("solitaire", 0), "pcbf", 0.5, w1.head(1), empty.paper_w1())
    assert (lower[6], lower[9]) == (1, True)
    assert math.isnan(lower[5])  # one seed has no standard deviation


def test_toy_w1_has_six_rows_for_each_setting(complete: Results) -> None:
    frame = pd.read_csv(io.StringIO(rendered("toy_w1", complete)["csv"]))
    assert len(frame) == 36
    assert frame.groupby(["env", "state"]).size().tolist() == [6] * 6
    assert set(frame["num_seeds"]) == {2}
    first = frame.iloc[0]
    w1 = complete.w1()
    ours = w1[(w1["env"] == "solitaire") & (w1["method"] == "pcbf") & (w1["coefficient"] == first["coefficient"])]
    assert first["mean"] == pytest.approx(ours["w1"].mean(), rel=1e-5)
    compared = frame.dropna(subset=["ratio"])
    assert len(compared) == 24
    assert (compared["mean"] <= compared["paper"]).tolist() == compared["at_or_below"].astype(bool).tolist()


def test_one_coefficient_of_pcbf_serves_all_states_of_the_chain(complete: Results) -> None:
    table = tables.toy_w1(complete)
    rows = zip(*(table.column(name) for name in ("env", "method", "coefficient")), strict=True)
    assert len({value for process, method, value in rows if (process, method) == ("chain", "pcbf")}) == 1


def test_missing_cells_are_shown_as_missing_with_no_seeds(partial: Results) -> None:
    texts = rendered("toy_w1", partial)
    assert "\nbernoulli,0,value_flows,0.5,,,0,0.083,,\n" in texts["csv"]
    assert "\nchain,5,pcbf,,,,0,0.586,,\n" in texts["csv"]
    assert "| Bernoulli | 0 | Value Flows | 0.5 | – | – | 0 | 0.083 | – | – |" in texts["md"]
    assert r"Bernoulli & 0 & Value Flows & 0.5 & -- & -- & 0 & 0.083 & -- & -- \\" in texts["tex"]


def test_the_sweep_lists_every_recorded_coefficient(complete: Results, partial: Results) -> None:
    assert len(tables.toy_w1_sweep(complete).rows) == 6 * 4 * 3
    counts = pd.Series(tables.toy_w1_sweep(partial).column("num_seeds"))
    assert (counts > 0).sum() == 2 * 2 * 3  # two settings, two methods, three coefficients
    assert (counts == 0).sum() == 2 * 2 + 4 * 4  # one row for each absent method


def test_theory_checks_keep_their_numbers_and_verdicts(complete: Results) -> None:
    frame = pd.read_csv(io.StringIO(rendered("theory_checks", complete)["csv"]))
    assert frame["id"].tolist() == ["contraction", "euler-bound", "path-endpoint"]
    assert frame["margin"].tolist() == [0.09, -0.5, 9.88e-6]
    assert frame["holds"].tolist() == [True, False, True]


@pytest.mark.parametrize("label", list(artefacts.TABLES))
def test_every_table_works_without_records(label: str, empty: Results) -> None:
    texts = rendered(label, empty)
    columns = artefacts.TABLES[label].compute(empty)
    assert texts["csv"].splitlines()[0].split(",") == [column.name for column in (columns.details or columns).columns]
    assert r"\begin{tabular}" in texts["tex"]
    has_rows = label in ("toy_w1", "toy_w1_sweep", "cost", "hyperparameters", "domain_hyperparameters")
    assert all(("no records yet" in texts[name]) != has_rows or label == "cost" for name in ("tex", "md"))


@pytest.mark.slow
@pytest.mark.parametrize("label", list(artefacts.TABLES))
def test_latex_rows_match_their_columns(label: str, complete: Results) -> None:
    tex = rendered(label, complete)["tex"]
    columns = len(artefacts.TABLES[label].compute(complete).columns)
    rows = [line for line in tex.splitlines() if line.endswith(r" \\") and not line.startswith(r"\caption")]
    rows = [row for row in rows if "no records yet" not in row]
    assert rows
    assert all(row.replace(r"\&", "").count("&") == columns - 1 for row in rows)
    assert tex.count("{") == tex.count("}")
    assert tex.count(r"\begin{") == tex.count(r"\end{")
    assert tex.count(r"\midrule") == tex.count(r"\toprule")
    assert tex.isascii()
    assert ("longtable" in tex) == (label == "toy_w1_sweep")


def test_the_small_table_in_all_formats() -> None:
    assert tables.to_csv(SMALL) == "id,x,ok\na_b,0.125,True\nc|d,,\n"
    assert tables.to_markdown(SMALL, title="T", caption="C") == (
        "# T\n\n| Name | Value | Fine |\n| :-- | --: | :-- |\n| a_b | 0.12 | yes |\n| c\\|d | – | – |\n\nC\n"
    )
    assert tables.to_tex(SMALL, label="small", caption="50 %").splitlines() == [
        r"\begin{table*}[t]",
        r"\centering",
        r"\caption{50 \%}",
        r"\label{tab:small}",
        r"\small",
        r"\begin{tabular}{lrl}",
        r"\toprule",
        r"Name & Value & Fine \\",
        r"\midrule",
        r"a\_b & 0.12 & yes \\",
        r"c$|$d & -- & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table*}",
    ]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50 % & #1_a", r"50 \% \& \#1\_a"),
        ("γ ≤ λ²", r"$\gamma$ $\le$ $\lambda$$^2$"),
        ("γ̃, Ẑ, W̄", r"$\tilde{\gamma}$, $\hat{Z}$, $\bar{W}$"),
        (r"a\b{c}", r"a\textbackslash{}b\{c\}"),
        ("é", "é"),
    ],
)
def test_text_becomes_latex(text: str, latex: str) -> None:
    assert tex_escape(text) == latex


@pytest.mark.slow
def test_the_command_writes_all_tables_and_the_same_bytes_again(
    build: Callable[..., Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results = build(processes=["bernoulli"])
    command = ["all", "--results", str(results.root), "--root", str(results.repository)]
    assert cli.table_main(command) == 0
    folder = results.root / "tables"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(first) == {f"{label}.{name}" for label in artefacts.TABLES for name in ("csv", "tex", "md")}
    assert capsys.readouterr().out.count("\n") == len(first)
    cli.table_main(command)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_the_command_lists_labels_and_suggests_the_nearest(empty: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.table_main(["--list"]) == 0
    assert "toy_w1\n    W1 distance" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        cli.table_main(["toy_wl", "--results", str(empty.root)])
    assert stop.value.code == 2
    assert "`label='toy_wl'` is unknown" in (message := capsys.readouterr().err)
    assert "Did you mean 'toy_w1'?" in message
    with pytest.raises(SystemExit):
        cli.table_main(["toy_w1", "--results", str(empty.root / "nowhere")])
    assert "is not a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.table_main([])
    assert "pass a label" in capsys.readouterr().err


@pytest.fixture
def two_tasks(tmp_path: Path) -> Results:
    """A laptop folder with two tasks from local data: complete but for a missing and a diverged seed."""
    root = tmp_path / "laptop"
    options = {"source": "local"}
    write_runs(root, CUBE, "pcbf", [80, 90], **options)
    write_runs(root, CUBE_2, "pcbf", [60, 80], **options)
    write_runs(root, CUBE, "value_flows", [70, 70], **options)
    write_runs(root, CUBE_2, "value_flows", [70, 74], **options)
    write_runs(root, CUBE, "iql", [81, 83], **options)
    write_runs(root, CUBE_2, "iql", [50], **options)
    write_runs(root, CUBE, "bc", [10, 20], **options)
    write_run(root, CUBE, "codac", 0, [[0]], status="diverged", **options)
    write_run(root, CUBE, "codac", 1, [[30, 40]], **options)
    return collected(root)


@pytest.fixture
def paper_scale(tmp_path: Path) -> Results:
    """The beginning of a run at the paper's scale: official data, three of eight seeds on one task."""
    root = tmp_path / "paper"
    write_runs(root, CUBE, "pcbf", [90, 92, 94])
    write_runs(root, CUBE, "value_flows", [60, 70, 80])
    return collected(root)


def csv_of(label: str, results: Results) -> Any:
    return pd.read_csv(io.StringIO(rendered(label, results)["csv"]))


def cell_of(frame: Any, **where: Any) -> Any:
    """The one row that matches."""
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_task_table_reads_as_expected(two_tasks: Results) -> None:
    texts = rendered("fullogbench_comparison", two_tasks)
    assert table_lines(texts["md"]) == [
        "| Task | IQN | CODAC | FloQ | FQL | IQL | Value Flows | PCBF |",
        "| :-- | --: | --: | --: | --: | --: | --: | --: |",
        "| cube-double-play-task1 | – | 35 (1 of 2 seeds, 1 diverged) | – | – | 82 ± 1 | 70 ± 0 | 85 ± 7 |",
        "| cube-double-play-task2 | – | – | – | – | 50 (1 of 2 seeds) | 72 ± 3 | 70 ± 14 |",
    ]
    start, end = r"cube-double-play-task2 & -- & -- & -- & -- & ", r"72 $\pm$ 3 & 70 $\pm$ 14 \\"
    assert f"{start}50 (1 of 2 seeds) & {end}" in texts["tex"]
    assert "Scale: laptop; local data, generated with this repository and not the official datasets" in texts["md"]
    assert "Not comparable with the paper's scores." in texts["md"]
    assert "27 of its 266 cells are bold or plain against that" in texts["md"]


def test_bold_is_only_what_is_ahead_of_every_other_seed_by_seed() -> None:
    steady = {seed: 50.0 + seed for seed in range(5)}
    ahead = {seed: score + 5 + 0.1 * (-1) ** seed for seed, score in steady.items()}
    noisy = {0: 90.0, 1: 10.0, 2: 70.0, 3: 30.0, 4: 60.0}
    assert ahead_of_all({"a": ahead, "b": steady}) == {"a": True, "b": False}
    assert ahead_of_all({"a": ahead, "b": steady, "c": noisy}) == dict.fromkeys("abc", False)
    assert ahead_of_all({"a": ahead, "b": {}}) == {"a": False, "b": False}  # of nobody
    assert ahead_of_all({"a": {0: 9.0}, "b": {0: 1.0}}) == {"a": False, "b": False}  # one seed tells nothing


def test_the_csv_of_the_task_table_has_every_statistic(two_tasks: Results) -> None:
    frame = csv_of("fullogbench_comparison", two_tasks)
    assert len(frame) == 2 * 7
    row = cell_of(frame, task=CUBE_2, method="pcbf")
    assert (row["mean"], row["num_seeds"], row["num_episodes"], row["source"]) == (70, 2, 4, "local")
    assert pd.isna(row["iqm"])  # of five seeds on
    assert row["std"] == pytest.approx(math.sqrt(200), rel=1e-5)
    # Student's t of one degree of freedom is 12.706; the two seeds are 60 and 80
    assert (row["low"], row["high"]) == (pytest.approx(70 - 127.06, abs=0.01), pytest.approx(70 + 127.06, abs=0.01))
    assert (row["paper_mean"], row["paper_std"], row["paper_is_bold"], row["paper_is_bold_by_rule"]) == (
        74,
        7,
        True,
        True,
    )
    missing = cell_of(frame, task=CUBE, method="iqn")
    assert missing["num_seeds"] == 0
    assert pd.isna(missing["mean"])
    assert cell_of(frame, task=CUBE, method="codac")["num_diverged"] == 1


def test_the_domain_table_averages_tasks_and_says_which_are_lacking(two_tasks: Results) -> None:
    texts = rendered("aggregated", two_tasks)
    # PCBF: means 85 and 70, deviations √50 and √200; Value Flows: 70 and 72, 0 and √8
    cells = "– | 35 (1 of 2 tasks, 1 diverged) | – | – | 66 (3 of 4 runs) | 71 ± 1 | 78 ± 11"
    assert table_lines(texts["md"])[2:] == [f"| cube-double-play (2 tasks) | {cells} |"]
    row = cell_of(csv_of("aggregated", two_tasks), method="pcbf")
    assert row["mean"] == 77.5
    assert row["std"] == pytest.approx((math.sqrt(50) + math.sqrt(200)) / 2, rel=1e-5)
    # the seeds' means over both tasks are 70 and 85; Student's t of one degree of freedom is 12.706
    half = 12.7062 * 7.5
    assert (row["low"], row["high"]) == (pytest.approx(77.5 - half, abs=0.01), pytest.approx(77.5 + half, abs=0.01))
    assert (row["num_tasks"], row["num_tasks_present"], row["num_runs"]) == (2, 2, 4)
    assert (row["paper_mean"], row["paper_std"], row["paper_mean_recomputed"]) == (71, 5, 70.6)
    assert "except for FloQ on adroit (± 5 printed, 3.4 recomputed)" in texts["md"]


def test_at_the_papers_scale_all_38_tasks_have_a_row(paper_scale: Results) -> None:
    lines = table_lines(rendered("fullogbench_comparison", paper_scale)["md"])
    assert len(lines) == 2 + 38
    assert (
        lines[2]
        == "| cube-double-play-task1 | – | – | – | – | – | 70 ± 10 (3 of 8 seeds) | **92 ± 2 (3 of 8 seeds)** |"
    )
    assert lines[-1] == "| visual-cube-double-play-task5 | – | – | – | – | – | – | – |"
    domains = table_lines(rendered("aggregated", paper_scale)["md"])
    assert len(domains) == 2 + 7
    assert domains[2] == (
        "| cube-double-play (5 tasks) | – | – | – | – | – | 70 ± 10 (1 of 5 tasks) | 92 ± 2 (1 of 5 tasks) |"
    )
    assert len(csv_of("fullogbench_comparison", paper_scale)) == 38 * 7
    assert "Not comparable" not in rendered("fullogbench_comparison", paper_scale)["md"]


def test_a_changed_setting_stands_beside_the_suites(empty: Results) -> None:
    for seed, score in enumerate([40, 60]):
        write_run(empty.root, CUBE, "pcbf", seed, [[score]], agent={"action_reuse": 8, "control_weight": 0.4})
        write_run(empty.root / ablation("action_reuse=1"), CUBE, "pcbf", seed, [[score + 20]])
    write_run(empty.root / ablation("control_weight=0"), CUBE, "pcbf", 0, [[50]])
    write_cost(empty.root, CUBE, "pcbf", train_seconds=10.0)
    write_cost(empty.root / ablation("action_reuse=1"), CUBE, "pcbf", train_seconds=35.0)
    frame = csv_of("setting_effects", collected(empty.root))
    assert frame["setting"].tolist() == ["action_reuse", "control_weight"]
    row = cell_of(frame, setting="action_reuse")
    assert (row["value"], row["suite_value"], row["mean"], row["difference"]) == (1, 8, 70, 20)
    assert row["relative_time"] == pytest.approx(3.5)
    assert (row["difference_low"], row["difference_high"]) == (
        20,
        20,
    )  # each seed gained 20, however far they lie apart
    assert pd.isna(cell_of(frame, setting="control_weight")["relative_time"])


def test_the_suite_table_holds_every_method_against_behaviour_cloning(two_tasks: Results) -> None:
    lines = table_lines(rendered("control_suite", two_tasks)["md"])
    assert lines[2].startswith("| cube-double-play-task1 | BC | 15.0 | 7.1 |")
    assert lines[2].endswith("| – | 2 | 0 | 4 | – | – | – | – | – | – |")
    frame = csv_of("control_suite", two_tasks)
    assert len(frame) == 2 * 5
    assert cell_of(frame, task=CUBE, method="pcbf")["is_above_bc"] is True
    assert pd.isna(cell_of(frame, task=CUBE_2, method="pcbf")["is_above_bc"])  # BC has no runs there
    assert pd.isna(cell_of(frame, task=CUBE, method="codac")["is_above_bc"])  # one seed has no interval
    assert cell_of(frame, task=CUBE, method="codac")["num_diverged"] == 1


def test_methods_are_compared_seed_by_seed(empty: Results) -> None:
    for seed, score in enumerate([0, 40, 80]):
        write_run(empty.root, CUBE, "bc", seed, [[score]])
        write_run(empty.root, CUBE, "iql", seed, [[score + 9 + seed]])
        write_run(empty.root, CUBE, "fql", 2 - seed, [[score + 10]])
    write_run(empty.root, CUBE, "iql", 3, [[95]])  # BC has no such seed
    frame = csv_of("control_suite", collected(empty.root))
    row = cell_of(frame, method="iql")
    half = 4.3027 / math.sqrt(3)  # the differences are 9, 10 and 11
    assert (row["over_bc"], row["over_bc_low"]) == (10, pytest.approx(10 - half, abs=1e-3))
    assert row["is_above_bc"] is True
    assert row["seeds_needed"] == 3 < row["seeds_needed_unpaired"]
    row = cell_of(frame, method="fql")  # the same scores as IQL's, but of other seeds
    assert row["over_bc"] == 10
    assert row["is_above_bc"] is False


def test_the_probability_of_improvement_is_over_common_tasks(empty: Results) -> None:
    for seed in range(5):
        write_run(empty.root, CUBE, "pcbf", seed, [[80 + seed]])
        write_run(empty.root, CUBE_2, "pcbf", seed, [[60 + 20 * (seed % 2)]])
        write_run(empty.root, CUBE, "value_flows", seed, [[70]])
        write_run(empty.root, CUBE_2, "value_flows", seed, [[70]])
        write_run(empty.root, CUBE, "bc", seed, [[10]])
    write_run(empty.root, CUBE, "iql", 0, [[10]])
    results = collected(empty.root)
    frame = csv_of("probability_of_improvement", results)
    assert len(frame) == 4 * 3
    flows = cell_of(frame, first="pcbf", second="value_flows")
    assert (flows["probability"], flows["num_tasks"]) == (0.7, 2)  # always on task 1, with two of five seeds on task 2
    clone = cell_of(frame, first="pcbf", second="bc")
    assert (clone["probability"], clone["num_tasks"], clone["is_likely"]) == (1, 1, True)
    assert cell_of(frame, first="value_flows", second="pcbf")["probability"] == 0.3
    assert pd.isna(cell_of(frame, first="pcbf", second="iql")["probability"])  # one seed
    assert "| Value Flows | 0.70 |" in rendered("probability_of_improvement", results)["md"]


@pytest.fixture
def five_tasks(tmp_path: Path) -> Results:
    """A laptop folder in which IQL lacks one of five tasks."""
    root = tmp_path / "laptop"
    for number in range(1, 6):
        task = f"cube-double-play-singletask-task{number}-v0"
        write_runs(root, task, "pcbf", [60, 80] if number == 2 else [80, 90])
        write_runs(root, task, "value_flows", [70, 74])
        if number > 1:
            write_runs(root, task, "iql", [50])
    return collected(root)


def test_profiles_leave_out_methods_that_lack_a_task(five_tasks: Results) -> None:
    table = artefacts.TABLES["performance_profiles"].compute(five_tasks)
    assert table.column("method") == ["value_flows", "pcbf"]
    assert table.column("above_60") == [1, 0.9]  # PCBF: 60, 80 on one task; 80, 90 on four
    frame = csv_of("performance_profiles", five_tasks)
    assert cell_of(frame, method="pcbf", threshold=80)["share"] == 0.4
    assert len(frame) == 2 * 51


def test_there_is_no_profile_of_a_few_tasks(two_tasks: Results) -> None:
    assert artefacts.TABLES["performance_profiles"].compute(two_tasks).rows == ()
    texts = artefacts.FIGURES["performance_profiles"].draw(two_tasks).axes[0].texts
    assert [text.get_text() for text in texts] == ["no profile below 5 tasks"]


def test_cost_is_relative_to_iql_on_the_same_device(tmp_path: Path) -> None:
    root = tmp_path / "laptop"
    write_cost(root, CUBE_2, "pcbf", train_seconds=5.0)
    write_cost(root, CUBE, "iql", train_seconds=10.0, peak_host_bytes=2 * 10**9)
    write_cost(root, CUBE, "pcbf", train_seconds=25.0, peak_host_bytes=3 * 10**9)
    results = Results(root, REPOSITORY)
    frame = csv_of("cost", results)
    assert frame["task"].tolist() == [CUBE, CUBE, CUBE_2]  # the paper's task first
    pcbf = cell_of(frame, task=CUBE, method="pcbf")
    assert (pcbf["milliseconds"], pcbf["relative_time"], pcbf["relative_memory"]) == (25, 2.5, 1.5)
    assert (pcbf["paper_relative_time"], pcbf["memory_kind"], pcbf["is_paper_device"]) == (2.5, "host", False)
    assert pd.isna(cell_of(frame, task=CUBE_2)["relative_time"])  # IQL was not measured there
    assert "measured on cpu" in rendered("cost", results)["md"]
    assert "Not the paper's hardware." in rendered("cost", results)["md"]
    empty = Results(tmp_path, REPOSITORY)
    assert "| cube-double-play-task1 | – | PCBF | – | – | 2.5 | – | – | 5.0 |" in rendered("cost", empty)["md"]


def test_common_hyperparameters_are_the_papers_and_runs_name_where_they_differ(tmp_path: Path) -> None:
    for method, norm in (("pcbf", True), ("value_flows", True), ("iql", False)):
        write_run(tmp_path, CUBE, method, 0, [[1]], agent={"hidden_sizes": [128, 128], "actor_layer_norm": norm})
    frame = csv_of("hyperparameters", collected(tmp_path)).set_index("name")
    assert frame["agrees"].all()
    assert len(frame) == 14
    assert frame["runs"]["MLP hidden layer sizes"] == "(128, 128)"
    assert frame["runs"]["use actor layer normalization"] == "No: IQL; Yes: Value Flows, PCBF"
    assert pd.isna(frame["runs"]["learning rate"])


def test_domain_hyperparameters_show_used_and_printed(tmp_path: Path) -> None:
    write_run(tmp_path, CUBE, "pcbf", 0, [[1]], agent={"control_weight": 0.25})
    results = collected(tmp_path)
    lines = table_lines(rendered("domain_hyperparameters", results)["md"])
    assert "| cube-double-play | 0.995 | 0.3 | 300 (100) | 0.9 | 0.95 | 300 | 1 | 3 | 0.4 |" in lines
    frame = csv_of("domain_hyperparameters", results)
    fql = cell_of(frame, domain="cube-double-play", method="fql")
    assert (fql["used"], fql["printed"], fql["printed_as"]) == ("300", 100, "fql.alpha")
    assert "FQL publishes its results with this weight" in fql["reason"]
    shifted = cell_of(frame, domain="cube-double-play", method="codac", setting="huber_threshold")
    assert (shifted["printed_as"], shifted["agrees"]) == ("iqn.kappa", True)  # CODAC's value stands under IQN
    assert cell_of(frame, domain="cube-double-play", method="pcbf")["runs"] == 0.25
    disagreeing = frame[frame["agrees"] == False]  # noqa: E712 - the column also holds nan
    assert disagreeing["reason"].notna().all()
    assert len(disagreeing) == 4 + 1 + 5  # FQL on OGBench, CODAC on cube-triple, five confidence temperatures


@pytest.mark.slow
def test_latex_compiles_all_tables(two_tasks: Results, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; the structure of the LaTeX is checked by the other tests")
    inputs = []
    for label in artefacts.TABLES:
        (tmp_path / f"{label}.tex").write_text(rendered(label, two_tasks)["tex"], encoding="utf-8")
        inputs.append(rf"\input{{{label}.tex}}\clearpage")
    packages = r"\usepackage{booktabs,longtable}\usepackage[margin=1cm,landscape]{geometry}"
    document = rf"\documentclass{{article}}{packages}\begin{{document}}{''.join(inputs)}\end{{document}}"
    (tmp_path / "all.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").stat().st_size > 10_000


@pytest.mark.parametrize("label", list(artefacts.TABLES))
def test_tables_of_runs_are_sound_latex_and_the_same_again(label: str, two_tasks: Results) -> None:
    tex = rendered(label, two_tasks)["tex"]
    assert tex.isascii()
    assert tex.count("{") == tex.count("}")
    assert tex.replace(r"\$", "").count("$") % 2 == 0
    columns = len(artefacts.TABLES[label].compute(two_tasks).columns)
    rows = [line for line in tex.splitlines() if line.endswith(r" \\") and "no records yet" not in line]
    assert all(row.replace(r"\&", "").count("&") == columns - 1 for row in rows)
    assert rendered(label, two_tasks)["tex"] == tex


def test_the_profile_figure_draws_complete_methods_and_says_when_there_are_none(
    five_tasks: Results, empty: Results
) -> None:
    figure = artefacts.FIGURES["performance_profiles"].draw(five_tasks)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["PCBF", "Value Flows"]
    assert len(figure.axes) == 1
    assert len(figure.axes[0].lines) == 2
    assert figure.axes[0].get_title() == "OGBench (5 tasks)"
    nothing = artefacts.FIGURES["performance_profiles"].draw(empty)
    assert [text.get_text() for text in nothing.axes[0].texts] == ["no records yet"]


# --- the contest ----------------------------------------------------------------------------------------------------


def test_the_contest_ranks_every_method_with_a_coefficient_that_reported_seeds_did_not_choose(build: Any) -> None:
    results = build(processes=["bernoulli"], num_seeds=3)
    path = results.root / layout.toy_run("bernoulli", "value_flows")
    record = load_toy_record(path)
    arrays = {name: getattr(record, name) for name in SHAPES}
    arrays["tuning_w1"] = np.array([[[0.9]], [[0.1]], [[0.5]]])  # tuning prefers the second coefficient
    arrays["w1"] = np.array([[[0.0]] * 3, [[0.3]] * 3, [[0.6]] * 3]).reshape(3, 3, 1)  # reported seeds the first
    save_toy_record(path, arrays, {})
    collect_toys(results.root)
    table = contest.contest(Results(results.root, results.repository))
    rows = {method: dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows
            for method in [row[1]]}  # fmt: skip
    assert set(rows) == set(TOY_METHODS)
    assert rows["value_flows"]["coefficient"] == 0.5
    assert rows["value_flows"]["w1"] == pytest.approx(0.3 / MRPS["bernoulli"].return_law(0).std)
    assert (rows["pcbf_flow"]["coefficient"], rows["pcbf_flow"]["tried"]) == (1.0, 1)
    assert table.column("w1") == sorted(table.column("w1"))


def test_paired_differences_by_hand(build: Any) -> None:
    results = build(processes=["bernoulli"], methods=["pcbf_flow", "pcbf"], num_seeds=3)
    for method, values in (("pcbf_flow", [0.1, 0.2, 0.3]), ("pcbf", [0.2, 0.4, 0.6])):
        path = results.root / layout.toy_run("bernoulli", method)
        record = load_toy_record(path)
        arrays = {name: getattr(record, name) for name in SHAPES}
        arrays["w1"] = np.broadcast_to(np.array(values)[None, :, None], record.w1.shape)
        save_toy_record(path, arrays, {})
    collect_toys(results.root)
    (row,) = contest.paired(Results(results.root, results.repository)).rows
    half = 4.30265 * 0.1 / 3**0.5  # of differences -0.1, -0.2, -0.3
    assert row[4:7] == (pytest.approx(-0.2), pytest.approx(-0.2 - half, abs=1e-5), pytest.approx(-0.2 + half, abs=1e-5))
    assert row[7] == "no"


def test_errors_of_a_law_by_hand() -> None:
    exact = np.arange(20.0)
    learned = np.stack([exact + 1, 2 * exact])
    sizes = {name: measure(learned, exact) for name, (_, measure) in contest.MEASURES.items()}
    np.testing.assert_allclose(sizes["mean"], [1, 9.5])
    np.testing.assert_allclose(sizes["std"], [0, exact.std()])
    np.testing.assert_allclose(sizes["cvar"], [1, 0.5])  # of the lowest two, 0 and 1
    np.testing.assert_allclose(sizes["high"], [1, 18.5])  # of the highest two, 18 and 19
