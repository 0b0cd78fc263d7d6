"""`pcbf-train`: one method on one task."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcbf_experiments.cli.common import (
    add_data_dir,
    add_evaluation_options,
    assignment,
    evaluation_settings,
    guarded,
    repeat_to_the_bit,
)
from pcbf_experiments.method_settings import method_schemas, setting_faults
from pcbf_experiments.tasks import find_task
from pcbf_records.commands import Parser, check_writable, json_object, positive_number, whole_number
from pcbf_records.layout import JobFiles
from pcbf_records.sheets import METHODS_FILE, WITHOUT_SETTINGS, Task, domain_of, domain_settings, load_domains

if TYPE_CHECKING:
    from pcbf_experiments.running.settings import RunSettings
    from pcbf_experiments.running.sinks import Sink
    from pcbf_records.runs import Evaluation, RunRecord


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-train",
        description="Train one method on one task and write a run record per seed; evaluate it on the way and write an "
        "evaluation record per seed. Rerun to resume; finished work is skipped.",
        examples=[
            "pcbf-train cube-single-play-singletask-task1-v0 pcbf --seeds 0 1 --steps 20000 --out results/own",
            "pcbf-train cube-single-play-singletask-task1-v0 iql --set hidden_sizes=[128,128] expectile=0.8",
        ],
    )
    made.add_argument("task", help="name of the task, as in the paper; `pcbf-data list` shows them")
    made.add_argument("method", help=f"{', '.join(sorted(method_schemas()))}, or that of a plugin")
    made.add_argument(
        "--seeds", type=whole_number(0), nargs="+", default=[0], help="seeds, trained side by side (default: 0)"
    )
    made.add_argument("--steps", type=whole_number(), help="gradient steps (default: the paper's for the task)")
    made.add_argument("--out", type=Path, default=Path("results/own"), help="results directory (default: %(default)s)")
    made.add_argument(
        "--set",
        type=assignment,
        action="append",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the method, such as control_weight=0.4 or hidden_sizes=[256,256]",
    )
    made.add_argument("--settings", type=json_object, default={}, help="settings of the method as one JSON object")
    made.add_argument(
        "--methods-file",
        type=Path,
        default=Path(METHODS_FILE),
        help="settings of the methods per domain, which hold unless you set others (default: %(default)s)",
    )
    made.add_argument("--no-domain-settings", action="store_true", help="leave the settings per domain out")
    made.add_argument(
        "--proposal",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="last snapshots of bc, one per seed: with the setting proposal_training=frozen candidates are theirs",
    )
    add_data_dir(made)
    group = made.add_argument_group("training")
    group.add_argument(
        "--batch-size", type=whole_number(), default=256, help="transitions per step (default: %(default)s)"
    )
    group.add_argument(
        "--eval-every", type=whole_number(), help="steps between evaluations (default: a tenth of the steps)"
    )
    group.add_argument(
        "--log-every", type=whole_number(), help="steps per compiled call and metrics row (default: up to 1000)"
    )
    group.add_argument(
        "--checkpoint-every", type=whole_number(), help="steps between checkpoints (default: at evaluations)"
    )
    group.add_argument(
        "--redraw-every",
        type=whole_number(),
        metavar="STEPS",
        help="with --proposal: draw candidates at every next state ahead, and anew after so many steps (default: draw "
        "at every choice)",
    )
    group.add_argument("--standardise", action="store_true", help="observations to zero mean and unit deviation")
    group.add_argument(
        "--reward-scale", type=positive_number, default=1.0, help="factor on rewards (default: %(default)s)"
    )
    group.add_argument(
        "--return-width", type=positive_number, help="scale rewards so that the return range has this width"
    )
    group.add_argument(
        "--across",
        choices=("vmap", "map"),
        help="seeds in lockstep or in turn (default: in turn on a CPU, in lockstep on a GPU or TPU)",
    )
    group.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the products inside networks while training (default: %(default)s)",
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="have a GPU repeat a run to the bit; a CPU does anyway",
    )
    group.add_argument(
        "--memory-budget", type=positive_number, metavar="GB", help="stream image data larger than this from the host"
    )
    group.add_argument("--restart", action="store_true", help="forget what this run left behind and begin anew")
    add_evaluation_options(made, num_workers=0)
    group = made.add_argument_group("as part of a campaign (see rules/train.smk)")
    group.add_argument(
        "--job",
        type=json_object,
        metavar="JSON",
        help="all settings in one: `run` (of RunSettings), and of the method `domain`, `default`, `method`, of which "
        "later ones win; `default` counts as far as the method has it. Nothing is evaluated then: snapshots are left "
        "for `pcbf-evaluate`. Options that say the same in another way are refused beside it",
    )
    group.add_argument(
        "--method-version", type=whole_number(), help="refuse to train if the method has another version here"
    )
    group.add_argument(
        "--replace", action="store_true", help="put records and checkpoints made with other settings aside"
    )
    group.add_argument(
        "--receipt", type=Path, help="write here what was made; a seed that diverged counts as done then"
    )
    group.add_argument("--no-wait", action="store_true", help="refuse, if another process trains the same run")
    group = made.add_argument_group("output")
    group.add_argument("--tensorboard", action="store_true", help="also write for TensorBoard, under OUT/tensorboard")
    group.add_argument("--wandb", metavar="PROJECT", help="also send to Weights & Biases")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-train TASK METHOD`."""
    options = parse(parser(), arguments)
    run = {} if options.job is None else options.job.get("run")
    if options.deterministic or (isinstance(run, dict) and run.get("deterministic")):
        repeat_to_the_bit()
    return guarded(lambda: _train(options))


