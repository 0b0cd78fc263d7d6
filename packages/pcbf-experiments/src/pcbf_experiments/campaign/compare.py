"""Whether a run came out as the published one: `pcbf-compare`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from pcbf_experiments.campaign.manifest import read_manifest
from pcbf_records import layout
from pcbf_records.canonical import differences, readable_json
from pcbf_records.commands import Parser
from pcbf_records.files import open_npz, write_text
from pcbf_records.layout import MANIFEST
from pcbf_records.runs import OWN_HASH
from pcbf_records.toy import TUNED_FIRST

Verdict = Literal["identical", "agrees", "differs"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from best to worst

STANDARD_ERRORS = 2.0  # a mean agrees if it is this many combined standard errors away, or less,
FLOOR = {"w1": 0.01, "loss_std": 0.01, "value": 0.01, "score": 1.0}  # and this much more, in units of the quantity
WORST_SHOWN = 5
MACHINE_DEPENDENT = {"cost", "paper_comparison", "setting_effects", "ogbench"}  # show what the machine decides
SHOW_CHANGES = {"ablations", "tuning"}  # show whatever changes a folder has
NOT_COMPARED = {"code", "versions", OWN_HASH}  # of a training run: who ran it, not what came out


@dataclass(frozen=True)
class Cell:
    """A mean over seeds beside its published value."""

    quantity: str
    where: dict[str, Any]
    ours: float
    published: float
    allowed: float  # how far apart they may be: two combined standard errors and a floor
    chance: float  # probability of being farther apart than two standard errors by the choice of seeds alone

    @property
    def excess(self) -> float:
        """Distance over what is allowed; above 1 the cell is outside seed noise."""
        return abs(self.ours - self.published) / self.allowed

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self.where.items())
        return f"{self.quantity} of {where}: {self.ours:.4g}, published {self.published:.4g} (± {self.allowed:.2g})"


@dataclass(frozen=True)
class Finding:
    """The verdict on one file, and why."""

    name: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    settings: list[str]  # differences of settings: a, not b
    findings: list[Finding]
    worst: list[Cell]
    one_sided: list[str]  # folders of ablations and trials that only one of the two was asked for

    def names(self, verdict: Verdict) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict == verdict]


def compare(ours: Path, published: Path) -> Comparison:
    """What in the results folder `ours` is identical to, agrees with, or differs from the folder `published`."""
    both = [{*read_manifest(folder)["records"]} for folder in (ours, published)]
    names = [name for name in sorted(both[0] | both[1]) if not _is_left_out(name)]
    one_sided = [name for name in names if name in both[0] ^ both[1] and layout.change_of(name)]
    names = [name for name in names if name not in one_sided]
    cells = {
        layout.TOY_W1: seed_cells(ours, published, layout.TOY_W1, "w1"),
        layout.TOY_LOSS_STD: seed_cells(ours, published, layout.TOY_LOSS_STD, "loss_std"),
        layout.EXACT_RESULTS: seed_cells(ours, published, layout.EXACT_RESULTS, "value"),
        layout.CALIBRATION_RESULTS: seed_cells(ours, published, layout.CALIBRATION_RESULTS, "value"),
        **run_cells(ours, published),
    }
    findings = [_finding(ours, published, name, cells) for name in names]
    verdicts: list[Verdict] = [finding.verdict for finding in findings]
    findings += [
        _artefact(ours, published, name, max(verdicts, key=VERDICTS.index), bool(one_sided))
        for name in _artefacts(ours, published)
    ]
    made_with = [read_manifest(folder)["config"]["settings"] for folder in (ours, published)]
    settings = [f"{name}: {mine}, not {theirs}" for name, mine, theirs in differences(*made_with)]
    every = [cell for group in cells.values() for cell in group]
    worst = sorted((cell for cell in every if cell.excess > 0), key=lambda cell: -cell.excess)
    folders = dict.fromkeys("/".join(name.split("/")[:2]) for name in one_sided)
    return Comparison(settings, findings, worst[:WORST_SHOWN], list(folders))


def _is_left_out(name: str) -> bool:
    """What the machine decides, and what is collected from records that are compared one by one."""
    collected = (layout.CONTROL_EVALUATIONS, layout.CONTROL_CONFIGS, layout.TOY_TUNING_W1, layout.EXACT_OPTIMA)
    return layout.is_cost(name) or layout.is_picture(name) or name in collected


def seed_cells(ours: Path, published: Path, name: str, quantity: str) -> list[Cell]:
    """One cell per row group (all columns but seed and the quantity) that both folders have."""
    if not (ours / name).is_file() or not (published / name).is_file():
        return []
    return _cells([_by_chosen_rate(pd.read_csv(folder / name)) for folder in (ours, published)], quantity)


def _by_chosen_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of toys with learning rates as what they are, the chosen ones: where two are as good, rounding chooses."""
    if "coefficient" not in rows:
        return rows
    is_chosen = rows["method"].isin(TUNED_FIRST)
    return rows.assign(coefficient=rows["coefficient"].astype(object).where(~is_chosen, "chosen"))


