"""`pcbf-publish`: promotion of a finished scale to results/published, or of what is finished of one, and back."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from pcbf_experiments.agents import publish_agents
from pcbf_experiments.campaign.manifest import faults, read_manifest, record_names
from pcbf_experiments.campaign.plan import CLONER, TrainJob, all_jobs
from pcbf_experiments.campaign.settings import (
    DEFAULT_SCALE,
    SCALES,
    calibration_pairs,
    exact_pairs,
    load_scale,
    toy_pairs,
)
from pcbf_records import layout
from pcbf_records.canonical import differences, suggestion
from pcbf_records.commands import Parser
from pcbf_records.files import atomic_write
from pcbf_records.layout import MANIFEST, RECORD_FOLDERS, REPORT, published_folder, scale_folder
from pcbf_records.runs import load_run, write_receipt
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
    _copy([*names, MANIFEST], source, target)
    for path in [path for folder in RECORD_FOLDERS for path in target.glob(f"{folder}/**/*")]:
        if path.is_file() and path.relative_to(target).as_posix() not in names:
            path.unlink()
    forget_snapshots(target)  # of when it was not finished
    publish_agents(source, target)
    return target


def _copy(names: Iterable[str], source: Path, target: Path) -> None:
    for name in names:
        with atomic_write(target / name, "wb") as copy:
            copy.write((source / name).read_bytes())


def publish_finished(root: Path, scale: str) -> list[str]:
    """Names of the files that were copied to results/published/<scale> though the scale is not finished.

    These are the records of every job that is done, of the control suite both trained and evaluated; and, as long as a
    task lacks some, the last snapshots of its cloning, which the others propose by.
    """
    source, target = root / scale_folder(scale), root / published_folder(scale)
    names = [name for name in lone_records(root, scale) if (source / name).is_file()]
    forget_snapshots(target)
    for jobs in jobs_by_task(root, scale).values():
        done = [job for job in jobs if all(receipt.is_file() for receipt in job.files(source).receipts)]
        made = [name for job in done for name in (*job.records, job.files().cost.as_posix())]
        if len(done) < len(jobs):
            made += [name for job in done if job.method == CLONER for name in last_snapshots(source, job)]
        names += [name for name in made if (source / name).is_file()]
    _copy(names, source, target)
    return names


def forget_snapshots(folder: Path) -> None:
    """Remove the proposals that unfinished jobs of a scale would have needed."""
    for found in [*folder.glob(f"**/{layout.SNAPSHOTS}")]:
        shutil.rmtree(found)


def last_snapshots(results: Path, job: TrainJob) -> list[str]:
    """Names of the snapshots that the seeds of a job end with."""
    steps = {seed: load_run(job.files(results).record(seed)).steps for seed in job.seeds}
    return [job.files().snapshot(seed, step).as_posix() for seed, step in steps.items()]


def restore(root: Path, scale: str) -> list[str]:
    """Names of the published files that results/<scale> lacked and has now; none is replaced.

    Jobs whose records they are get their receipts, so that nothing of them runs again: those of cloning first, since
    Snakemake would train again what is older than its proposals.
    """
    source, target = root / published_folder(scale), root / scale_folder(scale)
    jobs = [job for jobs in jobs_by_task(root, scale).values() for job in jobs]
    snapshots = [path.relative_to(source).as_posix() for path in sorted(source.glob(f"**/{layout.SNAPSHOTS}/**/*.*"))]
    made = [name for job in jobs for name in (*job.records, job.files().cost.as_posix())]
    wanted = [*lone_records(root, scale), *made, *snapshots]
    names = [name for name in wanted if (source / name).is_file() and not (target / name).exists()]
    _copy(names, source, target)
    for job in sorted(jobs, key=lambda job: job.method != CLONER):
        if {*job.records} <= {*names}:
            _write_receipts(job.files(target))
    return names


def _write_receipts(files: layout.JobFiles) -> None:
    """What training and evaluation would have written, had they made the records of these files."""
    runs = [load_run(files.record(seed)) for seed in files.seeds]
    write_receipt(files.receipt, files, {files.record(run.seed): run.said for run in runs}, is_restored=True)
    judged = {files.evaluations(run.seed): {"config_hash": run.config_hash} for run in runs}
    write_receipt(files.evaluation_receipt, files, judged, is_restored=True)


def lone_records(root: Path, scale: str) -> list[str]:
    """Names of the records of a scale that are a job's only output: toys, exact control and calibration."""
    settings = load_scale(root / f"config/scales/{scale}.yaml")
    return [
        *(layout.toy_run(*pair) for pair in toy_pairs(settings)),
        *(layout.exact_run(*pair) for pair in exact_pairs(settings)),
        *(layout.calibration_run(*pair) for pair in calibration_pairs(settings)),
    ]


def jobs_by_task(root: Path, scale: str) -> dict[tuple[str, bool], list[TrainJob]]:
    """The training jobs of a scale by task, those of the search for settings apart: who shares proposals."""
    jobs: dict[tuple[str, bool], list[TrainJob]] = {}
    for job in all_jobs(load_scale(root / f"config/scales/{scale}.yaml"), load_sheets(root)):
        jobs.setdefault((job.task, layout.is_tuning(job.change)), []).append(job)
    return jobs


def check_scale(scale: str) -> None:
    """Raise `PublishError` unless there is such a scale."""
    if scale not in SCALES:
        raise PublishError(f"scale = {scale}: must be one of {', '.join(SCALES)}{suggestion(scale, SCALES)}")


def check_publishable(root: Path, scale: str) -> None:
    """Raise `PublishError` unless results/<scale> is finished, unchanged since, and made with the scale's settings."""
    check_scale(scale)
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
        description="Promote a finished scale to results/published. A scale that takes days can be carried on "
        "elsewhere: --finished publishes the records of what is done of it, --restore brings them back.",
        examples=["pcbf-publish laptop", "pcbf-publish desk --finished", "pcbf-publish desk --restore"],
    )
    parser.add_argument(
        "scale", nargs="?", default=DEFAULT_SCALE, help=f"one of {', '.join(SCALES)}; default %(default)s"
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--finished", action="store_true", help="publish the records of the jobs that are done, no manifest"
    )
    part.add_argument(
        "--restore", action="store_true", help="copy published records that results/<scale> lacks there, to resume"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="top folder of the repository; default: this folder")
    options = parser.parse_args(arguments)
    try:
        check_scale(options.scale)
        if options.finished or options.restore:
            names = (publish_finished if options.finished else restore)(options.root, options.scale)
            told = published_folder if options.finished else scale_folder
            print(f"copied {len(names)} records to {told(options.scale)}")
            return 0
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
