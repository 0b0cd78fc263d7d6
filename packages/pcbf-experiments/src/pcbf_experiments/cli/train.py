"""Commands: `pcbf-train`, `pcbf-evaluate` and `pcbf-data`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("MUJOCO_GL", "egl")
# Compiled programs are kept for the next start, by machine as a home directory may be shared.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    os.path.join(os.getenv("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "pcbf", "jax", platform.node()),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

from pcbf_baselines.datasets.tasks import PAPER_TASKS, TASKS, Task, datasets, find_task, load_plugins, tasks_tsv

EXIT_ERROR, EXIT_DIVERGED, EXIT_INTERRUPTED, EXIT_STOPPED = 1, 3, 130, 143
METHODS_FILE = Path("config/methods.yaml")


def _guarded(body: Callable[[], int]) -> int:
    """Run a command; what a user can mend is told in a line, not in a traceback."""
    from pcbf_baselines.datasets.download import DatasetError
    from pcbf_baselines.locks import LockedError
    from pcbf_baselines.runner import RunDiverged, RunError, RunStopped

    try:
        return body()
    except RunStopped as error:
        print(error, file=sys.stderr)
        return EXIT_STOPPED
    except RunDiverged as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_DIVERGED
    except (RunError, DatasetError, LockedError, ValueError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        print(f"error: {error}; once that is mended the same command goes on from where it was", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED


def assignment(text: str) -> tuple[str, Any]:
    """("name", value) of "name=value"; the value is JSON where it can be, else text."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        constants = {"True": True, "False": False, "None": None}
        return name, constants.get(value, value)


def _data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data/raw"), help="where datasets lie (default: %(default)s)"
    )


def _evaluation_options(parser: argparse.ArgumentParser, *, num_workers: int) -> None:
    group = parser.add_argument_group("evaluation")
    group.add_argument("--episodes", type=int, default=50, help="episodes per evaluation (default: %(default)s)")
    group.add_argument("--slots", type=int, default=10, help="simulators in lockstep (default: %(default)s)")
    group.add_argument("--episode-limit", type=int, help="cut episodes after so many steps (default: the task's own)")
    group.add_argument(
        "--success-timing",
        choices=("pre", "post"),
        default="pre",
        help="judge OGBench success before the step (as rewards do) or after it (as release 1.1; default: %(default)s)",
    )
    group.add_argument(
        "--workers",
        type=int,
        default=num_workers,
        help="processes for the simulators, does not change results (default: %(default)s, 1 or 0: none but this)",
    )


def _evaluation_settings(options: argparse.Namespace) -> Any:
    from pcbf_baselines.evaluation import EvaluationSettings

    return EvaluationSettings(
        num_episodes=options.episodes,
        num_slots=min(options.slots, options.episodes),
        episode_limit=options.episode_limit,
        success_timing=options.success_timing,
    )


# --- pcbf-train -------------------------------------------------------------------------------------


