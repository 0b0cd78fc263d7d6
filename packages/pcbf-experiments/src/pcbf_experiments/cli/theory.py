"""The command `pcbf-theory`: check the paper's theoretical statements and write the record."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pcbf_records.commands import Parser
from pcbf_records.layout import THEORY_CHECKS, THEORY_POPULATION, toy_run

TOY_RECORD = toy_run("solitaire", "pcbf")


def argument_parser() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = Parser(
        prog="pcbf-theory",
        description="Check the paper's theoretical statements numerically and write "
        f"<results>/{THEORY_CHECKS}, and the fixed points that infinite data would reach as {THEORY_POPULATION}. "
        "A check that fails is recorded as failing; it does not make the command fail.",
        examples=["""pcbf-theory --results results/laptop --settings '{"num_samples": 200000, "seed": 0}'"""],
    )
    parser.add_argument(
        "--results",
        type=Path,
        required=True,
        metavar="DIR",
        help=f"results of one scale, such as results/laptop; {TOY_RECORD} is read from it",
    )
    parser.add_argument(
        "--settings",
        required=True,
        metavar="JSON",
        help="JSON text with `num_samples` (>= 1000, draws per Monte Carlo check) and `seed`, and if wanted "
        "`num_flow_steps`, `num_points` and `population_processes` of the population solver, such as "
        '\'{"num_samples": 200000, "seed": 0}\'',
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `pcbf-theory`."""
    options = argument_parser().parse_args(arguments)
    from pcbf_experiments.theory import parse_settings, population_checks, population_rows, residual_rows, run_checks
    from pcbf_records.theory import write_checks, write_population

    try:
        settings = parse_settings(options.settings)
        residuals = list(residual_rows(options.results / TOY_RECORD))
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f"pcbf-theory: {error}") from None
    population = population_rows(
        settings.population_processes, num_flow_steps=settings.num_flow_steps, num_points=settings.num_points
    )
    write_population(options.results / THEORY_POPULATION, population)
    rows = [*run_checks(settings), *population_checks(population), *residuals]
    file = options.results / THEORY_CHECKS
    write_checks(file, rows)
    failing = sorted(row.id for row in rows if not row.holds)
    print(f"{file}: {len(rows)} checks, {len(rows) - len(failing)} hold, {len(failing)} fail")
    for name in failing:
        print(f"  fails: {name}")


if __name__ == "__main__":
    main()
