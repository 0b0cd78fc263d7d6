"""Toy records: the schema is checked when they are written and when they are read; tables from all of them."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import numpy as np
import pytest

from pcbf_records import RecordError
from pcbf_records.layout import TOY_LOSS_STD, TOY_W1, toy_run
from pcbf_records.toy import (
    FLOW_SHAPES,
    LOSS_STD_COLUMNS,
    SHAPES,
    W1_COLUMNS,
    collect_toys,
    load_toy_record,
    save_toy_record,
)

from ..toys import residual_arrays, toy_arrays


def flow_arrays(num_states: int = 1) -> dict[str, np.ndarray]:
    sizes = {"N": num_states, "T": 3, "P": 2, "V": 4, "A": 2, "Z": 2}
    arrays = {name: np.zeros([sizes[letter] for letter in letters]) for name, letters in FLOW_SHAPES.items()}
    return {"flow_coefficient": np.array(0.5), **arrays}


def test_a_record_comes_back_with_all_its_parts(tmp_path: Path) -> None:
    path = tmp_path / toy_run("chain", "pcbf")
    arrays = toy_arrays(num_states=3) | flow_arrays(3) | residual_arrays()
    save_toy_record(path, arrays, {"settings": {"hidden_sizes": (4,)}})
    record = load_toy_record(path)
    assert (record.process, record.method, record.metadata) == ("chain", "pcbf", {"settings": {"hidden_sizes": [4]}})
    for name in SHAPES:
        np.testing.assert_array_equal(getattr(record, name), arrays[name])
    assert record.flow is not None and record.residual is not None
    assert record.flow.coefficient == record.residual.coefficient == 0.5
    np.testing.assert_array_equal(record.flow.paths, arrays["flow_paths"])
    np.testing.assert_array_equal(record.residual.times, arrays["residual_times"])
    assert (record.state_index(2), record.state_index(7), record.coefficient_index(0.5)) == (2, None, 1)
    np.testing.assert_array_equal(record.quantile_curves(1, 0.5), arrays["quantiles"][1, :, 1])
    assert record.quantile_curves(1, 0.7) is None


def test_parts_that_a_method_has_not_are_none(tmp_path: Path) -> None:
    path = tmp_path / toy_run("chain", "value_flows")
    save_toy_record(path, toy_arrays(), {})
    record = load_toy_record(path)
    assert record.flow is None and record.residual is None and record.metadata == {}


WRONG = {
    "a missing array": ({"w1": None}, "lacks w1"),
    "an axis too many": ({"w1": np.zeros((2, 2))}, r"`w1` has shape \(2, 2\), expected 3 axes"),
    "another length": ({"w1": np.zeros((2, 3, 1))}, "its axis S .of CSN. has length 2"),
    "half a flow": ({"flow_times": np.zeros(3)}, "lacks flow_coefficient, flow_paths"),
    "residuals of no model": (residual_arrays() | {"flow_coefficient": None}, "lacks flow_coefficient"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_the_schema_is_held_by_writer_and_reader(change: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / toy_run("chain", "pcbf")
    arrays = {name: array for name, array in (toy_arrays() | change).items() if array is not None}
    remedy = rf"toy/runs/chain/pcbf\.npz.*{message}.*delete it and run the job again \(`pcbf-toy run chain pcbf`"
    with pytest.raises(RecordError, match=f"(?s){remedy}"):
        save_toy_record(path, arrays, {})
    assert not path.exists()
    path.parent.mkdir(parents=True)
    np.savez(path, allow_pickle=False, **arrays)
    with pytest.raises(RecordError, match=f"(?s){remedy}"):
        load_toy_record(path)


def test_what_is_no_npz_is_named_and_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / toy_run("chain", "pcbf")
    save_toy_record(path, toy_arrays(), {})
    good = path.read_bytes()
    for content in (b"", b"text", good[:-30], pickle.dumps({"a": 1})):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=r"pcbf\.npz is not a readable npz .*delete it and run the job again"):
            load_toy_record(path)
    np.savez(path, **{**toy_arrays(), "w1": np.array([{}], dtype=object)})
    with pytest.raises(RecordError, match="is not a readable npz"):
        load_toy_record(path)
    np.savez(path, allow_pickle=False, **toy_arrays(), metadata=np.array("{"))
    with pytest.raises(RecordError, match="`metadata` is not JSON"):
        load_toy_record(path)


def test_tables_have_a_row_per_coefficient_seed_and_state(tmp_path: Path) -> None:
    save_toy_record(tmp_path / toy_run("solitaire", "pcbf"), toy_arrays((0.0, 0.25), 2, 3), {})
    save_toy_record(tmp_path / toy_run("chain", "value_flows"), toy_arrays((1.0,), 1, 1), {})
    collect_toys(tmp_path)
    with (tmp_path / TOY_W1).open() as file:
        w1 = list(csv.DictReader(file))
    with (tmp_path / TOY_LOSS_STD).open() as file:
        loss = list(csv.DictReader(file))
    assert tuple(w1[0]) == W1_COLUMNS and tuple(loss[0]) == LOSS_STD_COLUMNS
    assert len(w1) == 1 + 2 * 2 * 3 and len(loss) == 1 + 2 * 2
    assert list(w1[-1].values()) == ["solitaire", "2", "pcbf", "0.25", "1", "1.12"]
    assert list(loss[0].values()) == ["chain", "value_flows", "1", "0", "0.5"]
    before = (tmp_path / TOY_W1).read_bytes()
    collect_toys(tmp_path)
    assert (tmp_path / TOY_W1).read_bytes() == before


def test_without_records_the_command_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="make them with `pcbf-toy run`"):
        collect_toys(tmp_path)
