"""Bad input at the command line: what each gets. One sentence, an exit code, no traceback, before JAX is imported."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcbf_analysis import cli as analysis
from pcbf_baselines import METHODS
from pcbf_baselines.registry import make_config
from pcbf_experiments import renders, sheets
from pcbf_experiments.campaign import compare, estimate, lease, publish, status
from pcbf_experiments.cli import agents, calibrate, collect, data, evaluate, exact, rehearse, theory, toy, train
from pcbf_experiments.method_settings import method_schemas, setting_faults

ROOT = Path(__file__).parents[2]
TASK = "cube-single-play-singletask-task1-v0"
CALIBRATE = ("run", "hopper", "iqn", "--data", "d.npz", "--output", "x.npz")
TRAIN = (TASK, "pcbf")
COMMANDS: dict[str, Callable[[Sequence[str]], Any]] = {
    "pcbf-train": train.main,
    "pcbf-evaluate": evaluate.main,
    "pcbf-watch": agents.watch_main,
    "pcbf-agents": agents.main,
    "pcbf-data": data.main,
    "pcbf-toy": toy.main,
    "pcbf-exact": exact.main,
    "pcbf-calibrate": calibrate.main,
    "pcbf-theory": theory.main,
    "pcbf-collect": collect.main,
    "pcbf-status": status.main,
    "pcbf-plan": estimate.main,
    "pcbf-rehearse": rehearse.main,
    "pcbf-publish": publish.main,
    "pcbf-compare": compare.main,
    "pcbf-lease": lease.main,
    "pcbf-render": renders.main,
    "pcbf-figure": analysis.figure_main,
    "pcbf-table": analysis.table_main,
    "pcbf-claims": analysis.claims_main,
    "pcbf-report": analysis.report_main,
}


def answer(command: str, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code of a command and what it says on standard error."""
    capsys.readouterr()
    try:
        code = COMMANDS[command](list(words))
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    if isinstance(code, str):  # sys.exit with a sentence
        code, said = 1, said + code
    return int(code or 0), said


