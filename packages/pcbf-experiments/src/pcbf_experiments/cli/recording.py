"""What `pcbf-toy`, `pcbf-exact`, `pcbf-calibrate` share: `run` makes a method's record, `collect` gathers all."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pcbf_experiments.data.download import DatasetError
from pcbf_records.commands import Parser, json_object

Run = Callable[[str, str, Mapping[str, Any], Path, Path | None], None]


def parser(
    prog: str, description: str, *, metavar: str, processes: Sequence[str], methods: str, settings: str, tables: str
) -> argparse.ArgumentParser:
    """What such a command takes.

    Args:
      metavar: what a process is called.
      processes: their names.
      methods, settings: help on METHOD and on what `--settings` may hold.
      tables: what `collect` writes.
    """
    made = Parser(
        prog=prog,
        description=description,
        examples=[
            f"{prog} run {processes[0]} pcbf_flow --output one.npz",
            f"{prog} collect --results results/laptop",
        ],
    )
    commands = made.add_subparsers(dest="command", required=True)
    add_run(commands, metavar=metavar, processes=processes, methods=methods, settings=settings)
    add_collect(commands, tables)
    return made


def add_run(
    commands: Any, *, metavar: str, processes: Sequence[str], methods: str, settings: str
) -> argparse.ArgumentParser:
    """The command `run`, see `parser`."""
    run = commands.add_parser("run", help="train and record one method on one process")
    run.add_argument("process", metavar=metavar, help=f"one of {', '.join(processes)}")
    run.add_argument("method", metavar="METHOD", help=methods)
    run.add_argument("--settings", type=json_object, default={}, metavar="JSON", help=settings)
    run.add_argument("--output", type=Path, required=True, metavar="FILE", help="record to write (.npz)")
    run.add_argument("--progress", type=Path, metavar="FILE", help="keep this file up to date with the step count")
    return run


def add_collect(commands: Any, tables: str) -> None:
    """The command `collect`, see `parser`."""
    gather = commands.add_parser("collect", help=f"write {tables} of all records")
    gather.add_argument("--results", type=Path, required=True, metavar="DIR", help="e.g. results/laptop")


def carry_out(
    made: argparse.ArgumentParser, arguments: Sequence[str] | None, run: Run, collect: Callable[[Path], None]
) -> None:
    """Do what was asked for; a fault ends the program with a sentence."""
    options = made.parse_args(arguments)
    with faults_in_a_sentence(made.prog):
        if options.command == "collect":
            collect(options.results)
        else:
            run(options.process, options.method, options.settings, options.output, options.progress)


@contextmanager
def faults_in_a_sentence(prog: str) -> Iterator[None]:
    """End the program with what a wrong value or record says of itself."""
    try:
        yield
    except (ValueError, DatasetError) as error:
        sys.exit(f"{prog}: {error}")
