"""The control suite of the smoke scale on a Slurm cluster, one job requeued half-way, against the run without Slurm."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcbf_records import layout
from pcbf_records.runs import EvaluationRecord, RunRecord, load_evaluations, load_run

from ..pipeline.conftest import copy_pipeline
from ..waiting import text_of, wait_for
from .cluster import MARK, obstacle, one_node_cluster, slurm

RESULTS = Path(layout.scale_folder("smoke"))
TABLES = ("aggregated", "control_suite", "fullogbench_comparison")  # those of the scores; others show times
TARGETS = ["runs", *(f"{RESULTS}/{layout.table(label, 'csv')}" for label in TABLES)]

# Python runs this before everything else. The first run of PCBF on the cluster that has made a checkpoint half-way says
# so and waits for the signal by which Slurm ends it; the handler is that of pcbf-train. Snakemake asks after its jobs
# every two seconds; its plugin would wait ten seconds longer each time, for the sake of clusters that others use.
START = """
import os, sys
if "SLURM_JOB_ID" in os.environ and sys.orig_argv[1:] and os.path.basename(sys.orig_argv[1]) == "pcbf-train":
    import json, signal
    from pcbf_experiments.running import loop

    save = loop.save_checkpoint

    def save_and_wait(path, tree, *, step, **options):
        save(path, tree, step=step, **options)
        if path.parent.name == "pcbf" and step < options["config"]["run"]["steps"]:
            try:
                file = open(os.environ["HALF_WAY"], "x", encoding="utf-8")
            except FileExistsError:  # another one waits, or has waited
                return
            with file:
                json.dump({"job": os.environ["SLURM_JOB_ID"], "checkpoint": str(path.resolve())}, file)
            signal.pause()

    loop.save_checkpoint = save_and_wait
elif sys.orig_argv[1:3] == ["-m", "snakemake"]:
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 2, lambda self, seconds: None)
"""


def snakemake(folder: Path, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A run of the targets in `folder` that has just been started."""
    command = [sys.executable, "-m", "snakemake", *arguments, "--", *TARGETS]
    with log.open("wb") as file:
        return subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)


def requeue_one(half_way: Path, campaign: subprocess.Popen[bytes]) -> tuple[str, Path]:
    """Slurm job and log file of a training run that has been requeued half-way."""
    said = wait_for(lambda: json.loads(text_of(half_way)), ended=lambda: campaign.poll() is not None)
    subprocess.run(["scontrol", "requeue", said["job"]], check=True)
    checkpoint = Path(said["checkpoint"])
    files = layout.JobFiles(checkpoint.parents[3], *layout.group_place(checkpoint))
    assert files.checkpoint == checkpoint
    return said["job"], files.log("train")


def records(results: Path) -> dict[str, RunRecord | EvaluationRecord]:
    """All records by name, without the code version: one checkout is not the other."""
    folders = [results, *layout.ablation_folders(results)]
    runs = {file: load_run(file) for folder in folders for file in layout.run_files(folder)}
    judged = {file: load_evaluations(file) for folder in folders for file in layout.evaluation_files(folder)}
    return {
        str(file.relative_to(results)): dataclasses.replace(record, code={})
        for file, record in {**runs, **judged}.items()
    }


def tables(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "tables").iterdir() if file.stem in TABLES}


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.skipif(obstacle() is not None, reason=f"{obstacle()}")
def test_slurm_with_a_requeued_job_and_a_local_run_give_the_same_bytes(smoke, tmp_path, tmp_path_factory, monkeypatch):
    (tmp_path / "start").mkdir()
    (tmp_path / "start/sitecustomize.py").write_text(START, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"), prepend=os.pathsep)
    monkeypatch.setenv("HALF_WAY", str(tmp_path / "half-way.json"))
    local, cluster, said = smoke / RESULTS, copy_pipeline(tmp_path / "cluster"), tmp_path / "cluster.log"
    options = ["--profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "2"]
    config = ["--config", "scale=smoke", 'control={"gpus_per_job": 1}']
    with one_node_cluster(tmp_path_factory.mktemp("slurm") / "node", cpus=2, gpus=2):
        with snakemake(cluster, said, *options, *config) as campaign:
            try:
                job, log = requeue_one(tmp_path / "half-way.json", campaign)
                campaign.wait()
            finally:
                campaign.kill()
        jobs = wait_for(lambda: slurm("scontrol", "show", "job", job))
        states = wait_for(
            lambda: slurm("squeue", "--noheader", "--states=all", "--format=%T").split(),
            lambda found: found and not {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"} & set(found),
        )
    assert campaign.returncode == 0, text_of(said)
    assert "Restarts=1" in jobs
    assert set(states) == {"COMPLETED"}
    assert "resuming from step" in log.read_text(encoding="utf-8")
    for file in cluster.rglob("logs/train/*/*/*.log"):
        assert "Slurm assigned" in file.read_text(encoding="utf-8"), file
    for file in cluster.rglob("logs/evaluate/*/*/*.log"):
        assert "Slurm assigned" not in file.read_text(encoding="utf-8"), file

    assert records(cluster / RESULTS) == records(local)
    assert len(records(local)) > 0
    assert tables(cluster / RESULTS) == tables(local)
    assert {Path(name).stem for name in tables(local)} == set(TABLES)


def test_a_real_cluster_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    file = tmp_path / "slurm.conf"
    assert obstacle(file) is None
    file.write_text("ClusterName=real\n", encoding="utf-8")
    assert f"{file} is there already" in (obstacle(file) or "")
    file.write_text(f"{MARK}\nClusterName=pcbf\n", encoding="utf-8")
    assert obstacle(file) is None


def test_without_root_or_programs_the_reason_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert obstacle(tmp_path / "slurm.conf") == "starting Slurm's daemons needs root"
    monkeypatch.setattr("shutil.which", lambda name: None if name == "slurmd" else f"/usr/bin/{name}")
    assert "no slurmd; on Debian: apt-get install" in (obstacle(tmp_path / "slurm.conf") or "")
