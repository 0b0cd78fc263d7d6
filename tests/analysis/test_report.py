"""The report: verdicts that follow the numbers, a page that stands alone, and the same bytes every time."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pcbf_analysis import artefacts, claims, cli, report, tables
from pcbf_analysis.results import Results
from pcbf_records import layout

from .run_fixtures import CUBE, LAPTOP_TASK, collected, write_run


def picture(file_format: str, size: tuple[int, int] = (3, 2)) -> bytes:
    """A small white picture."""
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, format=file_format)
    return buffer.getvalue()


def write_pictures(results: Results) -> None:
    """A picture in place of every figure."""
    for artefact in artefacts.of_kind("figure").values():
        name = "png" if "png" in artefact.formats else "gif"
        artefacts.write_atomically(artefacts.output_path(results.root, artefact, name), picture(name))


VOID = {"meta", "link", "img", "br", "polyline"}


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
    path = results.root / layout.TOY_W1
    frame = pd.read_csv(path)
    frame.loc[frame["method"] == "pcbf", "w1"] = value
    frame.to_csv(path, index=False)


@pytest.mark.slow
def test_the_page_is_well_formed_accessible_and_alone(build: Callable[..., Results]) -> None:
    results = build(processes=["bernoulli"], num_levels=20)
    write_pictures(results)
    text = report.render(results)
    page = Page(text)
    assert page.open == []
    assert page.all("html") == [{"lang": "en"}]
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    images = page.all("img")
    assert len(images) == len(artefacts.of_kind("figure"))
    assert all(image["alt"] and re.match("data:image/(png|gif);base64,", image["src"] or "") for image in images)
    assert all((image["width"], image["height"]) == ("3", "2") for image in images)
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


@pytest.mark.slow
def test_every_figure_and_table_comes_with_caption_and_command(complete: Results) -> None:
    text = plain(report.render(complete)).replace("&#39;", "'")
    for artefact in (*artefacts.of_kind("figure").values(), *artefacts.TABLES.values()):
        assert artefact.caption in text
        assert f"{artefact.command} {artefact.label} --results " in text
    assert text.count("Not made yet.") == len(artefacts.of_kind("figure"))  # no picture was drawn in this folder


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_verdict_on_theory_follows_the_checks(build: Callable[..., Results]) -> None:
    results = build(processes=[])
    text = plain(report.render(results))
    assert "fails Every check of the paper’s theory holds: 2 of 3 hold." in text
    assert "euler-bound: endpoint error below the bound" in text
    path = results.root / layout.THEORY_CHECKS
    path.write_text(path.read_text().replace("false", "true"))
    assert "holds Every check of the paper’s theory holds: 3 of 3 hold." in plain(report.render(results))


@pytest.mark.slow
def test_settings_without_records_leave_the_verdict_open(partial: Results, empty: Results) -> None:
    bar = report.w1_bar(tables.toy_w1(partial))
    assert (bar.decided, bar.total, len(bar.missing)) == (2, 6, 4)
    assert bar.verdict == ("partly decided" if bar.held == 2 else "fails")
    text = plain(report.render(partial))
    assert "Without records: Discrete Monte Carlo chain, s = 1;" in text
    assert "Toy runs present: 4 of 35." in text
    nothing = plain(report.render(empty))
    assert nothing.count("undecided PCBF’s mean W1") == nothing.count("undecided Every check") == 1
    assert "Toy runs present: 0 of 35." in nothing
    assert "No manifest.json in this folder yet." in nothing


@pytest.mark.slow
def test_provenance_shows_the_manifest_and_the_runs(complete: Results) -> None:
    text = plain(report.render(complete))
    assert "code › commit c0ffee" in text
    assert "Discrete MC chain, Value Flows: 2 seeds, dcfm in 0, 0.5, 1" in text
    assert "num_steps" in text


@pytest.mark.slow
def test_text_from_records_is_escaped(build: Callable[..., Results]) -> None:
    results = build(processes=[])
    path = results.root / layout.THEORY_CHECKS
    path.write_text(path.read_text().replace("endpoint error", "<script>alert(1)</script>"))
    text = report.render(results)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


@pytest.mark.slow
def test_the_command_writes_the_same_page_again(
    build: Callable[..., Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results = build(processes=["bernoulli"], num_levels=10)
    command = ["--results", str(results.root), "--root", str(results.repository)]
    path = results.root / layout.REPORT
    pages = []
    for _ in range(2):
        assert cli.report_main(command) == 0
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]
    assert capsys.readouterr().out.endswith("report/index.html\n")
    with pytest.raises(SystemExit):
        cli.report_main(["--results", str(results.root / "nowhere")])


def test_cells_sort_by_value_and_missing_ones_last() -> None:
    number, words = tables.Column("x", "X"), tables.Column("y", "Y", is_number=False)
    assert report.cell_view(1.25e-7, "1.25e-07", number)["key"] == "1.25e-07"
    assert report.cell_view(float("nan"), "–", number)["key"] == ""
    assert report.cell_view(True, "yes", words) == {"text": "yes", "key": "1", "tone": "good"}
    assert report.cell_view(False, "no", words) == {"text": "no", "key": "0", "tone": "bad"}
    assert report.cell_view("PCBF", "PCBF", words)["key"] == "PCBF"


@pytest.mark.slow
def test_claims_stand_on_the_page_with_counts_and_evidence(complete: Results) -> None:
    text, findings = report.render(complete), claims.decide(complete)
    page = plain(text)
    for verdict, count in claims.counts(findings).items():
        assert f"{verdict} ({count})" in page
        assert text.count(f'<tr data-verdict="{verdict}"') == count
    assert 'href="../theory/checks.csv"' in text
    assert all(f'id="claim-{finding.claim.id}"' in text for finding in findings)


@pytest.mark.slow
def test_every_run_can_be_looked_at(build: Callable[..., Results]) -> None:
    results = build(processes=[])
    record = write_run(results.root, CUBE, "pcbf", 0, [[0, 100], [100, 100]], num_final=2, source="local")
    write_run(results.root, CUBE, "pcbf", 1, [[0, 0]], status="diverged")
    write_run(results.root, LAPTOP_TASK, "iql", 0, [[0, 100]], agent={"expectile": 0.9})
    text = report.render(collected(results.root))
    page = plain(text)
    assert "Control runs present: 3." in page
    assert "cube-double-play-task1 : 2 runs, local, official data" in page
    assert record.config_hash[:12] in page
    assert "500: 50.0; 1000: 100.0" in page  # the evaluations behind the curve
    assert "0 100 | 100 100" in page  # the episodes behind the score
    assert "diverged: critic loss became nan" in page
    assert "&#34;expectile&#34;: 0.9" in text
    assert f"{LAPTOP_TASK}, official" in page  # among the datasets


def test_curves_and_hashes_by_hand() -> None:
    assert report.curve_points([5.0]) == ""
    assert report.curve_points([0.0, 50.0, 100.0]) == "2.0,16.0 36.0,9.0 70.0,2.0"
    assert report.dataset_hash({}) == ""
    assert len(report.dataset_hash({"files": {"a": "1"}})) == 64
    assert report.dataset_hash({"files": {"a": "1"}}) != report.dataset_hash({"files": {"a": "2"}})


def test_pictures_on_the_page_are_light_and_look_the_same() -> None:
    random = np.random.default_rng(0)
    colours = random.integers(0, 255, (12, 3), dtype=np.uint8)
    blocks = np.repeat(np.repeat(colours[random.integers(0, 12, (9, 9))], 8, 0), 8, 1)
    buffer = io.BytesIO()
    Image.fromarray(blocks).convert("RGBA").save(buffer, format="png")
    light = report.light_png(buffer.getvalue())
    assert len(light) < len(buffer.getvalue())
    with Image.open(io.BytesIO(light)) as shown:
        np.testing.assert_array_equal(np.asarray(shown.convert("RGB")), blocks)
    assert report.picture_size(light) == (72, 72)


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
globalThis.document = { querySelectorAll: (name) => (name === "table.sortable" ? [table] : []) };
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


# --- in a browser --------------------------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
)
WATCH = """<script>
globalThis.faults = [];
addEventListener("error", (event) => faults.push(String(event.message || event.target.src || event.target.href)), true);
console.error = (...words) => faults.push(words.join(" "));
</script>"""
PROBE = """<script>
addEventListener("load", () => {
  const keys = (table, column) => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.key);
  const w1 = document.querySelector("#table-toy_w1 table");
  const column = [...w1.tHead.rows[0].cells].findIndex((cell) => cell.textContent.startsWith("W1"));
  const press = () => { w1.tHead.rows[0].cells[column].querySelector("button").click(); return keys(w1, column); };
  const rising = press(), falling = press();
  const rows = [...document.querySelectorAll("#claims-table tbody tr")];
  const shown = () => rows.filter((row) => row.offsetParent !== null);
  const all = shown().length;
  document.querySelector('[data-filter] [data-verdict="fails"]').click();
  const failing = shown().map((row) => row.dataset.verdict);
  document.querySelector('[data-choose="holds"]').click();
  const holding = shown().map((row) => row.dataset.verdict);
  document.querySelector('[data-filter] [data-verdict=""]').click();
  const found = {
    faults, rising, falling, all, failing, holding, restored: shown().length,
    pictures: [...document.images].map((image) => image.complete && image.naturalWidth > 0),
    links: [...document.querySelectorAll("a[href]")].map((link) => link.getAttribute("href")),
    ids: [...document.querySelectorAll("[id]")].map((element) => element.id),
    background: getComputedStyle(document.body).backgroundColor,
    overflow: document.documentElement.scrollWidth - innerWidth,
  };
  const output = document.createElement("pre");
  output.id = "found";
  output.textContent = JSON.stringify(found);
  document.body.append(output);
});
</script>"""


@pytest.fixture(scope="module")
def browse(complete: Results, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict]:
    """A function that opens the report in a browser, uses it, and gives what it found."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the PATH to open the page")
    root = tmp_path_factory.mktemp("page") / "results"
    shutil.copytree(complete.root, root)
    write_run(root, CUBE, "pcbf", 0, [[0, 100], [100, 100]], num_final=2, source="local")
    results = collected(root)
    write_pictures(results)
    claims.write(results, claims.decide(results), "results")
    page = report.write(results)
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("<head>", f"<head>{WATCH}").replace("</body>", f"{PROBE}</body>"), encoding="utf-8")

    def look(width: int, *flags: str) -> dict:
        profile = tmp_path_factory.mktemp("profile")
        command = [CHROMIUM, *FLAGS, *flags, f"--window-size={width},900", f"--user-data-dir={profile}", "--dump-dom"]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=300, check=True)
        assert "CONSOLE" not in done.stderr, done.stderr
        found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.DOTALL)
        assert found, done.stderr[-2000:]
        return {**json.loads(html.unescape(found.group(1))), "folder": page.parent}

    return look


