"""The numbers in README and docs are those of the published files; what they say of the paper is not judged here."""

import re

import pandas as pd
import pytest

from pcbf_analysis.claims import VERDICTS
from pcbf_analysis.theme import METHODS
from pcbf_records import layout

from .run_fixtures import REPOSITORY as ROOT

PUBLISHED = ROOT / layout.published_folder("laptop")
README = (ROOT / "README.md").read_text(encoding="utf-8")
KEYS = ["env", "state", "method", "coefficient"]
NUMBERS = r" \| ([\d.]+)" * 5
ROWS = re.findall(
    r"^\| (Solitaire Dice|Bernoulli|Chain, s = (\d+)) \| ([\d.]+) \| \*{0,2}([\d.]+)\*{0,2}" + NUMBERS + r" \|$",
    README,
    flags=re.MULTILINE,
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_w1_table(row: tuple[str, ...]):
    name, state, control_weight, *numbers = row
    process = {"Solitaire Dice": "solitaire", "Bernoulli": "bernoulli"}.get(name, "chain")
    place = (process, int(state or 0))
    ours = pd.read_csv(PUBLISHED / layout.TOY_W1).groupby(KEYS)["w1"].mean().to_dict()
    paper = (
        pd.read_csv(ROOT / layout.PAPER_NUMBERS / "toy_w1.csv")
        .fillna({"coefficient": -1})
        .set_index(KEYS)["w1"]
        .to_dict()
    )
    expected: list[float] = []
    for method, coefficient in (("pcbf", float(control_weight)), ("value_flows", 0.0), ("value_flows", 1.0)):
        in_paper = -1 if method == "pcbf" else coefficient  # the paper does not state PCBF's
        expected += [ours[*place, method, coefficient], paper[*place, method, in_paper]]
    assert [float(number) for number in numbers] == pytest.approx(expected, abs=5.1e-4)
    table = pd.read_csv(PUBLISHED / layout.table("toy_w1", "csv")).set_index(KEYS[:3])
    assert float(control_weight) == table.loc[(*place, "pcbf"), "coefficient"]


def test_all_six_settings_are_shown():
    assert len(ROWS) == 6


def test_theory_count():
    checks = pd.read_csv(PUBLISHED / layout.THEORY_CHECKS)
    words = f"{int(checks['holds'].sum())} of {len(checks)} theory checks hold"
    assert words in README.replace("\n", " ")


CONTROL_ROWS = re.findall(
    r"^\| ([A-Za-z0-9 ]+) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| (yes|no|) ?\|$",
    README,
    flags=re.MULTILINE,
)


def test_control_suite_is_shown_whole_and_as_it_is():
    table = pd.read_csv(PUBLISHED / layout.table("control_suite", "csv")).set_index("method")
    titles = {style.label: name for name, style in METHODS.items()}
    shown = {titles[title]: (mean, low, high, above) for title, mean, low, high, above in CONTROL_ROWS}
    assert set(shown) == set(table.index)
    for method, (mean, low, high, above) in shown.items():
        row = table.loc[method]
        assert [float(mean), float(low), float(high)] == pytest.approx(
            [row["mean"], row["low"], row["high"]], abs=0.051
        )
        assert above == {True: "yes", False: "no"}.get(row["is_above_bc"], "")


def test_verdict_counts():
    verdicts = pd.read_csv(PUBLISHED / layout.CLAIMS[0])["verdict"].tolist()
    holds, fails, undecided, needs_paper = map(verdicts.count, VERDICTS)
    words = (
        f"{len(verdicts)} claims of the paper: {holds} hold, {fails} fail, "
        f"{undecided} are undecided at this scale, {needs_paper} need the paper's"
    )
    assert words in " ".join(README.split())


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
