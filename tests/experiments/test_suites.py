"""Suites: one class beside the others, and everything from data to score works for its tasks."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pcbf_experiments.cli import data, train
from pcbf_experiments.data.loading import load_task
from pcbf_experiments.suites import SUITES, Suite, register_suite, suite_of
from pcbf_experiments.suites.ogbench import OGBench
from pcbf_experiments.tasks import PAPER_TASKS, TASKS, register_task
from pcbf_records.layout import JobFiles
from pcbf_records.runs import final_score, load_evaluations, load_run
from pcbf_records.sheets import Task

from .tiny import TASK, TinySuite, registered


@pytest.mark.slow
def test_a_suite_of_ones_own_loads_trains_and_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`TinySuite` is known to nothing but its registration."""
    with registered():
        loaded = load_task("tiny")
        assert (loaded.spec.observation_shape, loaded.spec.action_dim) == ((3,), 2)
        assert loaded.info.num_transitions == 50 and loaded.source.size == 50
        assert data.main(["verify", "tiny"]) == 0
        words = ["--steps", "2", "--batch-size", "4", "--eval-every", "1", "--episodes", "3", "--slots", "2"]
        assert train.main(["tiny", "bc", *words, "--set", "hidden_sizes=[8]", "--out", str(tmp_path)]) == 0
        files = JobFiles.of_seeds(tmp_path, "tiny", "bc", [0])
        run, judged = load_run(files.record(0)), load_evaluations(files.evaluations(0))
        assert run.status == "finished" and [e.step for e in judged.evaluations] == [1, 2]
        last = judged.evaluations[-1]
        assert last.scores == tuple(
            10 * total + success for total, success in zip(last.returns, last.successes, strict=True)
        )
        assert final_score(run, judged) == pytest.approx(sum(e.mean for e in judged.evaluations) / 2)
    assert "tiny" not in SUITES and "tiny" not in TASKS
    capsys.readouterr()
    assert train.main(["tiny", "bc"]) == 1
    assert "`task='tiny'` is unknown" in capsys.readouterr().err


def test_names_are_not_taken_twice() -> None:
    class Other(TinySuite):
        name: ClassVar[str] = "ogbench"

    assert isinstance(register_suite(OGBench()), OGBench)  # again the same
    with pytest.raises(ValueError, match="a suite called 'ogbench' exists; choose another name"):
        register_suite(Other())
    assert isinstance(SUITES["ogbench"], OGBench)


def test_a_suite_that_lacks_a_method_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Suite,), {"name": "half", "num_final_evaluations": 1})()


def test_a_suite_refuses_tasks_it_cannot_play(tmp_path: Path) -> None:
    with registered(), pytest.raises(ValueError, match="a tiny task shows three numbers"):
        register_task(replace(TASK, name="tiny-picture", observations="pixel"))
    with pytest.raises(ValueError, match="suite"):
        suite_of(replace(TASK, suite="nowhere"))


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_provides_what_is_asked_in_the_same_words(name: str) -> None:
    suite = SUITES[name]
    assert suite.name == name and suite.num_final_evaluations >= 1
    for method in Suite.__abstractmethods__:
        asked, given = (inspect.signature(getattr(kind, method)) for kind in (Suite, type(suite)))
        assert list(asked.parameters) == list(given.parameters), f"{name}.{method}"


def one_task(suite: str) -> Task:
    tasks: dict[str, Any] = {"minari": replace(TASK, name="m", suite="minari", simulator="CartPole-v1")}
    return tasks.get(suite) or next(task for task in PAPER_TASKS.values() if task.suite == suite)


@pytest.mark.parametrize("name", SUITES)
def test_episodes_are_cut_where_one_is_told_and_else_where_the_task_says(name: str) -> None:
    task = one_task(name)
    suite_of(task).check(task)
    assert suite_of(task).simulator(task).episode_limit == task.episode_limit
    assert suite_of(task).simulator(task, episode_limit=3).episode_limit == 3
    assert ("width", 64) in suite_of(task).simulator(task, width=64).options