# Command, options, and what it answers. docs/errors.md is written from this table.
BAD_INPUT = [
    ("pcbf-train", (*TRAIN, "--steps", "0"), "argument --steps: '0' must be a whole number >= 1"),
    ("pcbf-train", (*TRAIN, "--steps", "many"), "argument --steps: 'many' must be a whole number >= 1"),
    ("pcbf-train", (*TRAIN, "--eval-every", "0"), "argument --eval-every: '0' must be a whole number >= 1"),
    ("pcbf-train", (*TRAIN, "--seeds", "-1"), "argument --seeds: '-1' must be a whole number >= 0"),
    ("pcbf-train", (*TRAIN, "--batch-size", "0"), "argument --batch-size: '0' must be a whole number >= 1"),
    ("pcbf-train", (*TRAIN, "--reward-scale", "nan"), "argument --reward-scale: 'nan' must be a number > 0"),
    ("pcbf-train", (*TRAIN, "--episodes", "0"), "argument --episodes: '0' must be a whole number >= 1"),
    ("pcbf-train", (*TRAIN, "--stpes", "5"), "unrecognized arguments: --stpes 5; did you mean --steps?"),
    ("pcbf-train", (*TRAIN, "--set", "hidden_sizes=[64,"), "the value of 'hidden_sizes=[64,' is not JSON"),
    ("pcbf-train", (*TRAIN, "--set", "hidden_sizes"), "'hidden_sizes' is not of the form name=value"),
    ("pcbf-train", (*TRAIN, "--set", "hiden_sizes=[8]"), "hiden_sizes = [8]: unknown key; did you mean hidden_sizes?"),
    ("pcbf-train", (*TRAIN, "--set", "num_critics=2.5"), "--set: num_critics = 2.5: must be an integer >= 1"),
    ("pcbf-train", (*TRAIN, "--set", "hidden_sizes=64"), "hidden_sizes = 64: must be a list, each item an integer"),
    ("pcbf-train", (*TRAIN, "--set", "control_weight=2"), "must be a number >= 0 and <= 1 or one of optimal"),
    ("pcbf-train", (*TRAIN, "--set", "solver=heunn"), "must be one of euler, midpoint, heun; did you mean heun?"),
    ("pcbf-train", (*TRAIN, "--settings", "[1]"), "'[1]' is not a JSON object"),
    ("pcbf-train", (*TRAIN, "--eval-every", "10", "--log-every", "4"), "must be a multiple of --log-every 4"),
    ("pcbf-train", (*TRAIN, "--redraw-every", "10", "--log-every", "4"), "must be a multiple of --log-every 4"),
    ("pcbf-train", (*TRAIN, "--precision", "float16"), "argument --precision: invalid choice: 'float16'"),
    ("pcbf-train", (*TRAIN, "--set", "proposal_training=frosen"), "must be one of joint, frozen; did you mean frozen?"),
    ("pcbf-train", (*TRAIN, "--proposal", "no.safetensors"), "no.safetensors does not exist; train bc first"),
    ("pcbf-train", ("cube-singel-play-singletask-task1-v0", "pcbf"), f"Did you mean '{TASK}'"),
    ("pcbf-train", ("xyz", "pcbf"), "`task='xyz'` is unknown. `pcbf-data list` shows all names."),
    ("pcbf-train", (TASK, "pbcf"), "`method='pbcf'` is unknown; choose one of pcbf,"),
    ("pcbf-train", (*TRAIN, "--out", "/proc/none"), "/proc/none"),
    ("pcbf-evaluate", (TASK, "pcbf", "more"), "pass a FILE, or a TASK and a METHOD, not 3 words"),
    ("pcbf-evaluate", ("nothing.npz",), "nothing.npz does not exist; train first, or pass the path of a checkpoint"),
    ("pcbf-evaluate", (TASK, "pcbf", "--out", "nowhere"), "is not there; train first: pcbf-train"),
    ("pcbf-watch", ("nobody",), "no agent is called 'nobody' in"),
    ("pcbf-watch", ("none.safetensors", "--out", "a.avi"), "`a.avi` is neither .mp4 nor .gif"),
    ("pcbf-watch", ("none.safetensors",), "none.safetensors does not exist; train first"),
    ("pcbf-agents", ("nowhere",), "nowhere has no runs; train first, or pass another results folder"),
    ("pcbf-data", ("fetch", "sceen-play-v0"), "Did you mean 'scene-play-v0'"),
    ("pcbf-data", ("fetch", "zzz"), "`dataset='zzz'` is unknown. `pcbf-data list` shows all names."),
    ("pcbf-data", ("fetsh", TASK), "invalid choice: 'fetsh'"),
    ("pcbf-data", ("make-local", TASK, "--episodes", "0"), "argument --episodes: '0' must be a whole number >= 1"),
    ("pcbf-data", ("make-local", TASK, "--seed", "-3"), "argument --seed: '-3' must be a whole number >= 0"),
    ("pcbf-exact", ("run", "clif", "iql", "--output", "x.npz"), "Did you mean 'cliff'"),
    ("pcbf-exact", ("run", "cliff", "iqll", "--output", "x.npz"), "Did you mean 'iql'"),
    ("pcbf-exact", ("run", "cliff", "iql", "--output", "x.npz", "--settings", '{"num_steps": 0}'), "`num_steps=0`"),
    ("pcbf-exact", ("run", "cliff", "iql", "--output", "x.npz", "--settings", '{"own": {"lr": 1}}'), "IQLConfig key"),
    ("pcbf-calibrate", ("data", "hoper", "--output", "x.npz"), "teleport, hopper; did you mean hopper?"),
    ("pcbf-calibrate", ("data", "cube", "--output", "x.npz"), "pass their folder as --data-dir"),
    ("pcbf-calibrate", ("data", "hopper", "--seed", "-1", "--output", "x.npz"), "'-1' must be a whole number >= 0"),
    ("pcbf-calibrate", ("run", "hopper", "iqnn", "--data", "d.npz", "--output", "x.npz"), "did you mean iqn?"),
    ("pcbf-calibrate", CALIBRATE, "d.npz is no file that"),
    ("pcbf-calibrate", (*CALIBRATE, "--settings", '{"discount": 1}'), "`discount=1` is out of range"),
    ("pcbf-calibrate", ("collect", "--results", "nowhere"), "make them with `pcbf-calibrate run`"),
    ("pcbf-toy", ("run", "chian", "pcbf", "--output", "x.npz"), "Did you mean 'chain'"),
    ("pcbf-toy", ("run", "chain", "pcbf", "--settings", "{", "--output", "x.npz"), "is not JSON"),
    ("pcbf-toy", ("run", "chain", "pcbf", "--output", "x.npz", "--settings", '{"num_steps": 0}'), "`num_steps=0`"),
    ("pcbf-theory", ("--results", "x", "--settings", "{"), "`--settings {` is no JSON"),
    ("pcbf-theory", ("--results", "x", "--settings", "{}", "--resluts"), "did you mean --results?"),
    ("pcbf-status", ("nowhere/else",), "has no runs; beside it: nothing"),
    ("pcbf-plan", ("papre",), "papre"),
    ("pcbf-plan", ("--gpu-memory", "0"), "argument --gpu-memory: '0' must be a number > 0"),
    ("pcbf-rehearse", ("domain=scene-play",), "is not of the form tasks=NAME,…; did you mean domains?"),
    ("pcbf-rehearse", ("--cells", "0"), "argument --cells: '0' must be a whole number >= 1"),
    ("pcbf-compare", ("--results", "nowhere", "--published", "x"), "nowhere is not finished: there is no manifest"),
    ("pcbf-publish", ("papre",), "did you mean paper?"),
    ("pcbf-lease", ("-1", "true"), "-1"),
    ("pcbf-lease", ("one", "true"), "argument count: 'one' must be a whole number >= 0"),
    ("pcbf-render", ("xyz", "--out", "x"), "`task='xyz'` is unknown"),
    ("pcbf-figure", ("residul", "--results", "x"), "Did you mean 'residual'"),
    ("pcbf-table", ("all", "--results", "nowhere"), "nowhere"),
    ("pcbf-claims", ("--results", "nowhere"), "nowhere"),
    ("pcbf-report", ("--results", "nowhere"), "nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words", "sentence"), BAD_INPUT)
