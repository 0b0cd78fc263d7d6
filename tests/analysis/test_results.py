"""A results folder: what is read, what is chosen from it, and what is said when a file is not as agreed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pcbf_analysis.results import (
    Results,
    Setting,
    cost_frame,
    evaluation_settings,
    loss_by_seed,
    lowest_coefficient,
    recorded_w1,
    reported_w1,
    seed_means,
    short_task,
)
from pcbf_analysis.tables.scores import domain_of
from pcbf_records import layout
from pcbf_records.errors import RecordError
from pcbf_records.toy import LOSS_STD_COLUMNS, W1_COLUMNS, load_toy_record

from .run_fixtures import CUBE, write_cost


def frame(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(W1_COLUMNS))


def rewrite(path: Path, **changes: Any) -> None:
    """Save the npz at `path` with some arrays replaced, or dropped where the new value is None."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files} | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


def test_a_record_holds_what_was_written(complete: Results) -> None:
    record = complete.toy("chain", "pcbf")
    assert record is not None
    assert (record.process, record.method) == ("chain", "pcbf")
    assert record.states.tolist() == list(range(1, 19))
    assert record.quantiles.shape == (3, 2, 18, 50)
    assert record.metadata["settings"]["num_steps"] == 100
    curves = record.quantile_curves(5, 0.475)
    np.testing.assert_array_equal(curves, record.quantiles[1, :, 4])
    assert record.quantile_curves(19, 0.475) is None
    assert record.quantile_curves(5, 0.3) is None
    assert record.flow is not None
    assert record.flow.coefficient == 0.475
    assert record.residual is None


def test_only_solitaire_records_hold_residuals(complete: Results) -> None:
    for method, expected in [("pcbf", True), ("pcbf-independent", True), ("value_flows", False)]:
        record = complete.toy("solitaire", method)
        assert record is not None
        assert (record.residual is not None) is expected
        assert (record.flow is not None) is (method == "pcbf")


def test_a_job_that_has_not_run_gives_none_and_empty_frames(empty: Results) -> None:
    assert empty.toy("solitaire", "pcbf") is None
    assert empty.w1().empty
    assert empty.loss_std().empty
    assert empty.theory_checks().empty
    assert empty.manifest() == {}


def test_an_unknown_name_suggests_the_nearest(empty: Results) -> None:
    with pytest.raises(ValueError, match=r"`method='value_flow'` is unknown.*Did you mean 'value_flows'\?"):
        empty.toy("solitaire", "value_flow")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w1": None}, "lacks w1; delete it and run the job again"),
        ({"levels": np.zeros(7)}, r"`quantiles` has shape \(3, 2, 1, 50\), but its axis L .* has length 7"),
        ({"loss_std": np.zeros(3)}, r"`loss_std` has shape \(3,\), expected 2 axes"),
        ({"flow_paths": None}, "lacks flow_paths"),
        ({"flow_coefficient": None}, "lacks flow_coefficient"),
        ({"residual_times": np.zeros((4, 5))}, "`residual_shared` has shape .* axis G"),
        ({"metadata": np.array("{")}, "`metadata` is not JSON"),
    ],
)
def test_a_malformed_record_says_what_is_wrong(
    build: Callable[..., Results], changes: dict[str, Any], message: str
) -> None:
    path = build(processes=["solitaire"], methods=["pcbf"]).root / layout.toy_run("solitaire", "pcbf")
    rewrite(path, **changes)
    with pytest.raises(RecordError, match=message):
        load_toy_record(path)


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "solitaire" / "pcbf.npz"
    path.parent.mkdir()
    path.write_bytes(b"half a file")
    with pytest.raises(RecordError, match=r"not a readable npz.*`pcbf-toy run solitaire pcbf`"):
        load_toy_record(path)


def test_a_csv_without_its_columns_or_with_double_rows_is_refused(empty: Results) -> None:
    path = empty.root / layout.TOY_W1
    path.parent.mkdir()
    path.write_text("env,state\nsolitaire,0\n")
    with pytest.raises(RecordError, match=r"lacks method, coefficient, seed, w1; it has env, state\."):
        empty.w1()
    frame(("chain", 1, "pcbf", 0.5, 0, 0.3), ("chain", 1, "pcbf", 0.5, 0, 0.4)).to_csv(path, index=False)
    with pytest.raises(RecordError, match=r"more than one row for env chain, state 1, method pcbf, coefficient 0\.5"):
        empty.w1()
    path.write_text("")
    with pytest.raises(RecordError, match="not a readable csv"):
        empty.w1()


