"""A Slurm cluster of one node with pretended GPUs, alive inside a `with` block.

Its configuration has to be /etc/slurm/slurm.conf: Snakemake's Slurm plugin drops all SLURM_* variables, SLURM_CONF too,
before it starts a job step. So it needs root, and it refuses a machine on which Slurm is set up already.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..waiting import text_of, wait_for

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue", "scontrol", "setpriv")
CONFIGURATION = Path("/etc/slurm/slurm.conf")
MARK = "# written by the tests of pcbf, which remove it again"
PORTS = range(20_000, 32_000)  # below those that Linux gives to whoever asks for any


class ClusterError(RuntimeError):
    """Slurm did not start; the message holds what its daemons wrote."""


def obstacle(configuration: Path = CONFIGURATION) -> str | None:
    """Why a cluster cannot be started here, as a sentence; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}; on Debian: apt-get install slurmctld slurmd slurm-client munge"
    if os.geteuid() != 0:
        return "starting Slurm's daemons needs root"
    try:
        is_ours = text_of(configuration).startswith(MARK)
    except FileNotFoundError:  # or removed right now by other tests
        return None
    return None if is_ours else f"{configuration} is there already, and not from these tests, which leave it alone"


@contextmanager
def one_node_cluster(folder: Path, *, cpus: int, gpus: int) -> Iterator[None]:
    """A cluster that keeps its state and logs in `folder`; its daemons end with the block, or with this process."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.enter_context(alone(CONFIGURATION.parent))
        if reason := obstacle():
            raise ClusterError(reason)
        gres = CONFIGURATION.with_name("gres.conf")
        for file, text in ((CONFIGURATION, configuration(folder, cpus, gpus)), (gres, pretended_gpus(folder, gpus))):
            stack.callback(file.unlink, missing_ok=True)
            unfinished = file.with_name(f".{file.name}.tmp")
            unfinished.write_text(f"{MARK}\n{text}", encoding="utf-8")
            unfinished.replace(file)  # in one go: others may look for an obstacle meanwhile
        for daemon, *command in daemons(folder):
            process = stack.enter_context(running(command, folder / f"{daemon}.log"))
            wait_until_ready(daemon, folder, process)
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
        "AuthInfo": f"socket={folder}/munge.sock,cred_expire=15",  # a requeued job waits as long; 120 s by default
        "MessageTimeout": 60,  # daemons of a loaded machine answer late; 10 s by default
        "UnkillableStepTimeout": 300,  # at least five times as much
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
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`command` in the background; it is asked to end with the block, and when this process dies."""
    with log.open("ab") as file:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(daemon: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Returns when the daemon answers."""
    questions = {
        "munged": ["munge", "--no-input", f"--socket={folder}/munge.sock"],
        "slurmctld": ["scontrol", "ping"],
        "slurmd": ["sinfo", "--noheader", "--states=idle", "--format=%T"],
    }
    answers = {"munged": "MUNGE", "slurmctld": "UP", "slurmd": "idle"}
    try:
        wait_for(
            lambda: slurm(*questions[daemon]),
            lambda answer: answers[daemon] in answer,
            ended=lambda: process.poll() is not None,
            every=0.1,
        )
    except AssertionError as error:
        log = text_of(folder / f"{daemon}.log")
        raise ClusterError(f"{daemon} is not ready: {error}\nits log ends with\n{log[-2000:]}") from error


def end_all_jobs() -> None:
    """Returns when no job is left, so that no step outlives the daemons."""
    wait_for(lambda: slurm("scancel", "--user", "root"), lambda _: True, every=0.1)
    wait_for(lambda: slurm("squeue", "--noheader"), lambda jobs: not jobs, every=0.1)


def slurm(*command: str) -> str:
    """What a command of Slurm prints; its errors are those of a connection, which may come right."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConnectionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, nor will before the daemons do: nobody is given them by chance."""
    free: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise ClusterError(f"fewer than {count} ports of {PORTS.start} to {PORTS.stop - 1} are free")
