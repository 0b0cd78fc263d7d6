"""Where files lie: what a path is made of can be read from it, and whoever looks for files finds all and no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pcbf_records import layout
from pcbf_records.layout import JobFiles

FILES = JobFiles.of_seeds("results/x", "task-a-v0", "pcbf", (0, 1, 10))
OF_GROUP = ("receipt", "evaluation_receipt", "checkpoint", "cost", "evaluation_cost")
ALONE = ("progress", "evaluation_progress", "failure")
OF_SEED = ("record", "evaluations", "metrics")


def all_paths(files: JobFiles) -> list[Path]:
    """One of every kind, for every seed."""
    paths = [getattr(files, name) for name in (*OF_GROUP, *ALONE)]
    for stage in ("train", "evaluate"):
        paths += [files.log(stage), files.benchmark(stage)]
        paths += [files.lock(seed, stage) for seed in files.seeds]
    paths += [getattr(files, name)(seed) for name in OF_SEED for seed in files.seeds]
    return paths + [files.snapshot(seed, step) for seed in files.seeds for step in (5, 100)]


def test_every_path_is_its_own_and_inside_the_folder() -> None:
    paths = all_paths(FILES)
    others = all_paths(JobFiles.of_seeds("results/x", "task-a-v0", "pcbf", (2, 3)))
    assert len(set(paths + others)) == len(paths) + len(others)
    assert all(path.is_relative_to("results/x") for path in paths)


def test_seeds_task_and_method_can_be_read_from_names() -> None:
    assert FILES.group == "seeds0-1-10" and FILES.seeds == (0, 1, 10)
    assert FILES.with_seeds([7]).seeds == (7,) and FILES.name == "train-task-a-v0-pcbf-seeds0-1-10"
    for name in OF_SEED:
        assert layout.place(getattr(FILES, name)(10)) == ("task-a-v0", "pcbf", 10)
    for name in OF_GROUP:
        assert layout.group_place(getattr(FILES, name)) == ("task-a-v0", "pcbf", "seeds0-1-10")
    assert layout.group_seeds(layout.group_name([3, 12])) == (3, 12)
    assert JobFiles(FILES.root, FILES.task, FILES.method, layout.group_name(FILES.seeds)) == FILES


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with every file of two groups, and of one of them with a setting changed."""
    for root in (tmp_path, tmp_path / layout.ablation("discount=0.9")):
        for path in all_paths(JobFiles.of_seeds(root, "t", "m", (0, 9, 10))):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return tmp_path


def test_what_is_looked_for_is_what_was_named(results: Path) -> None:
    files = JobFiles.of_seeds(results, "t", "m", (0, 9, 10))
    changed = JobFiles.of_seeds(results / layout.ablation("discount=0.9"), "t", "m", (0, 9, 10))
    assert layout.run_files(results) == [files.record(seed) for seed in (0, 9, 10)]  # numbers, not letters
    assert layout.evaluation_files(results) == [files.evaluations(seed) for seed in (0, 9, 10)]
    assert layout.cost_files(results) == [files.cost]
    assert layout.receipt_files(results) == sorted([files.receipt, files.evaluation_receipt])
    assert layout.snapshot_steps(files, 9) == [5, 100] and layout.snapshot_steps(files, 8) == []
    assert set(layout.checkpoint_files(results)) == {files.checkpoint, changed.checkpoint}
    both = [files.progress, files.evaluation_progress, changed.progress, changed.evaluation_progress]
    assert layout.progress_files(results) == sorted(both)
    assert layout.ablation_folders(results) == [changed.root]
    assert layout.run_files(changed.root) == [changed.record(seed) for seed in (0, 9, 10)]


def test_unfinished_files_are_not_found(results: Path) -> None:
    files = JobFiles.of_seeds(results, "t", "m", (0, 9, 10))
    before = [layout.run_files(results), layout.cost_files(results), list(layout.found_records(results))]
    for path in (files.record(0), files.cost):
        shutil.copy(path, path.with_name(f".{path.name}.77.tmp"))
    assert before == [layout.run_files(results), layout.cost_files(results), list(layout.found_records(results))]


def test_names_of_records_say_what_they_are(results: Path) -> None:
    files = JobFiles.of_seeds(results, "t", "m", (0, 9, 10))
    for root, change in ((files.root, ""), (results / layout.ablation("discount=0.9"), "discount=0.9")):
        own = JobFiles.of_seeds(root, "t", "m", files.seeds)
        kinds = {
            layout.is_run: own.record(0),
            layout.is_evaluation: own.evaluations(0),
            layout.is_cost: own.cost,
        }
        for asks, path in kinds.items():
            name = path.relative_to(results).as_posix()
            assert layout.change_of(name) == change
            assert [other for other in kinds if other(name)] == [asks]
    assert layout.is_picture(layout.picture("t")) and not layout.is_picture(layout.TOY_W1)


def test_found_records_are_costs_pictures_and_ablations(results: Path) -> None:
    (results / layout.RENDERS).mkdir()
    for name in (layout.picture("t"), layout.spaces("t")):
        (results / name).touch()
    found = list(layout.found_records(results))
    assert found == sorted(found) and len(found) == len(set(found))
    kinds = {name.split("/")[2] if layout.change_of(name) else name.split("/")[0] for name in found}
    assert kinds == {"cost", "renders", "runs", "evaluations"}
    assert not any(name.startswith(("runs/", "evaluations/")) for name in found)  # the plan knows those
    assert {name.split("/")[0] for name in found} <= set(layout.RECORD_FOLDERS)


def test_toy_records_are_found_by_process_and_method(tmp_path: Path) -> None:
    for process, method in (("solitaire", "pcbf"), ("chain", "value_flows")):
        path = tmp_path / layout.toy_run(process, method)
        path.parent.mkdir(parents=True)
        path.touch()
    found = [(path.parent.name, path.stem) for path in layout.toy_files(tmp_path)]
    assert found == [("chain", "value_flows"), ("solitaire", "pcbf")]
