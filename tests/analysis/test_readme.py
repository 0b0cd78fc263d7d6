"""The numbers in README and docs are those of the published files; what they say of the paper is not judged here."""

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from pcbf_analysis.claims import VERDICTS
from pcbf_analysis.results import Results, late_losses
from pcbf_analysis.tables import calibration, overview
from pcbf_analysis.theme import METHODS, PROCESSES
from pcbf_records import layout
from pcbf_records.calibration import DATASETS
from pcbf_records.runs import final_score, load_evaluations, load_run

from .run_fixtures import REPOSITORY as ROOT

PUBLISHED, DESK = (ROOT / layout.published_folder(scale) for scale in ("laptop", "desk"))
README, DETAILS = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/results.md"))
CRPS = next(question for question in overview.QUESTIONS if question.name == "law_simulators")
SCORE = next(question for question in overview.QUESTIONS if question.name == "score")
OVER_CLONING = next(question for question in overview.QUESTIONS if question.name == "over_bc")
DETAILS_IN_LINE = " ".join(DETAILS.split())
SIX_NUMBERS = r"^\| ([^|]+)" + r" \| ([\d.]+|–)" * 6 + r" \|$"
EXACT_COLUMNS = ("regret", "w1", "gain")
CONTESTANTS = ("pcbf_flow", "pcbf", "value_flows", "flow_iqn", "iqn", "c51")
CONTEST_ROW = re.compile(
    rf"^\| ({'|'.join(style.label for style in PROCESSES.values())})" + r" \| (\*{0,2}[\d.]+\*{0,2})" * 6 + r" \|$",
    flags=re.MULTILINE,
)


@pytest.mark.parametrize(("text", "folder"), [(README, DESK), (DETAILS, PUBLISHED)], ids=["README", "results"])
def test_the_contest_is_shown_whole_and_as_it_is(text, folder):
    """W1 in units of the law's std; bold is what is nearer to the law than every other, by paired intervals."""
    table = pd.read_csv(folder / layout.table("toy_contest", "csv")).set_index(["env", "method"])["w1"]
    paired = pd.read_csv(folder / layout.table("toy_paired", "csv"))
    labels = {style.label: name for name, style in PROCESSES.items()}
    rows = CONTEST_ROW.findall(text)
    assert [labels[row[0]] for row in rows] == list(PROCESSES)
    for label, *numbers in rows:
        process = labels[label]
        expected = [table[process, method] for method in CONTESTANTS]
        assert [float(number.strip("*")) for number in numbers] == pytest.approx(expected, abs=5.1e-4)
        against = paired[(paired["env"] == process) & paired["method"].isin(CONTESTANTS)]
        wins = [bool((against["decides"] == "flow path").all()), *[False] * 5]
        assert [number.startswith("**") for number in numbers] == wins


def test_ten_seeds_say_of_the_flow_path_what_is_told_of_it():
    """README and docs/results.md: where it is ahead, where behind, and by how much of the law's std."""
    paired = pd.read_csv(DESK / layout.table("toy_paired", "csv")).query("method in @CONTESTANTS")
    assert set(paired["num_seeds"]) == {10}
    losses = {(row.env, row.method) for row in paired.itertuples() if row.decides == row.method}
    atoms = {(process, "c51") for process in ("solitaire", "chain")}
    assert losses == {*atoms, ("normal", "pcbf"), ("normal", "value_flows"), ("bernoulli", "flow_iqn")}
    assert paired.set_index(["env", "method"]).loc[("chain", "pcbf"), "decides"] == "flow path"
    w1 = pd.read_csv(DESK / layout.table("toy_contest", "csv")).set_index(["env", "method"])["w1"].to_dict()

    def behind(process: str, method: str) -> float:
        return w1[process, "pcbf_flow"] - w1[process, method]

    assert f"on normal rewards alone, by {behind('normal', 'pcbf'):.3f} of their deviation" in " ".join(README.split())
    by = f"by {behind('normal', 'pcbf'):.4f} and {behind('normal', 'value_flows'):.4f} of their deviation"
    assert f"{by}, on Bernoulli behind FlowIQN by {behind('bernoulli', 'flow_iqn'):.4f}" in DETAILS_IN_LINE
    assert f"on the chain it is {-behind('chain', 'pcbf'):.4f} ahead of the paper's path" in DETAILS_IN_LINE
    laws = next(question for question in overview.QUESTIONS if question.name == "law_processes")
    scores = overview.averaged(laws.ask(Results(DESK, ROOT)))
    assert overview.standing(laws, scores) == ("pcbf_flow", [])
    told = str(overview.estimates(laws, scores)["pcbf_flow"]).strip("*")
    assert f"over the five processes is {told}, ahead of every other method" in DETAILS_IN_LINE


