"""Commands `pcbf-figure`, `pcbf-table`, `pcbf-claims` and `pcbf-report`: what is made from a results folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from pcbf_analysis import artefacts, claims, report
from pcbf_analysis.results import Results
from pcbf_core.config import check_choice
from pcbf_records.commands import Parser, whole_number
from pcbf_records.errors import RecordError


def figure_main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-figure LABEL…|all --results DIR`."""
    return _make("figure", arguments)


def table_main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-table LABEL…|all --results DIR`."""
    return _make("table", arguments)


def claims_main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-claims --results DIR`."""
    parser = Parser(
        prog="pcbf-claims",
        description="Decide the paper's claims (config/claims.yaml) from the records of a results folder and write "
        "<results>/claims.csv and claims.md: each with verdict, measured value with interval, the paper's value and "
        "the evidence. A claim that the records cannot decide is said to be undecided.",
        examples=["pcbf-claims --results results/laptop"],
    )
    _add_folders(parser)
    parser.add_argument("--claims", type=Path, metavar="FILE", help="another ledger than config/claims.yaml")
    given = parser.parse_args(arguments)
    try:
        results = Results(given.results, given.root)
        ledger = claims.load_claims(given.claims) if given.claims else None
        findings = claims.decide(results, ledger)
        for path in claims.write(results, findings, artefacts.shown_path(results.root)):
            print(artefacts.shown_path(path))
    except RecordError as error:
        parser.error(str(error))
    paper = claims.of_paper(findings)
    told = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(paper).items())
    print(f"{len(paper)} claims of the paper: {told}; {len(findings) - len(paper)} findings beyond it")
    return 0


def report_main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-report --results DIR`."""
    parser = Parser(
        prog="pcbf-report",
        description="Write <results>/report/index.html: one self-contained page with the summary, the claims, every "
        "table, every figure that has been made, every run, and provenance.",
        examples=["pcbf-report --results results/laptop"],
    )
    _add_folders(parser)
    given = parser.parse_args(arguments)
    try:
        results = Results(given.results, given.root)
        print(artefacts.shown_path(report.write(results)))
    except RecordError as error:
        parser.error(str(error))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `python -m pcbf_analysis.cli {figure,table,claims,report} …`."""
    commands = {"figure": figure_main, "table": table_main, "claims": claims_main, "report": report_main}
    rest = list(sys.argv[1:] if arguments is None else arguments)
    if not rest or rest[0] not in commands:
        print(f"usage: python -m pcbf_analysis.cli {{{','.join(commands)}}} …", file=sys.stderr)
        return 2
    return commands[rest[0]](rest[1:])


def _make(kind: str, arguments: Sequence[str] | None) -> int:
    known = artefacts.of_kind(kind)
    formats = ", ".join(dict.fromkeys(name for artefact in known.values() for name in artefact.formats))
    parser = Parser(
        prog=f"pcbf-{kind}",
        description=f"Make {kind}s from the records of a results folder: <results>/{kind}s/LABEL in {formats}. "
        "Records that are not there yet are shown as missing.",
        epilog=f"labels: {', '.join(known)}",
        examples=[f"pcbf-{kind} {next(iter(known))} --results results/laptop", f"pcbf-{kind} --list"],
    )
    parser.add_argument("labels", nargs="*", metavar="LABEL", help=f"the paper's labels of {kind}s, or `all`")
    parser.add_argument("--list", action="store_true", help=f"list the {kind}s, what each shows and what it reads")
    parser.add_argument("--jobs", type=whole_number(), default=1, metavar="N", help="processes (default: %(default)s)")
    _add_folders(parser, required=False)
    given = parser.parse_args(arguments)
    if given.list:
        for artefact in known.values():
            print(f"{artefact.label}\n    {artefact.title}\n    reads {', '.join(artefact.inputs)}")
        return 0
    if not given.labels or given.results is None:
        parser.error(f"pass a label (or `all`) and --results; labels: {', '.join(known)}")
    try:
        for label in given.labels:
            check_choice("label", label, ["all", *known])
    except ValueError as error:
        parser.error(str(error))
    try:
        for path in _written(kind, list(known) if "all" in given.labels else given.labels, given):
            print(artefacts.shown_path(path), flush=True)
    except RecordError as error:
        parser.error(str(error))
    return 0


def _written(kind: str, labels: Sequence[str], given: argparse.Namespace) -> Iterator[Path]:
    """The files of all labels, made by as many processes as are wanted."""
    known, results = artefacts.of_kind(kind), Results(given.results, given.root)
    if given.jobs == 1:
        for label in labels:
            yield from artefacts.write(results, known[label])
        return
    with ProcessPoolExecutor(given.jobs - 1, get_context("forkserver"), _read, (given.results, given.root)) as pool:
        waiting = {label: pool.submit(_written_there, kind, label) for label in labels}
        try:  # while the others still load their libraries, this process takes from the end of what waits
            mine = (label for label in reversed(labels) if waiting[label].cancel())
            here = {label: artefacts.write(results, known[label]) for label in mine}
            for label in labels:
                yield from here.get(label) or waiting[label].result()
        finally:
            pool.shutdown(cancel_futures=True)


_results: Results  # of a process that helps


def _read(folder: Path, root: Path) -> None:
    global _results
    _results = Results(folder, root)


def _written_there(kind: str, label: str) -> list[Path]:
    return artefacts.write(_results, artefacts.of_kind(kind)[label])


def _add_folders(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--results", type=Path, required=required, metavar="DIR", help="a results folder, such as results/laptop"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="top folder of the repository, for config and the paper's numbers (default: this folder)",
    )


if __name__ == "__main__":
    sys.exit(main())