def test_folders_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"nowhere` is not a folder; pass one that a run has made"):
        Results(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"toy_w1\.csv is not there; run from the top folder.*pass --root"):
        Results(tmp_path, tmp_path / "nowhere").paper_w1()


def test_a_verdict_that_is_neither_true_nor_false_is_refused(build: Callable[..., Results]) -> None:
    results = build(processes=[])
    assert results.theory_checks()["holds"].tolist() == [True, False, True]
    path = results.root / layout.THEORY_CHECKS
    path.write_text(path.read_text().replace("false", "perhaps"))
    with pytest.raises(RecordError, match="`holds='perhaps'`"):
        results.theory_checks()


def test_a_manifest_must_be_a_json_object(empty: Results) -> None:
    path = empty.root / layout.MANIFEST
    path.write_text("[1]")
    with pytest.raises(RecordError, match="holds a list"):
        empty.manifest()
    path.write_text("{")
    with pytest.raises(RecordError, match="is not JSON"):
        empty.manifest()


def test_a_coefficient_is_chosen_by_its_mean_over_seeds() -> None:
    w1 = frame(
        ("solitaire", 0, "pcbf", 0.0, 0, 0.1),
        ("solitaire", 0, "pcbf", 0.0, 1, 0.4),  # mean 0.25
        ("solitaire", 0, "pcbf", 0.5, 0, 0.2),
        ("solitaire", 0, "pcbf", 0.5, 1, 0.2),  # mean 0.20
        ("solitaire", 0, "value_flows", 0.9, 0, 0.0),
    )
    assert lowest_coefficient(w1, "solitaire") == 0.5
    assert lowest_coefficient(w1, "solitaire", "value_flows") == 0.9
    assert lowest_coefficient(w1, "solitaire", "pcbf-independent") is None
    assert lowest_coefficient(w1, "bernoulli") is None


def test_of_equal_coefficients_the_smaller_is_chosen() -> None:
    w1 = frame(("bernoulli", 0, "pcbf", 0.4, 0, 0.1), ("bernoulli", 0, "pcbf", 0.2, 0, 0.1))
    assert lowest_coefficient(w1, "bernoulli") == 0.2


def test_the_chain_is_judged_on_all_four_evaluation_states_and_no_other() -> None:
    def rows(coefficient: float, values: dict[int, float]) -> list[tuple[Any, ...]]:
        return [("chain", state, "pcbf", coefficient, 0, value) for state, value in values.items()]

    w1 = frame(
        *rows(0.0, {1: 0.1, 5: 0.1, 10: 0.1}),  # state 18 is missing, so this one cannot be judged
        *rows(0.5, {1: 0.1, 5: 0.2, 10: 0.3, 18: 0.4, 7: 9.0}),  # mean 0.25 without state 7
        *rows(0.9, {1: 0.3, 5: 0.3, 10: 0.3, 18: 0.3, 7: 0.0}),  # mean 0.30
    )
    assert lowest_coefficient(w1, "chain") == 0.5
    coefficients, means = seed_means(w1, "chain", "pcbf")
    np.testing.assert_array_equal(coefficients, [0.0, 0.5, 0.9])
    np.testing.assert_allclose(means, [[np.nan], [0.25], [0.3]])


def test_without_rows_there_are_no_means() -> None:
    coefficients, means = seed_means(frame(), "chain", "pcbf")
    assert coefficients.shape == (0,)
    assert means.shape == (0, 0)


def test_cells_are_read_by_seed_and_nearby_coefficient() -> None:
    w1 = frame(
        ("chain", 5, "pcbf", 0.1 + 0.2, 1, 0.7),
        ("chain", 5, "pcbf", 0.3, 0, 0.6),
        ("chain", 10, "pcbf", 0.3, 0, 0.1),
    )
    np.testing.assert_array_equal(recorded_w1(w1, Setting("chain", 5), "pcbf", 0.3), [0.6, 0.7])
    assert recorded_w1(w1, Setting("chain", 5), "pcbf", None).size == 0


