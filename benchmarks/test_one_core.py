"""A gradient step at laptop size on one core, as the workflow runs its jobs: of the peak, and of its plain form.

pytest benchmarks/test_one_core.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

CASES = ("codac", "floq", "pcbf, a' = batch action", "iql")


def on_one_core(case: str) -> dict[str, float]:
    """What `one_core.py` says of a case."""
    environment = {**os.environ, "NPROC": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("one_core.py")), case]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_updates_on_one_core(benchmark: BenchmarkFixture, ledger: Any) -> None:
    """Two at a time, as their times are those of their own core."""
    with ThreadPoolExecutor(2) as pairs:
        found = benchmark.pedantic(lambda: list(pairs.map(on_one_core, CASES)), rounds=1)
    for case, row in zip(CASES, found, strict=True):
        ledger.add("one_core", case=case, size="3x128", **row)
