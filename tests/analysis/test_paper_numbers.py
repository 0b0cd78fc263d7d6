"""The paper's numbers in data/paper against its LaTeX source, cell by cell, and what they must obey by themselves."""

from __future__ import annotations

import re

import pandas as pd
import pytest
import yaml

from pcbf_analysis.results import PAPER_COLUMNS, Results
from pcbf_records.layout import PAPER_NUMBERS

from .run_fixtures import REPOSITORY

PAPER = REPOSITORY / PAPER_NUMBERS
SOURCE = REPOSITORY.parent / "shared" / "paper.tex"
METHODS = {
    "IQN": "iqn",
    "CODAC": "codac",
    "FloQ": "floq",
    "FQL": "fql",
    "IQL": "iql",
    "Value Flows": "value_flows",
    "PCBF (Ours)": "pcbf",
}
DOMAINS = {"D4RL adroit": "adroit", "visual-antmaze-teleport": "visual-antmaze-teleport-navigate"}

needs_source = pytest.mark.skipif(not SOURCE.exists(), reason=f"the paper's source is not at {SOURCE.name} beside us")


@pytest.fixture(scope="module")
def source() -> str:
    return SOURCE.read_text(encoding="utf-8")


def numbers(name: str) -> pd.DataFrame:
    return Results(REPOSITORY, REPOSITORY).paper_table(name)


def printed_rows(source: str, label: str) -> list[list[str]]:
    """All rows of the paper's table with that label, headings included, as cells of LaTeX."""
    table = source[source.index(rf"\label{{tab:{label}}}") :]
    body = table[table.index(r"\toprule") : table.index(r"\bottomrule")]
    lines = [line.strip().removesuffix(r"\\").strip() for line in body.splitlines()]
    return [[cell.strip() for cell in line.split("&")] for line in lines if "&" in line]


def method_heading(rows: list[list[str]]) -> tuple[int, list[str]]:
    """Index of the row that names the methods, and the methods."""
    plain = [[re.sub(r"\\textbf\{(.*)\}", r"\1", cell) for cell in row] for row in rows]
    index = next(i for i, row in enumerate(plain) if "FloQ" in row)
    return index, [METHODS[name] for name in plain[index][1:]]


def printed_score(cell: str) -> tuple[float, float, bool]:
    """Mean, ± and boldness of `$\\mathbf{71 \\pm 5}$`; nan where there is none."""
    values = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell)]
    mean, std = (values + [float("nan")] * 2)[:2]
    return mean, std, r"\mathbf" in cell


def plain_number(cell: str) -> float:
    """The number in a cell such as `$\\sim 59.9$` or `$3 \\times 10^{-4}$`; nan for a dash."""
    power = re.search(r"([\d.]+) \\times 10\^\{(-?\d+)\}", cell)
    if power:
        return float(f"{power[1]}e{power[2]}")
    found = re.search(r"[\d.]+", cell)
    return float(found[0]) if found else float("nan")


def assert_scores(frame: pd.DataFrame, printed: list[tuple[str, str, float, float, bool]], row: str) -> None:
    """The frame holds exactly the printed cells, in their order."""
    assert list(zip(frame[row], frame["method"], frame["is_bold"], strict=True)) == [
        (r, m, b) for r, m, _, _, b in printed
    ]
    assert frame["mean"].tolist() == pytest.approx([mean for _, _, mean, _, _ in printed], nan_ok=True)
    assert frame["std"].tolist() == pytest.approx([std for _, _, _, std, _ in printed], nan_ok=True)


@needs_source
def test_domain_scores(source: str) -> None:
    rows = printed_rows(source, "aggregated")
    at, methods = method_heading(rows)
    printed, counts = [], []
    for name, *cells in rows[at + 1 :]:
        parts = re.fullmatch(r"(.*) \((\d) tasks\)", name)
        assert parts
        domain = DOMAINS.get(parts[1], parts[1])
        counts += [int(parts[2])] * len(methods)
        printed += [(domain, method, *printed_score(cell)) for method, cell in zip(methods, cells, strict=True)]
    frame = numbers("aggregated")
    assert len(frame) == 7 * 7
    assert_scores(frame, printed, "domain")
    assert frame["num_tasks"].tolist() == counts