def test_the_papers_path_is_biased_as_it_would_be_with_infinite_data():
    """docs/flow-path.md: networks lie within 5 % of the fixed point where its bias is well above their own error."""
    rows = pd.read_csv(PUBLISHED / layout.THEORY_POPULATION).query("path == 'linear' and noise == 'shared'")
    fixed = dict(zip(zip(rows["process"], rows["control_weight"], strict=True), rows["w1"], strict=True))
    runs = pd.read_csv(PUBLISHED / layout.TOY_W1).query("method == 'pcbf'")
    networks = runs.groupby(["env", "coefficient"])["w1"].mean().to_dict()
    for place in (("bernoulli", 0.3), ("bernoulli", 0.5), ("normal", 0.8)):
        assert networks[place] == pytest.approx(fixed[place], rel=0.05)


def test_independent_noise_has_so_many_times_the_variance():
    """The mean late loss at λ = 0, whose floor is the variance of the target, over that with shared noise."""
    results = Results(PUBLISHED)
    ratios = []
    for process in PROCESSES:
        (weights, shared), (others, independent) = (
            late_losses(results, process, method) for method in ("pcbf", "pcbf-independent")
        )
        ratios.append(float(independent[list(others).index(0)].mean() / shared[list(weights).index(0)].mean()))
    assert f"independent noise has {min(ratios):.1f} to {max(ratios):.1f} times the variance" in " ".join(
        README.split()
    )


def test_exact_control_is_shown_whole_and_as_it_is():
    table = pd.read_csv(PUBLISHED / layout.table("exact_control", "csv"))
    labels = {name: style.label for name, style in METHODS.items()} | {"optimum": "the optimum"}
    places = [(mdp, labels.get(method, method)) for mdp, method in zip(table["mdp"], table["method"], strict=True)]
    cells = dict(zip(places, table.to_dict("records"), strict=True))
    rows = re.findall(SIX_NUMBERS, section("exact control"), re.MULTILINE)
    assert {(mdp, label) for label, *_ in rows for mdp in ("cliff", "gamble")} == set(cells)
    for label, *numbers in rows:
        shown = [float(number.replace("–", "nan")) for number in numbers]
        expected = [float(cells[mdp, label][name]) for mdp in ("cliff", "gamble") for name in EXACT_COLUMNS]
        assert shown == pytest.approx(expected, abs=5.1e-4, nan_ok=True)
    best, ours = cells["cliff", "the optimum"]["gain"], cells["cliff", labels["pcbf_flow"]]
    gain = "{gain:.2f} ({gain_low:.2f} to {gain_high:.2f})".format_map(ours)
    assert f"gains {gain} of the {best:.2f} in CVaR" in " ".join(README.split())


def section(title: str) -> str:
    """What docs/results.md says below a heading that ends so."""
    return DETAILS.split(f"{title}\n", 1)[1].split("\n## ")[0]


