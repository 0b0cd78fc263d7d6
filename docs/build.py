"""`make docs`: the pages of docs/ as a site. Stages them into build/docs/pages, then has zensical build them.

Pages stay readable where they lie. Staging resolves what only the repository can: links that leave docs/, the examples
as pages, and markers such as `<!-- settings: iql -->`, which become tables made from code and published records.
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pcbf_baselines.registry import METHODS, make_config
from pcbf_experiments.method_settings import method_schemas
from pcbf_experiments.schemas import allowed
from pcbf_records import layout

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/docs"
PUBLISHED, DESK = (ROOT / layout.published_folder(scale) for scale in ("laptop", "desk"))
ROOTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
CONTESTANTS = ("pcbf_flow", "pcbf", "value_flows", "flow_iqn", "iqn", "c51")
TITLES = {name: method.title for name, method in METHODS.items()}
TITLES |= {"pcbf_flow": "PCBF, flow path", "pcbf": "PCBF", "flow_iqn": "FlowIQN"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
MARKER = re.compile(r"<!-- (\w+)(?:: (\w+))? -->")
FENCE = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
EXAMPLE_NOTE = (
    "`python {path}` runs it; as a notebook it opens in VS Code, or in Jupyter with Jupytext. "
    "A test runs it too, and holds it to what it should learn."
)


class DocsError(ValueError):
    """What is wrong with the pages, one fault per line."""


# --- pages and links --------------------------------------------------------------------------------------------------


def pages() -> list[Path]:
    """The pages to begin with, relative to the repository; those that they link to follow."""
    found = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.py"), *(ROOT / name for name in ROOTS)]
    return sorted(path.relative_to(ROOT) for path in found)


def place(path: Path) -> Path | None:
    """Where a file of the repository is staged; None for what the site does not show."""
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    if path.parts[0] == "examples" and path.suffix == ".py":
        return path.with_suffix(".md")
    if path.name == "README.md" and path.parts[0] == "packages":
        return Path("packages", f"{path.parts[1]}.md")
    if path.as_posix() in ROOTS:
        return Path(path.name.lower())
    if path.parts[0] == "results" and path.suffix:
        return Path(*path.parts[1:])
    return None


def stage(folder: Path) -> list[Path]:
    """Write all pages, and the files they show, into `folder`; dead links raise."""
    shutil.rmtree(folder, ignore_errors=True)
    queue, done, faults = pages(), [], []
    while queue:
        path = queue.pop()
        if path in done:
            continue
        done.append(path)
        target = folder / (place(path) or path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix not in (".md", ".py"):
            shutil.copyfile(ROOT / path, target)
            continue
        text, linked = relinked(path, page_text(path), faults)
        target.write_text(text, encoding="utf-8")
        queue += linked
    if faults:
        raise DocsError("\n".join(sorted(faults)))
    shutil.copyfile(ROOT / "docs/site.css", folder / "site.css")
    return done


def page_text(path: Path) -> str:
    """The text of a page, its markers replaced."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".py":
        return example_page(path, text)
    return MARKER.sub(lambda found: BLOCKS[found[1]](*filter(None, [found[2]])), text)


def relinked(path: Path, text: str, faults: list[str]) -> tuple[str, list[Path]]:
    """The text with links as they are on the site, and the files that they lead to."""
    linked: list[Path] = []

    def one(found: re.Match[str]) -> str:
        words, address = found[1], found[2]
        if re.match(r"[a-z]+:|#", address):
            return found[0]
        name, _, anchor = address.partition("#")
        to = Path(os.path.normpath(path.parent / name))
        if to.parts[0] == ".." or not (ROOT / to).exists():
            faults.append(f"{path} links to {address}, which does not exist")
            return found[0]
        staged = place(to)
        if staged is None or (ROOT / to).is_dir():
            return words.strip("[]")
        linked.append(to)
        here = (place(path) or path).parent
        return f"{words}({os.path.relpath(staged, here)}{'#' + anchor if anchor else ''})"

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(one, part) for part in parts[::2]]
    return "".join(parts), linked


