"""Frozen proposals: cloned once per seed, the same bytes for all methods, named when they do not belong."""

from __future__ import annotations

import dataclasses
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core.candidates import CandidateAgent
from pcbf_experiments.cli.train import main
from pcbf_experiments.running.checkpoint import CheckpointError
from pcbf_experiments.running.errors import RunError
from pcbf_experiments.running.loop import RunOptions, run
from pcbf_experiments.running.problem import make_problem, run_config
from pcbf_experiments.running.proposals import Tables, begin
from pcbf_experiments.running.resume import load_agents
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.running.snapshot import SnapshotError, load_snapshot, save_snapshot
from pcbf_records.canonical import content_hash
from pcbf_records.files import read_json, sha256
from pcbf_records.layout import JobFiles
from pcbf_records.runs import load_run

from ..methods import TINY
from .tiny import SETTINGS

pytestmark = pytest.mark.usefixtures("tiny_task")
FROZEN = {"proposal_training": "frozen"}
SHORT = dataclasses.replace(SETTINGS, steps=20, eval_every=10, across="map", redraw_every=10)
SEEDS = (0, 1)
METHODS = ("pcbf", "value_flows", "iqn", "c51")


def files_of(results: Path, method: str) -> JobFiles:
    return JobFiles.of_seeds(results, "tiny", method, SEEDS)


def train(
    results: Path,
    method: str,
    proposals: Sequence[Path] = (),
    settings: RunSettings = SHORT,
    *,
    how: dict[str, Any] | None = None,
    sinks: Sequence[Any] = (),
    **config: Any,
) -> list[Any]:
    """Runs of both seeds of a method, frozen if it is given proposals."""
    chosen = {**TINY[method], **(FROZEN if proposals else {}), **config}
    problem = make_problem("tiny", method, settings, chosen, proposals=proposals)
    return run(problem, settings, SEEDS, results, **(how or {}), options=RunOptions(log=io.StringIO(), sinks=sinks))


@pytest.fixture(scope="module")
def cloned(tiny_task, tmp_path_factory) -> Path:
    """The results folder of behaviour cloning."""
    results = tmp_path_factory.mktemp("cloned")
    train(results, "bc")
    return results


@pytest.fixture(scope="module")
def proposals(cloned) -> list[Path]:
    return [files_of(cloned, "bc").snapshot(seed, 20) for seed in SEEDS]


@pytest.fixture(scope="module")
def finished(proposals, tmp_path_factory) -> Path:
    results = tmp_path_factory.mktemp("finished")
    train(results, "pcbf", proposals, action_reuse=2)
    return results


def artefacts(results: Path) -> dict[str, bytes]:
    folders = ("runs", "metrics", "checkpoints", "snapshots")
    files = sorted(file for folder in folders for file in (results / folder).rglob("*") if file.is_file())
    return {file.relative_to(results).as_posix(): file.read_bytes() for file in files}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_all_methods_of_a_seed_have_the_bytes_of_one_proposal(proposals, tmp_path, method):
    records = train(tmp_path, method, proposals)
    for seed, path in zip(SEEDS, proposals, strict=True):
        ours = load_snapshot(files_of(tmp_path, method).snapshot(seed, 20)).state
        theirs = load_snapshot(path).state.params["proposal"]
        assert [leaf.tobytes() for leaf in jax.tree.leaves(jax.tree.map(np.asarray, ours.frozen["proposal"]))] == [
            leaf.tobytes() for leaf in jax.tree.leaves(jax.tree.map(np.asarray, theirs))
        ]
        assert "proposal" not in ours.params
        assert load_run(files_of(tmp_path, method).record(seed)).proposal == sha256(path)
    assert len({record.proposal for record in records}) == 2
    assert records[0].config["proposal"] == content_hash(load_snapshot(proposals[0]).config)


