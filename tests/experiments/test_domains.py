"""Every task of the paper can be planned with each of its methods, and every domain runs from data to score."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jax
import pytest

from pcbf_baselines.registry import METHODS, make_agent
from pcbf_core import TaskSpec
from pcbf_experiments.cli import data, train
from pcbf_experiments.cli.common import evaluation_settings
from pcbf_experiments.data.pixels import NUM_FRAMES
from pcbf_experiments.running.problem import with_discount
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import PAPER_TASKS
from pcbf_records.layout import JobFiles
from pcbf_records.runs import final_score, load_evaluations, load_run
from pcbf_records.sheets import Task, domain_settings, load_sheets

from ..methods import TINY
from .policies import random_weights

ROOT = Path(__file__).parents[2]
SMOKE = ["--steps", "2", "--batch-size", "4", "--episodes", "1", "--slots", "1", "--eval-every", "2"]


def spec_of(task: Task) -> TaskSpec:
    """What a learner is told of a task, without its data."""
    shape, actions = suite_of(task).shapes(task)
    if task.is_pixel:
        shape = (*shape[:-1], shape[-1] * NUM_FRAMES)
    return TaskSpec(observation_shape=shape, action_dim=actions, return_range=(-1 / (1 - task.discount), 0.0))


@pytest.mark.slow
def test_every_task_can_be_planned_with_each_of_its_methods():
    """Arguments, settings of the domain, networks and simulator of all tasks with each of their methods."""
    planned, networks, domains = 0, set(), load_sheets(ROOT).domains
    for task in PAPER_TASKS.values():
        spec = spec_of(task)
        for method in METHODS.values():
            if task.is_pixel and not method.visual:
                continue
            options = train.parser().parse_args([task.name, method.name, *SMOKE])
            judging = evaluation_settings(options)
            assert (train.run_settings(options, task).steps, judging.num_episodes) == (2, 1)
            assert (
                suite_of(task).simulator(task, episode_limit=judging.episode_limit).episode_limit == task.episode_limit
            )
            chosen = domain_settings(domains, task, method.name)
            chosen = with_discount(method.config, {**chosen, **TINY[method.name]}, task.discount)
            assert chosen.get("discount", task.discount) == task.discount
            agent = make_agent(method.name, spec, chosen)
            if (kind := (method.name, task.observations)) not in networks:
                jax.eval_shape(agent.init, jax.random.key(0))
                networks.add(kind)
            planned += 1
    visual = sum(method.visual for method in METHODS.values())
    assert planned == 28 * len(METHODS) + 10 * visual


# One task of each domain with one of the paper's methods each, so that every method meets a real simulator.
RUNS = {
    "cube-double-play-singletask-task2-v0": "pcbf",
    "cube-triple-play-singletask-task1-v0": "floq",
    "puzzle-4x4-play-singletask-task4-v0": "codac",
    "scene-play-singletask-task2-v0": "value_flows",
    "visual-antmaze-teleport-navigate-singletask-task1-v0": "iql",
    "visual-cube-double-play-singletask-task1-v0": "iqn",
    "pen-cloned-v1": "fql",
}
SMALLEST = {"hidden_sizes": [8], "encoder_channels": [4]}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the simulators
@pytest.mark.parametrize(("name", "method"), RUNS.items(), ids=list(RUNS))
def test_every_domain_runs_from_data_to_score(name, method, tmp_path, request, capsys):
    task = PAPER_TASKS[name]
    steps = 2 if task.is_pixel else 12  # an image costs a third of a second
    if task.is_pixel:
        request.getfixturevalue("renderer")
    place = ["--data-dir", str(tmp_path / "data")]
    options = ["--episodes", "2", "--validation-episodes", "1", "--length", str(steps), "--workers", "1"]
    if task.suite == "adroit":
        options += ["--policies", str(random_weights(tmp_path / "policies"))]
    assert data.main(["make-local", name, *options, *place]) == 0
    assert data.main(["verify", name, *place]) == 0, capsys.readouterr().out
    values = [f"{key}={json.dumps(value)}" for key, value in {**TINY[method], **SMALLEST}.items()]
    chosen = ["--set", *values, "--episode-limit", str(steps), "--out", str(tmp_path / "out")]
    with jax.default_prng_impl("unsafe_rbg"):  # compiles to one instruction per draw, and no number matters here
        assert train.main([name, method, *SMOKE, *chosen, *place]) == 0, capsys.readouterr().err
    files = JobFiles.of_seeds(tmp_path / "out", name, method, [0])
    record, judged = load_run(files.record(0)), load_evaluations(files.evaluations(0))
    assert (record.status, record.steps, record.dataset["source"]) == ("finished", 2, "local")
    assert record.dataset["num_transitions"] == 2 * steps or name.startswith("pen")  # a fallen pen ends an episode
    evaluation = judged.evaluations[-1]
    assert len(evaluation.scores) == 1 and 1 <= evaluation.lengths[0] <= steps
    assert math.isfinite(evaluation.returns[0]) and final_score(record, judged) == pytest.approx(evaluation.scores[0])


def test_the_seven_domains_and_methods_of_the_paper_are_among_the_runs():
    assert {PAPER_TASKS[name].domain for name in RUNS} == {task.domain for task in PAPER_TASKS.values()}
    assert set(RUNS.values()) == {"pcbf", "value_flows", "floq", "fql", "iql", "iqn", "codac"}