def example_page(path: Path, text: str) -> str:
    """A script in cells (`# %%`) as a page."""
    blocks = []
    for cell in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        head, _, body = cell.partition("\n")
        if "[markdown]" in head:
            blocks.append("\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()))
        elif body.strip():
            blocks.append(f"```python\n{body.strip()}\n```")
    first, _, rest = blocks[0].partition("\n")
    return "\n\n".join([first, EXAMPLE_NOTE.format(path=path), rest.strip(), *blocks[1:]]) + "\n"


# --- tables made from code and records --------------------------------------------------------------------------------


def table(heads: list[str], rows: list[list[str]], align: str = "") -> str:
    """A table in Markdown; `align` has a letter per column, l or r."""
    marks = {"l": ":--", "r": "--:"}
    lines = [heads, [marks[letter] for letter in align or "l" * len(heads)], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def settings_table(method: str) -> str:
    """Every setting of a method: default, what is allowed, what it is."""
    properties = method_schemas()[method]["properties"]
    if not properties:
        return "None."
    config = make_config(method)
    texts = described(type(config))
    rows = [
        [f"`{name}`", default_of(config, name), allowed(schema), texts.get(name, "")]
        for name, schema in properties.items()
    ]
    return table(["setting", "default", "allowed", "what it is"], rows)


def default_of(config: Any, name: str) -> str:
    if not hasattr(config, name) or name == "variant":
        return ""
    value = getattr(config, name)
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def described(kind: type) -> dict[str, str]:
    """What the docstrings of a config and its bases say of its settings."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        if not dataclasses.is_dataclass(base):
            continue
        _, _, block = (inspect.getdoc(base) or "").partition("Attributes:\n")
        for names, text in re.findall(r"^  ([\w, ]+): (.*(?:\n {4}.*)*)", block, flags=re.MULTILINE):
            for name in names.split(", "):
                found.setdefault(name, " ".join(text.split()))
    return found


def read_table(label: str) -> list[dict[str, str]]:
    """The rows of a published table of the desk scale, which has the most seeds and tasks."""
    with (DESK / layout.table(label, "csv")).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def step_times() -> dict[str, str]:
    """Time of a gradient step of every method over IQL's, all timed in turn on an idle machine by `make bench`."""
    with (ROOT / "results/benchmarks/updates.csv").open(encoding="utf-8", newline="") as file:
        return {row["case"]: row["times_iql"] for row in csv.DictReader(file) if row["size"] == "3x128"}


def number(text: str | None, digits: int) -> str:
    return f"{float(text):.{digits}f}" if text else "–"


def interval(row: dict[str, str], name: str, low: str, high: str, digits: int) -> str:
    """A value with its interval, if it has one."""
    if not row.get(low):
        return number(row.get(name), digits)
    return f"{number(row[name], digits)} ({number(row[low], digits)} to {number(row[high], digits)})"


def results_table(method: str) -> str:
    """What the published tables say of one method."""
    rows = []
    for row in read_table("toy_contest"):
        if row["method"] == method:
            rows.append(
                [f"W1 of its law over the exact one's std, {row['env']}", interval(row, "w1", "low", "high_w1", 4)]
            )
    for row in read_table("exact_control"):
        if row["method"] == method:
            rows.append([f"regret, {row['mdp']}", interval(row, "regret", "regret_low", "regret_high", 3)])
            if row["gain"]:
                text = interval(row, "gain", "gain_low", "gain_high", 3)
                rows.append([f"CVaR gained by acting by CVaR at 0.1, {row['mdp']}", text])
    for row in read_table("control_suite"):
        if row["method"] == method:
            rows.append([f"success in percent, {row['task']}", interval(row, "mean", "low", "high", 1)])
    if method in (times := step_times()):
        rows.append(["time of a step over IQL's, networks of 3 × 128, an idle CPU", number(times[method], 2)])
    if not rows:
        return "No published run."
    return (
        "Means with 95 % intervals, from the published tables of the desk scale "
        "([what they are](../results.md)).\n\n" + table(["measure", "value"], rows, "lr")
    )


def contest_table() -> str:
    """W1 of every critic on every process."""
    values = {(row["env"], row["method"]): row for row in read_table("toy_contest")}
    processes = list(dict.fromkeys(env for env, _ in values))
    rows = [[env, *(number(values[env, method]["w1"], 4) for method in CONTESTANTS)] for env in processes]
    return table(["process", *(TITLES[method] for method in CONTESTANTS)], rows, "l" + "r" * len(CONTESTANTS))


def overview_table() -> str:
    """Regret, gain, success and cost of every method."""
    exact = {(row["mdp"], row["method"]): row for row in read_table("exact_control")}
    success = {row["method"]: row for row in read_table("overview") if row["measure"] == "score"}
    times = step_times()
    mdps = list(dict.fromkeys(mdp for mdp, _ in exact))
    heads = [
        "method",
        *(f"{mdp}: {what}" for mdp in mdps for what in ("regret", "CVaR gained")),
        "cube, five tasks, %",
        "step / IQL",
    ]
    rows = []
    for method in METHODS:
        row = [TITLES[method]]
        for mdp in mdps:
            found = exact.get((mdp, method), {})
            row += [number(found.get("regret"), 3), number(found.get("gain"), 3)]
        row.append(interval(success.get(method, {}), "mean", "low", "high", 1))
        rows.append([*row, number(times.get(method), 2)])
    return table(heads, rows, "l" + "r" * (len(heads) - 1))


def deviation_rows(method: str) -> Iterator[list[str]]:
    """The rows of docs/deviations.md that are about a method."""
    section, title = "", METHODS[method].title
    for line in (ROOT / "docs/deviations.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif len(cells) == 5 and cells[0] not in ("Topic", "Method", "---"):
            is_ours = method in ("pcbf", "pcbf_flow") and section == "PCBF"
            if is_ours or (section == "Baselines" and title in cells[0].split(", ")):
                yield cells if section == "PCBF" else cells[1:]


def deviations_table(method: str) -> str:
    rows = list(deviation_rows(method))
    if not rows:
        return "None but those of [data and evaluation](../deviations.md)."
    heads = ["topic", "paper", "released code", "our default", "switch"][-len(rows[0]) :]
    shown = "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])
    return f"{shown}\n\nAll of them: [deviations](../deviations.md)."


def agents_table() -> str:
    """The published agents by their cards, with their videos."""
    cards = [json.loads(path.read_text(encoding="utf-8")) for path in layout.agent_cards(PUBLISHED)]
    if not cards:
        return "None are published."
    cards.sort(key=lambda card: list(METHODS).index(card["method"]))
    folder = os.path.relpath(PUBLISHED / layout.AGENTS, ROOT / "docs")
    rows = [
        [f"`{card['method']}`", card["task"], card["summary"], f"[file]({folder}/{card['name']}.safetensors)"]
        for card in cards
    ]
    parts = [table(["agent", "task", "success in percent (95 %)", ""], rows)]
    for card in cards:
        if video := card.get("video"):
            end = "solved" if video["is_solved"] else "not solved"
            parts.append(f"{TITLES[card['method']]}, episode {video['episode']}: {end} in {video['steps']} steps.")
            parts.append(f"![An episode of {TITLES[card['method']]}]({folder}/{video['file']})")
    return "\n\n".join(parts)


def report_frame() -> str:
    address = Path(*(PUBLISHED / layout.REPORT).relative_to(ROOT).parts[1:]).as_posix()
    return f'<iframe class="report" src="{address}" title="The report"></iframe>'


BLOCKS: dict[str, Callable[..., str]] = {
    "settings": settings_table,
    "results": results_table,
    "contest": contest_table,
    "overview": overview_table,
    "deviations": deviations_table,
    "agents": agents_table,
    "report": report_frame,
}


def build(folder: Path) -> str:
    """Stage and build the site in `folder`; what the builder said, which raises if it is a warning."""
    folder.mkdir(parents=True, exist_ok=True)
    stage(folder / "pages")
    for name in ("zensical.toml", "docstrings.py"):
        shutil.copyfile(ROOT / "docs" / name, folder / name)
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode or re.search(r"griffe|warning|error", said, flags=re.IGNORECASE):
        raise DocsError(said)
    return said


def main() -> int:
    try:
        build(BUILD)
    except DocsError as error:
        print(error, file=sys.stderr)
        return 1
    print((BUILD / "site/index.html").relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