def test_calibration_is_shown_whole_and_as_it_is():
    table = calibration.compute(Results(PUBLISHED))
    names = [column.name for column in table.columns]
    cells = {(row[0], METHODS[row[1]].label): dict(zip(names, row, strict=True)) for row in table.rows}
    rows = re.findall(SIX_NUMBERS, section("is the law right"), re.MULTILINE)
    assert {(dataset, label) for label, *_ in rows for dataset in DATASETS} == set(cells)
    for label, *numbers in rows:
        expected = [cells[dataset, label][name] for dataset in DATASETS for name in ("crps", "pit_error")]
        assert [float(number) for number in numbers] == pytest.approx(expected, abs=5.1e-4)


def test_a_visitor_reads_no_more_than_650_words():
    prose = re.sub(r"^\|[^\n]*$|^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert "pcbf-analysis" in prose  # the last section is prose, and counted
    assert len(prose.split()) <= 650


def test_what_reproducing_takes_is_what_was_timed():
    """`benchmarks/waits.py reproduce`, by the time of cores: what else the machine does is not counted."""
    row = pd.read_csv(ROOT / "results/benchmarks/waits.csv").set_index("work").loc["reproduce"]
    minutes, gigabytes = row["core_minutes"], row["largest_process_gb"]
    told = f"takes {minutes:.0f} core-minutes, half an hour on two fast cores"
    assert told in " ".join(README.split()) and f"{gigabytes:.1f} GB for its largest process" in " ".join(
        README.split()
    )
    assert 25 <= minutes / 2 <= 35


def test_the_published_page_is_light():
    assert (PUBLISHED / layout.REPORT).stat().st_size <= 3_000_000


def test_theory_count():
    checks = pd.read_csv(PUBLISHED / layout.THEORY_CHECKS)
    words = f"{int(checks['holds'].sum())} of {len(checks)} theory checks hold"
    assert words in DETAILS.replace("\n", " ")


CONTROL_ROWS = re.findall(
    r"^\| ([A-Za-z0-9, ]+) \| ([\d.]+) \| (?:([-+][\d.]+) \(([-\d.]+) to ([-\d.]+)\))? ?\| ?(yes|no|) ?\|$",
    DETAILS,
    flags=re.MULTILINE,
)


def test_control_suite_is_shown_whole_and_as_it_is():
    table = pd.read_csv(PUBLISHED / layout.table("control_suite", "csv")).set_index("method")
    titles = {style.label: name for name, style in METHODS.items()}
    shown = {titles[title]: cells for title, *cells in CONTROL_ROWS}
    assert set(shown) == set(table.index)
    for method, (mean, *over_clone, decided) in shown.items():
        row = table.loc[method]
        assert float(mean) == pytest.approx(row["mean"], abs=0.051)
        assert [float(cell or "nan") for cell in over_clone] == pytest.approx(
            [row["over_bc"], row["over_bc_low"], row["over_bc_high"]], abs=0.051, nan_ok=True
        )
        assert decided == {True: "yes", False: "no"}.get(row["is_above_bc"], "")


def test_what_is_done_of_the_desk_scale_is_shown_whole_and_as_it_is():
    """Every method's mean on every task of the cube, and over all where all are done."""
    table = pd.read_csv(DESK / layout.table("control_suite", "csv"))
    tasks = yaml.safe_load((ROOT / "config/scales/desk.yaml").read_text(encoding="utf-8"))["control"]["tasks"]
    means = table.pivot(index="method", columns="task", values="mean").reindex(columns=tasks)
    means["all"] = means.mean(axis="columns", skipna=False)
    rows = re.findall(
        SIX_NUMBERS, section("Five seeds and five tasks: the desk scale").split("\n### ")[0], re.MULTILINE
    )
    assert {label for label, *_ in rows} == {METHODS[method].label for method in means.index}
    for label, *numbers in rows:
        expected = means.loc[next(method for method in means.index if METHODS[method].label == label)]
        shown = [float(number.replace("–", "nan")) for number in numbers]
        assert shown == pytest.approx(expected.tolist(), abs=0.051, nan_ok=True)


def test_the_cube_is_told_as_it_is():
    """README and docs/results.md: over all five tasks, where nobody is ahead of all."""
    results = Results(DESK, ROOT)
    scores = overview.averaged(overview.suite_scores(results))
    means = {name: float(np.mean(list(own.values()))) for name, own in scores.items()}
    asked = yaml.safe_load((ROOT / "config/scales/desk.yaml").read_text(encoding="utf-8"))["control"]
    assert set(scores) == set(asked["methods"]) and {len(own) for own in scores.values()} == {asked["num_seeds"]}
    told = "PCBF succeeds in {pcbf:.0f} %, Value Flows in {value_flows:.0f} %, cloning in {bc:.0f} %"
    assert f"{told.format_map(means)} (five tasks, five seeds)" in " ".join(README.split())
    best, as_good = overview.standing(SCORE, scores)
    assert (best, as_good) == ("value_flows", ["pcbf_flow", "pcbf", "c51", "codac"])
    shown = overview.estimates(SCORE, scores)
    assert f"{shown['value_flows']!s}, and PCBF on either path, C51 and CODAC cannot be told from it" in DETAILS_IN_LINE
    assert f"the mean of its five tasks is {shown['pcbf']!s}" in DETAILS_IN_LINE
    over = overview.estimates(OVER_CLONING, overview.averaged(overview.over_cloning(results)))
    assert {name for name, cell in over.items() if not cell.low > 0} == {"random"}


def test_on_the_cube_lambda_makes_no_difference():
    rows = pd.read_csv(DESK / layout.table("setting_effects", "csv")).query("setting == 'control_weight'")
    assert len(rows) == 5 and set(rows["value"]) == {0}
    assert f"at λ = 0 the mean is {rows['mean'].mean():.1f}" in DETAILS_IN_LINE
    assert all(low < 0 < high for low, high in zip(rows["difference_low"], rows["difference_high"], strict=True))


def evaluations_of(folder: Path) -> dict[tuple[str, ...], str]:
    """The scores of every evaluation of a scale but IQL's, by task, method, change, seed and step."""
    with (folder / layout.CONTROL_EVALUATIONS).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] != "iql"]
    return {tuple(row[name] for name in ("task", "method", "change", "seed", "step")): row["episodes"] for row in rows}


