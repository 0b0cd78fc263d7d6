"""The manifest of a finished scale: from which settings, code and machine its records come, and their hashes."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pcbf_experiments.campaign.plan import control_names
from pcbf_experiments.campaign.settings import Settings, calibration_pairs, exact_pairs, toy_pairs
from pcbf_records import layout
from pcbf_records.canonical import content_hash, readable_json
from pcbf_records.commands import Parser, json_object
from pcbf_records.files import sha256, write_text
from pcbf_records.layout import MANIFEST
from pcbf_records.sheets import Sheets, load_sheets
from pcbf_records.versions import ANALYSIS, NUMERICAL, code_version, hardware, installed

Manifest = dict[str, Any]


# records that every scale has
FIXED = (
    layout.TOY_W1,
    layout.TOY_TUNING_W1,
    layout.TOY_LOSS_STD,
    layout.THEORY_CHECKS,
    layout.THEORY_POPULATION,
    layout.EXACT_RESULTS,
    layout.EXACT_OPTIMA,
    layout.CALIBRATION_RESULTS,
)


def record_names(settings: Settings, sheets: Sheets) -> list[str]:
    """Paths, inside a results folder, of the records a finished scale consists of."""
    toys = [layout.toy_run(*pair) for pair in toy_pairs(settings)]
    exact = [layout.exact_run(*pair) for pair in exact_pairs(settings)]
    calibration = [layout.calibration_run(*pair) for pair in calibration_pairs(settings)]
    collected = [layout.CONTROL_EVALUATIONS, layout.CONTROL_CONFIGS]
    return [*toys, *exact, *calibration, *FIXED, *collected, *control_names(settings, sheets)]


def build_manifest(results: Path, settings: Settings, sheets: Sheets) -> Manifest:
    """Everything that is needed to say where the records under `results` come from."""
    names = [*record_names(settings, sheets), *layout.found_records(results)]
    return {
        "scale": results.name,
        "config": {"sha256": content_hash(settings), "settings": settings},
        "code": code_version(),
        "python": platform.python_version(),
        "packages": installed([*NUMERICAL, *ANALYSIS]),
        "hardware": hardware(),
        "records": {name: describe_record(results, name) for name in dict.fromkeys(names)},
    }


def describe(file: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    return {"bytes": file.stat().st_size, "sha256": sha256(file)}


def describe_record(results: Path, name: str) -> dict[str, Any]:
    """Size and SHA-256 of a record; of a training run also the hash of its config and the code that made it."""
    described = describe(results / name)
    if not layout.is_run(name):
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="pcbf-manifest",
        description="Write manifest.json beside the records of a scale.",
        examples=["pcbf-manifest --results results/smoke --settings JSON"],
    )
    parser.add_argument("--results", type=Path, required=True, help="folder of the scale, such as results/laptop")
    parser.add_argument("--settings", type=json_object, required=True, help="the settings of the scale, as JSON")
    parser.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    options = parser.parse_args(arguments)
    sheets = load_sheets(options.root)
    missing = [name for name in record_names(options.settings, sheets) if not (options.results / name).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        print(f"{options.results} is not finished: {missing[0]}{more} missing; run the pipeline.", file=sys.stderr)
        return 1
    write_text(options.results / MANIFEST, readable_json(build_manifest(options.results, options.settings, sheets)))
    print(f"wrote {options.results / MANIFEST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
