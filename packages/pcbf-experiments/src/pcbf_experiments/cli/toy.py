"""`pcbf-toy`: train a method on a Markov reward process with an exact return law, and gather the records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcbf_experiments.cli import recording
from pcbf_experiments.cli.common import compile_lightly
from pcbf_records.layout import TOY_LOSS_STD, TOY_TUNING_W1, TOY_W1
from pcbf_records.progress import ProgressFile
from pcbf_records.toy import PROCESSES, TOY_METHODS, collect_toys, num_learners, save_toy_record


def parser() -> argparse.ArgumentParser:
    return recording.parser(
        "pcbf-toy",
        "Train on a Markov reward process over a grid of coefficients, record the return law. `run` trains "
        "every coefficient × seed of one method side by side and writes one record; `collect` gathers all records.",
        metavar="PROCESS",
        processes=PROCESSES,
        methods=f"one of {', '.join(TOY_METHODS)}",
        settings="values that differ from the defaults",
        tables=f"{TOY_W1}, {TOY_TUNING_W1} and {TOY_LOSS_STD}",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    recording.carry_out(parser(), arguments, run, collect_toys)


def run(process: str, method: str, chosen: Mapping[str, Any], output: Path, progress_file: Path | None) -> None:
    """Train and record one method on one process; `chosen` are the settings that differ from the defaults."""
    compile_lightly()
    from pcbf_core.config import check_choice, config_from
    from pcbf_core.mrp import MRPS
    from pcbf_experiments.toy import ToySettings, make_record, metadata

    check_choice("process", process, MRPS)
    check_choice("method", method, TOY_METHODS)
    settings = config_from(ToySettings, chosen)
    learners = num_learners(method, len(settings.coefficients), settings.num_seeds, settings.num_tuning_seeds)
    progress = ProgressFile(progress_file, f"{process}/{method}", learners * settings.num_steps)
    arrays = make_record(process, method, settings, progress)
    save_toy_record(output, arrays, metadata(process, method, settings))


if __name__ == "__main__":
    main()
