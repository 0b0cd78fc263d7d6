"""One run: train a group of seeds side by side, evaluate, checkpoint, record; the same call goes on where it stopped.

A run lives in a results directory:

  runs/<task>/<method>/seed<k>.json         the record of each seed, written once it is finished or has diverged
  checkpoints/<task>/<method>/<group>.npz   the whole state at the last checkpoint
  metrics/<task>/<method>/seed<k>.csv       means of the training metrics over every `log_every` steps
  progress/train-<task>-<method>-<group>.json, cost/<task>/<method>/<group>.json
  failures/train-<task>-<method>-<group>.json   why the last call failed, if it did
  locks/<task>/<method>/seed<k>.lock        held while a process trains the seed, so that there is never a second one

A record says nothing of the group it was trained in. With `across="map"` its bytes do not depend on the group either;
"vmap" batches the seeds into the same matrix products, which on accelerators changes the rounding.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from pcbf_baselines.datasets import DATA_DIR, Scaling, Source, find_task, load_task
from pcbf_baselines.datasets.pixels import HostFrames
from pcbf_baselines.evaluation import EvaluationSettings, TaskEvaluator
from pcbf_baselines.locks import held
from pcbf_baselines.progress import Progress
from pcbf_core.agent import Agent
from pcbf_core.checkpoint import CheckpointError, check_config, read_header, restore_checkpoint, save_checkpoint
from pcbf_core.config import check_choice, check_range
from pcbf_core.files import atomic_write
from pcbf_core.learner import LearnerState
from pcbf_core.records import (
    Evaluation,
    RunRecord,
    code_version,
    differences,
    evaluation_from,
    library_versions,
    load_record,
    record_path,
    save_record,
)
from pcbf_core.training import init_many, train_chunk
from pcbf_core.types import Metrics, TaskSpec

DIVERGED = 1e12  # a metric beyond this counts as diverged
CHECKPOINT_SECONDS = 300.0  # a checkpoint at least this often, so that a kill costs little
Evaluator = Callable[[Agent, LearnerState, int], Evaluation]


class RunError(RuntimeError):
    """A run that cannot start or go on; the message says what to do."""


class RunDiverged(RunError):
    """A run that stopped because its numbers stopped being numbers."""


class RunStopped(RunError):
    """A run that was asked to stop, and did so right after a checkpoint."""


@dataclass(frozen=True)
class RunSettings:
    """What a run does, besides the method's own settings.

    Attributes:
      steps, batch_size: gradient steps, and transitions per step.
      eval_every: steps between evaluations; the last step is always evaluated.
      eval_from: steps before which nothing is evaluated.
      log_every: steps per compiled call and per row of the metrics file.
      standardise: observations to zero mean and unit deviation, by statistics of the data.
      reward_scale: factor on every reward.
      return_width: choose that factor so that the return range has this width.
      across: train the seeds in lockstep ("vmap") or one after the other inside a call ("map").
      evaluation: how the learners are judged.
    """

    steps: int = 1_000_000
    batch_size: int = 256
    eval_every: int = 100_000
    eval_from: int = 0
    log_every: int = 1000
    standardise: bool = False
    reward_scale: float = 1.0
    return_width: float | None = None
    across: Literal["vmap", "map"] = "vmap"
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "eval_every", "log_every"):
            check_range(name, getattr(self, name), at_least=1)
        if self.eval_every % self.log_every:
            raise ValueError(
                f"`eval_every={self.eval_every}` is not a multiple of `log_every={self.log_every}`; "
                "evaluations happen between compiled calls."
            )
        check_range("reward_scale", self.reward_scale, above=0)
        if self.return_width is not None:
            check_range("return_width", self.return_width, above=0)
        check_choice("across", self.across, ("vmap", "map"))


@dataclass(frozen=True)
class Problem:
    """A method on a task, ready to train.

    Attributes:
      dataset: what the record says of the data.
      description: further values that decide the run and belong into its config.
      num_final_evaluations: how many of the last evaluations the reported score averages.
    """

    task: str
    method: str
    agent: Agent
    spec: TaskSpec
    source: Source
    evaluate: Evaluator
    dataset: Mapping[str, Any]
    scaling: Scaling = field(default_factory=Scaling)
    description: Mapping[str, Any] = field(default_factory=dict)
    num_final_evaluations: int = 1


@dataclass(frozen=True)
class RunPaths:
    """Where a group of seeds writes."""

    results: Path
    task: str
    method: str
    seeds: tuple[int, ...]

    @property
    def group(self) -> str:
        return "seeds" + "-".join(map(str, self.seeds))

    @property
    def checkpoint(self) -> Path:
        return self.results / "checkpoints" / self.task / self.method / f"{self.group}.npz"

    @property
    def cost(self) -> Path:
        return self.results / "cost" / self.task / self.method / f"{self.group}.json"

    @property
    def job(self) -> str:
        return f"train-{self.task}-{self.method}-{self.group}"

    @property
    def progress(self) -> Path:
        return self.results / "progress" / f"{self.job}.json"

    @property
    def failure(self) -> Path:
        return self.results / "failures" / f"{self.job}.json"

    def lock(self, seed: int) -> Path:
        return self.results / "locks" / self.task / self.method / f"seed{seed}.lock"

    def record(self, seed: int) -> Path:
        return record_path(self.results, self.task, self.method, seed)

    def metrics(self, seed: int) -> Path:
        return self.results / "metrics" / self.task / self.method / f"seed{seed}.csv"


def make_problem(
    task_name: str,
    method: str,
    settings: RunSettings,
    method_settings: Mapping[str, Any],
    *,
    data_dir: Path = DATA_DIR,
    num_workers: int = 0,
    memory_budget: float | None = None,
) -> Problem:
    """The named method on the named task: data loaded, agent made, simulators ready to be started."""
    from pcbf_baselines.registry import METHODS, make_agent

    task = find_task(task_name)
    check_choice("method", method, METHODS)
    chosen = with_discount(METHODS[method].config, method_settings, task.discount)
    loaded = load_task(
        task_name,
        data_dir=data_dir,
        discount=chosen.get("discount", task.discount),
        next_actions=True if str(chosen.get("next_action", "")).startswith("dataset") else None,
        standardise=settings.standardise,
        reward_scale=settings.reward_scale,
        return_width=settings.return_width,
        memory_budget=memory_budget,
    )
    evaluator = TaskEvaluator(task, settings.evaluation, loaded.scaling, num_workers)
    return Problem(
        task=task_name,
        method=method,
        agent=make_agent(method, loaded.spec, chosen),
        spec=loaded.spec,
        source=loaded.source,
        evaluate=evaluator,
        dataset=loaded.info.plain(),
        scaling=loaded.scaling,
        description={"method_settings": chosen, "method_version": METHODS[method].version},
        num_final_evaluations=task.num_final_evaluations,
    )


def with_discount(config: type, settings: Mapping[str, Any], discount: float) -> dict[str, Any]:
    """Method settings with the task's discount, unless they set it or the method has none."""
    names = {item.name for item in dataclasses.fields(config)}
    return {**({"discount": discount} if "discount" in names else {}), **settings}


