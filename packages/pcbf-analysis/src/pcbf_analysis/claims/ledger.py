"""From config/claims.yaml to <results>/claims.csv and claims.md."""

from __future__ import annotations

import csv
import inspect
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from pcbf_analysis.claims import benchmark, beyond, theory, toy
from pcbf_analysis.claims.verdicts import VERDICTS, Decision
from pcbf_analysis.results import Results
from pcbf_records.canonical import suggestion
from pcbf_records.errors import RecordError
from pcbf_records.files import atomic_write
from pcbf_records.sheets import LOADER

TESTS: dict[str, Callable[..., Decision]] = {
    test.__name__: test
    for test in (
        theory.checks_hold,
        theory.check_measured,
        theory.solitaire_law,
        theory.bernoulli_law,
        theory.number_of_live_states,
        theory.smallest_return,
        theory.target_ignores_successor,
        toy.w1_trend,
        toy.loss_std_trend,
        toy.w1_growth,
        toy.w1_within,
        toy.w1_rises_after,
        toy.best_is_moderate,
        toy.w1_below,
        toy.w1_apart,
        toy.w1_ratio_at_state,
        toy.near_lowest_w1,
        toy.w1_below_along,
        toy.w1_at_or_below_paper,
        toy.w1_near_paper,
        toy.paper_w1_within,
        toy.spread_below_exact,
        toy.tail_nearer,
        toy.residual_smaller,
        toy.residual_gap_is_discretisation,
        benchmark.domain_comparison,
        benchmark.ablation_best,
        benchmark.cost_ratio,
        benchmark.action_dimensions,
        benchmark.observation_size,
        benchmark.number_of_tasks,
        benchmark.weights_within_discount,
        benchmark.headings_match,
        benchmark.bold_follows_rule,
        benchmark.domain_means_follow,
        beyond.flow_path_within,
        beyond.flow_path_ahead,
        beyond.networks_at_fixed_point,
        beyond.variance_ratio,
        beyond.every_method_is_beaten,
        beyond.cvar_gain_share,
        beyond.regret_at_most,
        beyond.source_agrees,
        beyond.source_departs,
        beyond.rerun_below_paper,
    )
}
COLUMNS = (
    *("id", "kind", "importance", "claim", "where", "verdict", "measured", "low", "high"),
    *("paper", "note", "evidence", "test"),
)
KINDS = {
    "theory": "Theory",
    "toy": "Return laws of the toy processes",
    "benchmark": "Control benchmark",
    "cost": "Cost",
    "setting": "Settings",
    "paper": "The paper's own numbers",
    "beyond": "Beyond the paper: what we found",
}
BEYOND = "beyond"
MAIN = "main"


class ClaimsError(RecordError):
    """A ledger that cannot be used; the message has one sentence per fault."""


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, or one of ours beyond it.

    Attributes:
      importance: "main" for what a reader should know, else "detail".
      where: label or section of the paper.
      paper: what the paper says, a number or words.
      test, parameters: the function of `TESTS` that decides it, and what it is told.
      evidence: the file that the verdict rests on, from the results folder; one that begins with / is from the
        top folder of the repository.
    """

    id: str
    kind: str
    importance: str
    claim: str
    where: str
    paper: str
    test: str
    evidence: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A claim and what was decided."""

    claim: Claim
    decision: Decision


def claims_file(results: Results) -> Path:
    """The ledger of the repository."""
    return results.config("claims.yaml")


def load_claims(path: Path) -> list[Claim]:
    """The checked claims of a ledger; its schema is schemas/claims.schema.yaml beside it."""
    name = f"config/{path.name}"
    content, schema = (_read(file) for file in (path, path.parent / "schemas" / "claims.schema.yaml"))
    validator = jsonschema.Draft202012Validator(schema)
    faults = sorted(validator.iter_errors(content), key=lambda fault: [str(part) for part in fault.absolute_path])
    sentences = [f"{name}: {_place(content, list(fault.absolute_path))}{fault.message}." for fault in faults]
    if not sentences:
        sentences = [f"{name}: {sentence}" for sentence in _faults(content["claims"])]
    if sentences:
        raise ClaimsError("\n".join(sentences))
    return [
        Claim(**{**entry, "claim": _line(entry["claim"]), "paper": _line(str(entry["paper"]))}, parameters=parameters)
        for entry, parameters in (_split(entry) for entry in content["claims"])
    ]


