"""The manifest of a finished scale: from which settings, code and machine its records come, and their hashes."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pcbf_analysis.control import Sheets, control_names, load_sheets
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, Settings, settings_hash

Manifest = dict[str, Any]

MANIFEST = "manifest.json"
PACKAGES = ("pcbf-core", "pcbf-baselines", "pcbf-analysis")
KEY_REQUIREMENTS = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "pandas", "matplotlib", "seaborn")
CODE_PATHS = ("Snakefile", "rules", "config", "packages", "requirements.lock")


def run_name(environment: str, method: str) -> str:
    """Path of a toy run's record inside a results directory."""
    return f"toy/runs/{environment}/{method}.npz"


def fixed_names() -> list[str]:
    """Paths, inside a results directory, of the records that every scale has: toys and theory."""
    runs = [run_name(environment, method) for environment in ENVIRONMENTS for method in METHODS]
    return [*runs, "toy/w1.csv", "toy/loss_std.csv", "theory/checks.csv"]


def record_names(settings: Settings, sheets: Sheets) -> list[str]:
    """Paths, inside a results directory, of the records a finished scale consists of."""
    return [*fixed_names(), *control_names(settings, sheets)]


def found_names(results: Path) -> list[str]:
    """Paths, inside `results`, of records whose number depends on the machine: cost of training, pictures of tasks."""
    return _names(results, "cost/*/*/*.json", "ablations/*/cost/*/*/*.json", "renders/*.*")


def ablation_names(results: Path) -> list[str]:
    """Paths, inside `results`, of all runs with a setting changed, planned by the scale or made by request."""
    return _names(results, "ablations/*/runs/*/*/seed*.json")


def _names(results: Path, *patterns: str) -> list[str]:
    found = [path for pattern in patterns for path in results.glob(pattern) if not path.name.startswith(".")]
    return sorted(path.relative_to(results).as_posix() for path in found)


def is_run(name: str) -> bool:
    """Whether a record is that of a training run."""
    return name.startswith("runs/") or (name.startswith("ablations/") and "/runs/" in name)


def is_cost(name: str) -> bool:
    return name.startswith("cost/") or (name.startswith("ablations/") and "/cost/" in name)


def is_picture(name: str) -> bool:
    return name.startswith("renders/")


def build_manifest(results: Path, settings: Settings, sheets: Sheets) -> Manifest:
    """Everything that is needed to say where the records under `results` come from."""
    names = [*record_names(settings, sheets), *ablation_names(results), *found_names(results)]
    return {
        "scale": results.name,
        "config": {"sha256": settings_hash(settings), "settings": settings},
        "code": {"packages": _versions(PACKAGES), **git_state(Path(__file__).parent)},
        "python": platform.python_version(),
        "packages": _versions(KEY_REQUIREMENTS),
        "hardware": hardware(),
        "records": {name: describe_record(results, name) for name in dict.fromkeys(names)},
    }


def describe(file: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    return {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def describe_record(results: Path, name: str) -> dict[str, Any]:
    """Size and SHA-256 of a record; of a training run also the hash of its config and the code that made it."""
    described = describe(results / name)
    if not is_run(name):
        return described
    record = json.loads((results / name).read_text(encoding="utf-8"))
    made_by = {"commit": record["code"].get("commit"), "method_version": record["config"].get("method_version")}
    return {**described, "config_hash": record["config_hash"], "status": record["status"], **made_by}


def faults(results: Path, manifest: Manifest, wanted: Sequence[str] = ()) -> Iterator[str]:
    """A phrase for every record under `results` that is missing or is not the one the manifest describes.

    `wanted` are records that should be there, besides those of the manifest.
    """
    for name in sorted({*wanted, *manifest["records"]}):
        if not (results / name).is_file():
            yield f"{name} is missing"
        elif name not in manifest["records"]:
            yield f"{name} is not in {MANIFEST}"
        elif describe_record(results, name) != manifest["records"][name]:
            yield f"{name} has changed since {MANIFEST} was written"


def read_manifest(results: Path) -> Manifest:
    return json.loads((results / MANIFEST).read_text(encoding="utf-8"))


def write_text(path: Path, text: str) -> None:
    """Put `text` into `path` in one go: readers see the old file or the new one, never a part."""
    from pcbf_core.files import atomic_write  # not above: whoever asks for record names need not wait for JAX

    with atomic_write(path) as file:
        file.write(text)


def dump_json(value: Any) -> str:
    """`value` as JSON for people: sorted, indented, with an end of line."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def git_state(directory: Path) -> dict[str, Any]:
    """Commit of the checkout around `directory`, and whether its code differs from that commit; None outside git."""
    top = _output(["git", "rev-parse", "--show-toplevel"], directory)
    commit = _output(["git", "rev-parse", "HEAD"], directory)
    if not top or not commit:
        return {"commit": None, "dirty": None}
    changed = _output(["git", "status", "--porcelain", "--", *CODE_PATHS], Path(top))
    return {"commit": commit, "dirty": bool(changed)}


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and accelerators of this machine."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "accelerators": (_output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) or "").splitlines(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _versions(names: Sequence[str]) -> dict[str, str | None]:
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _output(command: Sequence[str], directory: Path | None = None) -> str | None:
    """What a command prints; None if it is not there or fails."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="pcbf-manifest", description="Write manifest.json beside the records of a scale."
    )
    parser.add_argument("--results", type=Path, required=True, help="directory of the scale, such as results/laptop")
    parser.add_argument("--settings", type=json.loads, required=True, help="the settings of the scale, as JSON")
    parser.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    options = parser.parse_args(arguments)
    sheets = load_sheets(options.root)
    missing = [name for name in record_names(options.settings, sheets) if not (options.results / name).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        print(f"{options.results} is not finished: {missing[0]}{more} missing; run the pipeline.", file=sys.stderr)
        return 1
    write_text(options.results / MANIFEST, dump_json(build_manifest(options.results, options.settings, sheets)))
    print(f"wrote {options.results / MANIFEST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
