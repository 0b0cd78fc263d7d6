"""One cell of the suite tried from its data to its place in the table, in few steps and with its real networks.

`begin` trains a chunk, leaves the checkpoint, trains another and is killed. `resume` goes on from the checkpoint, which
must repeat to the bit what was lost, trains to the end, has the last snapshot judged in the simulator, and looks the
score up in the collected table.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcbf_core.config import config_from
from pcbf_core.training import compile_chunk
from pcbf_experiments.campaign.plan import CLONER
from pcbf_experiments.campaign.rehearsal import Cell
from pcbf_experiments.cli.train import job_method_settings
from pcbf_experiments.data.download import DatasetMissing
from pcbf_experiments.data.local import LocalSettings
from pcbf_experiments.data.pixels import HostFrames
from pcbf_experiments.evaluation import EvaluationSettings, Evaluator
from pcbf_experiments.running.judge import judge_group
from pcbf_experiments.running.loop import RunOptions, run
from pcbf_experiments.running.problem import Problem, make_problem
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.running.snapshot import blank_state
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import TASKS, find_task
from pcbf_records.control import collect_control
from pcbf_records.files import atomic_write, read_json
from pcbf_records.layout import CONTROL_EVALUATIONS, JobFiles
from pcbf_records.runs import final_score, load_evaluations, load_run
from pcbf_records.sheets import Task

CHUNKS = 3
FEW_IMAGES = 8
PLAYED = {"num_episodes": 2, "num_slots": 2, "episode_limit": 3}
DIFFERENCE = 1e-2  # what is lost and made again may differ by so much where a device does not repeat itself to the bit
ROWS = {"state": LocalSettings(3, 1, 60), "pixel": LocalSettings(2, 1, 8)}  # data made here, if there are no others


class RehearsalError(RuntimeError):
    """What a cell does that it must not."""


class Killed(Exception):
    """In place of SIGKILL, where the process has more to do: nothing catches it, and nothing is written after it."""


@dataclass(frozen=True)
class Stage:
    """Where cells are tried, and how much of them.

    Attributes:
      data: the datasets of the scale; a cell that has none there takes one that is made in `spare_data`.
      seeds: learners side by side; None: those of a job of the scale, on a CPU one.
      chunk: steps between checkpoints; None: those of a row of metrics of the scale, on a CPU one.
    """

    results: Path
    data: Path
    spare_data: Path
    seeds: int | None = None
    chunk: int | None = None

    def seeds_of(self, cell: Cell) -> list[int]:
        return list(range(self.seeds or (1 if _is_cpu() else cell.seeds_per_job)))

    def settings_of(self, cell: Cell) -> RunSettings:
        """The run settings of a cell's job, for a run of `CHUNKS` chunks."""
        real = config_from(RunSettings, cell.job["run"])
        chunk = self.chunk or (1 if _is_cpu() else real.log_every)
        steps = CHUNKS * chunk
        redraw = None if real.redraw_every is None else chunk
        return replace(real, steps=steps, log_every=chunk, eval_every=chunk, eval_from=steps, redraw_every=redraw)

    def trained(self, cell: Cell) -> RunSettings:
        """What is trained of it: all, but on a CPU few images in a batch, whose convolutions take minutes there."""
        settings = self.settings_of(cell)
        is_slow = cell.observations == "pixel" and _is_cpu()
        return replace(settings, batch_size=min(settings.batch_size, FEW_IMAGES)) if is_slow else settings


def _is_cpu() -> bool:
    return jax.default_backend() == "cpu"


# --- until it is killed -----------------------------------------------------------------------------------------------


