"""`pcbf-data`: datasets listed, fetched, verified, generated."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pcbf_experiments.cli.common import EXIT_ERROR, add_data_dir, guarded
from pcbf_experiments.tasks import EXTRA_TASKS, PAPER_TASKS, TASKS, datasets, find_task
from pcbf_records.sheets import Task, sheet_text


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="pcbf-data", description="Datasets: list, fetch, verify, generate.")
    commands = made.add_subparsers(dest="command", required=True)

    listing = commands.add_parser("list", help="show all tasks and their datasets")
    listing.add_argument("--tsv", action="store_true", help="as config/tasks.tsv holds the paper's tasks")
    listing.add_argument("--extra", action="store_true", help="with --tsv: as config/extra_tasks.tsv holds the others")

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
    add_data_dir(fetch)

    verify = commands.add_parser("verify", help="check datasets: shapes, numbers, rewards, episodes, checksums")
    verify.add_argument("names", nargs="+", metavar="NAME", help="tasks or datasets")
    add_data_dir(verify)

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
    add_data_dir(make)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-data COMMAND`."""
    options = parser().parse_args(arguments)
    commands = {"list": _list, "fetch": _fetch, "verify": _verify, "make-local": _make_local}
    return guarded(lambda: commands[options.command](options))


def named(names: Sequence[str]) -> list[Task]:
    """One task for each different dataset among names of tasks and datasets."""
    known = datasets()
    tasks = [known[name] if name in known else find_task(name) for name in names]
    return list({task.dataset: task for task in tasks}.values())


def _list(options: argparse.Namespace) -> int:
    if options.tsv:
        sys.stdout.write(sheet_text((EXTRA_TASKS if options.extra else PAPER_TASKS).values(), Task))
        return 0
    datasets()  # with plugins
    width = max(map(len, TASKS))
    for task in TASKS.values():
        note = "" if task.name in PAPER_TASKS else "  (not in the paper)"
        print(f"{task.name:{width}}  {task.suite:8} {task.observations:6}  {task.dataset}{note}")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from pcbf_experiments.data.download import default_sources
    from pcbf_experiments.suites import suite_of

    sources = default_sources(options.source)
    for task in named(options.names):
        receipts = suite_of(task).fetch(task, options.data_dir, sources)
        print(f"{task.dataset}: {', '.join(sorted({receipt['source'] for receipt in receipts}))}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from pcbf_experiments.data.verify import failed, table, verify

    wrong = 0
    tasks = [find_task(name) if name in TASKS else named([name])[0] for name in options.names]
    for task in tasks:
        checks, info = verify(task.name, options.data_dir)
        print(f"{task.name}: {info.num_transitions} transitions, {info.num_episodes} episodes\n{table(checks)}")
        wrong += len(failed(checks))
    return EXIT_ERROR if wrong else 0


def _make_local(options: argparse.Namespace) -> int:
    from pcbf_experiments.data.local import LocalSettings
    from pcbf_experiments.suites import suite_of

    validation = options.validation_episodes or max(options.episodes // 10, 1)
    settings = LocalSettings(
        num_episodes=options.episodes,
        num_validation_episodes=validation,
        episode_length=options.length,
        seed=options.seed,
        state_file=options.state_file,
        policies=options.policies,
    )
    how = {"num_workers": options.workers, "overwrite": options.overwrite, "progress": True}
    for task in named(options.names):
        for file in suite_of(task).make_local(task, options.data_dir, settings, **how):
            print(f"wrote {file} (local)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
