"""The worked examples of docs/ run and give what they promise."""

from __future__ import annotations

import dataclasses
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest

from pcbf_baselines import registry
from pcbf_baselines.registry import METHODS
from pcbf_core.mdp import MDPS
from pcbf_experiments import plugins, tasks
from pcbf_experiments.cli import data, evaluate, train
from pcbf_experiments.evaluation import EvaluationSettings
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.simulators import SuccessTiming
from pcbf_experiments.suites import SUITES
from pcbf_records.layout import JobFiles
from pcbf_records.runs import EvaluationRecord, RunRecord, final_score, load_evaluations, load_run

from ..baselines.test_contract import check_contract
from ..methods import TINY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMANDS = {"pcbf-data": data.main, "pcbf-train": train.main, "pcbf-evaluate": evaluate.main}


def blocks(page: str, language: str = "python") -> list[str]:
    """The code of a page, block by block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


def run_lines(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the lines of a shell block say, in the current directory."""
    for line in block.splitlines():
        command, *arguments = shlex.split(line)
        if command == "export":
            for name, _, value in (argument.partition("=") for argument in arguments):
                monkeypatch.setenv(name, value)
        elif command == "python":
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            with jax.default_prng_impl("unsafe_rbg"):  # compiles in a fraction of the time
                assert COMMANDS[command](arguments) == 0, line


@pytest.fixture
def playground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory on Python's path; what is registered during the test is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = [(known, dict(known)) for known in (METHODS, tasks.TASKS, SUITES)]
    plugins.load_plugins.cache_clear()
    yield tmp_path
    for known, content in before:
        known.clear()
        known.update(content)
    for module in ("best_of_q", "reach", "lines"):
        sys.modules.pop(module, None)
    plugins.load_plugins.cache_clear()


def own_run(playground: Path, task: str, method: str) -> tuple[RunRecord, EvaluationRecord]:
    """What the commands of a page left in results/own."""
    files = JobFiles.of_seeds(playground / "results" / "own", task, method, [0])
    return load_run(files.record(0)), load_evaluations(files.evaluations(0))


@pytest.mark.slow
def test_adding_an_mrp(capsys: pytest.CaptureFixture[str]):
    scope: dict = {"__name__": "coin_toss"}
    for block in blocks("adding-an-mrp.md"):
        exec(compile(block, "docs/adding-an-mrp.md", "exec", dont_inherit=True), scope)
    process = scope["process"]
    for state in process.live_states:
        samples = np.asarray(process.monte_carlo_returns(jax.random.key(0), state, 20_000, max_steps=2))
        assert process.return_law(state).wasserstein1(samples) < 0.02
    assert (scope["measured"].w1 < 0.08).all()
    assert "0:" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_the_tutorial(capsys: pytest.CaptureFixture[str]):
    """Twenty lines, whose law is about the normal one that their comments name after a fifth of their steps already."""
    (code,) = blocks("tutorial.md")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 20 and code.count("=2000") == 2
    scope: dict = {}
    code = code.replace("=2000", "=400")
    with jax.default_prng_impl("unsafe_rbg"):
        exec(compile(code, "docs/tutorial.md", "exec", dont_inherit=True), scope)
    found = [float(word) for word in re.findall(r"-?\d+\.\d+", capsys.readouterr().out)]
    assert found == pytest.approx([1.52, 3, 4.48, 0.97, 0.345], abs=0.3)