def begin(cell: Cell, stage: Stage, note: Any, *, is_last: bool) -> None:
    """Train up to the kill; `note` is given what was measured and what is about to be lost, just before it."""
    settings, seeds = stage.trained(cell), stage.seeds_of(cell)
    proposals = _cloned(cell, stage) if cell.cloning_job else []
    problem = _problem(cell, stage, settings, proposals)
    measured = program(problem, stage.settings_of(cell), len(seeds))
    measured["trained_batch_size"] = settings.batch_size

    def kill(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        if step > settings.log_every:
            note({**measured, "lost": dict(metrics)})
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Killed

    try:
        run(problem, settings, seeds, stage.results, restart=True, options=RunOptions(sinks=[kill], log=io.StringIO()))
    except Killed:
        return
    raise RehearsalError("the run ended before it was killed")


def _problem(cell: Cell, stage: Stage, settings: RunSettings, proposals: Sequence[Path] = ()) -> Problem:
    """The cell ready to train, on the scale's own data or on what is made here."""
    make = partial(
        make_problem, cell.task, cell.method, settings, job_method_settings(cell.method, cell.job), proposals=proposals
    )
    try:
        return make(data_dir=stage.data)
    except DatasetMissing:
        pass
    try:
        return make(data_dir=stage.spare_data)
    except DatasetMissing:
        _make_data(find_task(cell.task), stage.spare_data)
        return make(data_dir=stage.spare_data)


def _make_data(task: Task, folder: Path) -> None:
    """A few rows of the right shape and format."""
    suite, settings = suite_of(task), ROWS[task.observations]
    if task.suite == "adroit":
        settings = replace(settings, policies=_random_policies(task, folder / "policies"))
    suite.make_local(task, folder, settings, num_workers=1, overwrite=False, progress=False)


def _random_policies(task: Task, folder: Path) -> Path:
    """The folder of a policy that acts at random, in the form in which Adroit's experts come."""
    shape, actions = suite_of(task).shapes(task)
    outputs = dict.fromkeys(("b2", "out_shift", "log_std"), (actions,))
    zeros = {"w0": (1, *shape), "b0": (1,), "w1": (1, 1), "b1": (1,), "w2": (actions, 1), "in_shift": shape, **outputs}
    arrays = {name: np.zeros(size) for name, size in zeros.items()}
    with atomic_write(folder / f"{task.name.split('-')[0]}.npz", "wb") as file:
        np.savez(file, allow_pickle=False, **arrays, in_scale=np.ones(shape), out_scale=np.ones(actions))
    return folder


def _cloned(cell: Cell, stage: Stage) -> list[Path]:
    """The last snapshots of behaviour cloning, for a method that takes its proposal from there."""
    assert cell.cloning_job is not None
    cloner = replace(cell, method=CLONER, job=cell.cloning_job, cloning_job=None)
    settings, seeds = stage.trained(cloner), stage.seeds_of(cloner)
    run(_problem(cloner, stage, settings), settings, seeds, stage.results, options=RunOptions(log=io.StringIO()))
    files = JobFiles.of_seeds(stage.results, cell.task, CLONER, seeds)
    return [files.snapshot(seed, settings.steps) for seed in seeds]


_PROGRAMS: dict[Any, dict[str, Any]] = {}  # by all that they are compiled for; tasks of a domain may share one


def program(problem: Problem, settings: RunSettings, num_seeds: int) -> dict[str, Any]:
    """What the compiled chunk of a cell takes: seconds to compile, and memory by XLA's own analysis."""
    keys = jax.random.split(jax.random.key(0), num_seeds)
    states = jax.eval_shape(jax.vmap(partial(blank_state, problem.agent)), keys)
    measured: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "data": str(problem.dataset.get("source")),
        "seeds": num_seeds,
        "batch_size": settings.batch_size,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(states.params)) // num_seeds,
        "state_bytes": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states)) // num_seeds,
    }
    if isinstance(problem.source, HostFrames):
        return measured  # its blocks are compiled apart
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(problem.source))
    known = (problem.agent, shapes, num_seeds, settings)
    if known not in _PROGRAMS:
        sizes: dict[str, Any] = {"num_steps": settings.log_every, "batch_size": settings.batch_size}
        sizes |= {"across": settings.across, "precision": settings.precision}
        started = time.perf_counter()
        compiled = compile_chunk(problem.agent, states, problem.source, keys, **sizes)
        seconds = time.perf_counter() - started
        _PROGRAMS[known] = {"compile_seconds": round(seconds, 2), **_memory(compiled)}
    return {**measured, **_PROGRAMS[known]}


