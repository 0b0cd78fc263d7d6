"""Toy records: contents, determinism, what the grid shares, tables, and the command's errors."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pcbf_core.mrp import MRPS
from pcbf_experiments import toy
from pcbf_experiments.cli.toy import main
from pcbf_experiments.toy import ToySettings, make_record, metadata
from pcbf_records.layout import TOY_LOSS_STD, TOY_TUNING_W1, TOY_W1, toy_run
from pcbf_records.toy import TUNED_FIRST, W1_COLUMNS, load_toy_record, num_learners, save_toy_record

TINY = {
    "coefficients": [0.0, 0.5],
    "num_seeds": 2,
    "num_steps": 4,
    "batch_size": 8,
    "hidden_sizes": [4],
    "num_flow_steps": 2,
    "num_flow_times": 2,
    "num_eval_steps": 3,
    "num_eval_samples": 64,
}
SETTINGS = ToySettings(**{**TINY, "coefficients": (0.0, 0.5), "hidden_sizes": (4,)})


@pytest.fixture(scope="module")
def solitaire() -> dict[str, np.ndarray]:
    return make_record("solitaire", "pcbf", SETTINGS)


@pytest.mark.slow
def test_w1_is_the_distance_of_the_recorded_law(solitaire):
    law = MRPS["solitaire"].return_law(0)
    for i in range(2):
        for j in range(2):
            from_quantiles = law.wasserstein1(solitaire["quantiles"][i, j, 0])
            assert solitaire["w1"][i, j, 0] == pytest.approx(from_quantiles, abs=0.1)
    assert (np.diff(solitaire["quantiles"], axis=-1) >= 0).all()


@pytest.mark.slow
def test_shapes_and_residuals(solitaire):
    assert solitaire["loss_history"].shape == (2, 2, 4)
    assert solitaire["flow_paths"].shape == (1, toy.NUM_PATH_STEPS + 1, toy.NUM_PARTICLES)
    assert solitaire["residual_shared"].shape == (2, 4, 33)
    for row, steps in enumerate(solitaire["residual_steps"]):
        for name in ("residual_times", "residual_shared", "residual_independent"):
            values = solitaire[name][..., row, :]
            assert np.isfinite(values[..., : steps + 1]).all() and np.isnan(values[..., steps + 1 :]).all()
    np.testing.assert_allclose(
        solitaire["residual_shared"][:, :, 0], 0, atol=1e-6
    )  # r_corr(0) = 0 when noise is shared
    assert (solitaire["residual_independent"][:, :, 0] > 0.5).all()


@pytest.mark.slow
def test_the_same_settings_give_the_same_bytes(solitaire, tmp_path: Path):
    told = metadata("solitaire", "pcbf", SETTINGS)
    save_toy_record(tmp_path / "one.npz", solitaire, told)
    save_toy_record(tmp_path / "two.npz", make_record("solitaire", "pcbf", SETTINGS), told)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.slow
def test_what_a_job_writes_is_what_readers_are_promised(solitaire, tmp_path: Path):
    path = tmp_path / toy_run("solitaire", "pcbf")
    save_toy_record(path, solitaire, metadata("solitaire", "pcbf", SETTINGS))
    record = load_toy_record(path)
    assert (record.process, record.method) == ("solitaire", "pcbf")
    assert record.flow is not None and record.residual is not None
    np.testing.assert_array_equal(record.quantiles, solitaire["quantiles"])
    np.testing.assert_array_equal(record.residual.shared, solitaire["residual_shared"])
    assert record.metadata["settings"]["num_steps"] == 4 and record.metadata["method"] == "pcbf"


@pytest.mark.slow
def test_seeds_differ_and_a_run_does_not_depend_on_its_neighbours_in_the_grid(solitaire):
    assert solitaire["w1"][0, 0, 0] != solitaire["w1"][0, 1, 0]
    alone = make_record("solitaire", "pcbf", dataclasses.replace(SETTINGS, coefficients=(0.5,), num_seeds=1))
    np.testing.assert_allclose(alone["loss_history"][0, 0], solitaire["loss_history"][1, 0], rtol=1e-4)
    np.testing.assert_allclose(alone["quantiles"][0, 0], solitaire["quantiles"][1, 0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", TUNED_FIRST)
def test_learning_rates_are_tried_on_tuning_seeds_and_only_the_best_is_reported(method: str):
    settings = dataclasses.replace(SETTINGS, coefficients=(0.001, 0.1), num_steps=20)
    heard: list[int] = []
    both = make_record("bernoulli", method, settings, heard.append)
    assert both["tuning_w1"].shape == (2, 1, 1) and np.isfinite(both["tuning_w1"]).all()
    best = int(both["tuning_w1"][:, 0, 0].argmin())
    for name in ("w1", "quantiles", "loss_history", "loss_std"):
        assert np.isfinite(both[name][best]).all() and np.isnan(both[name][1 - best]).all(), name
    alone = make_record(
        "bernoulli", method, dataclasses.replace(settings, coefficients=settings.coefficients[best:][:1])
    )
    np.testing.assert_allclose(alone["loss_history"][0], both["loss_history"][best], rtol=1e-4)
    assert heard == sorted(heard) and heard[-1] == num_learners(method, 2, 2, 1) * 20


@pytest.mark.slow
def test_what_did_not_run_has_no_row_in_the_tables(tmp_path: Path):
    settings = dataclasses.replace(SETTINGS, coefficients=(0.001, 0.1))
    record = make_record("bernoulli", "c51", settings)
    save_toy_record(tmp_path / toy_run("bernoulli", "c51"), record, metadata("bernoulli", "c51", settings))
    main(["collect", "--results", str(tmp_path)])
    for table, rows in ((TOY_W1, 2), (TOY_LOSS_STD, 2), (TOY_TUNING_W1, 2)):
        with open(tmp_path / table) as file:
            assert len(list(csv.DictReader(file))) == rows, table


@pytest.mark.slow
def test_command_writes_record_progress_and_tables(tmp_path: Path):
    for method in ("value_flows", "pcbf-independent"):
        output = tmp_path / toy_run("bernoulli", method)
        progress = tmp_path / "progress.json"
        arguments = ["run", "bernoulli", method, "--settings", json.dumps(TINY), "--output", str(output)]
        main([*arguments, "--progress", str(progress)])
        state = json.loads(progress.read_text())
        assert state["done"] == state["total"] == 2 * (2 + 1) * 4
    main(["collect", "--results", str(tmp_path)])
    with open(tmp_path / TOY_W1) as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert tuple(rows[0]) == W1_COLUMNS
    assert {row["method"] for row in rows} == {"value_flows", "pcbf-independent"}
    assert not list(tmp_path.rglob("*.tmp"))


def test_collect_without_records_says_what_to_do(tmp_path: Path):
    with pytest.raises(SystemExit, match="pcbf-toy run"):
        main(["collect", "--results", str(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solitair", "pcbf"], "Did you mean 'solitaire'"),
        (["solitaire", "value_flow"], "Did you mean 'value_flows'"),
        (["chain", "pcbf", "--settings", '{"num_step": 3}'], "Did you mean 'num_steps'"),
        (["chain", "pcbf", "--settings", '{"num_steps": 0}'], "num_steps=0"),
        (["chain", "pcbf", "--settings", '{"coefficients": []}'], "and not an empty one"),
    ],
)
def test_bad_input_fails_with_a_sentence(arguments: list[str], message: str, tmp_path: Path):
    with pytest.raises(SystemExit, match=message):
        main(["run", *arguments, "--output", str(tmp_path / "x.npz")])
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.slow
def test_divergence_is_an_error_not_a_record():
    endless = dataclasses.replace(SETTINGS, learning_rate=1e30)
    with pytest.raises(FloatingPointError, match="pcbf on chain diverged"):
        make_record("chain", "pcbf", endless)