def run_config(problem: Problem, settings: RunSettings) -> dict[str, Any]:
    """Everything that decides the numbers of a run besides its seed, as JSON values."""
    agent_config = getattr(problem.agent, "config", None)
    config = {
        "task": problem.task,
        "method": problem.method,
        "agent": dataclasses.asdict(agent_config) if dataclasses.is_dataclass(agent_config) else {},  # type: ignore[arg-type]
        "spec": dataclasses.asdict(problem.spec),
        "run": dataclasses.asdict(settings),
        "data": problem.dataset.get("files", {}),
        "backend": jax.default_backend(),
        **problem.description,
    }
    return json.loads(json.dumps(config))


@dataclass
class RunState:
    """What changes during a run: everything a checkpoint holds."""

    states: LearnerState
    keys: jax.Array
    step: int
    evaluations: list[list[Evaluation]]


def run(
    problem: Problem,
    settings: RunSettings,
    seeds: Sequence[int],
    results: Path,
    *,
    checkpoint_every: int | None = None,
    restart: bool = False,
    replace: bool = False,
    wait: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
    log: IO[str] = sys.stderr,
    sinks: Sequence[Callable[[int, int, Mapping[str, float]], None]] = (),
) -> list[RunRecord]:
    """Records of all seeds, trained from the beginning or from the last checkpoint.

    A seed that diverges gets a record that says so, and the others go on; if all do, `RunDiverged` is raised.

    Args:
      checkpoint_every: steps between checkpoints besides those at evaluations and every few minutes.
      restart: forget what earlier calls left behind.
      replace: forget only what was made under another config or cannot be read any more, instead of refusing it.
      wait: if another process trains one of the seeds, wait for it instead of raising `LockedError`.
      should_stop: asked between compiled calls; if it says so, a checkpoint is made and `RunStopped` raised.
      log: where the progress line goes.
      sinks: also told (seed, step, metrics) at every row of the metrics files.
    """
    group = RunPaths(Path(results), problem.task, problem.method, tuple(seeds))
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"`seeds={list(seeds)}` must be one or more different numbers.")
    config = run_config(problem, settings)
    with held([group.lock(seed) for seed in seeds], wait=wait, log=log):
        _sweep(group)
        if restart:
            _forget(group)
        elif replace:
            _forget_others(group, config, log)
        done = finished_records(group, config)
        if missing := [seed for seed in seeds if seed not in done]:
            # a checkpoint of the whole group is worth more than the records some of its seeds already have
            paths = group if group.checkpoint.exists() else dataclasses.replace(group, seeds=tuple(missing))
            options = {"checkpoint_every": checkpoint_every, "should_stop": should_stop, "log": log, "sinks": sinks}
            done |= {record.seed: record for record in _train(problem, settings, paths, config, **options)}
    records = [done[seed] for seed in seeds]
    print(f"{group.job} is finished: {_scores(records)}", file=log)
    if all(record.status == "diverged" for record in records):
        reasons = " ".join(record.message for record in records)
        raise RunDiverged(f"{group.job} diverged: {reasons} {DIVERGED_REMEDY}")
    return records


