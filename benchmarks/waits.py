"""Times what people wait for, in a clean clone as a stranger would: `python benchmarks/waits.py setup check test`.

Not part of `make bench`, for together these take more than an hour. A wait that was not timed keeps its row in
results/benchmarks/waits.csv, from which README and targets.md have their times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from summary import write_summary

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "benchmarks"
RECORD = Path("results/published/laptop/control/evaluations.csv")


class Wait(NamedTuple):
    """A command of the clone, and the most minutes and GB that it should take."""

    command: str
    most_minutes: float | None = None
    most_gb: float | None = None  # of its largest process


WAITS = {
    "setup": Wait("make setup"),
    "check": Wait("make check", 2),
    "test": Wait("make test", 12, 2),
    "tables": Wait(".venv/bin/dvc repro --force", 45 / 60),
    "one-record": Wait(".venv/bin/dvc repro", 20 / 60),
    "quick": Wait("make quick"),
    "bench": Wait("make bench", 10),
    "bench-again": Wait("make bench", 10),
    "reproduce": Wait("make reproduce", 45, 2),
}


def change_one_record(clone: Path) -> None:
    """Swap two lines of a record: other bytes, and the same numbers in every table."""
    head, first, second, *rest = (clone / RECORD).read_text(encoding="utf-8").splitlines(keepends=True)
    (clone / RECORD).write_text("".join([head, second, first, *rest]), encoding="utf-8")


def timed(command: str, clone: Path) -> dict[str, Any]:
    """What a command took: minutes by the clock and of cores, GB of its largest process."""
    outside = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "MAKEFLAGS")}
    begin = time.perf_counter()
    process = subprocess.Popen(["sh", "-c", command], cwd=clone, env=outside)
    _, status, used = os.wait4(process.pid, 0)
    minutes = (time.perf_counter() - begin) / 60
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"`{command}` ended with {code} and was not entered; it ran in a clone, which has what is committed")
    return {
        "minutes": round(minutes, 2),
        "core_minutes": round((used.ru_utime + used.ru_stime) / 60, 2),
        "largest_process_gb": round(used.ru_maxrss / 2**20, 2),
    }


def write_waits(folder: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the rows by name beside those that were not timed now, in the order of `WAITS`."""
    from work import peak_gflops

    path = folder / "waits.json"
    known = {row["work"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    merged = {**known, **{name: {"work": name, "command": WAITS[name].command, **row} for name, row in rows.items()}}
    write_summary(folder, {"waits": [merged[name] for name in WAITS if name in merged]}, peak_gflops())


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the waits that were asked for."""
    parser = argparse.ArgumentParser(description="Time what people wait for, in a clean clone.")
    parser.add_argument("wait", nargs="+", choices=WAITS, help="what to time, in this order")
    parser.add_argument("--clone", type=Path, help="where to clone to, and to leave it; without it a folder that goes")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        clone = asked.clone or Path(folder) / "pcbf"
        if clone.exists():
            sys.exit(f"{clone} is there already; give --clone a folder that is not, or remove it")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if asked.wait[0] not in ("setup", "reproduce", "test"):  # the two commands of README set up themselves
            subprocess.run(["make", "--silent", "setup"], cwd=clone, check=True)
        for name in asked.wait:
            if name == "one-record":
                change_one_record(clone)
            row = timed(WAITS[name].command, clone)
            print(f"{name}: {row}")
            write_waits(RESULTS, {name: row})


if __name__ == "__main__":
    main()