def _memory(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Bytes of a program by XLA's analysis; nothing where the backend has none."""
    told = compiled.memory_analysis()
    names = {"argument": "argument", "output": "output", "temporary": "temp", "program": "generated_code"}
    sizes = {f"{name}_bytes": getattr(told, f"{part}_size_in_bytes", None) for name, part in names.items()}
    return {name: size for name, size in sizes.items() if size is not None}


# --- and after it -----------------------------------------------------------------------------------------------------


def resume(cell: Cell, stage: Stage, lost: Mapping[str, float]) -> dict[str, Any]:
    """What was measured while the cell went on from its checkpoint to its place in the table."""
    settings, seeds = stage.trained(cell), stage.seeds_of(cell)
    files = JobFiles.of_seeds(stage.results, cell.task, cell.method, seeds)
    clones = JobFiles.of_seeds(stage.results, cell.task, CLONER, seeds)
    proposals = [clones.snapshot(seed, settings.steps) for seed in seeds] if cell.cloning_job else []
    made_again: dict[str, float] = {}

    def note(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        if seed == seeds[0] and step == 2 * settings.log_every:
            made_again.update(metrics)

    log, checkpoint_bytes = io.StringIO(), files.checkpoint.stat().st_size
    problem = _problem(cell, stage, settings, proposals)
    run(problem, settings, seeds, stage.results, options=RunOptions(sinks=[note], log=log))
    if f"resuming from step {settings.log_every}" not in log.getvalue():
        raise RehearsalError(f"it did not resume from its checkpoint: {log.getvalue().strip()[-300:]}")
    difference = _difference(lost, made_again)
    if difference > (0 if _is_cpu() else DIFFERENCE):
        raise RehearsalError(f"what the kill lost came out otherwise the second time: {dict(lost)}, {made_again}")
    started = time.perf_counter()
    with Evaluator(find_task(cell.task), config_from(EvaluationSettings, {**cell.evaluation, **PLAYED})) as evaluator:
        judge_group(files, evaluator, log=log)
    cost = read_json(files.cost)
    steady = cost["steps"] - cost["first_call_steps"], cost["train_seconds"] - cost["first_call_seconds"]
    return {
        "checkpoint_bytes": checkpoint_bytes,
        "snapshot_bytes": files.snapshot(seeds[0], settings.steps).stat().st_size,
        "steps_per_second": steady[0] / max(steady[1], 1e-9),
        "resume_difference": difference,
        "evaluation_seconds": round(time.perf_counter() - started, 2),
        "score": score_in_table(stage.results, cell, files),
        "peak_host_bytes": cost["peak_host_bytes"],
        "peak_device_bytes": cost["peak_device_bytes"],
    }


def _difference(lost: Mapping[str, float], made_again: Mapping[str, float]) -> float:
    """The largest relative difference between two rows of metrics."""
    if set(lost) != set(made_again):
        return float("inf")
    pairs = ((lost[name], made_again[name]) for name in lost)
    return max((abs(old - new) / max(abs(old), abs(new), 1e-12) for old, new in pairs), default=0.0)


def score_in_table(results: Path, cell: Cell, files: JobFiles) -> float:
    """The mean score of the cell's seeds, which stands where the collected table must have it."""
    collect_control(results, TASKS)
    with (results / CONTROL_EVALUATIONS).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["task"], row["method"]) == (cell.task, cell.method)]
    place = {"domain": cell.domain, "suite": cell.suite, "status": "finished", "is_final": "True", "change": ""}
    found = {row["seed"]: row["mean"] for row in rows if all(row[name] == value for name, value in place.items())}
    scores = {
        str(seed): final_score(load_run(files.record(seed)), load_evaluations(files.evaluations(seed)))
        for seed in files.seeds
    }
    if found != {seed: repr(score) for seed, score in scores.items()} or len(rows) != len(found):
        raise RehearsalError(f"the table has {found} where the evaluation records say {scores}")
    return float(np.mean([score for score in scores.values() if score is not None]))
