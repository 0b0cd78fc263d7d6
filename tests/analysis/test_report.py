"""The report: verdicts that follow the numbers, a page that stands alone, and the same bytes every time."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from pcbf_analysis import artefacts, claims, cli, report, tables, theme
from pcbf_analysis.page import runs
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


VOID = {"meta", "link", "img", "br", "input"}


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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def plain(text: str) -> str:
    """The page without tags, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL))


@pytest.fixture(scope="module")
def whole_page(complete: Results) -> str:
    """The page of a folder with every toy job."""
    return report.render(complete)


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
    assert len(images) == len(artefacts.of_kind("figure")) - 1  # no performance profiles of few tasks
    assert all(image["alt"] and re.match("data:image/(webp|gif);base64,", image["src"] or "") for image in images)
    assert all((image["width"], image["height"]) == ("3", "2") for image in images)
    assert not [script for script in page.all("script") if "src" in script]
    assert all(chart.get("aria-label") for chart in page.all("svg") if chart.get("role") == "img")
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
def test_every_figure_and_table_comes_with_caption_and_command(whole_page: str) -> None:
    text = plain(whole_page).replace("&#39;", "'")
    figures = {label: artefact for label, artefact in artefacts.of_kind("figure").items() if label != report.PROFILES}
    for artefact in (*figures.values(), *artefacts.TABLES.values()):
        assert artefact.caption in text
        assert f"{artefact.command} {artefact.label} --results " in text
    assert text.count("Not made yet.") == len(figures)  # no picture was drawn in this folder


@pytest.mark.slow
def test_the_table_that_decides_stands_right_below_the_findings(whole_page: str) -> None:
    sections = re.findall(r'<section id="([a-z]+)"', whole_page)
    assert sections[:2] == ["findings", "overview"]
    assert whole_page.count('id="table-overview-title"') == 1
    assert "0.210 (0.185 to 0.235)" in re.sub(" +", " ", plain(whole_page))


@pytest.mark.slow
def test_the_first_lines_count_the_main_claims_of_the_ledger(complete: Results, whole_page: str) -> None:
    """One number, one verdict: what the top of the page says is what the ledger below says."""
    findings = claims.decide(complete)
    main = [f for f in claims.of_paper(findings) if f.claim.importance == claims.MAIN]
    top = plain(whole_page[whole_page.index("<header>") : whole_page.index("</header>")])
    assert f"Of the paper’s {len(main)} main claims" in top
    for verdict, count in claims.counts(main).items():
        assert (f"{count} {report.COUNTED[verdict]}" in top) == (count > 0)
        marked = f'<tr data-verdict="{verdict}" data-importance="main" data-origin="paper"'
        assert whole_page.count(marked) == count


@pytest.mark.slow
def test_what_has_no_records_is_said(partial: Results, empty: Results) -> None:
    text = plain(report.render(partial))
    assert "Toy runs present: 4 of 35." in text
    page = report.render(empty)
    assert 'id="explorer-data"' not in page
    nothing = plain(page)
    assert "Toy runs present: 0 of 35." in nothing
    assert "No manifest.json in this folder yet." in nothing


@pytest.mark.slow
def test_provenance_shows_the_manifest_and_the_runs(whole_page: str) -> None:
    text = plain(whole_page)
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