def test_the_papers_numbers_cover_the_six_settings(empty: Results) -> None:
    paper, settings = empty.paper_w1(), evaluation_settings()
    assert [(s.process, s.state) for s in settings] == [
        ("solitaire", 0),
        ("bernoulli", 0),
        *(("chain", s) for s in (1, 5, 10, 18)),
    ]
    assert len(paper) == 24
    pcbf = [reported_w1(paper, setting, "pcbf", None) for setting in settings]
    assert pcbf == [0.116, 0.023, 0.334, 0.586, 0.539, 0.352]
    flows = [[reported_w1(paper, setting, "value_flows", dcfm) for dcfm in (0.0, 0.5, 1.0)] for setting in settings]
    assert flows[3] == [0.796, 6.075, 6.856]
    assert all(low < middle < high for low, middle, high in flows)  # Value Flows degrades with dcfm
    assert np.isnan(reported_w1(paper, settings[0], "value_flows", 0.25))
    assert np.isnan(reported_w1(paper, settings[0], "pcbf-independent", 0.5))


def test_the_cost_frame_names_the_device(empty: Results) -> None:
    write_cost(empty.root, CUBE, "iql", device="NVIDIA A100", peak_device_bytes=3 * 10**9)
    write_cost(empty.root, CUBE, "pcbf")
    costs = cost_frame(empty.root)
    assert costs["device"].tolist() == ["NVIDIA A100", "cpu"]
    assert costs["num_seeds"].tolist() == [3, 3]
    assert costs["peak_device_bytes"].astype(float).tolist() == pytest.approx([3e9, np.nan], nan_ok=True)
    (empty.root / costs["path"].iloc[0]).write_text("{}")
    with pytest.raises(RecordError, match="lacks seeds, steps, train_seconds, device"):
        cost_frame(empty.root)


def test_without_records_the_cost_frame_is_empty_but_has_its_columns(empty: Results) -> None:
    frame = cost_frame(empty.root)
    assert frame.empty
    assert "device" in frame.columns


@pytest.mark.parametrize(
    ("task", "domain", "observations", "short"),
    [
        (CUBE, "cube-double-play", "state", "cube-double-play-task1"),
        ("relocate-expert-v1", "adroit", "state", "relocate-expert"),
        (
            "visual-antmaze-teleport-navigate-singletask-task3-v0",
            "visual-antmaze-teleport-navigate",
            "pixel",
            "visual-antmaze-teleport-navigate-task3",
        ),
    ],
)
def test_the_sheets_tell_domain_and_observations_of_a_task(
    empty: Results, task: str, domain: str, observations: str, short: str
) -> None:
    assert (domain_of(empty, task), empty.sheets.tasks[task].observations) == (domain, observations)
    assert short_task(task) == short


def test_a_task_of_no_sheet_is_a_domain_of_its_own(empty: Results) -> None:
    assert domain_of(empty, "juggling-v0") == "juggling-v0"


def test_loss_deviations_are_read_by_coefficient_and_seed() -> None:
    rows = [("chain", "pcbf", 0.5, 1, 3.0), ("chain", "pcbf", 0.5, 0, 2.0), ("chain", "pcbf", 0.0, 0, 1.0)]
    frame = pd.DataFrame(rows, columns=list(LOSS_STD_COLUMNS))
    coefficients, values = loss_by_seed(frame, "chain", "pcbf")
    np.testing.assert_array_equal(coefficients, [0.0, 0.5])
    np.testing.assert_array_equal(values, [[1.0, np.nan], [2.0, 3.0]])
    assert loss_by_seed(frame, "solitaire", "pcbf")[1].shape == (0, 0)


def test_the_scale_is_the_folders_name(tmp_path: Path) -> None:
    (tmp_path / "published" / "laptop").mkdir(parents=True)
    assert Results(tmp_path / "published" / "laptop").scale == "laptop"


def test_settings_come_from_the_repository(empty: Results, tmp_path: Path) -> None:
    assert empty.method_settings()["domains"]["cube-double-play"]["methods"]["pcbf"] == {"control_weight": 0.4}
    assert empty.scale_settings("paper")["control"]["run"]["batch_size"] == 256
    with pytest.raises(RecordError, match=r"config/methods\.yaml is not there; run from the top folder"):
        Results(tmp_path, tmp_path).method_settings()
    with pytest.raises(ValueError, match=r"`name='costs'` is unknown.*Did you mean 'cost'\?"):
        empty.paper_table("costs")