@needs_source
def test_task_scores(source: str) -> None:
    rows = printed_rows(source, "fullogbench_comparison")
    at, methods = method_heading(rows)
    printed, tuned = [], []
    for name, *cells in rows[at + 1 :]:
        task = name.removesuffix("($*$)").strip()
        tuned += [name != task] * len(methods)
        printed += [(task, method, *printed_score(cell)) for method, cell in zip(methods, cells, strict=True)]
    frame = numbers("fullogbench_comparison")
    assert len(frame) == 38 * 7
    assert_scores(frame, printed, "task")
    assert frame["is_tuned"].tolist() == tuned


@needs_source
def test_cost(source: str) -> None:
    rows = [row for row in printed_rows(source, "cost") if row[0] in METHODS]
    printed = [(METHODS[name], plain_number(memory), plain_number(time)) for name, memory, time in rows]
    assert list(numbers("cost").itertuples(index=False, name=None)) == printed
    assert len(printed) == 4


@needs_source
def test_common_hyperparameters(source: str) -> None:
    rows = printed_rows(source, "hyperparameters")[1:]
    frame = numbers("hyperparameters")
    assert frame["name"].tolist() == [name for name, _ in rows]
    for value, (name, cell) in zip(frame["value"], rows, strict=True):
        text = re.sub(r"\s*\\citep\{[^}]*\}", "", cell)
        assert value == text or float(value) == plain_number(text), name


@needs_source
def test_domain_hyperparameters(source: str) -> None:
    rows = printed_rows(source, "domain_hyperparameters")[2:]
    frame = numbers("domain_hyperparameters")
    assert frame["domain"].tolist() == [row[0] for row in rows]
    assert len(rows) == 14
    for name, values in zip(frame.columns[1:], zip(*(row[1:] for row in rows), strict=True), strict=True):
        assert frame[name].tolist() == pytest.approx([plain_number(value) for value in values], nan_ok=True), name


@needs_source
def test_statements_are_in_the_text_with_their_value(source: str) -> None:
    frame = numbers("statements")
    text = " ".join(source.split())
    spoken = {"1000000": "1M", "500000": "500K", "100000": "100K", "0.95": "95"}
    for name, value, piece in zip(frame["id"], frame["value"], frame["text"], strict=True):
        assert piece in text, name
        number = f"{value:g}" if value < 1e5 else str(int(value))
        assert number in piece or spoken[number] in piece, name


@needs_source
def test_toy_distances_that_the_text_repeats(source: str) -> None:
    w1 = numbers("toy_w1")
    at_5 = w1[(w1["env"] == "chain") & (w1["state"] == 5)]
    assert f"${at_5.loc[at_5['method'] == 'pcbf', 'w1'].iloc[0]}$" in source
    assert f"${at_5.loc[at_5['coefficient'] == 1, 'w1'].iloc[0]}$" in source


def test_every_file_is_described_and_has_its_columns() -> None:
    files = {path.stem for path in PAPER.glob("*.csv")}
    assert files == set(PAPER_COLUMNS)
    readme = (PAPER / "README.md").read_text(encoding="utf-8")
    for name in files:
        assert f"`{name}.csv`" in readme
        assert tuple(pd.read_csv(PAPER / f"{name}.csv").columns) == PAPER_COLUMNS[name]


def test_task_rows_are_the_task_sheets() -> None:
    tasks = numbers("fullogbench_comparison").drop_duplicates("task")
    sheet = pd.read_csv(REPOSITORY / "config" / "tasks.tsv", sep="\t")
    for name, column in (("task", "task"), ("domain", "domain"), ("num_seeds", "seeds"), ("is_tuned", "is_tuned")):
        assert tasks[name].tolist() == sheet[column].tolist()


def test_domain_means_follow_from_task_means() -> None:
    means = numbers("fullogbench_comparison").groupby(["domain", "method"])[["mean", "std"]].mean()
    printed = numbers("aggregated").set_index(["domain", "method"])[["mean", "std"]]
    apart = (printed - means.loc[printed.index]).abs()
    assert (apart["mean"].dropna() <= 1).all()  # half a point of rounding on each side
    assert apart.index[apart["std"] > 1].tolist() == [("adroit", "floq")]  # 5 is printed, the tasks give 3.4


def test_the_printed_settings_in_config_are_the_papers() -> None:
    frame = numbers("domain_hyperparameters").set_index("domain")
    config = yaml.safe_load((REPOSITORY / "config" / "methods.yaml").read_text(encoding="utf-8"))["domains"]
    for domain, printed in frame.iterrows():
        entry = config[domain]
        flat = {
            f"{method}.{symbol}": value for method, pair in entry["printed"].items() for symbol, value in pair.items()
        }
        assert {"discount": entry["discount"], **flat} == printed.dropna().to_dict(), domain
