"""Run and evaluation records: round trips, the reported score, what is told of files that are something else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcbf_records import RecordError
from pcbf_records.layout import JobFiles
from pcbf_records.runs import (
    EvaluationRecord,
    final_evaluations,
    final_score,
    load_evaluations,
    load_run,
    receipt_faults,
    save_evaluations,
    save_run,
    steps_to_judge,
    write_receipt,
)

from .samples import judged, make_evaluation, make_run, write_group

FILES = JobFiles.of_seeds(Path(), "t", "m", (1,))


# --- the reported score -----------------------------------------------------------------------------------------------


def test_the_score_is_the_mean_of_the_last_evaluations() -> None:
    run = make_run()
    assert final_score(run, judged(run)) == pytest.approx((25 + 10 + 10) / 3)
    last = make_run(num_final_evaluations=1)
    assert final_score(last, judged(last)) == 10
    short = make_run(num_final_evaluations=9)
    assert final_score(short, judged(short)) == pytest.approx((50 + 25 + 10 + 10) / 4)
    broken = make_run(status="diverged", steps=20)
    assert final_score(broken, judged(broken)) is None and broken.final_steps == ()
    with pytest.raises(ValueError, match="choose one of finished, diverged"):
        make_run(status="finised")


def test_a_score_stands_on_every_final_evaluation_of_its_own_config() -> None:
    run = make_run()
    without = dataclasses.replace(judged(run), evaluations=judged(run).evaluations[:2])
    with pytest.raises(RecordError, match="t, m, seed 1 has no evaluation of step 30, 40; run `pcbf-evaluate`"):
        final_score(run, without)
    early = dataclasses.replace(judged(run), evaluations=judged(run).evaluations[1:])
    assert len(final_evaluations(run, early)) == 3  # the first one is no final one
    with pytest.raises(RecordError, match="has no evaluation of this config"):
        final_score(run, dataclasses.replace(judged(run), config_hash="other"))


def test_evaluations_are_kept_by_step_and_replaced_by_step() -> None:
    record = EvaluationRecord("t", "m", 1, "hash")
    for step, score in ((30, 1.0), (10, 2.0), (30, 3.0)):
        record = record.added(make_evaluation(step, score))
    assert [(e.step, e.scores[0]) for e in record.evaluations] == [(10, 2.0), (30, 3.0)]
    assert record.at(20) is None and record.at(10) == make_evaluation(10, 2.0)


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ((60, 20), (20, 40, 60)),
        ((50, 20), (20, 40, 50)),
        ((60, 20, 40), (40, 60)),
        ((10, 20), (10,)),
        ((60, 20, 99), (60,)),
    ],
)
def test_steps_to_judge_are_the_multiples_and_always_the_last(arguments: Any, steps: tuple[int, ...]) -> None:
    assert steps_to_judge(*arguments) == steps


# --- files ------------------------------------------------------------------------------------------------------------


def test_records_come_back_as_they_were_in_the_same_bytes(tmp_path: Path) -> None:
    run = make_run(message="é", versions={"jax": "1"}, code={"commit": None})
    for name in ("a", "b"):
        save_run(tmp_path / name / FILES.record(1), run)
        save_evaluations(tmp_path / name / FILES.evaluations(1), judged(run))
    a, b = tmp_path / "a", tmp_path / "b"
    assert load_run(a / FILES.record(1)) == run
    assert load_evaluations(a / FILES.evaluations(1)) == judged(run)
    for file in (FILES.record(1), FILES.evaluations(1)):
        assert (a / file).read_bytes() == (b / file).read_bytes()
        assert (a / file).read_text(encoding="utf-8").endswith("}\n")


def test_an_edited_config_is_noticed(tmp_path: Path) -> None:
    save_run(tmp_path / "r.json", make_run())
    text = (tmp_path / "r.json").read_text()
    (tmp_path / "r.json").write_text(text.replace("0.0003", "0.0004"))
    with pytest.raises(RecordError, match=r"r\.json has been edited: it does not match its hash; delete it"):
        load_run(tmp_path / "r.json")


NO_RECORDS: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"task": "t",',
    "a list": b"[1, 2]",
    "a number": b"3",
    "not text": b"\xff\xfe\x00",
    "a number too long": b"9" * 5000,
    "too deep": b"[" * 100_000,
    "other names": b'{"task": "t", "what": 1}',
    "no objects": b'{"evaluations": [1, 2], "config_hash": ""}',
    "nothing to go through": b'{"evaluations": 3, "config_hash": ""}',
}


@pytest.mark.parametrize("load", [load_run, load_evaluations])
@pytest.mark.parametrize("content", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_is_no_record_is_named_with_its_remedy(
    load: Callable[[Path], Any], content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(RecordError, match=r"(?s)r\.json is not a record of this version .*; delete it and run"):
        load(tmp_path / "r.json")


def test_records_of_the_one_kind_are_not_taken_for_the_other(tmp_path: Path) -> None:
    run = make_run()
    save_run(tmp_path / "run.json", run)
    save_evaluations(tmp_path / "judged.json", judged(run))
    with pytest.raises(RecordError, match="evaluation: "):
        load_evaluations(tmp_path / "run.json")
    with pytest.raises(RecordError, match="run: "):
        load_run(tmp_path / "judged.json")
    content = json.loads((tmp_path / "run.json").read_text())
    del content["sha256"]
    (tmp_path / "run.json").write_text(json.dumps({**content, "status": "running"}))
    with pytest.raises(RecordError, match="choose one of finished, diverged"):
        load_run(tmp_path / "run.json")


# --- receipts ---------------------------------------------------------------------------------------------------------


def test_a_receipt_holds_until_a_record_is_missing_or_changed(tmp_path: Path) -> None:
    files = write_group(tmp_path)
    assert not list(receipt_faults(tmp_path, files.receipt))
    assert not list(receipt_faults(tmp_path, files.evaluation_receipt))
    said = json.loads(files.receipt.read_text())
    assert (said["task"], said["method"], said["seeds"]) == ("t", "m", [0, 1])
    assert said["records"]["runs/t/m/seed0.json"]["status"] == "finished"
    save_run(files.record(0), make_run(seed=0, steps=39))
    files.record(1).unlink()
    faults = [str(fault) for fault in receipt_faults(tmp_path, files.receipt)]
    assert faults == [
        f"{files.record(0).as_posix()} has changed since it was made",
        f"{files.record(1).as_posix()} is missing",
    ]
    assert not list(receipt_faults(tmp_path, files.evaluation_receipt))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"records": 3}', "{}"])
def test_a_receipt_that_cannot_be_read_is_a_fault(content: str, tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_text(content)
    (fault,) = receipt_faults(tmp_path, tmp_path / "receipt.json")
    assert str(fault).endswith("receipt.json cannot be read")
    (fault,) = receipt_faults(tmp_path, tmp_path / "absent.json")
    assert fault.path == tmp_path / "absent.json"


def test_a_folder_of_results_can_be_moved(tmp_path: Path) -> None:
    files = write_group(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = JobFiles.of_seeds(tmp_path / "there", "t", "m", files.seeds)
    assert not list(receipt_faults(tmp_path / "there", moved.receipt))


def test_receipts_of_the_same_records_are_the_same_bytes(tmp_path: Path) -> None:
    files = write_group(tmp_path)
    before = files.receipt.read_bytes()
    write_receipt(files.receipt, files, {files.record(seed): {"status": "finished"} for seed in (1, 0)})
    assert files.receipt.read_bytes() == before


@pytest.mark.parametrize(("save", "load"), [(save_run, load_run), (save_evaluations, load_evaluations)])
def test_any_changed_value_of_a_record_is_noticed_without_a_receipt(save, load, tmp_path: Path) -> None:
    """A record that no receipt names yet must not be adopted with a changed byte."""
    save(tmp_path / "r.json", make_run() if save is save_run else judged(make_run()))
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    (tmp_path / "r.json").write_text(text.replace('"seed": 1', '"seed": 3'), encoding="utf-8")
    with pytest.raises(RecordError, match="has been edited: it does not match its hash"):
        load(tmp_path / "r.json")
    unsigned = {name: value for name, value in json.loads(text).items() if name != "sha256"}
    (tmp_path / "r.json").write_text(json.dumps(unsigned), encoding="utf-8")
    assert load(tmp_path / "r.json").seed == 1  # as earlier versions wrote it
