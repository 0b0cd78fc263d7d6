"""How long a run takes from the start of its process to its first finished steps, the second time it is started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

BIN = Path(sys.executable).parent
TASK = "cube-single-play-singletask-task1-v0"
SETTINGS = [
    "hidden_sizes=[128,128,128]",
    "num_candidates=8",
    "num_action_steps=5",
    "num_flow_steps=5",
    "action_reuse=4",
]


def test_second_start(benchmark: BenchmarkFixture, ledger: Any, tmp_path: Path) -> None:
    pytest.importorskip("ogbench")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    data = tmp_path / "data"
    subprocess.run(
        [BIN / "pcbf-data", "make-local", TASK, "--episodes", "2", "--length", "200", "--data-dir", data],
        env=environment,
        check=True,
        capture_output=True,
    )

    def start(folder: str) -> float:
        """Seconds until the metrics of the first call are on disk."""
        out = tmp_path / folder
        command = [BIN / "pcbf-train", TASK, "pcbf", "--steps", "16", "--log-every", "16", "--eval-every", "16"]
        command += ["--episodes", "1", "--episode-limit", "2", "--slots", "1", "--data-dir", data, "--out", out]
        begin = time.perf_counter()
        with subprocess.Popen([*command, "--set", *SETTINGS], env=environment, stderr=subprocess.DEVNULL) as process:
            while not list(out.glob("metrics/*/*/*.csv")) and process.poll() is None:
                time.sleep(0.02)
            seconds = time.perf_counter() - begin
        assert process.returncode == 0
        return seconds

    first = start("first")
    second = benchmark.pedantic(lambda: min(start("second"), start("third")), rounds=1)
    ledger.add(
        "start", work="second start of a run", seconds_to_first_step=round(second, 2), first_start=round(first, 2)
    )
