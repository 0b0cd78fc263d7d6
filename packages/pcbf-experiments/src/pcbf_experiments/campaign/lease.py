"""`pcbf-lease N -- COMMAND`: run a command with N GPUs of its own.

GPUs are leased by locks on files named after the GPU's id (UUID), in a folder of this machine. A lock belongs to
the command (it is inherited when this process becomes the command) and the kernel frees it when that process is gone,
killed or not. Indices would not do: they count from what CUDA_VISIBLE_DEVICES leaves, so that the same number means
different GPUs to different callers.

  PCBF_GPUS           ids of the GPUs, separated by commas, instead of asking nvidia-smi
  PCBF_JOBS_PER_GPU   commands that may share a GPU (default 1)
  PCBF_LOCK_DIR       folder of the locks (default pcbf-gpu-locks in the folder for temporary files)
  PCBF_ALLOW_CPU=1    let a command that needs a GPU run on the CPU
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pcbf_records.commands import Parser, whole_number
from pcbf_records.locks import open_lock, try_lock

CPU = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
POLL_SECONDS = 0.2


class LeaseError(RuntimeError):
    """No GPU can be had; the message says why and what to do."""


def visible_devices(environment: Mapping[str, str]) -> list[str]:
    """Ids of the GPUs this process may use, in order; empty without any."""
    if environment.get("PCBF_GPUS"):
        return environment["PCBF_GPUS"].split(",")
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=dict(environment))
    except (OSError, subprocess.SubprocessError):
        return []
    ids = dict(line.split(", ") for line in done.stdout.splitlines() if ", " in line)
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(ids.values())
    return [ids.get(device.strip(), device.strip()) for device in chosen.split(",") if device.strip()]


def acquire(devices: Sequence[str], count: int, slots: int, folder: Path) -> dict[str, IO[str]]:
    """Open locks of `count` different GPUs by id; all or nothing, so that two callers never wait for each other."""
    while True:
        leased: dict[str, IO[str]] = {}
        for slot in range(slots):  # an idle GPU before a shared one
            for device in devices:
                if len(leased) < count and device not in leased:
                    file = open_lock(folder / f"{device.replace('/', '_')}.{slot}.lock")
                    if try_lock(file):
                        leased[device] = file
                    else:
                        file.close()
        if len(leased) == count:
            return leased
        for file in leased.values():
            file.close()
        time.sleep(POLL_SECONDS)


def leased_environment(count: int, needed: int, environment: Mapping[str, str], log: IO[str]) -> dict[str, str]:
    """What to set in the environment of the command; locks stay open in this process and what it becomes.

    Args:
      count: GPUs the scheduler grants, 0 for none.
      needed: GPUs the command asks for; if positive, the CPU is refused unless PCBF_ALLOW_CPU=1.
    """
    if "SLURM_JOB_ID" in environment and count:
        shown = environment.get("CUDA_VISIBLE_DEVICES")
        if shown:
            print(f"pcbf-lease: Slurm assigned {shown}", file=log)
            return {}
    devices = visible_devices(environment) if count else []
    if not devices:
        why = "no GPU is visible" if count else "no GPU was granted (gpu=0)"
        if needed and environment.get("PCBF_ALLOW_CPU") != "1":
            raise LeaseError(f"{why}, and this scale is not meant for the CPU; set PCBF_ALLOW_CPU=1 to train there.")
        print(f"pcbf-lease: {why if needed else 'no GPU is asked for'}; running on the CPU", file=log)
        return dict(CPU)
    if count > len(devices):
        raise LeaseError(f"{count} GPUs are asked for, {len(devices)} are visible: {', '.join(devices)}.")
    slots = _jobs_per_gpu(environment.get("PCBF_JOBS_PER_GPU", "1"))
    default = Path(tempfile.gettempdir()) / "pcbf-gpu-locks"
    leased = acquire(devices, count, slots, Path(environment.get("PCBF_LOCK_DIR", default)))
    for file in leased.values():
        os.set_inheritable(file.fileno(), True)
        _KEPT.append(file)
    print(f"pcbf-lease: leased {', '.join(leased)}", file=log)
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / slots:.2f}"} if slots > 1 else {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(leased), **share}


def _jobs_per_gpu(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise LeaseError(f"PCBF_JOBS_PER_GPU={text}: must be a whole number >= 1.")
    return int(text)


_KEPT: list[IO[str]] = []  # open files are locks: they must not be closed before the command takes over


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the command; an exit code only if there is no GPU for it."""
    parser = Parser(
        prog="pcbf-lease",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        examples=["pcbf-lease 1 -- python train.py"],
    )
    parser.add_argument("count", type=whole_number(0), help="GPUs granted to the command; 0 runs it on the CPU")
    parser.add_argument("--needed", type=whole_number(0), help="GPUs the command should have (default: as granted)")
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args(arguments)
    needed = options.count if options.needed is None else options.needed
    try:
        changes = leased_environment(options.count, needed, os.environ, sys.stderr)
    except LeaseError as error:
        print(f"error: {error}", file=sys.stderr)
    else:
        sys.stderr.flush()
        os.execvpe(options.command[0], options.command, {**os.environ, **changes})
    return 1


if __name__ == "__main__":
    sys.exit(main())
