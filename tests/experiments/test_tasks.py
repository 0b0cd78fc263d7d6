"""The tasks of the paper by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pcbf_experiments.cli.data import main, named
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import EXTRA_TASKS, PAPER_TASKS, TASKS, find_task
from pcbf_records.sheets import load_sheets

ROOT = Path(__file__).parents[2]


def test_there_are_38_tasks_in_seven_domains():
    domains = Counter(task.domain for task in PAPER_TASKS.values())
    assert len(PAPER_TASKS) == 38
    assert domains.pop("adroit") == 8
    assert set(domains.values()) == {5} and len(domains) == 6
    assert not set(PAPER_TASKS) & set(EXTRA_TASKS)


def test_values_are_the_papers():
    cube, puzzle = find_task("cube-triple-play-singletask-task1-v0"), find_task("puzzle-4x4-play-singletask-task4-v0")
    visual, pen = find_task("visual-antmaze-teleport-navigate-singletask-task1-v0"), find_task("pen-cloned-v1")
    assert (cube.discount, cube.steps, cube.seeds, cube.episode_limit, cube.is_tuned) == (0.995, 10**6, 8, 1000, True)
    assert (puzzle.discount, puzzle.is_tuned, suite_of(puzzle).num_final_evaluations) == (0.99, True, 3)
    assert (visual.suite, visual.observations, visual.is_pixel) == ("ogbench", "pixel", True)
    assert (visual.steps, visual.seeds) == (500_000, 4)
    assert (pen.dataset, pen.episode_limit, pen.suite) == ("D4RL/pen/cloned-v2", 100, "adroit")
    assert suite_of(pen).num_final_evaluations == 1


@pytest.mark.parametrize(
    ("name", "simulator"),
    [
        ("cube-double-play-singletask-task2-v0", "cube-double-singletask-task2-v0"),
        ("visual-antmaze-teleport-navigate-singletask-task3-v0", "visual-antmaze-teleport-singletask-task3-v0"),
        ("relocate-expert-v1", "AdroitHandRelocate-v1"),
    ],
)
def test_ids_of_simulators(name, simulator):
    task = find_task(name)
    assert suite_of(task).simulator(task).id == simulator


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("cube-double-play-singletask-task9-v0", "cube-double-play-singletask-task"),
        ("pen-clone-v1", "pen-cloned-v1"),
        ("scene-play-task2", "scene-play-singletask-task2-v0"),
    ],
)
def test_wrong_names_suggest_the_nearest(wrong, meant):
    with pytest.raises(ValueError, match=meant):
        find_task(wrong)


def test_what_is_read_from_the_sheets_is_what_the_code_knows():
    sheets = load_sheets(ROOT)
    assert list(sheets.tasks.values()) == [*PAPER_TASKS.values(), *EXTRA_TASKS.values()]
    assert sheets.paper_tasks == tuple(PAPER_TASKS) and set(sheets.tasks) == set(TASKS)


def test_list_command_and_dataset_names(capsys):
    assert main(["list"]) == 0
    assert "hammer-expert-v1" in capsys.readouterr().out
    tasks = named(["scene-play-v0", "scene-play-singletask-task2-v0", "D4RL/pen/expert-v2"])
    assert [task.dataset for task in tasks] == ["scene-play-v0", "D4RL/pen/expert-v2"]
    assert main(["verify", "sceen-play-singletask-task1-v0"]) == 1
    assert "scene-play-singletask-task1-v0" in capsys.readouterr().err
