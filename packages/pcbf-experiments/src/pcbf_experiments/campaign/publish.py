"""Promotion of a finished scale to results/published: `pcbf-publish`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from pcbf_experiments.agents import publish_agents
from pcbf_experiments.campaign.manifest import faults, read_manifest, record_names
from pcbf_experiments.campaign.settings import DEFAULT_SCALE, SCALES, load_scale
from pcbf_records.canonical import differences, suggestion
from pcbf_records.commands import Parser
from pcbf_records.files import atomic_write
from pcbf_records.layout import MANIFEST, RECORD_FOLDERS, REPORT, published_folder, scale_folder
from pcbf_records.sheets import load_sheets

FINISH = {
    "smoke": "make quick",
    "laptop": "make reproduce",
    "desk": "make run SCALE=desk",
    "paper": "snakemake --cores all --config scale=paper",
}


class PublishError(RuntimeError):
    """Why a scale cannot be published, and what to do."""


def publish(root: Path, scale: str) -> Path:
    """Folder results/published/<scale>, filled with the records, the manifest and the agents of results/<scale>.

    Refuses a scale that is unfinished, whose records are not those of its manifest, or that was run with other
    settings than those of config/scales. Tables, figures and the report are then made from there by `dvc repro`.
    """
    source, target = root / scale_folder(scale), root / published_folder(scale)
    check_publishable(root, scale)
    names = read_manifest(source)["records"]
    for name in [*names, MANIFEST]:
        with atomic_write(target / name, "wb") as copy:
            copy.write((source / name).read_bytes())
    for path in [path for folder in RECORD_FOLDERS for path in target.glob(f"{folder}/**/*")]:
        if path.is_file() and path.relative_to(target).as_posix() not in names:
            path.unlink()
    publish_agents(source, target)
    return target


def check_publishable(root: Path, scale: str) -> None:
    """Raise `PublishError` unless results/<scale> is finished, unchanged since, and made with the scale's settings."""
    if scale not in SCALES:
        raise PublishError(f"scale = {scale}: must be one of {', '.join(SCALES)}{suggestion(scale, SCALES)}")
    listed = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["vars"][0]["published"]
    if scale not in listed:
        raise PublishError(f"dvc.yaml rebuilds {', '.join(listed)}; add {scale} to its list `published` first.")
    folder = scale_folder(scale)
    source = root / folder
    file = f"config/scales/{scale}.yaml"
    settings = load_scale(root / file)
    planned = record_names(settings, load_sheets(root))
    missing = [name for name in [*planned, MANIFEST, REPORT] if not (source / name).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        raise PublishError(f"{folder} is not finished: {missing[0]}{more} missing; run `{FINISH[scale]}` first.")
    manifest = read_manifest(source)
    for phrase in faults(source, manifest, planned):
        raise PublishError(f"{folder} cannot be published: {phrase}; run `{FINISH[scale]}` again.")
    for name, made, now in differences(manifest["config"]["settings"], settings):
        raise PublishError(
            f"{folder} was not made with {file} ({name}: {made}, not {now}); run `{FINISH[scale]}` again."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="pcbf-publish",
        description="Promote a finished scale to results/published.",
        examples=["pcbf-publish laptop"],
    )
    parser.add_argument(
        "scale", nargs="?", default=DEFAULT_SCALE, help=f"one of {', '.join(SCALES)}; default %(default)s"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    options = parser.parse_args(arguments)
    try:
        target = publish(options.root, options.scale)
    except PublishError as error:
        print(error, file=sys.stderr)
        return 1
    if read_manifest(target)["code"]["dirty"]:
        print("note: these results were made with uncommitted changes of the code.")
    records = read_manifest(target)["records"]
    size = sum(record["bytes"] for record in records.values()) / 1e6
    print(f"published {len(records)} records ({size:.1f} MB) to {target}; `dvc repro` makes the rest from them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
