"""`pcbf-evaluate`: play episodes with what was trained, by file or run by run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pcbf_experiments.cli.common import add_evaluation_options, evaluation_settings, guarded
from pcbf_records.commands import Parser, json_object, whole_number

if TYPE_CHECKING:
    from pcbf_experiments.evaluation import EvaluationSettings
    from pcbf_experiments.running.snapshot import Snapshot


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-evaluate",
        description="Play episodes with a trained agent; needs the simulator but no data. With FILE, a snapshot or a "
        "checkpoint, print the scores as JSON. With TASK METHOD, judge all snapshots of a run in --out and write the "
        "evaluation records of its seeds; what is judged already, with the same settings, is skipped.",
        examples=[
            "pcbf-evaluate results/own/snapshots/TASK/METHOD/seed0/step20000.safetensors --video episode.gif",
            "pcbf-evaluate TASK METHOD --seeds 0 1 --episodes 200 --out results/own",
        ],
    )
    made.add_argument("what", nargs="+", metavar="FILE | TASK METHOD", help="a file, or a task and a method")
    group = made.add_argument_group("of a file")
    group.add_argument("--seed", type=whole_number(0), help="which seed of a checkpoint (default: all)")
    group.add_argument("--video", type=Path, help="also write one episode as .mp4 or .gif, beside the critic's returns")
    group.add_argument(
        "--video-episode", type=whole_number(0), default=0, help="number of that episode (default: %(default)s)"
    )
    group = made.add_argument_group("of a run")
    group.add_argument(
        "--seeds", type=whole_number(0), nargs="+", default=[0], help="seeds that were trained together (default: 0)"
    )
    group.add_argument("--out", type=Path, default=Path("results/own"), help="results folder (default: %(default)s)")
    group.add_argument(
        "--keep",
        choices=("all", "final", "none"),
        default="all",
        help="snapshots that stay afterwards: all, those the reported score needs, none (default: %(default)s)",
    )
    group.add_argument("--settings", type=json_object, metavar="JSON", help="how to judge, as one JSON object")
    group.add_argument("--receipt", type=Path, help="write here what was made")
    group.add_argument("--no-wait", action="store_true", help="refuse, if another process judges the same run")
    add_evaluation_options(made, num_workers=os.cpu_count() or 1)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-evaluate`."""
    made = parser()
    options = made.parse_args(arguments)
    if len(options.what) > 2:
        made.error(f"pass a FILE, or a TASK and a METHOD, not {len(options.what)} words")
    return guarded(lambda: _judge_file(options) if len(options.what) == 1 else _judge_run(options))


def _settings(options: argparse.Namespace) -> EvaluationSettings:
    from pcbf_core.config import config_from
    from pcbf_experiments.evaluation import EvaluationSettings

    return (
        evaluation_settings(options) if options.settings is None else config_from(EvaluationSettings, options.settings)
    )


# --- a run ----------------------------------------------------------------------------------------------------------


def _judge_run(options: argparse.Namespace) -> int:
    from pcbf_experiments.evaluation import Evaluator
    from pcbf_experiments.running.failures import forget_failure, note_failure
    from pcbf_experiments.running.judge import judge_group
    from pcbf_experiments.running.loop import memory
    from pcbf_experiments.running.stopping import Stopper
    from pcbf_experiments.tasks import find_task
    from pcbf_records.canonical import readable_json
    from pcbf_records.files import write_text
    from pcbf_records.layout import JobFiles
    from pcbf_records.progress import ProgressFile
    from pcbf_records.runs import load_run, write_receipt

    name, method = options.what
    task = find_task(name)
    files = JobFiles.of_seeds(options.out, name, method, options.seeds)
    missing = [seed for seed in options.seeds if not files.record(seed).exists()]
    if missing:
        raise ValueError(f"{files.record(missing[0])} is not there; train first: pcbf-train {name} {method} …")
    started = time.monotonic()
    try:
        settings, num_judged = _settings(options), [len(load_run(files.record(s)).snapshot_steps) for s in files.seeds]
        total = sum(num_judged) * settings.num_episodes
        progress = ProgressFile(files.evaluation_progress, files.name, total, unit="episodes")
        progress(0)
        with Stopper() as stopper, Evaluator(task, settings, options.workers) as evaluator:
            judged = judge_group(
                files,
                evaluator,
                keep=options.keep,
                wait=not options.no_wait,
                report=lambda done: progress(done * settings.num_episodes),
                stopper=stopper,
            )
    except Exception as error:
        note_failure(files, error)
        raise
    forget_failure(files)
    cost = {"seeds": list(files.seeds), "evaluate_seconds": round(time.monotonic() - started, 3), **memory()}
    write_text(files.evaluation_cost, readable_json(cost))
    if options.receipt:
        write_receipt(options.receipt, files, {path: {"config_hash": run.config_hash} for path, run in judged.items()})
    return 0


# --- a file ---------------------------------------------------------------------------------------------------------


def _judge_file(options: argparse.Namespace) -> int:
    from pcbf_experiments.evaluation import Evaluator
    from pcbf_experiments.tasks import find_task
    from pcbf_experiments.video import record_video

    agents = _agents(Path(options.what[0]), options.seed)
    task, settings = find_task(agents[0].task), _settings(options)
    shown = {}
    with Evaluator(task, settings, options.workers) as evaluator:
        for one in agents:
            evaluation = evaluator(one.agent, one.state, one.scaling, step=one.step, number=one.number)
            shown[str(one.seed)] = {"score": evaluation.mean, **dataclasses.asdict(evaluation)}
    print(json.dumps({"task": task.name, "method": agents[0].method, "seeds": shown}, indent=1))
    if options.video:
        record_video(agents[0], task, options.video, settings=settings, episode=options.video_episode)
    return 0


def _agents(path: Path, seed: int | None) -> list[Snapshot]:
    """The agents of a snapshot or a checkpoint, of one seed if it is given."""
    from pcbf_experiments.running.resume import load_agents
    from pcbf_experiments.running.snapshot import load_snapshot

    agents = load_agents(path) if path.suffix == ".npz" else [load_snapshot(path)]
    chosen = [agent for agent in agents if seed in (None, agent.seed)]
    if not chosen:
        held = ", ".join(str(agent.seed) for agent in agents)
        raise ValueError(f"`--seed {seed}` is not in {path}; it holds {held}.")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