def test_bad_input_is_told_in_a_sentence(command, words, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, said = answer(command, words, capsys)
    assert code not in (0, None)
    assert sentence in said
    assert "Traceback" not in said and len(said.strip().splitlines()) <= 2
    assert not list(tmp_path.rglob("*.json")), "nothing may be left behind"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples_of_options_that_exist(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        COMMANDS[command](["--help"])
    options, _, examples = capsys.readouterr().out.partition("examples:\n")
    lines = examples.strip().splitlines()
    assert lines and all(line.strip().startswith(command) for line in lines)
    if "{" not in options.splitlines()[0]:  # those of subcommands stand in their own help
        assert set(re.findall(r"--[a-z-]+\b", examples)) <= set(re.findall(r"--[a-z-]+\b", options))


def test_a_command_prints_its_completions(capsys, monkeypatch):
    monkeypatch.setenv("PCBF_COMPLETE", "bash")
    with pytest.raises(SystemExit, match="0"):
        evaluate.main([])
    assert "--success-timing" in capsys.readouterr().out


def test_the_table_of_the_docs_is_this_one():
    lines = (ROOT / "docs/errors.md").read_text(encoding="utf-8").splitlines()
    rows = [f"| `{' '.join([command, *words])}` | … {sentence} |" for command, words, sentence in BAD_INPUT]
    assert [line for line in lines if line.startswith("| `pcbf-")] == rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "pcbf-train --help",
        "pcbf-evaluate --help",
        "pcbf-watch --help",
        "pcbf-watch nobody",
        "pcbf-data --help",
        "pcbf-toy --help",
        "pcbf-exact --help",
        "pcbf-calibrate --help",
        "pcbf-calibrate run hopper iqnn --data d.npz --output x.npz",
        "pcbf-theory --help",
        "pcbf-status --help",
        "pcbf-rehearse --help",
        "pcbf-render --help",
        f"pcbf-train {TASK} pcbf --set hiden_sizes=8",
        f"pcbf-train {TASK} pcbf --steps 0",
        "pcbf-data fetch sceen-play-v0",
        "pcbf-evaluate",
    ],
)
def test_help_and_faults_come_before_jax(words, tmp_path):
    """What makes them quick; how quick they are is no matter of a test."""
    name, *rest = words.split()
    module = COMMANDS[name].__module__
    code = (
        f"import sys\nfrom {module} import {COMMANDS[name].__name__} as main\ntry:\n    main({rest!r})\n"
        "except SystemExit:\n    pass\nassert 'jax' not in sys.modules and 'mujoco' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- anything at all ------------------------------------------------------------------------------------------------

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.5, -0.5, math.nan, math.inf, 1e-9]),
    st.sampled_from(["", "mean", "relu", "optimal", "euler", "nonsense", "[", "0"]),
    st.lists(st.integers(-1, 9), max_size=2),
    st.just({}),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(method=st.sampled_from(sorted(METHODS)), choice=st.data())
