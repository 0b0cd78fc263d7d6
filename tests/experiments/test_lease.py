"""GPUs leased by id: disjoint under load, free after a kill, right with and without one."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pcbf_experiments.campaign.lease import LeaseError, acquire, leased_environment, visible_devices

from ..waiting import PATIENCE

GPUS = "GPU-a,GPU-b,GPU-c"
HOLD = 'mkdir "$HELD/$CUDA_VISIBLE_DEVICES" || exit 9; sleep 0.05; rmdir "$HELD/$CUDA_VISIBLE_DEVICES"'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "held").mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "CUDA", "PCBF"))}
    return {**clean, "PCBF_GPUS": GPUS, "PCBF_LOCK_DIR": str(tmp_path / "locks"), "HELD": str(tmp_path / "held")}


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a command with GPUs of its own; whatever still runs ends with the test."""
    with ExitStack() as stack:

        def run(*command: str, count: int = 1) -> subprocess.Popen[str]:
            words = [sys.executable, "-m", "pcbf_experiments.campaign.lease", str(count), "--", *command]
            job = subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            stack.enter_context(job)
            stack.callback(job.kill)
            return job

        yield run


def first_line(job: subprocess.Popen[str]) -> str:
    assert job.stdout is not None
    return job.stdout.readline().strip()


@pytest.mark.slow
def test_more_jobs_than_gpus_never_share_one(start):
    jobs = [start("sh", "-c", HOLD) for _ in range(12)]
    logs = [job.communicate(timeout=PATIENCE)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 12, logs  # 9 if two held the same GPU
    assert all("leased GPU-" in log for log in logs)


@pytest.mark.slow
def test_kills_free_the_gpu_at_once_and_the_others_stay_disjoint(start):
    tell = f'echo "$CUDA_VISIBLE_DEVICES"; exec sleep {PATIENCE}'
    for _ in range(3):
        holders = [start("sh", "-c", tell) for _ in range(3)]
        gpus = [first_line(job) for job in holders]
        assert sorted(gpus) == GPUS.split(",")
        waiting = start("sh", "-c", tell)
        holders[1].send_signal(signal.SIGKILL)
        assert first_line(waiting) == gpus[1]
        for job in [*holders, waiting]:
            job.kill()
            job.wait(PATIENCE)


def test_jobs_of_two_gpus_do_not_wait_for_each_other_forever(start):
    jobs = [start("true", count=2) for _ in range(5)]
    assert [job.wait(PATIENCE) for job in jobs] == [0] * 5


def test_gpus_are_shared_if_asked_for_but_idle_ones_come_first(tmp_path):
    leases = [acquire(["a", "b"], 1, 2, tmp_path) for _ in range(4)]
    assert [list(lease) for lease in leases] == [["a"], ["b"], ["a"], ["b"]]
    for lease in leases:
        for file in lease.values():
            file.close()


def test_what_a_job_sees(tmp_path, environment):
    def see(count: int, needed: int, **changes: str) -> dict[str, str]:
        return leased_environment(count, needed, {**environment, **changes}, io.StringIO())

    cpu = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    assert see(0, 0) == cpu
    assert see(0, 1, PCBF_ALLOW_CPU="1") == cpu
    with pytest.raises(LeaseError, match="PCBF_ALLOW_CPU=1"):
        see(0, 1)  # `--resources gpu=0` at a scale that needs a GPU
    with pytest.raises(LeaseError, match="4 GPUs are asked for, 3 are visible"):
        see(4, 4)
    assert see(1, 1, SLURM_JOB_ID="7", CUDA_VISIBLE_DEVICES="2") == {}  # Slurm has chosen
    assert see(1, 1) == {"CUDA_VISIBLE_DEVICES": "GPU-a"}
    shared = see(1, 1, PCBF_JOBS_PER_GPU="2")
    assert shared == {"CUDA_VISIBLE_DEVICES": "GPU-b", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}


def test_without_a_driver_there_is_no_gpu(tmp_path):
    assert visible_devices({"PATH": str(tmp_path)}) == []
    with pytest.raises(LeaseError, match="no GPU is visible"):
        leased_environment(1, 1, {"PATH": str(tmp_path)}, io.StringIO())


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, ["GPU-x", "GPU-y"]), ("1", ["GPU-y"]), ("GPU-x", ["GPU-x"]), ("1,0", ["GPU-y", "GPU-x"]), ("", [])],
)
def test_gpus_hidden_by_the_user_are_not_leased(tmp_path, chosen, expected):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-x'\necho '1, GPU-y'\n", encoding="utf-8")
    tool.chmod(0o755)
    preset = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert visible_devices({"PATH": f"{tmp_path}{os.pathsep}{os.defpath}", **preset}) == expected
