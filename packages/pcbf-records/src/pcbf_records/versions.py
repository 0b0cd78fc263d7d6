"""Which code, libraries and machine made something."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("pcbf-core", "pcbf-baselines", "pcbf-records", "pcbf-experiments", "pcbf-analysis")
NUMERICAL = ("jax", "jaxlib", "flax", "optax", "numpy")  # libraries that decide the numbers of training
SIMULATORS = ("gymnasium", "gymnasium-robotics", "minari", "mujoco", "ogbench")
ANALYSIS = ("scipy", "pandas", "matplotlib", "seaborn")
CODE_PATHS = ("Snakefile", "rules", "config", "packages", "requirements.lock")


def installed(names: Sequence[str]) -> dict[str, str | None]:
    """Version of each distribution; None where it is absent."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def library_versions() -> dict[str, Any]:
    """Versions of Python and of the libraries that decide the numbers of a run."""
    return {"python": platform.python_version(), **installed([*NUMERICAL, *SIMULATORS])}


@cache
def code_version() -> dict[str, Any]:
    """Versions of our packages, the git commit around them and whether the code differs from it; None outside git."""
    here = Path(__file__).parent
    commit, top = (output_of(["git", "rev-parse", word], here) for word in ("HEAD", "--show-toplevel"))
    changed = output_of(["git", "status", "--porcelain", "--", *CODE_PATHS], Path(top)) if top else None
    present = {name: version for name, version in installed(PACKAGES).items() if version is not None}
    return {"packages": present, "commit": commit, "dirty": None if changed is None else bool(changed)}


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and accelerators of this machine."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "accelerators": (output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) or "").splitlines(),
    }


def output_of(command: Sequence[str], directory: Path | None = None) -> str | None:
    """What a command prints; None if it is not there or fails."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return output_of(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