@pytest.mark.slow
def test_calibration_comes_by_itself_once_it_has_records(
    build: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = build(processes=["bernoulli"], methods=["pcbf"], num_levels=10)
    assert report.artefact_views(results)["calibration_tables"] == []
    monkeypatch.setattr(report, "CALIBRATION", "toy_w1")
    views = report.artefact_views(results)
    assert [view["label"] for view in views["calibration_tables"]] == ["toy_w1", "toy_w1_sweep"]
    assert "toy_w1" not in [view["label"] for view in views["tables"]]


def test_cells_sort_by_value_and_missing_ones_last() -> None:
    number, words = tables.Column("x", "X"), tables.Column("y", "Y", is_number=False)
    assert report.cell_view(1.25e-7, "1.25e-07", number)["key"] == "1.25e-07"
    assert report.cell_view(float("nan"), "–", number)["key"] == ""
    assert report.cell_view(True, "yes", words) == {"text": "yes", "interval": "", "key": "1", "tone": "good"}
    assert report.cell_view(False, "no", words) == {"text": "no", "interval": "", "key": "0", "tone": "bad"}
    sure = tables.Estimate(0.25, 0.2, 0.3, digits=2, is_bold=True)
    expected = {"text": "0.25", "interval": "(0.20 to 0.30)", "key": "0.25", "tone": "best"}
    assert report.cell_view(sure, str(sure), number) == expected
    assert report.cell_view("PCBF", "PCBF", words)["key"] == "PCBF"


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
    assert runs.curve_points([5.0]) == ""
    assert runs.curve_points([0.0, 50.0, 100.0]) == "2.0,16.0 36.0,9.0 70.0,2.0"
    assert runs.dataset_hash({}) == ""
    assert len(runs.dataset_hash({"files": {"a": "1"}})) == 64
    assert runs.dataset_hash({"files": {"a": "1"}}) != runs.dataset_hash({"files": {"a": "2"}})


def test_pictures_on_the_page_are_light_and_look_the_same() -> None:
    random = np.random.default_rng(0)
    colours = random.integers(0, 255, (12, 3), dtype=np.uint8)
    blocks = np.repeat(np.repeat(colours[random.integers(0, 12, (9, 9))], 8, 0), 8, 1)
    buffer = io.BytesIO()
    Image.fromarray(blocks).convert("RGBA").save(buffer, format="png")
    light = report.light_picture(buffer.getvalue())
    assert len(light) < len(buffer.getvalue())
    with Image.open(io.BytesIO(light)) as shown:
        np.testing.assert_array_equal(np.asarray(shown.convert("RGB")), blocks)
    assert report.picture_size(light) == (72, 72)


SORTING = """
const row = (...keys) => ({ cells: keys.map((key) => ({ dataset: { key } })) });
const heading = () => ({
  sort: null, listeners: [], textContent: "",
  addEventListener(_, f) { this.listeners.push(f); },
  getAttribute() { return this.sort; }, setAttribute(_, value) { this.sort = value; },
  removeAttribute() { this.sort = null; },
});
const headings = [heading(), heading()];
const body = { rows: [row("b", "10"), row("a", ""), row("c", "-2e-7"), row("d", "9.5")],
               append(...rows) { this.rows = rows; } };
const table = { tHead: { rows: [{ cells: headings }] }, tBodies: [body] };
globalThis.document = {
  querySelectorAll: (name) => (name === "table.sortable" ? [table] : []), getElementById: () => null,
};
const press = (column) => {
  headings[column].listeners.forEach((f) => f());
  console.log(headings.map((h) => h.sort).join(","), body.rows.map((r) => r.cells[0].dataset.key).join(""));
};
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_pressing_headings_sorts_rows() -> None:
    script = (Path(report.__file__).parent / "templates" / "report.js").read_text(encoding="utf-8")
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
  const fields = (name) => [...new Set(shown().map((row) => row.dataset[name]))].sort();
  const button = (field, value) => document.querySelector(`[data-field="${field}"] [data-value="${value}"]`);
  const first = fields("importance");
  const measured = shown().map((row) => row.cells[2].getBoundingClientRect());
  const seen = measured.map((cell) => cell.left >= 0 && cell.right <= innerWidth && cell.width > 0);
  button("importance", "").click();
  const all = shown().length;
  button("verdict", "fails").click();
  const failing = fields("verdict");
  button("origin", "beyond").click();
  const beyond = [...fields("verdict"), ...fields("origin")];
  document.querySelector("[data-show]").click();
  const restored = shown().length;
  const curve = () => document.querySelector("#chart-cdf .learned").getAttribute("d");
  const told = () => document.getElementById("readout").textContent;
  const slider = document.getElementById("weight");
  const move = (value) => { slider.value = value; slider.dispatchEvent(new Event("input")); return [curve(), told()]; };
  const stops = [...Array(Number(slider.max) + 1).keys()].map(move);
  document.querySelector('[name="path"][value="flow"]').click();
  const flow = [curve(), told()];
  const process = document.getElementById("process");
  const processes = [...process.options].map((option) => {
    process.value = option.value;
    process.dispatchEvent(new Event("change"));
    return [option.textContent, told()];
  });
  const toggle = document.querySelector(".toggle");
  toggle.click();
  const beside = toggle.closest("[data-charts]");
  const hidden = [...beside.querySelectorAll(`.chart [data-method="${toggle.dataset.method}"]`)];
  const found = {
    faults, rising, falling, first, seen, all, failing, beyond, restored, stops, flow, processes,
    toggled: hidden.length > 0 && hidden.every((part) => getComputedStyle(part).display === "none"),
    top: document.querySelector(".card .chart").getBoundingClientRect().top,
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

    @cache
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
    assert len(found["pictures"]) == len(artefacts.of_kind("figure")) - 1
    assert all(found["pictures"])
    numbers = [float(key) for key in found["rising"] if key]
    assert numbers == sorted(numbers)
    assert [float(key) for key in found["falling"] if key] == sorted(numbers, reverse=True)
    assert found["first"] == ["main"]  # details are a press away
    assert found["failing"] == ["fails"]
    assert found["beyond"] in ([], ["fails", "beyond"])
    assert found["restored"] == found["all"] > 80
    assert found["top"] < 900  # the first picture is on the first screen
    assert found["toggled"]
    assert found["background"] == "rgb(255, 255, 255)"
    for link in found["links"]:
        address, _, anchor = link.partition("#")
        if address:
            assert (Path(found["folder"]) / unquote(address)).exists(), link
        else:
            assert anchor in found["ids"], link


@pytest.mark.slow
def test_the_slider_moves_the_learned_law(browse: Callable[..., dict], complete: Results) -> None:
    found = browse(1280)
    record = complete.toy("bernoulli", "pcbf")
    assert record is not None
    assert len(found["stops"]) == len(record.coefficients)
    curves, words = zip(*found["stops"], strict=True)
    assert len(set(curves)) == len(set(words)) == len(curves)
    for weight, told in zip(record.coefficients, words, strict=True):
        mean = record.w1[record.coefficient_index(weight), :, 0].mean()
        assert f"Bernoulli, γ = 0.5: W1 {float(f'{mean:.4g}'):g} " in told
    assert found["flow"][0] not in curves
    assert [name for name, _ in found["processes"]] == [style.label for style in theme.PROCESSES.values()]
    assert all(told.startswith(name) for name, told in found["processes"])


@pytest.mark.slow
def test_the_page_fits_a_phone_and_the_night(browse: Callable[..., dict]) -> None:
    found = browse(390, "--blink-settings=preferredColorScheme=0")
    assert found["faults"] == []
    assert found["overflow"] <= 0
    assert found["seen"]
    assert all(found["seen"])  # the measured value of every claim shown, without a sideways scroll
    assert found["background"] == "rgb(18, 22, 27)"
