"""Writes what `make bench` measured to results/benchmarks: a table for each group, with the facts of the machine."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parent.parent / "results" / "benchmarks"


class Ledger:
    """Rows (work, measured ratio, against what, target) that benchmarks enter."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)
        print("\n" + "  ".join(f"{name}={value}" for name, value in row.items()))


LEDGER = Ledger()


@pytest.fixture(scope="session")
def ledger() -> Ledger:
    return LEDGER


def machine() -> dict[str, Any]:
    import jax

    return {
        "cores": os.cpu_count(),
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--benchmark-only") or not LEDGER.rows:
        return
    import pandas as pd
    from work import peak_gflops

    from pcbf_core.files import atomic_write

    RESULTS.mkdir(parents=True, exist_ok=True)
    facts = {**machine(), "matmul_peak_gflops": round(peak_gflops(), 1)}
    for name, rows in LEDGER.rows.items():
        with atomic_write(RESULTS / f"{name}.csv") as file:
            file.write(pd.DataFrame(rows).to_csv(index=False, float_format="%.4g", lineterminator="\n"))
        with atomic_write(RESULTS / f"{name}.json") as file:
            file.write(json.dumps({"machine": facts, "rows": rows}, indent=1, sort_keys=True) + "\n")
    print(f"\nwritten to results/benchmarks: {', '.join(sorted(LEDGER.rows))}")
