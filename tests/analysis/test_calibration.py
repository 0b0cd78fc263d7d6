"""Tables and figure of calibration, and those of variants, from records worked by hand (see `calibration_arrays`)."""

from __future__ import annotations

from typing import Any

import pytest

from pcbf_analysis.results import Results
from pcbf_analysis.tables import Table, calibration, exact, variants
from pcbf_records import calibration as records
from pcbf_records.errors import RecordError
from pcbf_records.layout import CALIBRATION_RESULTS, calibration_run

from ..calibration_records import calibration_arrays


def by_name(table: Table) -> list[dict[str, Any]]:
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def test_the_main_table_by_hand(complete: Results):
    rows = by_name(calibration.compute(complete))
    assert [row["method"] for row in rows[:4]] == ["monte_carlo", "marginal", "pcbf_flow", "iqn"]
    assert len(rows) == 3 * 4  # variants are not among them
    ours = rows[2]
    assert (ours["num_seeds"], ours["crps"]) == (3, pytest.approx(0.21))
    half = 4.303 * 0.01 / 3**0.5  # Student's quantile at two degrees of freedom
    assert (ours["crps_low"], ours["crps_high"]) == pytest.approx((0.21 - half, 0.21 + half), abs=1e-5)
    assert (ours["coverage_0.5"], ours["coverage_0.9"]) == (0.5, 0.9)


def test_paired_differences_name_the_better_side(complete: Results):
    rows = {(row["dataset"], row["measure"], row["method"]): row for row in by_name(calibration.paired(complete))}
    assert len(rows) == 3 * len(calibration.MEASURES) * 3
    assert rows["cube", "crps", "iqn"]["difference"] == pytest.approx(-0.1)
    assert rows["cube", "crps", "iqn"]["better"] == "flow path"
    assert rows["hopper", "rmse", "monte_carlo"]["better"] == "Monte Carlo"


def test_a_variant_is_held_against_what_differs_in_one_thing(complete: Results):
    rows = {(row["dataset"], row["measure"], row["variant"]): row for row in by_name(variants.of_calibration(complete))}
    weight0, mean = (rows["teleport", "crps", name] for name in ("λ = 0", "mean targets at λ = 0"))
    assert (weight0["against"], weight0["difference"]) == ("PCBF, flow path", pytest.approx(0.05))
    assert (mean["against"], mean["difference"], mean["better"]) == ("λ = 0", pytest.approx(0.15), "λ = 0")


def test_variants_of_exact_control_have_their_own_table(complete: Results):
    rows = {(row["mdp"], row["measure"]): row for row in by_name(variants.of_exact(complete))}
    assert rows["cliff", "w1"]["better"] == "PCBF, flow path"
    assert rows["cliff", "mean"]["better"] == "no" and rows["cliff", "w1"]["difference"] == pytest.approx(0.2)
    assert "pcbf_flow-independent" not in exact.methods_of(complete, "cliff")
    assert "pcbf_flow-independent" not in exact.control(complete).column("method")


def test_a_record_of_another_form_is_refused(tmp_path):
    path = tmp_path / calibration_run("cube", "iqn")
    with pytest.raises(RecordError, match="pcbf-calibrate run cube iqn"):
        records.save_calibration_record(path, {**calibration_arrays(), "crps": calibration_arrays()["crps"][:1]}, {})
    with pytest.raises(RecordError, match="pcbf-calibrate run"):
        records.collect_calibration(tmp_path)
    records.save_calibration_record(path, calibration_arrays(), {"dataset": "cube"})
    assert records.load_calibration_record(path).metadata == {"dataset": "cube"}
    records.collect_calibration(tmp_path)
    assert (tmp_path / CALIBRATION_RESULTS).read_text().count("pinball") == 3