DIVERGED_REMEDY = "Change the settings (a smaller learning rate, gradient clipping), or pass --restart to try again."


def _train(
    problem: Problem, settings: RunSettings, paths: RunPaths, config: Mapping[str, Any], *, log: IO[str], **options: Any
) -> list[RunRecord]:
    state = _begin_or_resume(problem, paths, config, log)
    diverged = {seed: record for seed, record in finished_records(paths, config).items() if record.status == "diverged"}
    for seed in set(paths.seeds) - set(diverged):
        trim_metrics(paths.metrics(seed), state.step)
    loop = _Loop(problem, settings, paths, config, state, log=log, **options)
    loop.diverged = {paths.seeds.index(seed): record for seed, record in diverged.items()}
    try:
        loop.train()
    finally:
        close = getattr(problem.evaluate, "close", None)
        if close is not None:
            close()
    return loop.finish()


def finished_records(paths: RunPaths, config: Mapping[str, Any]) -> dict[int, RunRecord]:
    """The records of the seeds that need no more training, by seed; a record of another config raises."""
    found = [load_record(paths.record(seed)) for seed in paths.seeds if paths.record(seed).exists()]
    for record in found:
        if lines := list(differences(record.config, config, "record", "now")):
            shown = "\n".join(f"  {line}" for line in lines)
            raise RunError(
                f"{paths.record(record.seed)} was made under another config:\n{shown}\n"
                "Use that config, another output directory, or --restart to replace it."
            )
    return {record.seed: record for record in found}


def _own_files(paths: RunPaths) -> tuple[Path, ...]:
    return (paths.checkpoint, *map(paths.record, paths.seeds), *map(paths.metrics, paths.seeds))


def _forget(paths: RunPaths) -> None:
    for file in _own_files(paths):
        file.unlink(missing_ok=True)


