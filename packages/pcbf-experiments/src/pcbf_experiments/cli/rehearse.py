"""`pcbf-rehearse`: every cell of a scale tried before the campaign, from its data to its place in the table."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcbf_experiments.campaign.plan import load_plan
from pcbf_experiments.campaign.rehearsal import OK, Cell, add_rows, cells_of, groups_of, read_rows, real_data, sample
from pcbf_experiments.campaign.settings import SCALES, SELECTORS
from pcbf_experiments.cli.common import guarded
from pcbf_records.canonical import readable_json, suggestion
from pcbf_records.commands import Parser, check_writable, whole_number
from pcbf_records.files import read_json, write_text
from pcbf_records.layout import rehearsal_folder, rehearsal_table
from pcbf_records.locks import held
from pcbf_records.progress import clock

PHASES = ("begin", "resume")
MODULE = "pcbf_experiments.cli.rehearse"


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-rehearse",
        description="Try every task × method of a scale with its real networks, batch and data (or a few rows made "
        "here): compile, train a chunk, checkpoint, be killed, resume, judge a snapshot in the simulator, find the "
        "score in the table. One row per cell goes into a csv; cells that are in it and were ok are skipped.",
        examples=["pcbf-rehearse --scale paper domains=scene-play methods=pcbf,iql", "pcbf-rehearse --cells 7"],
    )
    made.add_argument(
        "words", nargs="*", type=_selector, metavar="PART=NAME,…", help=f"only these {', '.join(SELECTORS)}"
    )
    made.add_argument("--scale", default="paper", help=f"one of {', '.join(SCALES)} (default: %(default)s)")
    made.add_argument(
        "--cells", type=whole_number(), metavar="N", help="a sample of N cells, spread over suites and methods"
    )
    made.add_argument(
        "--seeds", type=whole_number(), help="learners side by side (default: those of a job; on a CPU 1)"
    )
    made.add_argument(
        "--chunk", type=whole_number(), help="steps of a chunk (default: the scale's log_every; on a CPU 1)"
    )
    made.add_argument("--out", type=Path, metavar="CSV", help="the table (default: in the folder of the rehearsal)")
    made.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    made.add_argument("--worker", type=Path, help=argparse.SUPPRESS)  # what a process of this command is told
    return made


def _selector(text: str) -> tuple[str, list[str]]:
    """("domains", ["scene-play"]) of "domains=scene-play"."""
    part, _, names = text.partition("=")
    if part not in SELECTORS or not names:
        hint = suggestion(part, SELECTORS)
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {SELECTORS[0]}=NAME,…{hint}")
    return part, names.split(",")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-rehearse`: 1 if a cell fails."""
    options = parser().parse_args(arguments)
    if options.worker:
        return _work(options.worker)
    return guarded(lambda: _rehearse(options))


def _rehearse(options: argparse.Namespace) -> int:
    plan = load_plan(options.root, {"scale": options.scale, **dict(options.words)})
    cells, how = cells_of(plan), {"seeds": options.seeds, "chunk": options.chunk}
    if options.cells is not None:
        cells = sample(cells, options.cells)
    folder = options.root / rehearsal_folder(plan.scale)
    table = options.out or options.root / rehearsal_table(plan.scale)
    check_writable(folder)
    stage = {"data": str(options.root / real_data(plan)), "spare_data": str(folder / "data"), **how}
    with held([folder / "rehearsal.lock"]):
        known = read_rows(table)
        done = {key for key, row in known.items() if row["outcome"] == OK}
        left = [
            cell
            for cell in cells
            if (cell.task, cell.method) not in done
            or known[cell.task, cell.method]["config"] != cell.config_hash(**how)
        ]
        print(f"{len(cells)} cells of scale {plan.scale}, {len(cells) - len(left)} of them done before", flush=True)
        failed = 0
        for group in groups_of(left):
            started, rows = time.monotonic(), list(_try_group(group, folder, stage, how))
            add_rows(table, rows)
            failed += sum(row["outcome"] != OK for row in rows)
            for row in rows:
                print(f"{row['task']} {row['method']}: {row['outcome']}")
            print(f"  {len(rows)} cells in {clock(time.monotonic() - started)}", flush=True)
    print(f"{table}: {len(cells) - failed} of {len(cells)} cells ok")
    return 1 if failed else 0


def _try_group(
    group: Sequence[Cell], folder: Path, stage: Mapping[str, Any], how: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The rows of cells of one domain and method: one process until the kill, and another after it."""
    place = folder / f"{group[0].domain}-{group[0].method}"
    shutil.rmtree(place, ignore_errors=True)
    cells = [dataclasses.asdict(cell) for cell in group]
    for phase in PHASES:
        told = {"phase": phase, "cells": cells, "stage": {**stage, "results": str(place)}}
        write_text(place / f"{phase}.json", readable_json(told))
        _start(place, phase)
    for cell in group:
        yield {
            **{name: getattr(cell, name) for name in ("task", "domain", "suite", "method")},
            "config": cell.config_hash(**how),
            **_outcome(place, cell),
        }
    if all(_outcome(place, cell)["outcome"] == OK for cell in group):
        shutil.rmtree(place)


def _start(place: Path, phase: str) -> None:
    """Run one phase to its end, however it ends; programs that the first compiles serve the second, and no other."""
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(place.resolve() / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    command = [sys.executable, "-m", MODULE, "--worker", str(place / f"{phase}.json")]
    with (place / f"{phase}.log").open("wb") as log:
        code = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode
    write_text(place / f"{phase}.code", str(code))


def _outcome(place: Path, cell: Cell) -> dict[str, Any]:
    """What both phases said of a cell."""
    row: dict[str, Any] = {"outcome": OK}
    for phase in PHASES:
        said = read_json(_said(place, phase, cell.task))
        if not said:
            code = (place / f"{phase}.code").read_text(encoding="utf-8")
            said = {"fault": f"its process ended with code {code}, see {place / phase}.log"}
        row |= {name: value for name, value in said.items() if name not in ("fault", "lost")}
        if "fault" in said:
            return {**row, "outcome": f"{phase}: {said['fault']}"}
    return row


def _said(place: Path, phase: str, task: str) -> Path:
    return place / phase / f"{task}.json"


# --- a worker ---------------------------------------------------------------------------------------------------------


def _work(file: Path) -> int:
    """One phase of all cells that a file names, each told in a file of its own."""
    from pcbf_experiments.running.rehearse import Stage

    told, place = json.loads(file.read_text(encoding="utf-8")), file.parent
    paths = {name: Path(told["stage"].pop(name)) for name in ("results", "data", "spare_data")}
    stage, cells = Stage(**paths, **told["stage"]), [Cell(**values) for values in told["cells"]]
    for cell in cells:
        said = _said(place, told["phase"], cell.task)
        try:
            _do(told["phase"], cell, stage, place, said, is_last=cell is cells[-1])
        except Exception as error:  # whatever is wrong with one cell, the others are tried
            fault = f"{type(error).__name__}: {error}".strip().replace("\n", " ")
            write_text(said, readable_json({"fault": fault[:500]}))
    return 0


def _do(phase: str, cell: Cell, stage: Any, place: Path, said: Path, *, is_last: bool) -> None:
    from pcbf_experiments.running.rehearse import begin, resume

    if phase == "begin":
        begin(cell, stage, lambda measured: write_text(said, readable_json(measured)), is_last=is_last)
        return
    begun = read_json(_said(place, "begin", cell.task))
    if "lost" in begun:
        write_text(said, readable_json(resume(cell, stage, begun["lost"])))


if __name__ == "__main__":
    sys.exit(main())