def run_cells(ours: Path, published: Path) -> dict[str, list[Cell]]:
    """One cell per change, task and method of the control suite, by what its runs are called."""
    return {cell.where["runs"]: [cell] for cell in _cells([_scores(folder) for folder in (ours, published)], "score")}


def _scores(folder: Path) -> pd.DataFrame:
    """The score of every finished run of a results folder, from its collected table."""
    columns = ["runs", "seed", "score"]
    path = folder / layout.CONTROL_EVALUATIONS
    if not path.is_file():
        return pd.DataFrame(columns=columns).astype({"score": float})
    table = pd.read_csv(path, keep_default_na=False)
    final = table[table["is_final"]].astype({"mean": float})
    final = final.assign(
        runs=[_runs(*place) for place in zip(final["change"], final["task"], final["method"], strict=True)]
    )
    means = final.groupby(["runs", "seed"])["mean"].mean()
    return pd.DataFrame([(*place, score) for place, score in means.items()], columns=columns)  # type: ignore[misc]


def _runs(change: str, task: str, method: str) -> str:
    """What the seeds of a method on a task are called together."""
    return "/".join(filter(None, [layout.ablation(change) if change else "", task, method]))


def _runs_of(name: str) -> str:
    """Which runs a run or evaluation record belongs to."""
    task, method, _ = layout.place(Path(name))
    return _runs(layout.change_of(name), task, method)


def _cells(frames: Sequence[pd.DataFrame], quantity: str) -> list[Cell]:
    """One cell per row group (all columns but seed and the quantity) of both frames."""
    keys = [column for column in frames[0].columns if column not in ("seed", quantity)]
    summaries = [frame.groupby(keys)[quantity].agg(["mean", "std", "count"]) for frame in frames]
    both = summaries[0].add_suffix("_ours").join(summaries[1].add_suffix("_published"), how="inner")
    num_ours, num_published = both["count_ours"], both["count_published"]
    variance = both["std_ours"].fillna(0.0) ** 2 / num_ours + both["std_published"].fillna(0.0) ** 2 / num_published
    allowed = STANDARD_ERRORS * np.sqrt(variance) + FLOOR[quantity]
    from scipy import stats  # a second, which a folder with nothing to compare need not wait

    chance = 2 * stats.t.sf(STANDARD_ERRORS, np.maximum(1, num_ours + num_published - 2))
    columns = [both["mean_ours"].tolist(), both["mean_published"].tolist(), allowed.tolist(), chance.tolist()]
    places = [place if isinstance(place, tuple) else (place,) for place in both.index.tolist()]
    return [
        Cell(quantity, dict(zip(keys, place, strict=True)), *numbers)
        for place, *numbers in zip(places, *columns, strict=True)
    ]


def judge(cells: Sequence[Cell]) -> tuple[Verdict, str]:
    """Whether the cells as a whole are what other seeds would give, and how many are on their own.

    A few means lie outside two standard errors by chance, the more the fewer seeds there are (Student's law); up to
    twice the number expected, or one, still agrees.
    """
    num_outside = sum(cell.excess > 1 for cell in cells)
    agrees = num_outside <= max(1.0, 2 * sum(cell.chance for cell in cells))
    if num_outside == len(cells):  # one cell alone, which chance may put outside, but not twice as far
        agrees &= max(cell.excess for cell in cells) <= 2
    return "agrees" if agrees else "differs", f"{len(cells) - num_outside} of {len(cells)} means within seed noise"