@pytest.mark.slow
def test_snapshots_and_checkpoints_act_without_the_file_of_the_proposal(finished):
    files = files_of(finished, "pcbf")
    for agent in load_agents(files.checkpoint):
        snapshot = load_snapshot(files.snapshot(agent.seed, 20))
        assert agent.config == snapshot.config
        jax.tree.map(np.testing.assert_array_equal, agent.state, snapshot.state)
        action = snapshot.agent.act(snapshot.state, jnp.zeros(3), jax.random.key(0))
        assert action.shape == (2,) and np.isfinite(action).all()


class Stop(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [5, 15, 20])
def test_a_stopped_run_goes_on_to_the_same_bytes(finished, proposals, tmp_path, stop_at):
    def interrupt(seed, step, metrics):
        if step >= stop_at and seed == 1:
            raise Stop

    with pytest.raises(Stop):
        train(tmp_path, "pcbf", proposals, action_reuse=2, sinks=[interrupt])
    train(tmp_path, "pcbf", proposals, action_reuse=2)
    assert artefacts(tmp_path) == artefacts(finished)


@pytest.mark.slow
def test_a_table_depends_on_the_seed_and_the_step_alone(proposals):
    problem = make_problem("tiny", "pcbf", SHORT, {**TINY["pcbf"], **FROZEN}, proposals=proposals)
    keys = jax.random.split(jax.random.key(0), 2)
    states = begin(problem.agent, keys, SEEDS, problem.proposals)

    def drawn(tables: Tables, step: int, index: Any = slice(None)) -> np.ndarray:
        assert tables.is_due(step)
        tables.draw(jax.tree.map(lambda leaf: leaf[index], states), keys[index], step)
        assert not tables.is_due(step) and tables.drawn is not None
        return np.asarray(tables.drawn)

    tables = Tables(problem.agent, problem.source, SHORT)
    first, second = drawn(tables, 0), drawn(tables, 10)
    assert first.shape == (2, problem.source.size, 3, 2) and (first != second).mean() > 0.5
    again = Tables(problem.agent, problem.source, SHORT)
    np.testing.assert_array_equal(drawn(again, 19, slice(1, 2))[0], second[1])
    assert not Tables(problem.agent, problem.source, SETTINGS).is_due(0)  # without `redraw_every`
    assert not Tables(problem.agent, object(), SHORT).is_due(0)  # images
    joint = make_problem("tiny", "pcbf", SHORT, TINY["pcbf"])
    assert not Tables(joint.agent, joint.source, SHORT).is_due(0)


@pytest.mark.slow
def test_a_joint_run_is_told_as_before():
    config = run_config(make_problem("tiny", "pcbf", SETTINGS, TINY["pcbf"]), SETTINGS)
    assert not {"proposal", "proposals"} & set(config)
    assert "proposal_training" not in config["agent"] and "redraw_every" not in config["run"]


# --- proposals that do not belong -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_without_a_proposal_is_named(proposals, tmp_path):
    with pytest.raises(RunError, match=r"has none of seed 1; clone it with `pcbf-train tiny bc --seeds 1"):
        train(tmp_path, "pcbf", proposals[:1])
    with pytest.raises(RunError, match="trains its own proposal"):
        train(tmp_path, "pcbf", proposals, proposal_training="joint")
    with pytest.raises(SnapshotError, match="a second proposal of seed 0"):
        train(tmp_path, "pcbf", [proposals[0], proposals[0]])


@pytest.mark.slow
def test_a_missing_or_truncated_file_is_named(proposals, tmp_path):
    with pytest.raises(SnapshotError, match=r"gone\.safetensors does not exist; train first"):
        train(tmp_path, "pcbf", [tmp_path / "gone.safetensors"])
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(proposals[0].read_bytes()[:-40])
    with pytest.raises(SnapshotError, match=r"cut\.safetensors is not a whole safetensors file.*train again"):
        train(tmp_path, "pcbf", [cut])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "config", "message"),
    [
        (SHORT, {"hidden_sizes": (9, 9)}, r"has another network; clone it with the same `hidden_sizes`"),
        (SHORT, {"activation": "relu"}, r"has another network.*`activation`"),
        (dataclasses.replace(SHORT, standardise=True), {}, r"another scale; clone it with the same `standardise`"),
    ],
)
def test_a_proposal_of_other_settings_is_named(proposals, tmp_path, settings, config, message):
    with pytest.raises(SnapshotError, match=message):
        train(tmp_path, "pcbf", proposals, settings, **config)