@pytest.mark.slow
def test_the_page_works_in_a_browser(browse: Callable[..., dict]) -> None:
    found = browse(1280)
    assert found["faults"] == []
    assert len(found["pictures"]) == len(artefacts.of_kind("figure"))
    assert all(found["pictures"])
    numbers = [float(key) for key in found["rising"] if key]
    assert numbers == sorted(numbers)
    assert [float(key) for key in found["falling"] if key] == sorted(numbers, reverse=True)
    assert set(found["failing"]) == {"fails"}
    assert set(found["holding"]) == {"holds"}
    assert found["restored"] == found["all"] > len(found["failing"]) + len(found["holding"])
    assert found["background"] == "rgb(255, 255, 255)"
    for link in found["links"]:
        address, _, anchor = link.partition("#")
        if address:
            assert (Path(found["folder"]) / unquote(address)).exists(), link
        else:
            assert anchor in found["ids"], link


@pytest.mark.slow
def test_the_page_fits_a_phone_and_the_night(browse: Callable[..., dict]) -> None:
    found = browse(390, "--blink-settings=preferredColorScheme=0")
    assert found["faults"] == []
    assert found["overflow"] <= 0  # wide tables and figures scroll inside their own frames
    assert found["background"] == "rgb(18, 22, 27)"