def _finding(ours: Path, published: Path, name: str, cells: Mapping[str, Sequence[Cell]]) -> Finding:
    for folder, words in ((ours, "not made here"), (published, "not published")):
        if not (folder / name).is_file():
            return Finding(name, "differs", words)
    if _same_content(ours / name, published / name):
        return Finding(name, "identical")
    if name == layout.THEORY_CHECKS:
        return _judge_checks(ours, published, name)
    if name == layout.THEORY_POPULATION:
        return _judge_population(ours, published, name)
    if layout.is_run(name) or layout.is_evaluation(name):
        return Finding(name, *judge_run(cells.get(_runs_of(name), []), _run_cells_of(cells)))
    group = cells[name] if name in cells else _cells_of_record(cells, name)
    if not group:
        return Finding(name, "differs", "nothing in common to compare")
    return Finding(name, *judge(group))


def _cells_of_record(cells: Mapping[str, Sequence[Cell]], name: str) -> list[Cell]:
    """The cells of the collected table that come from one record of a method."""
    if layout.is_exact_run(name):
        collected, key, run = layout.EXACT_RESULTS, "mdp", layout.exact_run
    elif layout.is_calibration_run(name):
        collected, key, run = layout.CALIBRATION_RESULTS, "dataset", layout.calibration_run
    else:
        collected, key, run = layout.TOY_W1, "env", layout.toy_run
    return [cell for cell in cells[collected] if run(cell.where[key], cell.where["method"]) == name]


def judge_run(own: Sequence[Cell], suite: Sequence[Cell]) -> tuple[Verdict, str]:
    """Whether the mean score that a training run belongs to is what other seeds would give.

    Among many means some lie outside two standard errors by chance. One that does still agrees if the suite as a whole
    does, unless it is twice as far off.
    """
    if not own:
        return "differs", "no score to compare"
    if own[0].excess <= 1:
        return "agrees", "mean score within seed noise"
    if own[0].excess <= 2 and judge(suite)[0] == "agrees":
        return "agrees", "mean score outside seed noise, as a few are by chance"
    return "differs", "mean score outside seed noise"


def _run_cells_of(cells: Mapping[str, Sequence[Cell]]) -> list[Cell]:
    return [cell for group in cells.values() for cell in group if cell.quantity == "score"]


def _judge_population(ours: Path, published: Path, name: str) -> Finding:
    """Fixed points of a deterministic solver agree to its tolerance, or differ."""
    frames = [pd.read_csv(folder / name) for folder in (ours, published)]
    keys = ["process", "path", "noise", "control_weight"]
    mine, theirs = (frame.set_index(keys)["relative_w1"] for frame in frames)
    if not mine.index.equals(theirs.index):
        return Finding(name, "differs", "other problems were solved")
    far = int((~np.isclose(mine, theirs, rtol=0.05, atol=1e-3, equal_nan=True)).sum())
    return Finding(name, "differs" if far else "agrees", f"{len(mine) - far} of {len(mine)} fixed points are the same")


def _judge_checks(ours: Path, published: Path, name: str) -> Finding:
    mine, theirs = (pd.read_csv(folder / name).set_index("id")["holds"] for folder in (ours, published))
    if set(mine.index) != set(theirs.index):
        return Finding(name, "differs", "other checks")
    changed = [str(check) for check in theirs.index if bool(mine[check]) != bool(theirs[check])]
    if changed:
        return Finding(name, "differs", f"another outcome of {', '.join(changed)}")
    return Finding(name, "agrees", f"the same outcome of all {len(theirs)} checks")


def _same_content(first: Path, second: Path) -> bool:
    """Equal bytes; of run records equal numbers, whatever they say of time, machine and versions."""
    if first.read_bytes() == second.read_bytes():
        return True
    if first.suffix == ".json":
        one, other = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
        return _numbers(one) == _numbers(other)
    if first.suffix != ".npz":
        return False
    with open_npz(first) as one, open_npz(second) as other:
        names = set(one.files) - {"metadata"}
        return names == set(other.files) - {"metadata"} and all(
            one[name].dtype == other[name].dtype
            and one[name].shape == other[name].shape
            and one[name].tobytes() == other[name].tobytes()
            for name in names
        )