@pytest.mark.slow
def test_a_foreign_proposal_is_named(cloned, finished, proposals, tmp_path):
    with pytest.raises(SnapshotError, match="it is of pcbf; pass a snapshot of bc"):
        train(tmp_path, "pcbf", [files_of(finished, "pcbf").snapshot(0, 20)])
    with pytest.raises(SnapshotError, match="is of step 10 of 20; pass the last"):
        train(tmp_path, "pcbf", [files_of(cloned, "bc").snapshot(0, 10)])


@pytest.mark.slow
def test_a_run_with_another_proposal_is_refused_or_replaced(finished, proposals, tmp_path):
    shutil.copytree(finished, tmp_path / "results")
    files, others = files_of(tmp_path / "results", "pcbf"), []
    for path in proposals:  # of the same settings, as another machine may round them
        one = load_snapshot(path)
        others.append(tmp_path / f"{one.seed}.safetensors")
        state = jax.tree.map(lambda leaf: leaf * 1.001, one.state)
        save_snapshot(others[-1], state, scaling=one.scaling, config=one.config, seed=one.seed, step=one.step)
    with pytest.raises(RunError, match=rf"made with another proposal \(SHA-256 {sha256(proposals[0])}\)"):
        train(files.root, "pcbf", others, action_reuse=2)
    files.record(0).unlink()
    files.record(1).unlink()
    with pytest.raises(CheckpointError, match=r"proposals: .* there, .* now"):
        train(files.root, "pcbf", others, action_reuse=2)
    records = train(files.root, "pcbf", others, action_reuse=2, how={"replace": True})
    assert [record.proposal for record in records] == list(map(sha256, others))


@pytest.mark.slow
def test_the_command_takes_proposals_and_its_receipt_names_them(proposals, tmp_path, capsys):
    settings = [f"{name}={value}" for name, value in {**TINY["c51"], **FROZEN}.items() if name != "hidden_sizes"]
    settings = [item.replace("(", "[").replace(")", "]") for item in settings]
    asked = ["tiny", "c51", "--seeds", "1", "0", "--steps", "20", "--batch-size", "8", "--log-every", "5"]
    asked += ["--eval-every", "10", "--no-domain-settings", "--out", str(tmp_path), "--episodes", "1", "--slots", "1"]
    asked += ["--set", "hidden_sizes=[8,8]", *settings, "--receipt", str(tmp_path / "receipt.json")]
    assert main(asked) == 1
    assert "clone it with `pcbf-train tiny bc --seeds 1 0" in capsys.readouterr().err
    assert main([*asked, "--redraw-every", "7", "--proposal", *map(str, proposals)]) == 1
    assert "--redraw-every 7 must be a multiple of --log-every 5" in capsys.readouterr().err
    assert main([*asked, "--redraw-every", "10", "--proposal", *map(str, proposals)]) == 0
    said = read_json(tmp_path / "receipt.json")["records"]
    assert [said[f"runs/tiny/c51/seed{seed}.json"]["proposal"] for seed in SEEDS] == list(map(sha256, proposals))


@pytest.mark.slow
def test_agents_that_take_a_proposal_are_those_that_search(proposals):
    for method in METHODS:
        problem = make_problem("tiny", method, SHORT, {**TINY[method], **FROZEN}, proposals=proposals)
        assert isinstance(problem.agent, CandidateAgent) and set(problem.proposals) == set(SEEDS)
