"""Checkpoints, datasets, the plan of the campaign, tables and figures: what a user waits for beside training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from work import agent_of, best_seconds, dataset

from pcbf_experiments.running.checkpoint import restore_checkpoint, save_checkpoint

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def copy_seconds(path: Path) -> float:
    """Time to write the bytes of a file again: the reference for reading and writing it."""
    data, other = path.read_bytes(), path.with_suffix(".copy")
    return best_seconds(lambda: other.write_bytes(data))


def test_checkpoint(benchmark: BenchmarkFixture, ledger: Any, tmp_path: Path) -> None:
    state = jax.jit(agent_of("pcbf", "4x512", control_weight=0.4).init)(jax.random.key(0))
    path = tmp_path / "state.npz"
    save = benchmark.pedantic(lambda: best_seconds(lambda: save_checkpoint(path, state, step=1, config={})), rounds=1)
    load = best_seconds(lambda: restore_checkpoint(path, state)[0])
    plain = copy_seconds(path)
    for work, seconds in (("save", save), ("load", load)):
        ledger.add(
            "files",
            work=f"{work} a checkpoint, PCBF 4x512",
            seconds=round(seconds, 3),
            reference="write its bytes",
            times_reference=round(seconds / plain, 2),
        )


def test_dataset(benchmark: BenchmarkFixture, ledger: Any, tmp_path: Path) -> None:
    """Reading 100 000 transitions from an OGBench-like file onto the device."""
    rows = dataset(100_000).transitions
    path = tmp_path / "data.npz"
    np.savez_compressed(path, observations=np.asarray(rows.observation), actions=np.asarray(rows.action))

    def load() -> Any:
        with np.load(path) as file:
            return jax.device_put({name: file[name] for name in file.files})

    seconds = benchmark.pedantic(lambda: best_seconds(load), rounds=1)
    ledger.add(
        "files",
        work="load 100 000 transitions",
        seconds=round(seconds, 3),
        reference="write its bytes",
        times_reference=round(seconds / copy_seconds(path), 2),
    )


@pytest.mark.parametrize(
    ("work", "command"),
    [
        ("plan the paper scale (dry run)", ["snakemake", "-n", "-q", "all", "--config", "scale=paper"]),
        ("make all published tables", ["pcbf-table", "all", "--results", "{results}"]),
        ("make all published figures", ["pcbf-figure", "all", "--results", "{results}"]),
    ],
)
def test_command(benchmark: BenchmarkFixture, ledger: Any, tmp_path: Path, work: str, command: list[str]) -> None:
    """A command against `python -c 'import jax'`, the least any of them can take."""
    import shutil

    results = tmp_path / "laptop"
    shutil.copytree(ROOT / "results" / "published" / "laptop", results)
    arguments = [str(BIN / command[0]), *(part.format(results=results) for part in command[1:])]

    def run(arguments: list[str]) -> None:
        subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True)

    seconds = benchmark.pedantic(lambda: best_seconds(lambda: run(arguments), repeats=1, warm=False), rounds=1)
    start = best_seconds(lambda: run([sys.executable, "-c", "import jax"]), repeats=2)
    ledger.add(
        "files", work=work, seconds=round(seconds, 2), reference="import jax", times_reference=round(seconds / start, 2)
    )
