"""The profile for PBS and LSF, with stand-ins for their commands: jobs are submitted, watched and cancelled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROFILE = REPOSITORY / "profiles/cluster"

# A queue that starts every job at once: the number is that of the process, its exit code lies beside its note.
QSUB = """#!/bin/sh
for script; do :; done
echo "$@" >> "$QUEUE/asked"
( sh "$script" > "$QUEUE/log" 2>&1; echo $? > "$QUEUE/$$.code" ) > /dev/null 2>&1 &
echo $$
"""
QSTAT = """#!/bin/sh
for number; do :; done
if [ -f "$QUEUE/$number.code" ]; then echo "    job_state = F"; echo "    Exit_status = $(cat "$QUEUE/$number.code")"
else echo "    job_state = R"; fi
"""
BSUB = """#!/bin/sh
echo "$@" >> "$QUEUE/asked"
echo "Job <17> is submitted to queue <normal>."
"""
WORKFLOW = """
rule train:
    output: "made.txt"
    threads: 2
    resources: gpu=1, mem_mb=123, runtime=90
    shell: "touch {output}"
"""


@pytest.fixture
def queue(tmp_path):
    """Makes stand-ins for the commands of a queue, and gives the environment in which they are found."""

    def make(**commands: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in commands.items():
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "QUEUE": str(tmp_path)}

    return make


def called(script: str, *words: str, environment: dict[str, str], folder: Path) -> str:
    command = [str(PROFILE / script), *words]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow
def test_a_job_is_submitted_with_what_its_rule_asks_for_and_watched_to_its_end(queue, tmp_path):
    (tmp_path / "Snakefile").write_text(WORKFLOW, encoding="utf-8")
    (tmp_path / "profiles").symlink_to(REPOSITORY / "profiles")
    options = ["--profile", "profiles/cluster", "--seconds-between-status-checks", "1", "--latency-wait", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *options, "made.txt"],
        cwd=tmp_path,
        env=queue(qsub=QSUB, qstat=QSTAT),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made.txt").exists()
    (asked,) = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert "-N train -l select=1:ncpus=2:mem=123mb:ngpus=1 -l walltime=01:30:00" in asked


def test_lsf_is_asked_in_its_own_words(queue, tmp_path):
    environment = queue(bsub=BSUB, bkill='#!/bin/sh\necho "$@" > "$QUEUE/killed"\n')
    where = {"environment": environment, "folder": tmp_path}
    assert called("submit.sh", "train", "2", "123", "90", "1", "job.sh", **where) == "17"
    asked = (tmp_path / "asked").read_text(encoding="utf-8")
    assert "-J train -n 2 -M 123MB" in asked and "-W 90 -gpu num=1" in asked and "sh job.sh" in asked
    called("cancel.sh", "17", "18", **where)
    assert (tmp_path / "killed").read_text(encoding="utf-8") == "17 18\n"


@pytest.mark.parametrize(
    ("told", "status"),
    [("DONE", "success"), ("EXIT", "failed"), ("RUN", "running"), ("PEND", "running"), ("", "failed")],
)
def test_states_of_lsf(queue, tmp_path, told, status):
    environment = queue(bjobs=f"#!/bin/sh\necho {told}\n")
    assert called("status.sh", "17", environment=environment, folder=tmp_path) == status


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("job_state = F\n    Exit_status = 0", "success"),
        ("job_state = F\n    Exit_status = 10", "failed"),
        ("job_state = Q", "running"),
        ("", "failed"),
    ],
)
def test_states_of_pbs(queue, tmp_path, lines, status):
    environment = queue(qstat=f"#!/bin/sh\ncat <<X\n    {lines}\nX\n")
    assert called("status.sh", "17", environment=environment, folder=tmp_path) == status


def test_a_machine_without_a_queue_is_told(queue, tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        called("submit.sh", "train", "1", "1", "1", "0", "job.sh", environment=queue(), folder=tmp_path)
    assert "neither qsub nor bsub" in caught.value.stderr