def test_what_the_schema_allows_the_config_takes_and_nothing_else(method, choice):
    """The sheet of settings, which knows no JAX, and the configs judge alike."""
    known = [*method_schemas()[method]["properties"], "nonsense"]
    name, value = choice.draw(st.sampled_from(known)), choice.draw(ANYTHING)
    if (name, method) in {("trained_critics", "pcbf"), ("num_candidates", "bc")}:
        return  # bounded by another setting, or fixed
    try:
        make_config(method, {name: value})
        is_taken = True
    except ValueError:
        is_taken = False
    faults = setting_faults(method, {name: value})
    assert (not faults) == is_taken, faults
    assert all(fault.startswith(name) for fault in faults)


def test_the_sheet_of_settings_is_that_of_the_configs():
    for path, text in sheets.sheets(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date; run: make sheets"


WORDS = st.lists(
    st.one_of(
        st.sampled_from([TASK, "pcbf", "iql", "nonsense", "--steps", "--seeds", "--set", "--eval-every", "--settings"]),
        st.sampled_from(["--batch-size", "--log-every", "--job", "--across", "--restart", "--episodes", "--slots"]),
        st.sampled_from(["0", "-1", "5", "20", "1e3", "{}", "[", "discount=0.9", "discount=2", "=3", "score=mean"]),
        st.text(max_size=4),
    ),
    max_size=7,
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS, method=st.sampled_from(["pcbf", "iql"]))
def test_any_words_give_a_sentence_or_a_plan(words, method, capsys, monkeypatch, tmp_path):
    """Whatever is typed after `pcbf-train TASK METHOD`: a sentence and an exit code, or settings to train with."""
    planned = []
    monkeypatch.setattr(
        train, "_run", lambda options, task, files: planned.append(train.settings_of(options, task)) or []
    )
    capsys.readouterr()
    arguments = [TASK, method, "--out", str(tmp_path), "--methods-file", str(ROOT / "config/methods.yaml"), *words]
    code, said = answer("pcbf-train", arguments, capsys)
    if code == 0:
        assert planned or re.search(r"^-h$|^--help$", "\n".join(words), re.M)
    else:
        assert "Traceback" not in said and 1 <= len(said.strip().splitlines()) <= 4