def train_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pcbf-train",
        description="Train one method on one task, evaluate it and write a record per seed. "
        "The same command again goes on from the last checkpoint, or says that it is finished.",
        epilog="example: pcbf-train cube-single-play-singletask-task1-v0 pcbf --seeds 0 1 --steps 20000 "
        "--set control_weight=0.4 --out results/laptop",
    )
    parser.add_argument("task", help="name of the task, as in the paper; `pcbf-data list` shows them")
    parser.add_argument("method", help="pcbf, value_flows, floq, fql, iql, iqn, codac, c51, bc or random")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds, trained side by side (default: 0)")
    parser.add_argument("--steps", type=int, help="gradient steps (default: the paper's for the task)")
    parser.add_argument(
        "--out", type=Path, default=Path("results/own"), help="results directory (default: %(default)s)"
    )
    parser.add_argument(
        "--set",
        type=assignment,
        action="append",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the method, such as control_weight=0.4 or hidden_sizes=[256,256]",
    )
    parser.add_argument("--settings", type=json.loads, default={}, help="settings of the method as one JSON object")
    parser.add_argument(
        "--methods-file",
        type=Path,
        default=METHODS_FILE,
        help="settings of the methods per domain, which hold unless you set others (default: %(default)s)",
    )
    parser.add_argument("--no-domain-settings", action="store_true", help="leave the settings per domain out")
    _data_dir(parser)
    group = parser.add_argument_group("training")
    group.add_argument("--batch-size", type=int, default=256, help="transitions per step (default: %(default)s)")
    group.add_argument("--eval-every", type=int, help="steps between evaluations (default: a tenth of the steps)")
    group.add_argument("--log-every", type=int, help="steps per compiled call and metrics row (default: up to 1000)")
    group.add_argument("--checkpoint-every", type=int, help="steps between checkpoints (default: at evaluations)")
    group.add_argument("--standardise", action="store_true", help="observations to zero mean and unit deviation")
    group.add_argument("--reward-scale", type=float, default=1.0, help="factor on rewards (default: %(default)s)")
    group.add_argument("--return-width", type=float, help="scale rewards so that the return range has this width")
    group.add_argument(
        "--across", choices=("vmap", "map"), default="vmap", help="seeds in lockstep or in turn (default: %(default)s)"
    )
    group.add_argument(
        "--memory-budget", type=float, metavar="GB", help="stream image data larger than this from the host"
    )
    group.add_argument("--restart", action="store_true", help="forget what this run left behind and begin anew")
    _evaluation_options(parser, num_workers=0)
    group = parser.add_argument_group("as part of a campaign (see rules/train.smk)")
    group.add_argument(
        "--job",
        type=json.loads,
        metavar="JSON",
        help="all settings in one: `run` (of RunSettings), and of the method `domain`, `default`, `method`, of which "
        "later ones win; `default` counts as far as the method has it. Options of training and evaluation, --set, "
        "--settings and --methods-file are not read then",
    )
    group.add_argument("--method-version", type=int, help="refuse to train if the method has another version here")
    group.add_argument(
        "--replace", action="store_true", help="replace records and checkpoints made with other settings"
    )
    group.add_argument(
        "--receipt", type=Path, help="write here what was made; a seed that diverged counts as done then"
    )
    group.add_argument("--no-wait", action="store_true", help="refuse, if another process trains the same run")
    group = parser.add_argument_group("output")
    group.add_argument("--tensorboard", action="store_true", help="also write for TensorBoard, under OUT/tensorboard")
    group.add_argument("--wandb", metavar="PROJECT", help="also send to Weights & Biases")
    return parser


