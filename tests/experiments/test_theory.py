"""The theory record: its relations, its file, its errors, and which checks hold and which do not."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pcbf_experiments.cli.theory import TOY_RECORD, main
from pcbf_experiments.theory import (
    CHECKS,
    TheorySettings,
    at_least,
    at_most,
    near,
    parse_settings,
    residual_rows,
    run_checks,
)
from pcbf_experiments.theory.measures import in_parts, largest_z_score, order, regression_slope, wasserstein1
from pcbf_records.layout import THEORY_CHECKS
from pcbf_records.theory import CHECK_COLUMNS, CheckRow, write_checks
from pcbf_records.toy import save_toy_record

from ..toys import residual_arrays, toy_arrays

SETTINGS = {
    "num_samples": 5000,
    "seed": 3,
    "num_flow_steps": 20,
    "num_points": 61,
    "population_processes": ["solitaire", "bernoulli"],  # the others take as many times longer
}


def write_residuals(results: Path, *, shared: float = 0.1) -> Path:
    """A toy record with residuals `shared`·t and 0.5, the latter larger for the second of two seeds."""
    file = results / TOY_RECORD
    save_toy_record(file, toy_arrays() | residual_arrays(shared), {})
    return file


def run(results: Path, settings: dict[str, Any] = SETTINGS) -> list[dict[str, str]]:
    main(["--results", str(results), "--settings", json.dumps(settings)])
    return read_checks(results)


def read_checks(results: Path) -> list[dict[str, str]]:
    with (results / THEORY_CHECKS).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def results(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A folder in which the command has been run."""

    def make(folder: Path) -> None:
        write_residuals(folder)
        run(folder)

    return made_once("theory", make)


@pytest.fixture(scope="module")
def record(results: Path) -> list[dict[str, str]]:
    return read_checks(results)


def test_margins_and_verdicts() -> None:
    assert at_most("a", "s", "l", 1.0, 1.5).margin == pytest.approx(0.5)
    assert at_least("a", "s", "l", 1.0, 1.5).margin == pytest.approx(-0.5)
    assert near("a", "s", "l", 1.0, 1.2, 0.3).margin == pytest.approx(0.1)
    assert at_most("a", "s", "l", 2.0, 2.0).holds
    assert not near("a", "s", "l", 1.0, 1.2, 0.1).holds
    assert not at_most("a", "s", "l", math.nan, 1.0).holds
    assert near("a", "s", "l", 1.0, 1.2, 0.3).statement == "s (tolerance 0.3)"


def test_cells_are_short_numbers_and_words() -> None:
    cells = CheckRow("a", "s", "l", 1 / 3, -0.0, ">=").cells()
    assert cells == ("a", "s", "l", "0.333333", "0", ">=", "0.333333", "true")
    assert CheckRow("a", "s", "l", 2e-12, 1.0, ">=").cells()[-2:] == ("-1", "false")


def test_z_score_finds_a_conditional_mean_that_the_overall_mean_hides() -> None:
    rng = np.random.default_rng(0)
    point, chance = rng.standard_normal((2, 20000))
    assert largest_z_score(point, chance) < 5
    assert largest_z_score(point, chance + 0.5 * point) > 20


def test_parts_make_the_whole() -> None:
    x, y = np.arange(7.0), np.arange(7)
    np.testing.assert_array_equal(in_parts(lambda a, b: a * b, x, y, size=3), x * y)


def test_regression_slope_by_hand() -> None:
    # y = 2x + (1, -2, 1)/3: slope 2, residual variance (6/9)/1, Σx² = 2.
    slope, error = regression_slope(np.array([-1.0, 0, 1]), np.array([-5 / 3, -2 / 3, 7 / 3]))
    assert (slope, error) == (pytest.approx(2), pytest.approx(math.sqrt(1 / 3)))


def test_wasserstein_of_a_shift_is_the_shift() -> None:
    assert wasserstein1(stats.norm.cdf, stats.norm(0.7).cdf, -9, 10) == pytest.approx(0.7, abs=1e-8)


def test_order_of_a_power_is_its_exponent() -> None:
    assert order(lambda h: -3 * h**2, 1e-3) == pytest.approx(2)


def test_the_names_that_decide_the_random_streams_stay() -> None:
    assert set(CHECKS) == {
        "bias_slope_order",
        "dcfm_degeneracy",
        "endpoint_laws",
        "euler_endpoint",
        "fixed_points",
        "flow_path",
        "gaussian_closed_forms",
        "implemented_coupling",
        "lambda_bias_bound",
        "lambda_decomposition",
        "path_identities",
        "pointwise_bounds",
        "posterior_velocity",
        "shared_noise_contraction",
        "source_mismatch",
    }
    assert all(check.__name__ == name for name, check in CHECKS.items())


@pytest.mark.slow
def test_a_check_draws_the_same_whichever_others_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TheorySettings(1000, 3)
    together = {row.id: row for row in run_checks(settings)}
    for name in set(CHECKS) - {"euler_endpoint"}:
        monkeypatch.delitem(CHECKS, name)
    alone = run_checks(settings)
    assert alone
    assert all(row == together[row.id] for row in alone)


