"""The report: verdicts that follow the numbers, a page that stands alone, and the same bytes every time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser

import pandas as pd
import pytest

from pcbf_analysis import artefacts, cli_artefacts, report, tables
from pcbf_analysis.records import Results

PIXEL = bytes.fromhex(  # a white png of one pixel
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Tags with attributes, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def plain(text: str) -> str:
    """The page without tags, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"<(style|script)>.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL))


def set_pcbf_w1(results: Results, value: float) -> None:
    """Replace every W1 of PCBF by `value`."""
    path = results.root / "toy" / "w1.csv"
    frame = pd.read_csv(path)
    frame.loc[frame["method"] == "pcbf", "w1"] = value
    frame.to_csv(path, index=False)


def test_the_page_is_well_formed_accessible_and_alone(build: Callable[..., Results]) -> None:
    results = build(environments=["bernoulli"], num_levels=20)
    for artefact in artefacts.FIGURES.values():
        artefacts.write_atomically(artefacts.output_path(results.root, artefact, "png"), PIXEL)
    text = report.render(results)
    page = Page(text)
    assert page.open == []
    assert page.all("html") == [{"lang": "en"}]
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    images = page.all("img")
    assert len(images) == len(artefacts.FIGURES)
    assert all(image["alt"] and (image["src"] or "").startswith("data:image/png;base64,") for image in images)
    assert all((image["width"], image["height"]) == ("1", "1") for image in images)
    assert not page.all("script")[0]
    assert not re.search(r"https?://|url\(|@import", text)
    for link in page.all("a"):
        address = link["href"] or ""
        assert (
            address[1:] in names if address.startswith("#") else (results.root / address.removeprefix("../")).exists()
        )
    assert all(heading.get("scope") == "col" for heading in page.all("th"))
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text


def test_every_figure_and_table_comes_with_caption_and_command(complete: Results) -> None:
    text = plain(report.render(complete)).replace("&#39;", "'")
    for artefact in (*artefacts.FIGURES.values(), *artefacts.TABLES.values()):
        assert artefact.caption in text
        assert f"{artefact.command} {artefact.label} --results " in text
    assert text.count("Not made yet.") == len(artefacts.FIGURES)  # no picture was drawn in this folder


@pytest.mark.parametrize(
    ("w1", "verdict", "count"),
    [(0.02, "holds", "6 of 6 hold"), (0.2, "fails", "4 of 6 hold"), (9.0, "fails", "0 of 6 hold")],
)
def test_the_verdict_on_w1_follows_the_numbers(
    build: Callable[..., Results], w1: float, verdict: str, count: str
) -> None:
    results = build(methods=["pcbf"], num_coefficients=2, num_levels=10)
    set_pcbf_w1(results, w1)
    text = plain(report.render(results))
    assert f"{verdict} PCBF’s mean W1 is at or below the paper’s" in text
    assert count in text
    assert ("Solitaire Dice: 0.200, paper 0.116" in text) == (w1 == 0.2)


def test_the_verdict_on_theory_follows_the_checks(build: Callable[..., Results]) -> None:
    results = build(environments=[])
    text = plain(report.render(results))
    assert "fails Every check of the paper’s theory holds: 2 of 3 hold." in text
    assert "euler-bound: endpoint error below the bound" in text
    path = results.root / "theory" / "checks.csv"
    path.write_text(path.read_text().replace("False", "True"))
    assert "holds Every check of the paper’s theory holds: 3 of 3 hold." in plain(report.render(results))


def test_settings_without_records_leave_the_verdict_open(partial: Results, empty: Results) -> None:
    bar = report.w1_bar(tables.toy_w1(partial))
    assert (bar.decided, bar.total, len(bar.missing)) == (2, 6, 4)
    assert bar.verdict == ("partly decided" if bar.held == 2 else "fails")
    text = plain(report.render(partial))
    assert "Without records: Discrete Monte Carlo chain, s = 1;" in text
    assert "Toy runs present: 4 of 9." in text
    nothing = plain(report.render(empty))
    assert nothing.count("undecided") == 2
    assert "Toy runs present: 0 of 9." in nothing
    assert "No manifest.json in this folder yet." in nothing


def test_provenance_shows_the_manifest_and_the_runs(complete: Results) -> None:
    text = plain(report.render(complete))
    assert "code › commit c0ffee" in text
    assert "Discrete MC chain, Value Flows: 2 seeds, dcfm in 0, 0.5, 1" in text
    assert "num_steps" in text


def test_text_from_records_is_escaped(build: Callable[..., Results]) -> None:
    results = build(environments=[])
    path = results.root / "theory" / "checks.csv"
    path.write_text(path.read_text().replace("endpoint error", "<script>alert(1)</script>"))
    text = report.render(results)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_the_command_writes_the_same_page_again(
    build: Callable[..., Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results = build(environments=["bernoulli"], num_levels=10)
    command = ["--results", str(results.root), "--paper", str(results.paper)]
    path = results.root / "report" / "index.html"
    pages = []
    for _ in range(2):
        assert cli_artefacts.report_main(command) == 0
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]
    assert capsys.readouterr().out.endswith("report/index.html\n")
    with pytest.raises(SystemExit):
        cli_artefacts.report_main(["--results", str(results.root / "nowhere")])


def test_cells_sort_by_value_and_missing_ones_last() -> None:
    number, words = tables.Column("x", "X"), tables.Column("y", "Y", is_number=False)
    assert report.cell_view(1.25e-7, "1.25e-07", number)["key"] == "1.25e-07"
    assert report.cell_view(float("nan"), "–", number)["key"] == ""
    assert report.cell_view(True, "yes", words) == {"text": "yes", "key": "1", "tone": "good"}
    assert report.cell_view(False, "no", words) == {"text": "no", "key": "0", "tone": "bad"}
    assert report.cell_view("PCBF", "PCBF", words)["key"] == "PCBF"


SORTING = """
const row = (...keys) => ({ cells: keys.map((key) => ({ dataset: { key } })) });
const heading = () => ({
  sort: null, listeners: [],
  addEventListener(_, f) { this.listeners.push(f); },
  getAttribute() { return this.sort; }, setAttribute(_, value) { this.sort = value; },
  removeAttribute() { this.sort = null; },
});
const headings = [heading(), heading()];
const body = { rows: [row("b", "10"), row("a", ""), row("c", "-2e-7"), row("d", "9.5")],
               append(...rows) { this.rows = rows; } };
const table = { tHead: { rows: [{ cells: headings }] }, tBodies: [body] };
globalThis.document = { querySelectorAll: () => [table] };
const press = (column) => {
  headings[column].listeners.forEach((f) => f());
  console.log(headings.map((h) => h.sort).join(","), body.rows.map((r) => r.cells[0].dataset.key).join(""));
};
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_pressing_headings_sorts_rows(empty: Results) -> None:
    script = re.findall(r"<script>(.*?)</script>", report.render(empty), flags=re.DOTALL)[0]
    presses = "press(1); press(1); press(0); press(0);"
    done = subprocess.run(["node", "-e", SORTING + script + presses], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        ",ascending cdba",  # -2e-7, 9.5, 10, missing
        ",descending bdca",  # 10, 9.5, -2e-7, missing
        "ascending, abcd",
        "descending, dcba",
    ]
