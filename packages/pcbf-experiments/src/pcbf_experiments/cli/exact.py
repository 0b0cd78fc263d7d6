"""`pcbf-exact`: train a method on a small decision process and judge it exactly, and gather the records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcbf_experiments.cli import recording
from pcbf_experiments.cli.common import compile_lightly
from pcbf_records.exact import MDPS, MEAN, collect_exact, load_exact_record, save_exact_record
from pcbf_records.layout import EXACT_OPTIMA, EXACT_RESULTS, exact_files
from pcbf_records.progress import ProgressFile

SECTIONS = ("default", "own")


def parser() -> argparse.ArgumentParser:
    return recording.parser(
        "pcbf-exact",
        "Train a method on a small decision process whose every policy has an exact return law. `run` "
        "trains all seeds side by side, judges them and writes one record; `collect` gathers all records.",
        metavar="MDP",
        processes=MDPS,
        methods="a method of config/methods.tsv, or METHOD-WORD for a variant of one, which `own` settings make",
        settings="values that differ from the defaults; `default` and `own` hold settings of all methods and of this "
        "one",
        tables=f"{EXACT_RESULTS} and {EXACT_OPTIMA}",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    recording.carry_out(parser(), arguments, run, collect)


def run(mdp: str, method: str, chosen: Mapping[str, Any], output: Path, progress_file: Path | None) -> None:
    """Train, judge and record one method on one process; `chosen` are the settings that differ from the defaults."""
    compile_lightly()
    from pcbf_core.config import config_from
    from pcbf_experiments.exact import ExactSettings, make_record, metadata
    from pcbf_experiments.plugins import load_plugins

    load_plugins()
    default, own = (chosen.get(name, {}) for name in SECTIONS)
    settings = config_from(ExactSettings, {name: value for name, value in chosen.items() if name not in SECTIONS})
    progress = ProgressFile(progress_file, f"{mdp}/{method}", settings.num_seeds * settings.num_steps)
    arrays = make_record(mdp, method, settings, default, own, progress)
    save_exact_record(output, arrays, metadata(mdp, method, settings, default, own))


def collect(results: Path) -> None:
    """Gather the records of a results folder, and find the optima of their processes."""
    from pcbf_core.mdp import MDPS as PROCESSES
    from pcbf_experiments.exact import optima

    records = [load_exact_record(path) for path in exact_files(results)]
    levels = {record.mdp: [float(a) for a in record.cvar_levels if a != MEAN] for record in records}
    rows = [row for mdp, alphas in levels.items() for row in optima(mdp, tuple(alphas))]
    collect_exact(results, {mdp: PROCESSES[mdp].start for mdp in levels}, rows)


if __name__ == "__main__":
    main()