JOB_PARTS = ("run", "domain", "default", "method")
REPLACED_BY_JOB = (
    *("steps", "set", "settings", "methods_file", "no_domain_settings", "batch_size", "eval_every", "log_every"),
    *("standardise", "reward_scale", "return_width", "across", "episodes", "slots", "episode_limit", "success_timing"),
    *("fresh_starts", "workers", "redraw_every", "precision", "deterministic"),
)


def parse(made: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; one that `--job` would silently replace is refused."""
    options = made.parse_args(arguments)
    if options.job is not None:
        made.set_defaults(**dict.fromkeys(REPLACED_BY_JOB))  # so that a default that was spelled out shows too
        spelled = made.parse_args(arguments)
        given = [name for name in REPLACED_BY_JOB if getattr(spelled, name) is not None]
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            made.error(f"--job holds all settings, so {names} cannot be given beside it; put the values into the job")
    return options


def intervals(options: argparse.Namespace, task: Task) -> dict[str, int]:
    """Steps, and steps between evaluations and rows of metrics; those not given follow from the number of steps."""
    steps = task.steps if options.steps is None else options.steps
    eval_every = max(steps // 10, 1) if options.eval_every is None else options.eval_every
    log_every = options.log_every
    if log_every is None:
        log_every = next(n for n in range(min(1000, eval_every), 0, -1) if eval_every % n == 0)
    return {"steps": steps, "eval_every": eval_every, "log_every": log_every}


def settings_of(options: argparse.Namespace, task: Task) -> tuple[RunSettings, dict[str, Any]]:
    """Settings of the run and of the method, whichever way they were given."""
    if options.job is not None:
        return job_settings(options.job), job_method_settings(options.method, options.job)
    return run_settings(options, task), method_settings(options, task)


def run_settings(options: argparse.Namespace, task: Task) -> RunSettings:
    """Run settings of the command line."""
    from pcbf_experiments.running.settings import RunSettings, across_on

    return RunSettings(
        **intervals(options, task),
        batch_size=options.batch_size,
        standardise=options.standardise,
        reward_scale=options.reward_scale,
        return_width=options.return_width,
        across=options.across or across_on(),
        redraw_every=options.redraw_every,
        precision=options.precision,
        deterministic=options.deterministic,
    )


def job_settings(job: Mapping[str, Any]) -> RunSettings:
    """Run settings of `--job`."""
    from pcbf_core.config import config_from
    from pcbf_experiments.running.settings import RunSettings

    return config_from(RunSettings, job["run"])


def job_method_settings(method: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Method settings of `--job`: the domain's, the defaults as far as the method has them, its own."""
    from pcbf_baselines.registry import METHODS

    names = {field.name for field in dataclasses.fields(METHODS[method].config)}
    defaults = {name: value for name, value in job["default"].items() if name in names}
    return {**job["domain"], **defaults, **job["method"]}


def method_settings(options: argparse.Namespace, task: Task) -> dict[str, Any]:
    """Method settings of the command line over those of the task's domain."""
    return {**_domain_settings(options, task), **_chosen(options)}


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    return {**options.settings, **dict(pair for pairs in options.set for pair in pairs)}


def _domain_settings(options: argparse.Namespace, task: Task) -> dict[str, Any]:
    if options.no_domain_settings:
        return {}
    if not options.methods_file.is_file():
        print(f"note: {options.methods_file} is not here; {options.method} keeps its defaults", file=sys.stderr)
        return {}
    domains = load_domains(options.methods_file)
    if domain_of(domains, task) is None and options.method != WITHOUT_SETTINGS:
        print(f"note: {options.methods_file} has no settings for {task.domain}; defaults are kept", file=sys.stderr)
    return domain_settings(domains, task, options.method)


def check(options: argparse.Namespace) -> Task:
    """The task; whatever is wrong with the options is told before JAX is imported, data read or a simulator started."""
    task = find_task(options.task)
    if options.method not in method_schemas():
        check_method(options.method)
    if options.job is None:
        faults = [f"--set: {fault}" for fault in setting_faults(options.method, _chosen(options))]
        asked = intervals(options, task)
        if asked["eval_every"] % asked["log_every"]:
            faults.append(f"--eval-every {asked['eval_every']} must be a multiple of --log-every {asked['log_every']}")
        if options.redraw_every is not None and options.redraw_every % asked["log_every"]:
            faults.append(
                f"--redraw-every {options.redraw_every} must be a multiple of --log-every {asked['log_every']}"
            )
    else:
        faults = [
            f"--job: `{part}` is missing or no mapping; a job has {', '.join(JOB_PARTS)}"
            for part in JOB_PARTS
            if not isinstance(options.job.get(part), dict)
        ]
    faults += [
        f"--proposal: {path} does not exist; train bc first, or, if it was trained, remove its records and checkpoint "
        "and train it again"
        for path in options.proposal
        if not path.is_file()
    ]
    if faults:
        raise ValueError("\n".join(faults))
    check_writable(options.out)
    return task


def check_method(name: str) -> None:
    """Raise unless the registry, with its plugins, knows the method."""
    from pcbf_baselines.registry import METHODS
    from pcbf_core.config import check_choice

    check_choice("method", name, METHODS)


def _train(options: argparse.Namespace) -> int:
    from pcbf_experiments.running.errors import DIVERGED_REMEDY, RunDiverged, RunStopped
    from pcbf_experiments.running.failures import forget_failure, note_failure
    from pcbf_records.runs import load_run, write_receipt

    task = check(options)
    files = JobFiles.of_seeds(options.out, options.task, options.method, options.seeds)
    try:
        records = _run(options, task, files)
    except RunStopped:
        raise  # nothing failed
    except Exception as error:
        if not isinstance(error, RunDiverged) or not options.receipt:
            note_failure(files, error)
            raise
        records = [load_run(files.record(seed)) for seed in options.seeds]
    forget_failure(files)
    diverged = [record for record in records if record.status == "diverged"]
    if options.receipt:
        write_receipt(options.receipt, files, {files.record(record.seed): record.said for record in records})
    elif diverged:
        raise RunDiverged(f"{' '.join(record.message for record in diverged)} {DIVERGED_REMEDY}")
    return 0


def _run(options: argparse.Namespace, task: Task, files: JobFiles) -> Sequence[RunRecord]:
    """Train; by hand also judge every snapshot as soon as it is there."""
    from pcbf_experiments.evaluation import Evaluator
    from pcbf_experiments.running.judge import judge_group, judge_snapshot
    from pcbf_experiments.running.loop import RunOptions, run
    from pcbf_experiments.running.problem import make_problem, run_config
    from pcbf_experiments.running.stopping import Stopper
    from pcbf_records.canonical import content_hash

    settings, chosen = settings_of(options, task)
    _check_version(options)
    problem = make_problem(
        options.task,
        options.method,
        settings,
        chosen,
        data_dir=options.data_dir,
        memory_budget=None if options.memory_budget is None else options.memory_budget * 1e9,
        proposals=options.proposal,
    )
    config = run_config(problem, settings)
    evaluator = None if options.job is not None else Evaluator(task, evaluation_settings(options), options.workers)
    digest = content_hash(config)

    def judge(files: JobFiles, seed: int, step: int) -> Evaluation:
        assert evaluator is not None
        return judge_snapshot(files, seed, step, digest, evaluator)

    how = {"restart": options.restart, "replace": options.replace, "wait": not options.no_wait}
    with Stopper() as stopper, evaluator or nullcontext():
        run_options = RunOptions(
            checkpoint_every=options.checkpoint_every,
            judge=judge if evaluator else None,
            stopper=stopper,
            sinks=_sinks(options, config),
        )
        records = run(problem, settings, options.seeds, options.out, **how, options=run_options)
        if evaluator:
            judge_group(files, evaluator, wait=not options.no_wait, stopper=stopper)
    return records


def _sinks(options: argparse.Namespace, config: Mapping[str, Any]) -> list[Sink]:
    from pcbf_experiments.running.sinks import tensorboard_sink, wandb_sink

    name, sinks = f"{options.task}-{options.method}", []
    if options.tensorboard:
        sinks.append(tensorboard_sink(options.out / "tensorboard" / name))
    if options.wandb:
        sinks.append(wandb_sink(options.wandb, name, config))
    return sinks


def _check_version(options: argparse.Namespace) -> None:
    from pcbf_baselines.registry import METHODS

    if options.method_version is not None and options.method_version != METHODS[options.method].version:
        raise ValueError(
            f"version {options.method_version} of {options.method} is asked for, this code has version "
            f"{METHODS[options.method].version}; config/methods.tsv and pcbf_baselines.registry must agree."
        )


if __name__ == "__main__":
    sys.exit(main())
