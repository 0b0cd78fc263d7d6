"""`pcbf-calibrate`: is the learned law the law of returns? Makes the data, trains and judges, gathers the records."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pcbf_experiments.cli import recording
from pcbf_experiments.cli.common import compile_lightly
from pcbf_records.calibration import CALIBRATED, DATASETS, collect_calibration, save_calibration_record
from pcbf_records.commands import Parser, whole_number
from pcbf_records.layout import CALIBRATION_RESULTS
from pcbf_records.progress import ProgressFile

SECTIONS = ("default", "own")


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-calibrate",
        description="Evaluate the behaviour that made the data, and hold the learned law of returns against episodes "
        "that were left out. `data` makes the episodes; `run` trains all seeds of one critic, judges them and writes "
        "one record; `collect` gathers all records.",
        examples=[
            "pcbf-calibrate data hopper --episodes 50 --length 200 --output hopper.npz",
            "pcbf-calibrate run hopper pcbf_flow --data hopper.npz --output one.npz",
            "pcbf-calibrate collect --results results/laptop",
        ],
    )
    commands = made.add_subparsers(dest="command", required=True)
    data = commands.add_parser("data", help="make the episodes of one dataset")
    data.add_argument("process", metavar="DATASET", help=f"one of {', '.join(DATASETS)}")
    data.add_argument("--episodes", type=whole_number(), default=300, help="episodes (default: %(default)s)")
    data.add_argument("--length", type=whole_number(), default=1000, help="steps at most (default: %(default)s)")
    data.add_argument("--seed", type=whole_number(0), default=0, help="seed (default: %(default)s)")
    data.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="cube: the folder in which `pcbf-data make-local` wrote its files"
    )
    data.add_argument("--output", type=Path, required=True, metavar="FILE", help="file to write (.npz)")
    run = recording.add_run(
        commands,
        metavar="DATASET",
        processes=DATASETS,
        methods=f"one of {', '.join(CALIBRATED)}, or METHOD-WORD for a variant of one, which `own` settings make",
        settings="values that differ from the defaults; `default` and `own` hold settings of all critics and of this "
        "one",
    )
    run.add_argument("--data", type=Path, required=True, metavar="FILE", help="what `pcbf-calibrate data` wrote")
    recording.add_collect(commands, CALIBRATION_RESULTS)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser()
    options = made.parse_args(arguments)
    commands = {"data": make_data, "run": run, "collect": lambda given: collect_calibration(given.results)}
    with recording.faults_in_a_sentence(made.prog):
        commands[options.command](options)


def make_data(options: argparse.Namespace) -> None:
    """Write the episodes of one dataset."""
    check_names(options.process)
    from pcbf_experiments.data import make_calibration

    sizes = {name: getattr(options, name) for name in ("episodes", "length", "seed", "data_dir")}
    make_calibration.make_data(options.process, options.output, **sizes)


def run(options: argparse.Namespace) -> None:
    """Train, judge and record one critic on one dataset."""
    check_names(options.process, options.method)
    compile_lightly()
    from pcbf_core.config import config_from
    from pcbf_experiments.calibration import CalibrationSettings, make_record, metadata

    default, own = (options.settings.get(name, {}) for name in SECTIONS)
    chosen = {name: value for name, value in options.settings.items() if name not in SECTIONS}
    settings = config_from(CalibrationSettings, chosen)
    name = f"{options.process}/{options.method}"
    progress = ProgressFile(options.progress, name, settings.num_seeds * settings.num_steps)
    arrays = make_record(options.data, options.method, settings, default, own, progress)
    told = metadata(options.process, options.method, settings, default, own)
    save_calibration_record(options.output, arrays, told)


def check_names(dataset: str, method: str | None = None) -> None:
    """Raise unless there are such a dataset and such a critic; suggests the nearest."""
    from pcbf_records.canonical import suggestion
    from pcbf_records.variants import base_method

    named = {"dataset": (dataset, DATASETS), "method": (base_method(method or CALIBRATED[0]), CALIBRATED)}
    for kind, (name, known) in named.items():
        if name not in known:
            raise ValueError(f"`{kind}={name}` is none of {', '.join(known)}{suggestion(name, known)}")


if __name__ == "__main__":
    main()