def run_settings(options: argparse.Namespace, task: Task) -> Any:
    """Run settings of the command line; intervals that were not given follow from the number of steps."""
    from pcbf_baselines.runner import RunSettings

    steps = options.steps or task.steps
    eval_every = options.eval_every or max(steps // 10, 1)
    log_every = options.log_every or next(n for n in range(min(1000, eval_every), 0, -1) if eval_every % n == 0)
    return RunSettings(
        steps=steps,
        batch_size=options.batch_size,
        eval_every=eval_every,
        log_every=log_every,
        standardise=options.standardise,
        reward_scale=options.reward_scale,
        return_width=options.return_width,
        across=options.across,
        evaluation=_evaluation_settings(options),
    )


def job_settings(job: Mapping[str, Any]) -> Any:
    """Run settings of `--job`."""
    from pcbf_baselines.evaluation import EvaluationSettings
    from pcbf_baselines.runner import RunSettings
    from pcbf_core.config import config_from

    evaluation = config_from(EvaluationSettings, job["run"]["evaluation"])
    return config_from(RunSettings, {**job["run"], "evaluation": evaluation})


def job_method_settings(method: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Method settings of `--job`: the domain's, the defaults as far as the method has them, its own."""
    from pcbf_baselines.registry import METHODS
    from pcbf_core.config import check_choice

    check_choice("method", method, METHODS)
    names = {field.name for field in dataclasses.fields(METHODS[method].config)}
    defaults = {name: value for name, value in job["default"].items() if name in names}
    return {**job["domain"], **defaults, **job["method"]}


def method_settings(options: argparse.Namespace, task: Task) -> dict[str, Any]:
    """Method settings of the command line over those of the task's domain."""
    chosen = {**options.settings, **dict(pair for pairs in options.set for pair in pairs)}
    return chosen if options.no_domain_settings else {**_domain_settings(options, task), **chosen}


def _domain_settings(options: argparse.Namespace, task: Task) -> dict[str, Any]:
    from pcbf_baselines.registry import METHODS, domain_settings
    from pcbf_core.config import check_choice

    check_choice("method", options.method, METHODS)
    if not options.methods_file.is_file():
        print(f"note: {options.methods_file} is not here; {options.method} keeps its defaults", file=sys.stderr)
        return {}
    try:
        return domain_settings(options.method, task.name, options.methods_file)
    except ValueError:
        print(f"note: {options.methods_file} has no settings for {task.domain}; defaults are kept", file=sys.stderr)
        return {}


def train_main(arguments: Sequence[str] | None = None) -> int:
    options = train_parser().parse_args(arguments)
    return _guarded(lambda: _train(options))


def _train(options: argparse.Namespace) -> int:
    from pcbf_baselines import runner

    task = find_task(options.task)
    paths = runner.RunPaths(options.out, options.task, options.method, tuple(options.seeds))
    try:
        records = _train_run(options, task)
    except Exception as error:
        if not isinstance(error, runner.RunDiverged) or not options.receipt:
            runner.note_failure(paths, error)
            raise
        records = [runner.load_record(paths.record(seed)) for seed in options.seeds]
    runner.forget_failure(paths)
    diverged = [record for record in records if record.status == "diverged"]
    if options.receipt:
        runner.write_receipt(options.receipt, paths, records)
    elif diverged:
        raise runner.RunDiverged(f"{' '.join(record.message for record in diverged)} {runner.DIVERGED_REMEDY}")
    return 0


def _train_run(options: argparse.Namespace, task: Task) -> Sequence[Any]:
    from pcbf_baselines import runner

    if options.job is not None:
        settings, chosen = job_settings(options.job), job_method_settings(options.method, options.job)
    else:
        settings, chosen = run_settings(options, task), method_settings(options, task)
    _check_version(options)
    problem = runner.make_problem(
        options.task,
        options.method,
        settings,
        chosen,
        data_dir=options.data_dir,
        num_workers=options.workers,
        memory_budget=None if options.memory_budget is None else options.memory_budget * 1e9,
    )
    sinks = []
    name = f"{options.task}-{options.method}"
    if options.tensorboard:
        sinks.append(runner.tensorboard_sink(options.out / "tensorboard" / name))
    if options.wandb:
        sinks.append(runner.wandb_sink(options.wandb, name, runner.run_config(problem, settings)))
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    return runner.run(
        problem,
        settings,
        options.seeds,
        options.out,
        checkpoint_every=options.checkpoint_every,
        restart=options.restart,
        replace=options.replace,
        wait=not options.no_wait,
        should_stop=lambda: bool(received),
        sinks=sinks,
    )


def _check_version(options: argparse.Namespace) -> None:
    from pcbf_baselines.registry import METHODS

    if options.method_version is not None and options.method_version != METHODS[options.method].version:
        raise ValueError(
            f"version {options.method_version} of {options.method} is asked for, this code has version "
            f"{METHODS[options.method].version}; config/methods.tsv and pcbf_baselines.registry must agree."
        )


# --- pcbf-evaluate ----------------------------------------------------------------------------------


def evaluate_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pcbf-evaluate",
        description="Play episodes with a trained checkpoint; needs the simulator but no data. Prints JSON.",
    )
    parser.add_argument("checkpoint", type=Path, help="OUT/checkpoints/TASK/METHOD/seeds….npz")
    parser.add_argument("--seed", type=int, help="which seed of the group (default: all)")
    parser.add_argument(
        "--video", type=Path, help="also write one episode as .mp4 or .gif, beside the critic's returns"
    )
    parser.add_argument("--video-episode", type=int, default=0, help="number of that episode (default: %(default)s)")
    _evaluation_options(parser, num_workers=os.cpu_count() or 1)
    return parser


def evaluate_main(arguments: Sequence[str] | None = None) -> int:
    options = evaluate_parser().parse_args(arguments)
    return _guarded(lambda: _evaluate(options))


def _evaluate(options: argparse.Namespace) -> int:
    import jax

    from pcbf_baselines.evaluation import TaskEvaluator, record_video
    from pcbf_baselines.runner import restore_run

    restored = restore_run(options.checkpoint)
    task, seeds = find_task(restored.config["task"]), restored.config["seeds"]
    if options.seed is not None and options.seed not in seeds:
        raise ValueError(f"`--seed {options.seed}` is not in the checkpoint; it holds {', '.join(map(str, seeds))}.")
    settings = _evaluation_settings(options)
    evaluator = TaskEvaluator(task, settings, restored.scaling, options.workers)
    shown = {}
    try:
        for index, seed in enumerate(seeds):
            if options.seed in (None, seed):
                state = jax.tree.map(lambda x, i=index: x[i], restored.states)
                evaluation = evaluator(restored.agent, state, restored.step)
                shown[str(seed)] = {"score": evaluation.mean, **dataclasses.asdict(evaluation)}
    finally:
        evaluator.close()
    print(json.dumps({"task": task.name, "method": restored.config["method"], "seeds": shown}, indent=1))
    if options.video:
        index = seeds.index(options.seed) if options.seed is not None else 0
        record_video(
            restored.agent,
            jax.tree.map(lambda x: x[index], restored.states),
            task,
            options.video,
            settings=settings,
            scaling=restored.scaling,
            episode=options.video_episode,
            return_range=restored.spec.return_range,
        )
    return 0


# --- pcbf-data --------------------------------------------------------------------------------------


def data_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pcbf-data", description="Datasets: list, fetch, verify, generate.")
    commands = parser.add_subparsers(dest="command", required=True)

    listing = commands.add_parser("list", help="show all tasks and their datasets")
    listing.add_argument("--tsv", action="store_true", help="the paper's tasks as tab-separated text")

    fetch = commands.add_parser(
        "fetch",
        help="download datasets, resuming what was begun",
        description="Download datasets that are not there yet.",
    )
    fetch.add_argument("names", nargs="+", metavar="NAME", help="tasks or datasets")
    fetch.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="PLACE",
        help="folder or address that holds the files; tried before PCBF_DATA_SOURCES, the official server and mirrors",
    )
    _data_dir(fetch)

    verify = commands.add_parser("verify", help="check datasets: shapes, numbers, rewards, episodes, checksums")
    verify.add_argument("names", nargs="+", metavar="NAME", help="tasks or datasets")
    _data_dir(verify)

    make = commands.add_parser(
        "make-local",
        help="generate datasets here, marked as local",
        description="Generate datasets in the official formats under the official names. They are marked as local, in "
        "the file and in every record made from it.",
    )
    make.add_argument("names", nargs="+", metavar="NAME", help="tasks or datasets")
    make.add_argument("--episodes", type=int, default=100, help="training episodes (default: %(default)s)")
    make.add_argument("--validation-episodes", type=int, help="validation episodes (default: a tenth)")
    make.add_argument("--length", type=int, default=1000, help="transitions per episode (default: %(default)s)")
    make.add_argument("--seed", type=int, default=0, help="seed (default: %(default)s)")
    make.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; does not change the data")
    make.add_argument("--state-file", type=Path, help="image datasets: render this state file instead of new episodes")
    make.add_argument("--policies", type=Path, help="Adroit: folder with the policy weights")
    make.add_argument("--overwrite", action="store_true", help="replace local data that are there already")
    _data_dir(make)
    return parser


