"""`pcbf-data`: datasets listed, fetched, verified, generated."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pcbf_experiments.cli.common import EXIT_ERROR, add_data_dir, guarded
from pcbf_experiments.tasks import PAPER_TASKS, TASKS, datasets, find_dataset
from pcbf_records.commands import Parser, whole_number
from pcbf_records.sheets import Task


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-data",
        description="Datasets: list, fetch, verify, generate.",
        examples=[
            "pcbf-data list",
            "pcbf-data fetch scene-play-v0",
            "pcbf-data make-local cube-single-play-v0 --episodes 100",
            "pcbf-data verify cube-single-play-v0",
        ],
    )
    commands = made.add_subparsers(dest="command", required=True)

    commands.add_parser("list", help="show all tasks and their datasets")

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

    registry = commands.add_parser(
        "registry",
        help="print the rows of the registry with sizes and hashes of the files that are here",
        description="Print the rows of the registry of official files (data/datasets.tsv of the package) with size and "
        "SHA-256 of the files that are here, to be put there: whoever fetches others is then told.",
    )
    registry.add_argument("names", nargs="*", metavar="NAME", help="tasks or datasets (default: all)")
    add_data_dir(registry)

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
    make.add_argument("--episodes", type=whole_number(), default=100, help="training episodes (default: %(default)s)")
    make.add_argument("--validation-episodes", type=whole_number(), help="validation episodes (default: a tenth)")
    make.add_argument(
        "--length", type=whole_number(), default=1000, help="transitions per episode (default: %(default)s)"
    )
    make.add_argument("--seed", type=whole_number(0), default=0, help="seed (default: %(default)s)")
    make.add_argument(
        "--workers", type=whole_number(), default=os.cpu_count() or 1, help="processes; does not change the data"
    )
    make.add_argument("--state-file", type=Path, help="image datasets: render this state file instead of new episodes")
    make.add_argument("--policies", type=Path, help="Adroit: folder with the policy weights")
    make.add_argument("--overwrite", action="store_true", help="replace local data that are there already")
    add_data_dir(make)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-data COMMAND`."""
    options = parser().parse_args(arguments)
    commands = {
        "list": _list,
        "fetch": _fetch,
        "registry": _registry,
        "verify": _verify,
        "make-local": _make_local,
    }
    return guarded(lambda: commands[options.command](options))


def named(names: Sequence[str]) -> list[Task]:
    """One task for each different dataset among names of tasks and datasets."""
    return list({task.dataset: task for task in map(find_dataset, names)}.values())


def _list(_: argparse.Namespace) -> int:
    datasets()  # with plugins
    width = max(map(len, TASKS))
    for task in TASKS.values():
        note = "" if task.name in PAPER_TASKS else "  (not in the paper)"
        print(f"{task.name:{width}}  {task.suite:8} {task.observations:6}  {task.dataset}{note}")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    tasks = named(options.names)
    from pcbf_experiments.data.download import default_sources
    from pcbf_experiments.suites import suite_of

    sources = default_sources(options.source)
    for task in tasks:
        receipts = suite_of(task).fetch(task, options.data_dir, sources)
        print(f"{task.dataset}: {', '.join(sorted({receipt['source'] for receipt in receipts}))}")
    return 0


def _registry(options: argparse.Namespace) -> int:
    wanted = {task.dataset for task in named(options.names)}
    from pcbf_experiments.data.download import check_file
    from pcbf_experiments.data.registry import COLUMNS, entries, row_text

    print("\t".join(COLUMNS))
    for entry in entries().values():
        file = options.data_dir / entry.file
        is_wanted = not wanted or file.stem.removesuffix("-val") in wanted
        if is_wanted and file.is_file() and (receipt := check_file(file))["source"] != "local":
            print(row_text(entry, receipt))
    return 0


def _verify(options: argparse.Namespace) -> int:
    tasks = [TASKS[name] if name in TASKS else find_dataset(name) for name in options.names]
    from pcbf_experiments.data.verify import failed, table, verify

    wrong = 0
    for task in tasks:
        checks, info = verify(task.name, options.data_dir)
        print(f"{task.name}: {info.num_transitions} transitions, {info.num_episodes} episodes\n{table(checks)}")
        wrong += len(failed(checks))
    return EXIT_ERROR if wrong else 0


def _make_local(options: argparse.Namespace) -> int:
    tasks = named(options.names)
    from pcbf_experiments.data.local import LocalSettings
    from pcbf_experiments.suites import suite_of

    validation = options.validation_episodes
    if validation is None:
        validation = max(options.episodes // 10, 1)
    settings = LocalSettings(
        num_episodes=options.episodes,
        num_validation_episodes=validation,
        episode_length=options.length,
        seed=options.seed,
        state_file=options.state_file,
        policies=options.policies,
    )
    how = {"num_workers": options.workers, "overwrite": options.overwrite, "progress": True}
    for task in tasks:
        for file in suite_of(task).make_local(task, options.data_dir, settings, **how):
            print(f"wrote {file} (local)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