def test_the_first_seeds_of_the_desk_scale_are_those_of_the_laptop_scale():
    """Score by score, as docs/results.md says, of every method that has as many steps at both."""
    laptop, desk = (evaluations_of(folder) for folder in (PUBLISHED, DESK))
    shared = [place for place in laptop if place in desk]
    assert {method for _, method, *_ in shared} == {"pcbf", "pcbf_flow", "value_flows", "c51", "bc"}
    assert len(shared) == 3 * 6 * 6  # seeds, evaluations, and the five methods with λ = 0
    assert all(laptop[place] == desk[place] for place in shared)


TRIAL_ROW = re.compile(r"^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| `([^`]+)` \|$", flags=re.MULTILINE)


def test_the_search_is_shown_whole_and_as_it_is():
    """The two trials of every method at the desk scale, from their records."""
    labels = {style.label: name for name, style in METHODS.items()}
    search = yaml.safe_load((ROOT / "config/scales/desk.yaml").read_text(encoding="utf-8"))["control"]["tuning"]
    found = TRIAL_ROW.findall(DETAILS)
    rows = {labels[label]: (change, float(first), float(second)) for label, first, second, change in found}
    assert {name: change for name, (change, *_) in rows.items()} == {m: t[1] for m, t in search["trials"].items()}
    for method, trials in search["trials"].items():
        scores = []
        for trial in trials:
            place = DESK / layout.ablation(layout.tuning(trial)), search["task"], method
            files = layout.JobFiles.of_seeds(*place, search["seeds"])
            scores.append(final_score(load_run(files.record(100)), load_evaluations(files.evaluations(100))))
        assert list(rows[method][1:]) == pytest.approx(scores, abs=0.051)