def _forget_others(paths: RunPaths, config: Mapping[str, Any], log: IO[str]) -> None:
    """Remove records and a checkpoint of another config; move what cannot be read aside."""
    for seed in paths.seeds:
        one = dataclasses.replace(paths, seeds=(seed,))
        _remove_unless(lambda one=one: finished_records(one, config), one.record(seed), log)
    if paths.checkpoint.exists():
        _remove_unless(lambda: _check_checkpoint(paths, config), paths.checkpoint, log)


def _check_checkpoint(paths: RunPaths, config: Mapping[str, Any]) -> None:
    check_config(paths.checkpoint, read_header(paths.checkpoint), _group_config(paths, config))


def _remove_unless(check: Callable[[], Any], file: Path, log: IO[str]) -> None:
    try:
        check()
    except (RunError, CheckpointError, ValueError) as error:
        aside = file.with_name(f"{file.name}.old")
        file.replace(aside)
        print(f"{error}\n{file} was moved to {aside.name}; the run begins anew", file=log)


def _group_config(paths: RunPaths, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a checkpoint, which holds the states of a whole group."""
    return {**config, "seeds": list(paths.seeds)}


def _sweep(paths: RunPaths) -> None:
    """Remove unfinished files that a killed process of this run left behind."""
    for file in (*_own_files(paths), paths.progress, paths.cost):
        for unfinished in file.parent.glob(f".{file.name}.*.tmp"):
            unfinished.unlink(missing_ok=True)


def _begin_or_resume(problem: Problem, paths: RunPaths, config: Mapping[str, Any], log: IO[str]) -> RunState:
    pairs = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(jnp.array(paths.seeds))
    init_keys, train_keys = pairs[:, 0], pairs[:, 1]
    states = init_many(problem.agent, init_keys)
    if not paths.checkpoint.exists():
        return RunState(states, train_keys, 0, [[] for _ in paths.seeds])
    template = _checkpoint_tree(states, train_keys, problem.scaling)
    tree, header = restore_checkpoint(paths.checkpoint, template, config=_group_config(paths, config))
    evaluations = [[evaluation_from(item) for item in each] for each in header["extra"]["evaluations"]]
    print(f"{paths.job}: going on from step {header['step']}", file=log)
    return RunState(tree["states"], tree["keys"], header["step"], evaluations)


def _checkpoint_tree(states: LearnerState, keys: jax.Array, scaling: Scaling) -> dict[str, Any]:
    statistics = {
        name: getattr(scaling, name)
        for name in ("observation_mean", "observation_std")
        if getattr(scaling, name) is not None
    }
    return {"states": states, "keys": keys, "scaling": {**statistics, "reward_scale": np.float64(scaling.reward_scale)}}


class _Loop:
    """The loop over compiled calls, with everything that happens between two of them."""

    def __init__(
        self,
        problem: Problem,
        settings: RunSettings,
        paths: RunPaths,
        config: Mapping[str, Any],
        state: RunState,
        *,
        checkpoint_every: int | None,
        should_stop: Callable[[], bool],
        log: IO[str],
        sinks: Sequence[Callable[[int, int, Mapping[str, float]], None]],
    ) -> None:
        self.problem, self.settings, self.paths, self.config = problem, settings, paths, config
        self.state, self.checkpoint_every, self.sinks, self.should_stop = state, checkpoint_every, sinks, should_stop
        self.line = ProgressLine(log, settings.steps, state.step)
        self.progress = Progress(paths.progress, paths.job, settings.steps, first=state.step)
        self.saved = time.monotonic()
        self.diverged: dict[int, RunRecord] = {}
        self.seconds = {"train": 0.0, "evaluate": 0.0}
        self.first_step = state.step

    def train(self) -> None:
        settings, state = self.settings, self.state
        self.progress(state.step)
        while state.step < settings.steps:
            start = time.perf_counter()
            num_steps = min(settings.log_every, settings.steps - state.step)
            states, metrics = self._chunk(num_steps)
            histories = {name: np.asarray(values, np.float64) for name, values in metrics.items()}
            self._note_diverged(histories)
            if len(self.diverged) == len(self.paths.seeds):
                return  # the last good checkpoint is kept
            state.states, state.step = states, state.step + num_steps
            self.seconds["train"] += time.perf_counter() - start
            rows = {i: {name: float(values[i].mean()) for name, values in histories.items()} for i in self._alive()}
            self._log(rows)
            if self._is_due(settings.eval_every) and state.step >= min(settings.eval_from, settings.steps):
                self._evaluate()
            is_asked = self.should_stop()
            if is_asked or self._is_checkpoint_due():
                self._save()
            self.progress(state.step)
            self.line(state.step, next(iter(rows.values())))
            if is_asked and state.step < settings.steps:
                raise RunStopped(
                    f"{self.paths.job} was stopped at step {state.step}; the same command goes on from there."
                )

    def _alive(self) -> list[int]:
        """Indices of the learners that have not diverged; the others are carried along and ignored."""
        return [index for index in range(len(self.paths.seeds)) if index not in self.diverged]

    def _is_checkpoint_due(self) -> bool:
        return (
            self._is_due(self.settings.eval_every)
            or (self.checkpoint_every is not None and self._is_due(self.checkpoint_every))
            or time.monotonic() - self.saved > CHECKPOINT_SECONDS
        )

    def _is_due(self, every: int) -> bool:
        """Whether a multiple of `every` was reached or passed in the last call, or the run is at its end."""
        before = self.state.step - min(self.settings.log_every, self.state.step)
        return self.state.step == self.settings.steps or self.state.step // every > before // every

    def _chunk(self, num_steps: int) -> tuple[LearnerState, Metrics]:
        problem, state = self.problem, self.state
        size = self.settings.batch_size
        # train_chunk gives the memory of the states it is passed to the new ones; the last good ones stay on disk
        if isinstance(problem.source, HostFrames):
            return problem.source.train(
                problem.agent, state.states, state.keys, state.step, num_steps=num_steps, batch_size=size
            )
        return train_chunk(
            problem.agent,
            state.states,
            problem.source,
            state.keys,
            state.step,
            num_steps=num_steps,
            batch_size=size,
            across=self.settings.across,
        )

    def _note_diverged(self, histories: Mapping[str, np.ndarray]) -> None:
        """Write a record for every learner whose metrics are no numbers any more."""
        for index in self._alive():
            for name, values in histories.items():
                bad = np.flatnonzero(~(np.abs(values[index]) < DIVERGED))
                if len(bad):
                    where, seed = self.state.step + int(bad[0]) + 1, self.paths.seeds[index]
                    reason = f"{name} became {values[index][bad[0]]} at step {where} of seed {seed}."
                    self.diverged[index] = self._record(index, "diverged", reason)
                    save_record(self.paths.record(seed), self.diverged[index])
                    self.line.note(f"{self.paths.job} diverged: {reason}")
                    break

    def _log(self, rows: Mapping[int, Mapping[str, float]]) -> None:
        for index, row in rows.items():
            seed = self.paths.seeds[index]
            append_metrics(self.paths.metrics(seed), self.state.step, row)
            for sink in self.sinks:
                sink(seed, self.state.step, row)

    def _evaluate(self) -> None:
        start = time.perf_counter()
        for index in self._alive():
            seed = self.paths.seeds[index]
            one = jax.tree.map(lambda x, i=index: x[i], self.state.states)
            evaluation = self.problem.evaluate(self.problem.agent, one, self.state.step)
            self.state.evaluations[index].append(evaluation)
            for sink in self.sinks:
                sink(seed, self.state.step, {"score": evaluation.mean})
        self.seconds["evaluate"] += time.perf_counter() - start
        means = ", ".join(f"{self.state.evaluations[index][-1].mean:.1f}" for index in self._alive())
        self.line.note(f"step {self.state.step}: score {means}")

    def _save(self) -> None:
        state = self.state
        save_checkpoint(
            self.paths.checkpoint,
            _checkpoint_tree(state.states, state.keys, self.problem.scaling),
            step=state.step,
            config=_group_config(self.paths, self.config),
            extra={"evaluations": [[dataclasses.asdict(item) for item in each] for each in state.evaluations]},
        )
        self.saved = time.monotonic()

    def _record(self, index: int, status: Literal["finished", "diverged"], message: str = "") -> RunRecord:
        seed = self.paths.seeds[index]
        return RunRecord(
            task=self.problem.task,
            method=self.problem.method,
            seed=seed,
            status=status,
            steps=self.state.step,
            evaluations=tuple(self.state.evaluations[index]),
            num_final_evaluations=self.problem.num_final_evaluations,
            config=self.config,
            dataset=self.problem.dataset,
            final_metrics=last_metrics(self.paths.metrics(seed)),
            message=message,
            versions=library_versions(),
            code=code_version(),
        )

    def finish(self) -> list[RunRecord]:
        """The records of all seeds; those that have reached the last step are written."""
        finished = [self._record(index, "finished") for index in self._alive()]
        self._write_cost()
        for record in finished:
            save_record(self.paths.record(record.seed), record)
        return [*finished, *self.diverged.values()]

    def _write_cost(self) -> None:
        """Time and memory of this call; apart from the record, which must not depend on the machine's mood."""
        trained = self.state.step - self.first_step
        if not trained:
            return  # the call that trained has written it
        cost = {
            "seeds": list(self.paths.seeds),
            "first_step": self.first_step,
            "steps": trained,
            "train_seconds": round(self.seconds["train"], 3),
            "evaluate_seconds": round(self.seconds["evaluate"], 3),
            "steps_per_second": round(trained / max(self.seconds["train"], 1e-9), 2),
            "peak_host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "peak_device_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "device": jax.devices()[0].device_kind,
        }
        with atomic_write(self.paths.cost) as file:
            json.dump(cost, file, indent=1)


# --- what others may want to know of a run ---------------------------------------------------------


def write_receipt(path: Path, paths: RunPaths, records: Sequence[RunRecord]) -> None:
    """Say in a small file which records a finished group has, by their names in the results directory and hashes."""
    made = {
        paths.record(record.seed).relative_to(paths.results).as_posix(): {
            "status": record.status,
            "sha256": hashlib.sha256(paths.record(record.seed).read_bytes()).hexdigest(),
        }
        for record in records
    }
    receipt = {"task": paths.task, "method": paths.method, "seeds": list(paths.seeds), "records": made}
    with atomic_write(path) as file:
        file.write(json.dumps(receipt, indent=1, sort_keys=True) + "\n")


def note_failure(paths: RunPaths, error: BaseException) -> None:
    """Keep the reason why a run could not go on, for `pcbf-status`."""
    with contextlib.suppress(OSError), atomic_write(paths.failure) as file:
        json.dump({"job": paths.job, "reason": str(error) or type(error).__name__}, file)


def forget_failure(paths: RunPaths) -> None:
    paths.failure.unlink(missing_ok=True)


def _scores(records: Sequence[RunRecord]) -> str:
    shown = (f"seed {record.seed} {'-' if record.score is None else f'{record.score:.1f}'}" for record in records)
    return ", ".join(shown)


class ProgressLine:
    """Steps done, speed and time left, on one line of a terminal or now and then in a log."""

    def __init__(self, stream: IO[str], total: int, first_step: int) -> None:
        self.stream, self.total, self.first_step = stream, total, first_step
        self.started = self.shown = time.monotonic()
        self.is_terminal = stream.isatty()

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        if now - self.shown < (0.2 if self.is_terminal else 10) and step < self.total:
            return
        self.shown = now
        speed = (step - self.first_step) / max(now - self.started, 1e-9)
        left = time.strftime("%H:%M:%S", time.gmtime((self.total - step) / max(speed, 1e-9)))
        losses = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items() if name.endswith("loss"))
        text = f"step {step}/{self.total}  {speed:.0f} steps/s  {left} left  {losses}"
        self.stream.write(f"\r\x1b[2K{text}" if self.is_terminal else f"{text}\n")
        self.stream.flush()

    def note(self, text: str) -> None:
        self.stream.write(f"\r\x1b[2K{text}\n" if self.is_terminal else f"{text}\n")
        self.stream.flush()