def _split(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    plain = dict(entry)
    return plain, dict(plain.pop("parameters", {}))


def _line(text: str) -> str:
    return " ".join(text.split())


def _read(path: Path) -> Any:
    if not path.exists():
        raise ClaimsError(
            f"{path.as_posix()} is not there; run from the top folder of the repository or pass --claims."
        )
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError as error:
        raise ClaimsError(f"config/{path.name} cannot be read as YAML: {error}") from error


def _place(content: Any, keys: Sequence[str | int]) -> str:
    """Where a fault is, by the claim's id where it has one."""
    if len(keys) < 2 or keys[0] != "claims":
        return ""
    entry = content["claims"][keys[1]]
    name = entry.get("id", f"number {int(keys[1]) + 1}") if isinstance(entry, dict) else f"number {int(keys[1]) + 1}"
    return f"claim {name}: " + "".join(f"{key}: " for key in keys[2:])


def _faults(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the schema cannot see: ids that stand there twice, tests that are not there, parameters that they lack."""
    found = []
    ids = [entry["id"] for entry in entries]
    found += [f"the id {name} stands there twice; rename one." for name in sorted({i for i in ids if ids.count(i) > 1})]
    for entry in entries:
        if entry["test"] not in TESTS:
            hint = suggestion(entry["test"], TESTS) or f"; known are {', '.join(TESTS)}"
            found.append(f"claim {entry['id']}: test = {entry['test']}: unknown{hint}")
            continue
        known = list(inspect.signature(TESTS[entry["test"]]).parameters.values())[1:]
        names, given = [p.name for p in known], entry.get("parameters", {})
        unknown = [name for name in given if name not in names]
        missing = [p.name for p in known if p.default is p.empty and p.name not in given]
        if unknown:
            found.append(
                f"claim {entry['id']}: {entry['test']} takes {', '.join(names) or 'nothing'}, not {', '.join(unknown)}."
            )
        if missing:
            found.append(f"claim {entry['id']}: {entry['test']} also needs {', '.join(missing)}.")
    return found


def decide(results: Results, claims: Sequence[Claim] | None = None) -> list[Finding]:
    """The verdict on every claim, from the records of a results folder."""
    chosen = load_claims(claims_file(results)) if claims is None else claims
    return [Finding(claim, TESTS[claim.test](results, **claim.parameters)) for claim in chosen]


def of_paper(findings: Sequence[Finding]) -> list[Finding]:
    """The claims that the paper makes, without what we found beyond it."""
    return [finding for finding in findings if finding.claim.kind != BEYOND]


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many claims have each verdict."""
    return {verdict: sum(f.decision.verdict == verdict for f in findings) for verdict in VERDICTS}


def table(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The ledger's rows under `COLUMNS`; a number that is unknown is None."""
    rows = []
    for finding in findings:
        claim, decision = finding.claim, finding.decision
        numbers = (decision.measured.value, decision.measured.low, decision.measured.high)
        measured, low, high = (number if math.isfinite(number) else None for number in numbers)
        values = (
            claim.id,
            claim.kind,
            claim.importance,
            claim.claim,
            claim.where,
            decision.verdict,
            measured,
            low,
            high,
        )
        rows.append(dict(zip(COLUMNS, (*values, claim.paper, decision.note, claim.evidence, claim.test), strict=True)))
    return rows


def measured_text(row: Mapping[str, Any]) -> str:
    """A measured number with its interval, as a reader sees it."""
    if row["measured"] is None:
        return "–"
    low, high = row["low"], row["high"]
    has_interval = low is not None and high is not None and low != high
    return _number(row["measured"]) + (f" [{_number(low)}, {_number(high)}]" if has_interval else "")


def _number(value: Any) -> str:
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


def to_csv(findings: Sequence[Finding]) -> str:
    """The ledger as csv, numbers with six significant digits."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table(findings):
        numbers = {name: "" if row[name] is None else f"{row[name]:.6g}" for name in ("measured", "low", "high")}
        writer.writerow({**row, **numbers})
    return buffer.getvalue()


def to_markdown(findings: Sequence[Finding], folder: str) -> str:
    """The ledger as a Markdown page: counts, the main claims, then a table per kind of claim."""
    paper, rows = of_paper(findings), table(findings)
    main = [row for row in rows if row["importance"] == MAIN]
    lines = [f"# The paper's claims, decided from {folder}", ""]
    lines += [f"- **{verdict}**: {number}" for verdict, number in counts(paper).items()]
    lines += [
        "",
        f"{len(paper)} claims of the paper are counted; {len(findings) - len(paper)} findings of ours are beyond it. "
        "`config/claims.yaml` names the test of each, `pcbf-claims` runs them on records. Intervals are 95 %.",
        *_section("The main claims of the paper", [row for row in main if row["kind"] != BEYOND]),
        *_section("The main findings beyond it", [row for row in main if row["kind"] == BEYOND]),
    ]
    for kind, title in KINDS.items():
        details = [row for row in rows if row["kind"] == kind and row["importance"] != MAIN]
        lines += _section(f"{title}, in detail", details)
    return "\n".join(lines) + "\n"


def _section(title: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A heading and a table; nothing without rows."""
    if not rows:
        return []
    lines = ["", f"## {title}", "", "| id | claim | where | verdict | measured | paper | evidence |"]
    lines.append("|:--|:--|:--|:--|:--|:--|:--|")
    for row in rows:
        measured = f"{measured_text(row)} ({row['note']})"
        cells = (row["id"], row["claim"], row["where"], f"**{row['verdict']}**", measured, row["paper"])
        lines.append("| " + " | ".join(_cell(cell) for cell in (*cells, f"`{row['evidence']}`")) + " |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def write(results: Results, findings: Sequence[Finding], folder: str) -> list[Path]:
    """Paths of claims.csv and claims.md, written to the results folder."""
    texts = {"claims.csv": to_csv(findings), "claims.md": to_markdown(findings, folder)}
    for name, text in texts.items():
        with atomic_write(results.root / name) as file:
            file.write(text)
    return [results.root / name for name in texts]
