"""A gradient step at laptop size on one core, as the workflow runs its jobs: of the peak, and of its plain form.

pytest benchmarks/test_one_core.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize("case", ["pcbf, a' = batch action", "iql", "floq", "codac"])
def test_update_on_one_core(benchmark: BenchmarkFixture, ledger: Any, case: str) -> None:
    environment = {**os.environ, "NPROC": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("one_core.py")), case]

    def run() -> dict[str, float]:
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    found = benchmark.pedantic(run, rounds=1)
    ledger.add("one_core", case=case, size="3x128", **found)