def data_main(arguments: Sequence[str] | None = None) -> int:
    options = data_parser().parse_args(arguments)
    load_plugins()
    commands = {"list": _list, "fetch": _fetch, "verify": _verify, "make-local": _make_local}
    return _guarded(lambda: commands[options.command](options))


def named(names: Sequence[str]) -> list[Task]:
    """One task for each different dataset among names of tasks and datasets."""
    known = datasets()
    tasks = [known[name] if name in known else find_task(name) for name in names]
    return list({task.dataset: task for task in tasks}.values())


def _list(options: argparse.Namespace) -> int:
    if options.tsv:
        sys.stdout.write(tasks_tsv())
        return 0
    width = max(map(len, TASKS))
    for task in TASKS.values():
        note = "" if task.name in PAPER_TASKS else "  (not in the paper)"
        print(f"{task.name:{width}}  {task.kind:6}  {task.dataset}{note}")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from pcbf_baselines.datasets import adroit
    from pcbf_baselines.datasets.download import default_sources, fetch
    from pcbf_baselines.datasets.ogbench import dataset_files

    sources = default_sources(options.source)
    for task in named(options.names):
        if task.is_minari:
            receipts = [adroit.fetch(task, options.data_dir, sources)]
        else:
            receipts = [fetch(file, sources) for file in dataset_files(task, options.data_dir)]
        print(f"{task.dataset}: {', '.join(sorted({receipt['source'] for receipt in receipts}))}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from pcbf_baselines.datasets.verify import failed, table, verify

    wrong = 0
    tasks = [find_task(name) if name in TASKS else named([name])[0] for name in options.names]
    for task in tasks:
        checks, info = verify(task.name, options.data_dir)
        print(f"{task.name}: {info.num_transitions} transitions, {info.num_episodes} episodes\n{table(checks)}")
        wrong += len(failed(checks))
    return EXIT_ERROR if wrong else 0


def _make_local(options: argparse.Namespace) -> int:
    from pcbf_baselines.datasets.make_local import LocalSettings, make_local

    validation = options.validation_episodes or max(options.episodes // 10, 1)
    settings = LocalSettings(
        num_episodes=options.episodes,
        num_validation_episodes=validation,
        episode_length=options.length,
        seed=options.seed,
        state_file=options.state_file,
        policies=options.policies,
    )
    for task in named(options.names):
        for file in make_local(
            task, options.data_dir, settings, num_workers=options.workers, overwrite=options.overwrite
        ):
            print(f"wrote {file} (local)")
    return 0