def _numbers(record: dict[str, Any]) -> dict[str, Any]:
    """What came out, whoever made it: without code, versions and the hashes of files that held the same numbers."""
    kept = {name: value for name, value in record.items() if name not in NOT_COMPARED}
    if "evaluations" in kept:
        kept["evaluations"] = [{**item, "snapshot": None} for item in kept["evaluations"]]
    return kept


def _artefacts(ours: Path, published: Path) -> list[str]:
    """Tables and figures of either folder."""
    folders = ("tables", "figures")
    return sorted(
        {
            path.relative_to(root).as_posix()
            for root in (ours, published)
            for folder in folders
            for path in (root / folder).glob("*.*")
            if not path.name.startswith(".")
        }
    )


def _artefact(ours: Path, published: Path, name: str, records: Verdict, has_one_sided: bool) -> Finding:
    """The verdict on a table or figure, given the worst one on the records it is made from."""
    for folder, words in ((ours, "not made here"), (published, "not published")):
        if not (folder / name).is_file():
            return Finding(name, "differs", words)
    if _same_content(ours / name, published / name):
        return Finding(name, "identical")
    if Path(name).stem in MACHINE_DEPENDENT:
        return Finding(name, "agrees", "shows times or pictures of the machine, which are not compared")
    if has_one_sided and Path(name).stem in SHOW_CHANGES:
        return Finding(name, "agrees", "one of the two shows more ablations or trials")
    if records == "identical":
        return Finding(name, "differs", "though made from identical records: the code or a library is another")
    return Finding(name, records, f"made from records of which the worst {records}")


def summary(comparison: Comparison, ours: Path, published: Path) -> str:
    """The comparison for people, as Markdown."""
    titles: dict[Verdict, str] = {
        "identical": "identical",
        "agrees": "agrees within seed noise",
        "differs": "differs",
    }
    lines = [f"# {ours.as_posix()} compared with {published.as_posix()}", ""]
    if comparison.settings:
        lines += ["Made with other settings:", *(f"- {phrase}" for phrase in comparison.settings), ""]
    for verdict, title in titles.items():
        found = comparison.names(verdict)
        lines.append(f"- **{title}**: {_count(found)}")
        if verdict != "identical":
            lines += [f"  - {phrase}" for phrase in _grouped(found)]
    if comparison.one_sided:
        lines += ["", f"In one of them only, not compared: {', '.join(comparison.one_sided)}"]
    if comparison.worst:
        lines += ["", "Farthest apart:", *(f"- {cell}" for cell in comparison.worst)]
    return "\n".join(lines) + "\n"


def _count(found: Sequence[Finding]) -> str:
    kinds = defaultdict(int)
    for finding in found:
        top = finding.name.split("/")[0]
        kinds[top if top in ("tables", "figures") else "records"] += 1
    return ", ".join(f"{kinds[kind]} {kind}" for kind in ("records", "tables", "figures") if kinds[kind]) or "nothing"


def _grouped(found: Sequence[Finding]) -> Iterator[str]:
    """One phrase per reason; artefacts with the same reason share one."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for finding in found:
        reasons[finding.detail].append(finding.name)
    for detail, names in reasons.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield f"{shown}: {detail}"


# --- the command ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="pcbf-compare",
        description="Say what in a results folder is identical to, agrees with or differs from the published one.",
        examples=["pcbf-compare --results results/laptop --published results/published/laptop"],
    )
    parser.add_argument("--results", type=Path, required=True, help="folder of your run, such as results/laptop")
    parser.add_argument("--published", type=Path, required=True, help="such as results/published/laptop")
    options = parser.parse_args(arguments)
    if not (options.results / MANIFEST).is_file():
        print(f"{options.results} is not finished: there is no {MANIFEST}; run the pipeline first.", file=sys.stderr)
        return 1
    if not (options.published / MANIFEST).is_file():
        print(f"Nothing is published in {options.published} yet, so there is nothing to compare with.")
        return 0
    comparison = compare(options.results, options.published)
    text = summary(comparison, options.results, options.published)
    write_text(options.results / "compare.md", text)
    write_text(options.results / "compare.json", readable_json(asdict(comparison)))
    print(text.replace("**", "").removeprefix("# "), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
