"""The ledger of `make bench`, written to results/benchmarks at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "benchmarks"


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled programs for the next run: compiling takes longer than what is timed.

    Not by the environment, which the commands that benchmarks start would inherit: their first start is timed.
    """
    if config.getoption("--benchmark-only"):
        from work import KEPT_PROGRAMS

        for name, value in KEPT_PROGRAMS.items():
            jax.config.update(name, value)


class Ledger:
    """Rows that benchmarks enter, by group."""

    def __init__(self) -> None:
        self.groups: dict[str, list[dict[str, Any]]] = {}

    def add(self, group: str, **row: Any) -> None:
        self.groups.setdefault(group, []).append(row)
        print("\n" + "  ".join(f"{name}={value}" for name, value in row.items()))


LEDGER = Ledger()


@pytest.fixture(scope="session")
def ledger() -> Ledger:
    return LEDGER


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--benchmark-only") or not LEDGER.groups:
        return
    if session.config.getoption("keyword"):
        print("\nresults/benchmarks is left as it is: with -k a group may lack rows")
        return
    from summary import write_summary
    from work import peak_gflops

    write_summary(RESULTS, LEDGER.groups, peak_gflops())
    print(f"\nwritten to results/benchmarks: {', '.join(sorted(LEDGER.groups))}")