@pytest.mark.slow
def test_record_has_the_agreed_form(record: list[dict[str, str]]) -> None:
    assert tuple(record[0]) == CHECK_COLUMNS
    ids = [row["id"] for row in record]
    assert ids == sorted(set(ids))
    for row in record:
        assert row["relation"] in {"<=", ">=", "≈"}
        assert row["holds"] == ("true" if float(row["margin"]) >= 0 else "false")
        assert row["label"].partition(":")[0] in {"prop", "eq", "app", "thm", "lem", "cor", "beyond"}
        assert row["statement"]


@pytest.mark.slow
def test_every_statement_holds(record: list[dict[str, str]]) -> None:
    assert [row["id"] for row in record if row["holds"] == "false"] == []


@pytest.mark.slow
def test_every_theme_of_the_theory_is_checked(record: list[dict[str, str]]) -> None:
    labels = {row["label"] for row in record}
    assert labels >= {
        "prop:endpoints_main",
        "eq:lambda_path_alt",
        "thm:posterior_velocity_main",
        "eq:lambda_bias_main",
        "prop:bias_bound_main",
        "eq:intrinsic_rms_bound",
        "cor:pointwise_conditional_bias",
        "cor:pointwise_density_ratio_bias",
        "app:gaussian_bias",
        "prop:shared_noise_contraction",
        "prop:euler-lambda",
        "eq:pointwise_uncorrected_path",
        "app:dcfm",
        "eq:rcorr",
    }


def test_residual_rows_average_over_seeds_and_leave_out_the_source(tmp_path: Path) -> None:
    # Largest over t > 0 of 0.1t - (0.5 + 0.7)/2 is -0.5, at t = 1.
    rows = list(residual_rows(write_residuals(tmp_path)))
    assert [row.id for row in rows] == ["rcorr-n04", "rcorr-n08", "rcorr-n16", "rcorr-n32"]
    assert [row.measured for row in rows] == pytest.approx([-0.5] * 4)


@pytest.mark.slow
def test_a_failing_residual_is_recorded_and_the_command_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_residuals(tmp_path, shared=2.0)
    for other in ("run_checks", "population_checks"):
        monkeypatch.setattr(f"pcbf_experiments.theory.{other}", lambda _: [])
    rows = {row["id"]: row for row in run(tmp_path, {**SETTINGS, "population_processes": ["bernoulli"]})}
    assert rows["rcorr-n08"]["holds"] == "false"
    assert float(rows["rcorr-n08"]["margin"]) == pytest.approx(-1.4)
    assert "fails: rcorr-n08" in capsys.readouterr().out


@pytest.mark.slow
def test_same_settings_same_bytes(results: Path, tmp_path: Path) -> None:
    write_residuals(tmp_path)
    run(tmp_path)
    first, second = (
        {file.name: file.read_bytes() for file in (folder / "theory").iterdir()} for folder in (results, tmp_path)
    )
    assert first == second
    assert set(first) == {"checks.csv", "population.csv"}


def test_missing_record_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"pcbf\.npz is missing.*`pcbf-toy run solitaire pcbf --settings JSON"):
        run(tmp_path)
    save_toy_record(tmp_path / TOY_RECORD, toy_arrays(), {})
    with pytest.raises(SystemExit, match="has no residuals; make it anew with `pcbf-toy run solitaire pcbf"):
        run(tmp_path)


def test_a_record_without_what_is_needed_is_refused(tmp_path: Path) -> None:
    file = write_residuals(tmp_path)
    with np.load(file) as arrays:
        whole = dict(arrays)
    np.savez(file, allow_pickle=False, **{**whole, "residual_steps": np.array([4, 8, 16, 64])})
    with pytest.raises(SystemExit, match="without 32; make it anew with `pcbf-toy run solitaire pcbf"):
        run(tmp_path)
    np.savez(file, allow_pickle=False, **{name: array for name, array in whole.items() if name != "residual_shared"})
    with pytest.raises(SystemExit, match="lacks residual_shared; delete it and run the job again"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[1, 2]", "must name `num_samples` and `seed`"),
        ('{"num_samples": 5000}', "must name `num_samples` and `seed`"),
        ('{"num_samples": 10, "seed": 0}', "`num_samples=10` is out of range; it must be >= 1000"),
        ('{"num_samples": 2.5e3, "seed": 0}', "pass a whole number >= 1000"),
        ('{"num_samples": 5000, "seed": -1}', "`seed=-1` is out of range"),
        ('{"num_samples": 5000, "seed": 0, "num_sample": 1}', "Did you mean 'num_samples'"),
    ],
)
def test_bad_settings_say_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        main(["--results", str(tmp_path), "--settings", text])


def test_settings_are_checked() -> None:
    assert parse_settings('{"num_samples": 1000, "seed": 0}') == TheorySettings(1000, 0)


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    row = at_most("a", "s", "l", 0.0, 1.0)
    with pytest.raises(ValueError, match="must be unique, got a"):
        write_checks(tmp_path / "checks.csv", [row, row])
    assert not any(tmp_path.iterdir())
