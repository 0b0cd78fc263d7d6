"""Tables and figure of exact control from records whose numbers are worked by hand (see `exact_arrays`)."""

from __future__ import annotations

import math

import pytest

from pcbf_analysis.results import Results
from pcbf_analysis.tables import exact
from pcbf_core.mdp import MDPS
from pcbf_records import exact as records
from pcbf_records.errors import RecordError
from pcbf_records.layout import EXACT_RESULTS, exact_run

from ..exact_records import exact_arrays


def test_processes_are_those_of_the_library():
    assert list(records.MDPS) == list(MDPS)


def test_the_main_table_by_hand(complete: Results):
    table = exact.control(complete)
    rows = {(row[0], row[1]): dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows}
    assert len(rows) == len(table.rows) == 2 * 5
    ours = rows["cliff", "pcbf_flow"]
    assert ours["num_seeds"] == 3
    assert ours["regret"] == pytest.approx(30 - 0.1)  # the mean over seeds of 0.1 j is 0.1
    assert ours["regret_low"] < ours["regret"] < ours["regret_high"]
    assert ours["w1"] == pytest.approx(0.31)
    assert ours["cvar"] == pytest.approx(-1 + 0.1)
    assert (ours["gain"], ours["gain_low"], ours["gain_high"]) == pytest.approx((10, 10, 10))
    without = rows["cliff", "iql"]
    assert math.isnan(without["w1"]) and math.isnan(without["gain"]) and without["cvar"] == pytest.approx(-0.9)
    assert rows["cliff", "optimum"]["gain"] == pytest.approx(0)


def test_levels_have_rows_for_who_acts_by_them(complete: Results):
    table = exact.risk(complete)
    assert table.column("method") == 2 * ["optimum", "exact critic", "iqn", "pcbf_flow"]
    assert set(table.column("risk_level")) == {0.1}
    assert table.rows[3][4] == pytest.approx(10.1)


def test_paired_differences_name_the_better_side(complete: Results):
    table = exact.paired(complete)
    found = {row[:3]: row for row in table.rows}
    assert found["gamble", "w1", "iqn"][4:] == (
        pytest.approx(-0.2),
        pytest.approx(-0.2),
        pytest.approx(-0.2),
        "flow path",
    )
    assert found["gamble", "mean", "iql"][-1] == "no"
    assert ("gamble", "w1", "iql") not in found


def test_a_record_of_another_form_is_refused(tmp_path):
    path = tmp_path / exact_run("cliff", "iql")
    with pytest.raises(RecordError, match="pcbf-exact run cliff iql"):
        records.save_exact_record(path, {**exact_arrays(), "w1": exact_arrays()["w1"][:1]}, {})
    with pytest.raises(RecordError, match="pcbf-exact run"):
        records.collect_exact(tmp_path, {}, [])
    records.save_exact_record(path, exact_arrays(), {"mdp": "cliff"})
    assert records.load_exact_record(path).metadata == {"mdp": "cliff"}
    records.collect_exact(tmp_path, {"cliff": 8}, [])
    assert (tmp_path / EXACT_RESULTS).read_text().count("w1") == 3
