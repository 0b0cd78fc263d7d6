"""Tables: hand-worked numbers, missing cells, and the three file formats."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import pandas as pd
import pytest

from pcbf_analysis import artefacts, cli_artefacts, tables
from pcbf_analysis.records import Results, Setting
from pcbf_analysis.tables import Column, Table, tex_escape, w1_row

SMALL = Table(
    (Column("id", "Name", is_number=False), Column("x", "Value", digits=2), Column("ok", "Fine", is_number=False)),
    (("a_b", 0.125, True), ("c|d", math.nan, None)),
)


def rendered(label: str, results: Results) -> dict[str, str]:
    return {name: content.decode() for name, content in artefacts.TABLES[label].render(results).items()}


def test_a_row_holds_mean_sample_deviation_seeds_ratio_and_verdict(empty: Results) -> None:
    columns = ["env", "state", "method", "coefficient", "seed", "w1"]
    values = [("solitaire", 0, "pcbf", 0.5, seed, w1) for seed, w1 in enumerate((0.1, 0.2, 0.3))]
    w1 = pd.DataFrame(values, columns=columns)
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


def test_toy_w1_has_five_rows_for_each_setting(complete: Results) -> None:
    frame = pd.read_csv(io.StringIO(rendered("toy_w1", complete)["csv"]))
    assert len(frame) == 30
    assert frame.groupby(["env", "state"]).size().tolist() == [5] * 6
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
    assert len({value for env, method, value in rows if (env, method) == ("chain", "pcbf")}) == 1


def test_missing_cells_are_shown_as_missing_with_no_seeds(partial: Results) -> None:
    texts = rendered("toy_w1", partial)
    assert "\nbernoulli,0,value_flows,0.5,,,0,0.083,,\n" in texts["csv"]
    assert "\nchain,5,pcbf,,,,0,0.586,,\n" in texts["csv"]
    assert "| Bernoulli | 0 | Value Flows | 0.5 | – | – | 0 | 0.083 | – | – |" in texts["md"]
    assert r"Bernoulli & 0 & Value Flows & 0.5 & -- & -- & 0 & 0.083 & -- & -- \\" in texts["tex"]


def test_the_sweep_lists_every_recorded_coefficient(complete: Results, partial: Results) -> None:
    assert len(tables.toy_w1_sweep(complete).rows) == 6 * 3 * 3
    counts = pd.Series(tables.toy_w1_sweep(partial).column("num_seeds"))
    assert (counts > 0).sum() == 2 * 2 * 3  # two settings, two methods, three coefficients
    assert (counts == 0).sum() == 2 + 4 * 3  # one row for each absent method


def test_theory_checks_keep_their_numbers_and_verdicts(complete: Results) -> None:
    frame = pd.read_csv(io.StringIO(rendered("theory_checks", complete)["csv"]))
    assert frame["id"].tolist() == ["path-endpoint", "contraction", "euler-bound"]
    assert frame["margin"].tolist() == [9.88e-6, 0.09, -0.5]
    assert frame["holds"].tolist() == [True, True, False]


@pytest.mark.parametrize("label", list(artefacts.TABLES))
def test_every_table_works_without_records(label: str, empty: Results) -> None:
    texts = rendered(label, empty)
    assert texts["csv"].splitlines()[0].startswith(("env,", "id,"))
    assert r"\begin{tabular}" in texts["tex"]
    if label == "theory_checks":
        assert all("no records yet" in texts[name] for name in ("tex", "md"))


@pytest.mark.parametrize("label", list(artefacts.TABLES))
def test_latex_rows_match_their_columns(label: str, complete: Results) -> None:
    tex = rendered(label, complete)["tex"]
    columns = len(artefacts.TABLES[label].compute(complete).columns)
    rows = [line for line in tex.splitlines() if line.endswith(r" \\") and not line.startswith(r"\caption")]
    assert len(rows) >= 4
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


def test_the_command_writes_all_tables_and_the_same_bytes_again(
    build: Callable[..., Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results = build(environments=["bernoulli"])
    command = ["all", "--results", str(results.root), "--paper", str(results.paper)]
    assert cli_artefacts.table_main(command) == 0
    folder = results.root / "tables"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(first) == {f"{label}.{name}" for label in artefacts.TABLES for name in ("csv", "tex", "md")}
    assert capsys.readouterr().out.count("\n") == len(first)
    cli_artefacts.table_main(command)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_the_command_lists_labels_and_suggests_the_nearest(empty: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_artefacts.table_main(["--list"]) == 0
    assert "toy_w1\n    W1 distance" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        cli_artefacts.table_main(["toy_wl", "--results", str(empty.root)])
    assert stop.value.code == 2
    assert "`label='toy_wl'` is unknown" in (message := capsys.readouterr().err)
    assert "Did you mean 'toy_w1'?" in message
    with pytest.raises(SystemExit):
        cli_artefacts.table_main(["toy_w1", "--results", str(empty.root / "nowhere")])
    assert "is not a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli_artefacts.table_main([])
    assert "pass a label" in capsys.readouterr().err
