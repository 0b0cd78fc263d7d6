"""One run: train a group of seeds side by side, leave snapshots and checkpoints, record; rerun to resume.

`pcbf_records.layout.JobFiles` says where a group of seeds writes. A record says nothing of the group it was trained in.
With `across="map"` its bytes do not depend on the group either; "vmap" batches the seeds into the same matrix products,
which on accelerators changes the rounding.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from pcbf_core.learner import LearnerState
from pcbf_core.training import first_divergence, train_chunk
from pcbf_experiments.data.pixels import HostFrames
from pcbf_experiments.running.checkpoint import save_checkpoint
from pcbf_experiments.running.errors import DIVERGED_REMEDY, RunDiverged, RunStopped
from pcbf_experiments.running.line import ProgressLine
from pcbf_experiments.running.metrics import append_metrics, last_metrics, trim_metrics
from pcbf_experiments.running.problem import Problem, run_config
from pcbf_experiments.running.proposals import Tables, check_proposals
from pcbf_experiments.running.resume import (
    RunState,
    begin_or_resume,
    checkpoint_tree,
    finished_records,
    forget,
    forget_others,
    group_config,
    sweep,
)
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.running.sinks import Sink
from pcbf_experiments.running.snapshot import save_snapshot
from pcbf_experiments.running.stopping import Stopper
from pcbf_experiments.running.trees import one_of
from pcbf_records.canonical import readable_json
from pcbf_records.files import write_text
from pcbf_records.layout import JobFiles
from pcbf_records.locks import held
from pcbf_records.progress import ProgressFile
from pcbf_records.runs import Evaluation, RunRecord, Status, save_run
from pcbf_records.versions import code_version, library_versions

CALL_SECONDS = 1.0  # how long a compiled call should take: what a signal waits for
CHECKPOINT_SECONDS = 300.0  # a checkpoint at least this often, so that a kill costs little
Judge = Callable[[JobFiles, int, int], Evaluation]


@dataclass(frozen=True)
class RunOptions:
    """How a run is made, none of which changes its numbers.

    Attributes:
      checkpoint_every: steps between checkpoints besides those at snapshots and every few minutes.
      judge: evaluates the snapshot of a seed and step as soon as it is written; None leaves that to the next stage.
      stopper: asked between compiled calls; if it says so, a checkpoint is made and `RunStopped` raised.
      log: where the progress line goes.
      sinks: also told (seed, step, metrics) at every row of the metrics files.
    """

    checkpoint_every: int | None = None
    judge: Judge | None = None
    stopper: Stopper = field(default_factory=Stopper)
    log: IO[str] = field(default_factory=lambda: sys.stderr)
    sinks: Sequence[Sink] = ()


def run(
    problem: Problem,
    settings: RunSettings,
    seeds: Sequence[int],
    results: Path,
    *,
    restart: bool = False,
    replace: bool = False,
    wait: bool = True,
    options: RunOptions | None = None,
) -> list[RunRecord]:
    """Records of all seeds, trained from the beginning or from the last checkpoint.

    A seed that diverges gets a record that says so, and the others go on; if all do, `RunDiverged` is raised.

    Args:
      restart: forget what earlier calls left behind.
      replace: put aside what was made with other settings or cannot be read any more, instead of refusing it.
      wait: if another process trains one of the seeds, wait for it instead of raising `LockedError`.
    """
    options = options or RunOptions()
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"`seeds={list(seeds)}` must be one or more different numbers.")
    check_proposals(problem.agent, problem.proposals, seeds, task=problem.task)
    group = JobFiles.of_seeds(results, problem.task, problem.method, seeds)
    config = run_config(problem, settings)
    with held([group.lock(seed, "train") for seed in seeds], wait=wait, log=options.log):
        sweep(group)
        if restart:
            forget(group)
        elif replace:
            forget_others(group, config, problem.proposals, options.log)
        done = finished_records(group, config, problem.proposals)
        if missing := [seed for seed in seeds if seed not in done]:
            # a checkpoint of the whole group is worth more than the records some of its seeds already have
            files = group if group.checkpoint.exists() else group.with_seeds(missing)
            done |= {record.seed: record for record in _train(problem, settings, files, config, options)}
    records = [done[seed] for seed in seeds]
    print(f"{group.name}: {', '.join(f'seed {record.seed} {record.status}' for record in records)}", file=options.log)
    if all(record.status == "diverged" for record in records):
        reasons = " ".join(record.message for record in records)
        raise RunDiverged(f"{group.name} diverged: {reasons} {DIVERGED_REMEDY}")
    return records


def _train(
    problem: Problem, settings: RunSettings, files: JobFiles, config: Mapping[str, Any], options: RunOptions
) -> list[RunRecord]:
    state = begin_or_resume(problem, files, config, options.log)
    known = finished_records(files, config, problem.proposals)
    diverged = {seed: record for seed, record in known.items() if record.status == "diverged"}
    for seed in set(files.seeds) - set(diverged):
        trim_metrics(files.metrics(seed), state.step)
    loop = _Loop(problem, settings, files, config, state, options)
    loop.diverged = {files.seeds.index(seed): record for seed, record in diverged.items()}
    loop.train()
    return loop.finish()


class _Loop:
    """The loop over compiled calls, with everything that happens between two of them."""

    def __init__(
        self,
        problem: Problem,
        settings: RunSettings,
        files: JobFiles,
        config: Mapping[str, Any],
        state: RunState,
        options: RunOptions,
    ) -> None:
        self.problem, self.settings, self.files, self.config = problem, settings, files, config
        self.state, self.options = state, options
        self.tables = Tables(problem.agent, problem.source, settings)
        self.line = ProgressLine(options.log, settings.steps, state.step)
        self.progress = ProgressFile(files.progress, files.name, settings.steps, first=state.step)
        self.saved = time.monotonic()
        self.diverged: dict[int, RunRecord] = {}
        self.row = {name: np.array(values) for name, values in state.row.items()}
        self.step_seconds: float | None = None  # None until compiled, 0 until measured
        self.train_seconds = 0.0
        self.first_call: dict[str, float] = {}
        self.first_step = state.step

    def train(self) -> None:
        settings, state = self.settings, self.state
        self.progress(state.step)
        if state.step in settings.snapshot_steps:  # what was stopped between a checkpoint and its evaluation
            self._judge()
        with self.options.stopper.while_something_is_lost():
            while state.step < settings.steps and self._alive():  # if all diverge, the last good checkpoint is kept
                self._call()
                if self._alive():
                    self._after_call()

    def _after_call(self) -> None:
        """Everything that is due at this step, and the end of the run if a signal asked for it."""
        state, stopper = self.state, self.options.stopper
        row = self._end_row() if self._is_row_end() else None
        is_due = state.step in self.settings.snapshot_steps
        if is_due:
            self._snapshot()
        if is_due or stopper.is_asked or self._is_checkpoint_due(is_row_end=row is not None):
            self._save()
        if is_due:
            self._judge()
        self.progress(state.step)
        self.line(state.step, row or {})
        if stopper.is_asked and state.step < self.settings.steps:
            where = f"{self.files.name} was stopped at step {state.step}"
            raise RunStopped(f"{where}; rerun to resume from there.", stopper.number)

    def _call(self) -> None:
        """One compiled call: as many steps as take about a second, but not beyond the end of a row of metrics."""
        state, is_first = self.state, self.step_seconds is None
        count = self._count()
        if self.tables.is_due(state.step):
            self._draw()
        start = time.perf_counter()
        if is_first:  # all of the state is on disk, or fresh: a signal need not wait for the compiler
            self.line.note(f"compiling {self.problem.method} …")
            with self.options.stopper.nothing_to_lose():
                states, histories = self._chunk(count)
        else:
            states, histories = self._chunk(count)
        seconds = time.perf_counter() - start
        self._note_diverged(histories)
        state.states, state.step = states, state.step + count
        self.train_seconds += seconds
        for name, values in histories.items():
            self.row[name] = np.concatenate([self.row[name], values], axis=1) if name in self.row else values
        if is_first:
            self.line.note(f"compiled in {seconds:.0f} s")
            self.line.restart(state.step)
            self.step_seconds = 0.0
            self.first_call = {"first_call_seconds": round(seconds, 3), "first_call_steps": count}
        else:
            self.step_seconds = seconds / count

    def _draw(self) -> None:
        """Candidates for the next steps; all of the state is on disk meanwhile, so that a signal need not wait."""
        state, start = self.state, time.perf_counter()
        if state.step > self.first_step:
            self._save()
        self.line.note("drawing candidates …")
        with self.options.stopper.nothing_to_lose():
            self.tables.draw(state.states, state.keys, state.step)
        self.train_seconds += time.perf_counter() - start

    def _count(self) -> int:
        """Steps of the next call; whole rounds of `action_reuse`, so that calls of any length make the same run."""
        settings, state = self.settings, self.state
        unit = getattr(self.problem.agent, "action_reuse", 1) ** 2
        row_end = min((state.step // settings.log_every + 1) * settings.log_every, settings.steps)
        wanted = CALL_SECONDS / self.step_seconds if self.step_seconds else 1
        return min(max(int(wanted / unit), 1) * unit, row_end - state.step)

    def _is_row_end(self) -> bool:
        return self.state.step % self.settings.log_every == 0 or self.state.step == self.settings.steps

    def _end_row(self) -> Mapping[str, float]:
        """Write the means of the metrics since the last row; those of the first learner that has not diverged."""
        rows = {i: {name: float(values[i].mean()) for name, values in self.row.items()} for i in self._alive()}
        self._log(rows)
        self.row = {}
        return next(iter(rows.values()))

    def _alive(self) -> list[int]:
        """Indices of the learners that have not diverged; the others are carried along and ignored."""
        return [index for index in range(len(self.files.seeds)) if index not in self.diverged]

    def _is_checkpoint_due(self, *, is_row_end: bool) -> bool:
        """Whether a multiple of an interval was reached or passed in the last row, or minutes went by."""
        step = self.state.step
        before = step - min(self.settings.log_every, step)
        intervals = [self.settings.eval_every, self.options.checkpoint_every or self.settings.eval_every]
        is_reached = is_row_end and any(step // every > before // every for every in intervals)
        return is_reached or time.monotonic() - self.saved > CHECKPOINT_SECONDS

    def _chunk(self, count: int) -> tuple[LearnerState, dict[str, np.ndarray]]:
        """The states after `count` steps, and the metrics of each learner and step."""
        problem, state, settings = self.problem, self.state, self.settings
        sizes: dict[str, Any] = dict(
            num_steps=settings.log_every,
            batch_size=settings.batch_size,
            across=settings.across,
            count=count,
            precision=settings.precision,
        )
        # train_chunk gives the memory of the states it is passed to the new ones; the last good ones stay on disk
        if isinstance(problem.source, HostFrames):
            states, metrics = problem.source.train(problem.agent, state.states, state.keys, state.step, **sizes)
        else:
            where = (problem.source, state.keys, state.step)
            states, metrics = train_chunk(problem.agent, state.states, *where, **sizes, candidates=self.tables.drawn)
        return states, {name: np.asarray(values, np.float64) for name, values in metrics.items()}

    def _note_diverged(self, histories: Mapping[str, np.ndarray]) -> None:
        """Write a record for every learner whose metrics became NaN, infinite or absurdly large."""
        for index, (step, reason) in first_divergence(histories).items():
            if index in self.diverged:
                continue
            seed = self.files.seeds[index]
            reason = f"{reason} at step {self.state.step + step} of seed {seed}."
            self.diverged[index] = self._record(index, "diverged", reason)
            save_run(self.files.record(seed), self.diverged[index])
            self.line.note(f"{self.files.name} diverged: {reason}")

    def _log(self, rows: Mapping[int, Mapping[str, float]]) -> None:
        for index, row in rows.items():
            seed = self.files.seeds[index]
            append_metrics(self.files.metrics(seed), self.state.step, row)
            for sink in self.options.sinks:
                sink(seed, self.state.step, row)

    def _snapshot(self) -> None:
        """Leave a snapshot of every seed."""
        step = self.state.step
        for index in self._alive():
            seed = self.files.seeds[index]
            one = one_of(self.state.states, index)
            path = self.files.snapshot(seed, step)
            save_snapshot(path, one, scaling=self.problem.scaling, config=self.config, seed=seed, step=step)

    def _judge(self) -> None:
        """Have the snapshots of this step judged, if the run is made by hand; all that counts is on disk by now."""
        if self.options.judge is None:
            return
        step, scores = self.state.step, []
        with self.options.stopper.nothing_to_lose():
            for index in self._alive():
                seed = self.files.seeds[index]
                score = self.options.judge(self.files, seed, step).mean
                scores.append(f"{score:.1f}")
                for sink in self.options.sinks:
                    sink(seed, step, {"score": score})
        self.line.note(f"step {step}: score {', '.join(scores)}")

    def _save(self) -> None:
        state = self.state
        save_checkpoint(
            self.files.checkpoint,
            checkpoint_tree(state.states, state.keys, self.problem.scaling),
            step=state.step,
            config=group_config(self.files, self.config, self.problem.proposals),
            extra={"row": {name: values.tolist() for name, values in self.row.items()}},
        )
        self.saved = time.monotonic()

    def _record(self, index: int, status: Status, message: str = "") -> RunRecord:
        seed = self.files.seeds[index]
        return RunRecord(
            task=self.problem.task,
            method=self.problem.method,
            seed=seed,
            status=status,
            steps=self.state.step,
            snapshot_steps=tuple(step for step in self.settings.snapshot_steps if step <= self.state.step),
            num_final_evaluations=self.problem.num_final_evaluations,
            config=self.config,
            dataset=self.problem.dataset,
            proposal=self.problem.proposals[seed].sha256 if seed in self.problem.proposals else None,
            final_metrics=last_metrics(self.files.metrics(seed)),
            message=message,
            versions=library_versions(),
            code=code_version(),
        )

    def finish(self) -> list[RunRecord]:
        """The records of all seeds; those that have reached the last step are written."""
        finished = [self._record(index, "finished") for index in self._alive()]
        self._write_cost()
        for record in finished:
            save_run(self.files.record(record.seed), record)
        return [*finished, *self.diverged.values()]

    def _write_cost(self) -> None:
        """Time and memory of this call; apart from the record, which must not depend on the machine's mood.

        The first compiled call, which compiles, is told by itself as well.
        """
        trained = self.state.step - self.first_step
        if not trained:
            return  # the call that trained has written it
        cost = {
            "seeds": list(self.files.seeds),
            "first_step": self.first_step,
            "steps": trained,
            "train_seconds": round(self.train_seconds, 3),
            "steps_per_second": round(trained / max(self.train_seconds, 1e-9), 2),
            **self.first_call,
            **memory(),
        }
        write_text(self.files.cost, readable_json(cost))


def memory() -> dict[str, Any]:
    """Peak memory of this process and of its device, and which device that is."""
    device = jax.devices()[0]
    return {
        "peak_host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "peak_device_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "device": device.device_kind,
    }
