"""A Slurm cluster of one node with pretended GPUs, alive inside a `with` block.

Its configuration has to be /etc/slurm/slurm.conf: Snakemake's Slurm plugin drops all SLURM_* variables, SLURM_CONF too,
before it starts a job step. So it needs root, and it refuses a machine on which Slurm is set up already.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue", "scontrol", "setpriv")
CONFIGURATION = Path("/etc/slurm/slurm.conf")
MARK = "# written by the tests of pcbf, which remove it again"
PATIENCE = 60.0  # seconds that a daemon may take to answer or to end


class ClusterError(RuntimeError):
    """Slurm did not start; the message holds what its daemons wrote."""


def obstacle(configuration: Path = CONFIGURATION) -> str | None:
    """Why a cluster cannot be started here, as a sentence; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}; on Debian: apt-get install slurmctld slurmd slurm-client munge"
    if os.geteuid() != 0:
        return "starting Slurm's daemons needs root"
    if configuration.exists() and not configuration.read_text(encoding="utf-8").startswith(MARK):
        return f"{configuration} is there already, and not from these tests; they leave a real cluster alone"
    return None


@contextmanager
def one_node_cluster(folder: Path, *, cpus: int, gpus: int) -> Iterator[None]:
    """A cluster that keeps its state and logs in `folder`; its daemons end with the block, or with this process."""
    if reason := obstacle():
        raise ClusterError(reason)
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.enter_context(alone(CONFIGURATION.parent))
        gres = CONFIGURATION.with_name("gres.conf")
        for file, text in ((CONFIGURATION, configuration(folder, cpus, gpus)), (gres, pretended_gpus(folder, gpus))):
            file.write_text(f"{MARK}\n{text}", encoding="utf-8")
            stack.callback(file.unlink, missing_ok=True)
        for daemon, *command in daemons(folder):
            stack.enter_context(running(command, folder / f"{daemon}.log"))
            wait_until_ready(daemon, folder)
        stack.callback(end_all_jobs)
        yield


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Waits for others that are in such a block with this folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def configuration(folder: Path, cpus: int, gpus: int) -> str:
    """slurm.conf of one node that claims `cpus` cores, `gpus` GPUs and memory for every job."""
    host = socket.gethostname().partition(".")[0]
    controller_port, node_port = free_ports(2)
    settings = {
        "ClusterName": "pcbf",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": "root",
        "AuthInfo": f"socket={folder}/munge.sock,cred_expire=10",  # a requeued job waits as long; 120 s by default
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd.pid",
        "SlurmctldPort": controller_port,
        "SlurmdPort": node_port,
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SchedulerType": "sched/builtin",
        "SchedulerParameters": "sched_interval=2",  # a requeued job is looked at in seconds, not in a minute
        "GresTypes": "gpu",
        "MinJobAge": 3600,  # without accounting, squeue has to remember finished jobs
        "KillWait": 10,  # between the request to stop and the end of the patience
        "SlurmdParameters": "config_overrides",  # believe the next line rather than the hardware
    }
    node = f"NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000000 Gres=gpu:{gpus} State=UNKNOWN"
    partition = f"PartitionName=only Nodes={host} Default=YES MaxTime=INFINITE State=UP"
    return "\n".join([*(f"{name}={value}" for name, value in settings.items()), node, partition, ""])


def pretended_gpus(folder: Path, gpus: int) -> str:
    """gres.conf of GPUs that are names of /dev/null; Slurm wants a character device, and nobody opens it."""
    for index in range(gpus):
        (folder / f"gpu{index}").symlink_to("/dev/null")
    return f"Name=gpu File={folder}/gpu[0-{gpus - 1}]\n"


def daemons(folder: Path) -> Iterator[Sequence[str]]:
    """Name and command of each daemon, in the order of starting; all stay in the foreground."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    yield (
        "munged",
        "munged",
        "--foreground",
        "--force",  # the folder may be one that others can write to
        f"--key-file={key}",
        f"--socket={folder}/munge.sock",
        f"--pid-file={folder}/munged.pid",
        f"--seed-file={folder}/munge.seed",
        f"--log-file={folder}/munged.log",
    )
    yield "slurmctld", "slurmctld", "-D", "-c"
    yield "slurmd", "slurmd", "-D", "-c"


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """`command` in the background; it is asked to end with the block, and when this process dies."""
    with log.open("ab") as file:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(daemon: str, folder: Path) -> None:
    """Returns when the daemon answers."""
    questions = {
        "munged": ["munge", "--no-input", f"--socket={folder}/munge.sock"],
        "slurmctld": ["scontrol", "ping"],
        "slurmd": ["sinfo", "--noheader", "--states=idle", "--format=%T"],
    }
    answers = {"munged": "MUNGE", "slurmctld": "UP", "slurmd": "idle"}
    if not comes_true(lambda: answers[daemon] in slurm(*questions[daemon])):
        log = (folder / f"{daemon}.log").read_text(encoding="utf-8", errors="replace")
        raise ClusterError(f"{daemon} does not answer after {PATIENCE:.0f} s; its log ends with\n{log[-2000:]}")


def end_all_jobs() -> None:
    """Returns when no job is left, so that no step outlives the daemons."""
    slurm("scancel", "--user", "root")
    comes_true(lambda: not slurm("squeue", "--noheader"))


def comes_true(condition: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Whether `condition` holds at some moment of the next `patience` seconds; returns as soon as it does."""
    deadline = time.monotonic() + patience
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def slurm(*command: str) -> str:
    """What a command of Slurm prints; its errors are empty answers."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