# --- metrics files ----------------------------------------------------------------------------------


def append_metrics(path: Path, step: int, row: Mapping[str, float]) -> None:
    """Add a row to a metrics file; a new file starts with the names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(row)
    is_new = not path.exists()
    with open(path, "a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(["step", *names])
        writer.writerow([step, *(repr(row[name]) for name in names)])


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Whole rows of a metrics file; a last line that was cut off is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    lines = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))
    if not lines:
        return []
    return [dict(zip(lines[0], map(float, line), strict=True)) for line in lines[1:]]


def trim_metrics(path: Path, step: int) -> None:
    """Drop rows beyond `step`, which the run is about to make again."""
    rows = [row for row in read_metrics(path) if row["step"] <= step]
    if not rows:
        path.unlink(missing_ok=True)
        return
    names = [name for name in rows[0] if name != "step"]
    with atomic_write(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", *names])
        writer.writerows([int(row["step"]), *(repr(row[name]) for name in names)] for row in rows)


def last_metrics(path: Path) -> dict[str, float]:
    """The last row of a metrics file, without its step."""
    rows = read_metrics(path)
    return {name: value for name, value in rows[-1].items() if name != "step" and math.isfinite(value)} if rows else {}


# --- sinks ------------------------------------------------------------------------------------------


def tensorboard_sink(folder: Path) -> Callable[[int, int, Mapping[str, float]], None]:
    """Writes metrics for TensorBoard; needs the extra `pcbf-baselines[tensorboard]`."""
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
    except ImportError as error:
        raise RunError("TensorBoard output needs `pip install pcbf-baselines[tensorboard]`.") from error
    writer = SummaryWriter(str(folder), flush_secs=1)  # by its own thread; its flush() leaves out what waits in a queue
    atexit.register(writer.close)

    def write(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(f"seed{seed}/{name}", value, step)

    return write


def wandb_sink(project: str, name: str, config: Mapping[str, Any]) -> Callable[[int, int, Mapping[str, float]], None]:
    """Sends metrics to Weights & Biases; needs the extra `pcbf-baselines[wandb]`."""
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError as error:
        raise RunError("Weights & Biases output needs `pip install pcbf-baselines[wandb]`.") from error
    session = wandb.init(project=project, name=name, config=dict(config))

    def write(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        session.log({f"seed{seed}/{key}": value for key, value in metrics.items()} | {"step": step})

    return write


# --- from a checkpoint ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Restored:
    """A trained group as its checkpoint holds it; no data needed."""

    agent: Agent
    states: LearnerState
    spec: TaskSpec
    scaling: Scaling
    config: Mapping[str, Any]
    step: int


def restore_run(path: Path, make_agent: Callable[..., Agent] | None = None) -> Restored:
    """The agent, states and scaling of a checkpoint."""
    config = read_header(path)["config"]
    values = config["spec"]
    spec = TaskSpec(
        observation_shape=tuple(values["observation_shape"]),
        action_dim=values["action_dim"],
        num_states=values["num_states"],
        return_range=None if values["return_range"] is None else tuple(values["return_range"]),
    )
    if make_agent is None:
        from pcbf_baselines import registry

        make_agent = registry.make_agent
    agent = make_agent(config["method"], spec, config.get("method_settings", {}))
    keys = jax.random.split(jax.random.key(0), len(config["seeds"]))
    scaling = Scaling()
    if config["run"]["standardise"]:
        empty = np.zeros(spec.observation_shape, np.float32)
        scaling = Scaling(empty, empty)
    template = _checkpoint_tree(init_many(agent, keys), keys, scaling)
    tree, header = restore_checkpoint(path, template)
    stored = {name: np.asarray(value) for name, value in tree["scaling"].items()}
    scaling = Scaling(
        stored.get("observation_mean"), stored.get("observation_std"), reward_scale=float(stored["reward_scale"])
    )
    return Restored(agent, tree["states"], spec, scaling, header["config"], header["step"])


__all__ = [
    "CheckpointError",
    "Problem",
    "Restored",
    "RunDiverged",
    "RunError",
    "RunPaths",
    "RunSettings",
    "RunStopped",
    "finished_records",
    "make_problem",
    "restore_run",
    "run",
    "run_config",
    "tensorboard_sink",
    "wandb_sink",
]
