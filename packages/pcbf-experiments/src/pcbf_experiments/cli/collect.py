"""`pcbf-collect`: all run and evaluation records of a results folder as one table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pcbf_experiments.plugins import load_plugins
from pcbf_experiments.tasks import TASKS
from pcbf_records.commands import Parser
from pcbf_records.control import collect_control
from pcbf_records.errors import RecordError
from pcbf_records.layout import CONTROL_EVALUATIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-collect --results DIR`."""
    parser = Parser(
        prog="pcbf-collect",
        description="Gather the run and evaluation records of a results folder, ablations included, into one table, "
        f"<results>/{CONTROL_EVALUATIONS}, which tables, figures, claims and report read. Records that are missing or "
        "are not those that were made are named, and nothing is written.",
        examples=["pcbf-collect --results results/own"],
    )
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="e.g. results/laptop")
    options = parser.parse_args(arguments)
    load_plugins()
    try:
        num_runs = collect_control(options.results, TASKS)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.results / CONTROL_EVALUATIONS}: {num_runs} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
