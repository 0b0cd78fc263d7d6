"""A gradient step at laptop size on one core, as the workflow runs its jobs: of the peak, and of its plain form.

pytest benchmarks/test_one_core.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from work import on_one_core


@pytest.mark.parametrize("case", ["pcbf, a' = batch action", "iql", "floq", "codac"])
def test_update_on_one_core(benchmark: BenchmarkFixture, ledger: Any, case: str) -> None:
    found = benchmark.pedantic(lambda: on_one_core("one_core.py", case), rounds=1)
    ledger.add("one_core", case=case, size="3x128", **found)
