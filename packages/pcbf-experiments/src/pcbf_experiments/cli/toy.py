"""`pcbf-toy`: train a method on a Markov reward process with an exact return law, and gather the records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcbf_records.commands import Parser, json_object
from pcbf_records.errors import RecordError
from pcbf_records.layout import TOY_LOSS_STD, TOY_TUNING_W1, TOY_W1
from pcbf_records.progress import ProgressFile
from pcbf_records.toy import PROCESSES, TOY_METHODS, collect_toys, save_toy_record


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-toy",
        description="Train on a Markov reward process over a grid of coefficients, record the return law. `run` trains "
        "every coefficient × seed of one method side by side and writes one record; `collect` gathers all records.",
    )
    commands = made.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train and record one method on one process")
    run.add_argument("process", metavar="PROCESS", help=f"one of {', '.join(PROCESSES)}")
    run.add_argument("method", metavar="METHOD", help=f"one of {', '.join(TOY_METHODS)}")
    run.add_argument(
        "--settings", type=json_object, default={}, metavar="JSON", help="values that differ from the defaults"
    )
    run.add_argument("--output", type=Path, required=True, metavar="FILE", help="record to write (.npz)")
    run.add_argument("--progress", type=Path, metavar="FILE", help="keep this file up to date with the step count")
    gather = commands.add_parser("collect", help=f"write {TOY_W1}, {TOY_TUNING_W1} and {TOY_LOSS_STD} of all records")
    gather.add_argument("--results", type=Path, required=True, metavar="DIR", help="e.g. results/laptop")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    try:
        if options.command == "collect":
            collect_toys(options.results)
        else:
            run(options.process, options.method, options.settings, options.output, options.progress)
    except (ValueError, RecordError) as error:
        sys.exit(f"pcbf-toy: {error}")


def run(process: str, method: str, chosen: Mapping[str, Any], output: Path, progress_file: Path | None) -> None:
    """Train and record one method on one process; `chosen` are the settings that differ from the defaults."""
    from pcbf_core.config import check_choice, config_from
    from pcbf_core.mrp import MRPS
    from pcbf_experiments.toy import ToySettings, make_record, metadata

    check_choice("process", process, MRPS)
    check_choice("method", method, TOY_METHODS)
    settings = config_from(ToySettings, chosen)
    learners = len(settings.coefficients) * (settings.num_seeds + settings.num_tuning_seeds)
    progress = ProgressFile(progress_file, f"{process}/{method}", learners * settings.num_steps)
    arrays = make_record(process, method, settings, progress)
    save_toy_record(output, arrays, metadata(process, method, settings))


if __name__ == "__main__":
    main()