@pytest.mark.slow
def test_adding_an_mdp(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(MDPS, "bridge", None)
    scope: dict = {"__name__": "bridge"}
    with jax.default_prng_impl("unsafe_rbg"):
        for block in blocks("adding-an-mdp.md"):
            exec(compile(block, "docs/adding-an-mdp.md", "exec", dont_inherit=True), scope)
    shown = capsys.readouterr().out
    assert shown.startswith("0.7 -1.0 0.648\n")  # 0.85 - 0.15, and 0.9² · 0.8 around
    assert "acts by 1:" in shown and "acts by 0.1:" in shown
    assert scope["record"]["cvar"].shape == (2, 2, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the simulators
def test_adding_a_method(playground: Path, monkeypatch: pytest.MonkeyPatch):
    (playground / "best_of_q.py").write_text(blocks("adding-a-method.md")[0], encoding="utf-8")
    run_lines(blocks("adding-a-method.md", "sh")[0], monkeypatch)
    record, judged = own_run(playground, "pointmaze-medium-navigate-singletask-task1-v0", "best_of_q")
    assert (record.method, record.status, record.steps) == ("best_of_q", "finished", 20)
    assert record.config["agent"]["num_candidates"] == 4 and final_score(record, judged) is not None
    check_contract("best_of_q", "state", {**TINY["bc"], "num_candidates": 3})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Minari, about metadata an example does without
def test_adding_a_task(playground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for name, block in zip(("reach.py", "record_reach.py"), blocks("adding-a-task.md"), strict=True):
        (playground / name).write_text(block, encoding="utf-8")
    run_lines(blocks("adding-a-task.md", "sh")[0], monkeypatch)
    shown = capsys.readouterr().out
    assert "reach-noisy-v0" in shown and "NO" not in shown.split()
    record, judged = own_run(playground, "reach-noisy-v0", "iql")
    assert (record.task, record.status, record.dataset["num_episodes"]) == ("reach-noisy-v0", "finished", 60)
    score = final_score(record, judged)
    assert score is not None and score >= 60  # a random walk seldom gets there
    assert data.main(["make-local", "reach-noisy-v0"]) == 1
    assert "no generator" in capsys.readouterr().err


@pytest.mark.slow
def test_adding_a_suite(playground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """One file: its task is listed, its data are made, checked, loaded and trained on, and the run is judged."""
    (playground / "lines.py").write_text(blocks("adding-a-suite.md")[0], encoding="utf-8")
    run_lines(blocks("adding-a-suite.md", "sh")[0], monkeypatch)
    shown = capsys.readouterr().out
    assert "line-random-v0: 400 transitions, 20 episodes" in shown and "NO" not in shown.split()
    assert data.main(["list"]) == 0
    assert "lines    state   line-random" in capsys.readouterr().out
    record, judged = own_run(playground, "line-random-v0", "iql")
    assert (record.status, record.steps, record.dataset["source"]) == ("finished", 1000, "local")
    assert record.config["spec"]["return_range"] == pytest.approx([-10, 0])
    assert len(judged.evaluations[-1].scores) == 20
    score = final_score(record, judged)
    assert score is not None and score > -5  # at random it is about -10
    assert data.main(["make-local", "line-random-v0"]) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_a_plugin_that_cannot_be_imported_is_named(playground: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PCBF_PLUGINS", "no_such_module")
    with pytest.raises(ValueError, match=r"PCBF_PLUGINS names 'no_such_module'.*PYTHONPATH"):
        tasks.find_task("pen-cloned-v1")
    with pytest.raises(ValueError, match="PCBF_PLUGINS"):
        tasks.datasets()


def test_names_are_not_taken_twice(playground: Path):
    pen = tasks.find_task("pen-cloned-v1")
    assert tasks.register_task(pen) is pen
    with pytest.raises(ValueError, match="'pen-cloned-v1' exists"):
        tasks.register_task(dataclasses.replace(pen, steps=1))
    with pytest.raises(ValueError, match="needs the Gymnasium id"):
        tasks.register_task(dataclasses.replace(pen, name="mine", suite="minari"))
    with pytest.raises(ValueError, match="OGBench knows its simulators"):
        tasks.register_task(dataclasses.replace(pen, name="mine", suite="ogbench", simulator="Mine-v0"))
    with pytest.raises(ValueError, match="mine is no Adroit task"):
        tasks.register_task(dataclasses.replace(pen, name="mine"))
    with pytest.raises(ValueError, match="Did you mean 'minari'"):
        tasks.register_task(dataclasses.replace(pen, name="mine", suite="minary"))
    assert "mine" not in tasks.TASKS
    iql = METHODS["iql"]
    assert registry.register_method(iql) is iql
    with pytest.raises(ValueError, match="'iql' exists"):
        registry.register_method(dataclasses.replace(iql, title="mine"))


# --- deviations -------------------------------------------------------------------------------------

SECTIONS = {"PCBF": ("pcbf",), "Baselines": tuple(METHODS)}
OTHER_SETTINGS = {field.name for kind in (RunSettings, EvaluationSettings) for field in dataclasses.fields(kind)}
OTHER_CHOICES = {"success_timing": get_args(SuccessTiming)}


def deviation_rows() -> list[tuple[str, list[str]]]:
    """(section, cells) of every row of the tables in docs/deviations.md."""
    rows, section = [], ""
    for line in (DOCS / "deviations.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| Topic", "| Method")):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 5, line
            rows.append((section, cells))
    return rows


def fields_of(names: tuple[str, ...]) -> set[str]:
    """Settings of these methods."""
    return {field.name for name in names for field in dataclasses.fields(METHODS[name].config)}


def test_every_switch_of_the_deviations_exists():
    """In the last column every `word` is a setting, `setting: value`, or a value of the setting before it."""
    rows = deviation_rows()
    assert {section for section, _ in rows} == {*SECTIONS, "Data and evaluation"}
    for section, cells in rows:
        if cells[-1].startswith("none"):
            continue
        words = re.findall(r"`([^`]+)`", cells[-1])
        assert words, cells
        known = fields_of(SECTIONS[section]) if section in SECTIONS else OTHER_SETTINGS
        setting = ""
        for word in words:
            name, _, value = word.partition(": ")
            if name in known:
                setting = name
            else:
                assert setting, f"{word} of {cells[0]} is no setting of {section}"
                value = word
            if value and section in SECTIONS:
                check_value(section, setting, value)
            elif value:
                assert value in OTHER_CHOICES[setting], f"{setting} does not take {value}"


def check_value(section: str, name: str, text: str) -> None:
    """Raise unless some method of the section takes the value."""
    value = {"null": None, "true": True, "false": False}.get(text, text)
    faults = []
    for method in SECTIONS[section]:
        if name in fields_of((method,)):
            try:
                registry.make_config(method, {name: value})
                return
            except ValueError as error:
                faults.append(str(error))
    raise AssertionError(f"{name}: {text} is taken by no method of {section}: {faults}")


def test_deviations_name_the_defaults_of_the_code():
    config = registry.make_config("pcbf")
    stated = {
        "next_action": "rejection",
        "next_score": "one_step",
        "num_next_samples": 4,
        "done_source": "masks",
        "num_return_samples": 16,
        "num_candidates": 16,
        "score": "mean",
        "score_noise": "shared",
        "action_clip": "end",
        "path": "linear",
        "lambda_scale": "paper",
        "grad_clip": None,
        "clip_returns": True,
        "trained_critics": None,
        "num_critics": 2,
        "control_weight": 0.0,
    }
    assert {name: getattr(config, name) for name in stated} == stated
    page = (DOCS / "deviations.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page or f"`{name}:" in page for name in stated), "a default that the page does not name"
    for variant in ("released", "compiled"):
        changed = {name for name, value in vars(registry.make_config("pcbf", {"variant": variant})).items()
                   if value != getattr(config, name)}  # fmt: skip
        assert all(f"`{name}`" in page or f"`{name}:" in page for name in changed), changed