def test_verdict_counts():
    ledger = pd.read_csv(PUBLISHED / layout.CLAIMS[0]).query("kind != 'beyond'")
    verdicts = ledger["verdict"].tolist()
    main = ledger[ledger["importance"] == "main"]["verdict"].tolist()
    holds, fails, undecided, needs_paper = map(verdicts.count, VERDICTS)
    words = (
        f"{len(verdicts)} claims of the paper: {holds} hold, {fails} fail, "
        f"{undecided} are undecided at this scale, {needs_paper} need the paper's"
    )
    assert words in " ".join(DETAILS.split())
    assert f"Of the {len(main)} main ones, {main.count('holds')} hold (" in " ".join(DETAILS.split())
    assert f"{main.count('fails')} fail (more accurate" in " ".join(DETAILS.split())
    assert f"the paper's {len(verdicts)} claims" in " ".join(README.split())


def test_effect_of_reused_actions():
    table = pd.read_csv(PUBLISHED / layout.table("setting_effects", "csv")).set_index(["setting", "value"])
    row = table.loc[("action_reuse", 1)]
    words = (
        f"score {row['mean']:.1f} % where reuse over eight steps scores {row['mean'] - row['difference']:.1f} %, "
        f"a difference of {row['difference']:.1f} "
        f"(95 %: {row['difference_low']:.1f} to {row['difference_high']:.1f})"
    )
    text = " ".join((ROOT / "docs/cost.md").read_text(encoding="utf-8").split())
    assert words in text
    assert f"{row['relative_time']:.1f} times as much" in text


def test_the_table_that_decides_is_shown_whole_and_first():
    """docs/results.md opens with the published table, and says of each column what the table says."""
    published = (PUBLISHED / layout.table("overview", "md")).read_text(encoding="utf-8")
    rows = [line for line in published.splitlines() if line.startswith("|")]
    assert "\n".join([rows[0], *rows[2:]]) in re.sub(r"^\|(?: *:?-+:? *\|)+\n", "", DETAILS, flags=re.MULTILINE)
    assert DETAILS.index(rows[0]) == min(DETAILS.index(row) for row in re.findall(r"^\|.*", DETAILS, re.MULTILINE))
    told = " ".join(section("One table that decides").split())
    results = Results(PUBLISHED, ROOT)
    asked = {question: overview.averaged(question.ask(results)) for question in overview.QUESTIONS}
    best = {question.name: overview.standing(question, scores) for question, scores in asked.items()}
    assert best["law_processes"] == ("pcbf_flow", ["pcbf"])
    assert "PCBF on the flow path has the lowest mean W1 and only the paper's path cannot be told from it" in told
    assert best["law_simulators"] == ("c51", [])
    assert "C51 is ahead of every other critic" in told
    crps = {method: cell.mean for method, cell in overview.estimates(CRPS, asked[CRPS]).items()}
    assert crps["iqn"] < crps["pcbf_flow"] < min(crps[name] for name in ("pcbf", "value_flows", "gaussian"))
    assert best["regret"] == ("iql", ["c51"])
    assert "IQL has no regret at all, and only C51, which scatters most, cannot be told from it" in told
    assert best["gain"] == ("iqn", ["pcbf_flow", "pcbf"])
    assert "IQN gains most; PCBF on either path cannot be told from it" in told
    most = re.search(r"gains ([\d.]+) in CVaR, acting by the exact law of the best mean ([\d.]+)\.", published)
    assert most and f"would gain {most[1]}, the exact law of the best mean policy {most[2]}." in told
    assert best["score"] == ("value_flows", ["pcbf_flow", "pcbf", "c51"])
    assert "Value Flows has the highest mean, and C51 and PCBF on either path cannot be told from it" in told
