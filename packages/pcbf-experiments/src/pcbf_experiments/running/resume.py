"""What earlier calls of a run left behind: records, checkpoints, and what is done about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from pcbf_baselines.registry import make_agent
from pcbf_core.learner import LearnerState
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.plugins import load_plugins
from pcbf_experiments.running.checkpoint import CheckpointError, check_config, read_header, restore_checkpoint, told
from pcbf_experiments.running.errors import RunError
from pcbf_experiments.running.problem import Problem
from pcbf_experiments.running.proposals import GivenProposal, begin
from pcbf_experiments.running.snapshot import Snapshot, acting_state, blank_state, spec_from, statistics
from pcbf_experiments.running.trees import one_of
from pcbf_records.canonical import content_hash
from pcbf_records.files import remove_unfinished
from pcbf_records.layout import JobFiles, snapshot_steps
from pcbf_records.runs import RunRecord, load_run


@dataclass
class RunState:
    """What changes during a run: everything a checkpoint holds."""

    states: LearnerState
    keys: jax.Array
    step: int
    row: Mapping[str, Any] = field(default_factory=dict)  # metrics (learner, step) since the last row of metrics


def begin_or_resume(problem: Problem, files: JobFiles, config: Mapping[str, Any], log: IO[str]) -> RunState:
    """The state of the last checkpoint, or a fresh one."""
    pairs = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(jnp.array(files.seeds))
    init_keys, train_keys = pairs[:, 0], pairs[:, 1]
    states = begin(problem.agent, init_keys, files.seeds, problem.proposals)
    if not files.checkpoint.exists():
        return RunState(states, train_keys, 0)
    template = checkpoint_tree(states, train_keys, problem.scaling)
    own = group_config(files, config, problem.proposals)
    tree, header = restore_checkpoint(files.checkpoint, template, config=own)
    print(f"{files.name}: resuming from step {header['step']}", file=log)
    return RunState(tree["states"], tree["keys"], header["step"], header["extra"].get("row", {}))


def checkpoint_tree(states: LearnerState, keys: jax.Array, scaling: Scaling) -> dict[str, Any]:
    """What a checkpoint holds."""
    scale = {**statistics(scaling), "reward_scale": np.float64(scaling.reward_scale)}
    return {"states": states, "keys": keys, "scaling": scale}


def group_config(files: JobFiles, config: Mapping[str, Any], proposals: Mapping[int, GivenProposal]) -> dict[str, Any]:
    """The config of a checkpoint, which holds the states of a whole group."""
    given = {"proposals": [proposals[seed].sha256 for seed in files.seeds]} if proposals else {}
    return {**config, "seeds": list(files.seeds), **given}


def finished_records(
    files: JobFiles, config: Mapping[str, Any], proposals: Mapping[int, GivenProposal]
) -> dict[int, RunRecord]:
    """The records of the seeds that need no more training, by seed; one of another config or proposal raises."""
    found = [load_run(files.record(seed)) for seed in files.seeds if files.record(seed).exists()]
    for record in found:
        if record.config_hash != content_hash(config):
            raise RunError(
                f"{files.record(record.seed)} was made with other settings:\n{told(record.config, config)}\n"
                "Use those settings, another output folder, or --restart to replace it."
            )
        if proposals and record.proposal != proposals[record.seed].sha256:
            raise RunError(
                f"{files.record(record.seed)} was made with another proposal (SHA-256 {record.proposal}); pass that "
                "one, use another output folder, or --restart to replace it."
            )
    return {record.seed: record for record in found}


def forget(files: JobFiles) -> None:
    """Remove everything that a run left behind."""
    for file in _own_files(files):
        file.unlink(missing_ok=True)


def forget_others(
    files: JobFiles, config: Mapping[str, Any], proposals: Mapping[int, GivenProposal], log: IO[str]
) -> None:
    """Put records and a checkpoint of another config or proposal, or that cannot be read, aside."""
    for seed in files.seeds:
        one = files.with_seeds([seed])
        _put_aside_unless(lambda one=one: finished_records(one, config, proposals), one.record(seed), log)
    if files.checkpoint.exists():
        own = group_config(files, config, proposals)
        _put_aside_unless(
            lambda: check_config(files.checkpoint, read_header(files.checkpoint), own), files.checkpoint, log
        )


def sweep(files: JobFiles) -> None:
    """Remove unfinished files that a killed process of this run left behind."""
    for file in (*_own_files(files), files.progress, files.cost):
        remove_unfinished(file)
    for seed in files.seeds:  # also of snapshots that have no whole file yet
        for unfinished in files.snapshots(seed).glob(".*.tmp"):
            unfinished.unlink(missing_ok=True)


def _own_files(files: JobFiles) -> list[Path]:
    of_seeds = [
        file
        for seed in files.seeds
        for file in (
            files.record(seed),
            files.metrics(seed),
            files.evaluations(seed),
            *(files.snapshot(seed, step) for step in snapshot_steps(files, seed)),
        )
    ]
    return [files.checkpoint, *of_seeds]


def _put_aside_unless(check: Callable[[], Any], file: Path, log: IO[str]) -> None:
    try:
        check()
    except (RunError, CheckpointError, ValueError) as error:
        aside = file.with_name(f"{file.name}.old")
        file.replace(aside)
        print(f"{error}\n{file} was moved to {aside.name}; the run begins anew", file=log)


# --- from a checkpoint ------------------------------------------------------------------------------------------------


def load_agents(path: Path) -> list[Snapshot]:
    """The agents of a checkpoint, one per seed, as snapshots would hold them; no data needed."""
    load_plugins()
    config = read_header(path)["config"]
    spec = spec_from(config["spec"])
    agent = make_agent(config["method"], spec, config.get("method_settings", {}))
    keys = jax.random.split(jax.random.key(0), len(config["seeds"]))
    empty = np.zeros(spec.observation_shape, np.float32) if config["run"]["standardise"] else None
    blank = jax.jit(jax.vmap(partial(blank_state, agent)))(keys)
    tree, header = restore_checkpoint(path, checkpoint_tree(blank, keys, Scaling(empty, empty)))
    stored = {name: np.asarray(value) for name, value in tree["scaling"].items()}
    scaling = Scaling(
        stored.get("observation_mean"), stored.get("observation_std"), reward_scale=float(stored["reward_scale"])
    )
    run = {name: value for name, value in config.items() if name not in ("seeds", "proposals")}
    return [
        Snapshot(agent, acting_state(one_of(tree["states"], index)), spec, scaling, run, seed, header["step"])
        for index, seed in enumerate(config["seeds"])
    ]
