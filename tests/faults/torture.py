"""A small campaign under fire: `make torture`, or `python tests/faults/torture.py --seed 0 --out faults.csv`.

The control suite of the smoke scale, shortened, runs in a copy of the repository with real data and real simulators,
once undisturbed, and then while a seeded adversary does to it what happens on clusters. A campaign that comes to its
end in spite of it must have the records, tables and figures of the undisturbed one, byte for byte; then it begins anew,
until every fault was tried. Where somebody must step in, the fault must have been named, and what is done is what was
told. A full disk and a read-only folder need a file system of their own, which root can mount; without it they are
left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pcbf_experiments.campaign.plan import data_folder, load_plan
from pcbf_experiments.campaign.status import SILENCE
from pcbf_records import layout

REPOSITORY = Path(__file__).parents[2]
NEEDED = ("Snakefile", "rules", "config", "profiles", "packages", "data/paper")
RESULTS = Path(layout.scale_folder("smoke"))
CONTROL = {
    "methods": ["iql"],
    "run": {"steps": 600, "eval_every": 300, "log_every": 5},
    "ablations": {"control_weights": [], "tasks": []},
}
TABLE, FIGURE = (RESULTS / layout.table("aggregated", "csv"), RESULTS / layout.figure("performance_profiles", "svg"))
KILLS = {"kill a job": 8, "kill the scheduler": 6, "kill both": 6}
DAMAGED = ("checkpoint", "snapshot", "run record", "evaluation record", "dataset")
DAMAGES = ("cut short", "one byte changed")
AS_ROOT = ("full disk", "read-only folder")
OTHERS = ("two schedulers", "clock set back", "a job hangs")
COLUMNS = ("seed", "number", "fault", "target", "outcome", "told")
DISK = "size=64m"
PATIENCE = 1200.0


def faults_of(seed: int, count: int | None = None) -> list[str]:
    """The faults that a seed stands for, in their order; the first `count` of them."""
    named = [name for name, number in KILLS.items() for _ in range(number)]
    named += [f"{target} {damage}" for target in DAMAGED for damage in DAMAGES]
    named += [*OTHERS, *AS_ROOT]
    random.Random(seed).shuffle(named)
    return named[:count]


@dataclass
class Campaign:
    """A copy of the repository in which Snakemake runs the smoke scale's control suite."""

    folder: Path
    scheduler: subprocess.Popen[bytes] | None = None
    has_own_disk: bool = False

    @property
    def results(self) -> Path:
        return self.folder / RESULTS

    def prepare(self) -> None:
        for name in NEEDED:
            source, target = REPOSITORY / name, self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, target)
        (self.folder / "results").mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(self.folder / "results")]
        self.has_own_disk = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0

    def can_suffer(self, fault: str) -> bool:
        return self.has_own_disk or fault not in AS_ROOT

    def remove(self) -> None:
        self.end()
        if os.path.ismount(self.folder / "results"):
            subprocess.run(["umount", self.folder / "results"], check=True)

    def start(self) -> subprocess.Popen[bytes]:
        """A scheduler; what it says goes to the end of the log."""
        options = ["--cores", "2", "--config", "scale=smoke", f"control={json.dumps(CONTROL)}"]
        command = [sys.executable, "-m", "snakemake", *options, "--", "runs", str(TABLE), str(FIGURE)]
        sources = os.pathsep.join(str(path) for path in sorted(self.folder.glob("packages/*/src")))
        # a commit made meanwhile must not show in the records
        own = {"PYTHONPATH": sources, "JAX_PLATFORMS": "cpu", "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        environment = {**os.environ, **own}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)

    def run(self) -> int:
        """The exit code of a scheduler that nobody disturbs."""
        self.scheduler = self.start()
        return self.scheduler.wait(PATIENCE)

    def processes(self) -> list[int]:
        """Everybody who works in the folder."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _works_in(pid, self.folder)]

    def workers(self) -> list[int]:
        """The trainers and evaluators among them."""
        return sorted(pid for pid in self.processes() if _command(pid) in ("pcbf-train", "pcbf-evaluate"))

    def end(self) -> None:
        """Kill everybody who works in the folder."""
        while found := self.processes():
            for pid in found:
                _send(pid, signal.SIGKILL)
            if self.scheduler is not None and self.scheduler.poll() is None:
                self.scheduler.wait(PATIENCE)
            time.sleep(0.05)

    def said(self, since: int = 0) -> str:
        """What the campaign says: its scheduler, from this place of its log on, and its status."""
        command = [sys.executable, "-m", "pcbf_experiments.campaign.status", str(RESULTS)]
        status = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False).stdout
        return (self.folder / "log").read_bytes()[since:].decode(errors="replace") + status

    def outcome(self) -> dict[str, bytes]:
        """What must not depend on faults: records, receipts, the collected table, the paper's table and figure."""
        names = ("runs", "evaluations", "metrics", "receipts", "control", "tables", "figures")
        files = [path for name in names for path in sorted((self.results / name).rglob("*")) if path.is_file()]
        # what was put aside was not overwritten; the table of cost tells the time that this very run took
        whole = [path for path in files if path.suffix != ".old" and path.stem != "cost"]
        return {path.relative_to(self.results).as_posix(): path.read_bytes() for path in whole}

    def begin_anew(self) -> None:
        """Forget all results; data and compiled programs stay."""
        for path in (self.folder / "results").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.scheduler = None


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:  # it has ended
        return False


def _command(pid: int) -> str:
    """The command of ours that a process runs, by its script; empty for any other."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return os.path.basename(words[1].decode(errors="replace")) if len(words) > 1 else ""


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@dataclass(frozen=True)
class Damaged:
    """A damaged file, until somebody has named it or a campaign has come to its end without it."""

    path: Path
    target: str
    content: bytes
    row: dict[str, str | int]
    since: int  # what the log held by then

    @property
    def is_there(self) -> bool:
        return self.path.is_file() and self.path.read_bytes() == self.content


@dataclass
class Adversary:
    """Does what a seed stands for to a campaign, and keeps the books."""

    campaign: Campaign
    calm: dict[str, bytes]
    seed: int
    left: list[str]
    job_seconds: float
    out: Path
    rows: list[dict[str, str | int]] = field(default_factory=list)
    pending: list[dict[str, str | int]] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    failures: int = 0  # in a row, with no fault in between

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed + 1)

    def note(self, fault: str, target: str = "", told: str = "") -> None:
        """A fault that was done; its outcome shows when the campaign comes to its end."""
        row: dict[str, str | int] = {"seed": self.seed, "number": len(self.rows) + len(self.pending) + 1}
        row |= {"fault": fault, "target": target, "outcome": "named" if told else "survived", "told": told}
        self.pending.append(row)
        self.failures = 0
        print(f"{row['number']}: {fault} {target} {told}", flush=True)

    def work(self) -> None:
        """Do all faults, each in a campaign that is under way, and let the last campaign come to its end."""
        while self.left:
            scheduler = self.campaign.scheduler
            code = None if scheduler is None else scheduler.poll()
            if code is not None and code >= 0:  # it was not killed
                self.settle(code)
            if scheduler is None or code is not None:
                self.campaign.scheduler = self.campaign.start()
            if self.wait_for_worker():
                time.sleep(self.rng.random() * self.job_seconds)
                self.do(self.left[0])
        if self.campaign.scheduler is not None and self.campaign.scheduler.poll() is None:
            self.settle(self.campaign.scheduler.wait(PATIENCE))
        while self.pending:
            self.settle(self.campaign.run())

    def wait_for_worker(self) -> bool:
        """Whether a trainer or evaluator is at work; False once the scheduler has ended."""
        scheduler = self.campaign.scheduler
        assert scheduler is not None
        deadline = time.monotonic() + PATIENCE
        while scheduler.poll() is None and time.monotonic() < deadline:
            if self.campaign.workers():
                return True
            time.sleep(0.05)
        return False

    def settle(self, code: int | None) -> None:
        """A scheduler has ended by itself: do what it tells about damaged files, or compare a finished campaign."""
        if code is None or code < 0:
            return
        if code != 0:
            self.failures += 1
            if not self.mend() and self.failures > 2:
                raise SystemExit(f"the campaign does not go on; see {self.campaign.folder / 'log'}")
            return
        found = self.campaign.outcome()
        different = sorted(name for name in {*found, *self.calm} if found.get(name) != self.calm.get(name))
        self.damaged = [one for one in self.damaged if one.target == "dataset" and one.is_there]
        open_rows = [one.row for one in self.damaged]  # the next campaign will read it
        self.rows += [{**row, "outcome": "lost"} if different else row for row in self.pending if row not in open_rows]
        self.pending, self.failures = open_rows, 0
        print(f"a campaign came to its end: {', '.join(different) or 'equal to the undisturbed one'}", flush=True)
        write(self.out, self.rows)
        self.campaign.begin_anew()

    def mend(self) -> bool:
        """Whether a damaged file was named; what is told to do about it is done."""
        for one in list(self.damaged):
            told = self.told_of(one.path.name, one.since)
            if told and one.is_there:
                one.row.update(outcome="named", told=told)
                self.remedy(one.target, one.path)
                self.damaged.remove(one)
                print(f"{one.row['number']}: {told}", flush=True)
                return True
        return False

    # --- the faults ---

    def do(self, fault: str) -> None:
        """One fault; it stays in the list if there is nothing yet that it could be done to."""
        kills = {"kill a job": self.kill_job, "kill the scheduler": self.kill_scheduler, "kill both": self.kill_both}
        others = {
            "two schedulers": self.two_schedulers,
            "clock set back": self.set_clock_back,
            "a job hangs": self.hang,
            "full disk": self.fill_disk,
            "read-only folder": self.lock_folder,
        }
        is_done = {**kills, **others}.get(fault, lambda: self.damage(fault))()
        if is_done:
            self.left.remove(fault)
        else:
            self.left.append(self.left.pop(0))
            time.sleep(0.5)

    def kill_job(self) -> bool:
        workers = self.campaign.workers()
        if not workers:
            return False
        pid = self.rng.choice(workers)
        self.note("kill a job", _command(pid))
        _send(pid, signal.SIGKILL)
        return True

    def kill_scheduler(self) -> bool:
        assert self.campaign.scheduler is not None
        self.campaign.scheduler.kill()
        self.campaign.scheduler.wait()
        self.note("kill the scheduler", f"{len(self.campaign.workers())} jobs go on without it")
        return True

    def kill_both(self) -> bool:
        self.note("kill both", f"{len(self.campaign.workers())} jobs")
        self.campaign.end()
        return True

    def files(self, target: str) -> list[Path]:
        """The files of a kind that are there."""
        results = self.campaign.results
        plan = load_plan(self.campaign.folder, {"scale": "smoke"})
        data = self.campaign.folder / data_folder(plan.settings["smoke"])
        patterns: dict[str, Iterator[Path] | Sequence[Path]] = {
            "checkpoint": layout.checkpoint_files(results),
            "snapshot": results.glob("snapshots/*/*/seed*/step*.safetensors"),
            "run record": layout.run_files(results),
            "evaluation record": layout.evaluation_files(results),
            "dataset": data.glob("ogbench/*.npz"),
        }
        return sorted(patterns[target])

    def damage(self, fault: str) -> bool:
        """Damage a file while nobody works."""
        target = next(name for name in DAMAGED if fault.startswith(name))
        if not self.files(target):
            return False
        self.campaign.end()
        file = self.rng.choice(self.files(target))
        content = file.read_bytes()
        place = self.rng.randrange(len(content))
        changed = bytes([content[place] ^ 1 << self.rng.randrange(8)])
        bent = content[:place] + (b"" if fault.endswith("cut short") else changed + content[place + 1 :])
        file.write_bytes(bent)
        self.note(fault, file.relative_to(self.campaign.folder).as_posix())
        self.damaged.append(
            Damaged(file, target, bent, self.pending[-1], (self.campaign.folder / "log").stat().st_size)
        )
        return True

    def told_of(self, words: str, since: int = 0) -> str:
        """The last sentence of the campaign about an error with these words in it; empty if there is none."""
        lines = [line.strip() for line in self.campaign.said(since).splitlines() if words in line and "rror" in line]
        return lines[-1][:200] if lines else ""

    def remedy(self, target: str, file: Path) -> None:
        """What the campaign tells to do about a damaged file: remove what cannot be used, and run the same command."""
        if target == "dataset":
            shutil.rmtree(file.parents[1])
            return
        task, method, seed = file.parts[-4], file.parts[-3], int(file.parts[-2].removeprefix("seed"))
        file.unlink(missing_ok=True)
        for checkpoint in layout.checkpoint_files(self.campaign.results):
            if (task, method) == layout.group_place(checkpoint)[:2]:
                checkpoint.unlink()
        layout.JobFiles.of_seeds(self.campaign.results, task, method, [seed]).record(seed).unlink(missing_ok=True)

    def two_schedulers(self) -> bool:
        """A second scheduler is refused while the first one goes on."""
        assert self.campaign.scheduler is not None
        second = self.campaign.start()
        code = second.wait(PATIENCE)
        if code == 0 or self.campaign.scheduler.poll() is not None:
            return False  # the first had just ended
        self.note("two schedulers", told=self.told_of("cannot be locked"))
        return True

    def set_clock_back(self) -> bool:
        """Every file is from tomorrow."""
        self.campaign.end()
        files = [path for path in self.campaign.results.rglob("*") if path.is_file()]
        if not files:
            return False
        for path in files:
            os.utime(path, (time.time() + 86400,) * 2)
        self.note("clock set back", f"by a day, {len(files)} files")
        return True

    def hang(self) -> bool:
        """A job says nothing any more; `pcbf-status` names it, and who is told to ends it."""
        workers = self.campaign.workers()
        for file in layout.progress_files(self.campaign.results):
            try:
                said = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if said["pid"] in workers:
                command = _command(said["pid"])
                _send(said["pid"], signal.SIGSTOP)
                file.write_text(json.dumps({**said, "updated": said["updated"] - SILENCE - 60}), encoding="utf-8")
                told = [line for line in self.campaign.said().splitlines() if "has said nothing for" in line]
                _send(said["pid"], signal.SIGKILL)
                if told:
                    self.note("a job hangs", command, told[-1].strip()[:200])
                return bool(told)
        return False

    def fill_disk(self) -> bool:
        """Nothing more can be written to the results; then there is room again."""
        ballast = self.campaign.folder / "results/ballast"
        with ballast.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass
        assert self.campaign.scheduler is not None
        self.campaign.scheduler.wait(PATIENCE)
        told = self.told_of("No space left") if self.campaign.run() else ""
        ballast.unlink()
        self.note("full disk", "results", told)
        return True

    def lock_folder(self) -> bool:
        """The results folder can only be read; then it can be written again."""
        self.campaign.end()
        folder = self.campaign.folder / "results"
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        told = self.told_of("Read-only file system") if self.campaign.run() else ""
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        self.note("read-only folder", "results", told)
        return True


def write(path: Path, rows: Sequence[dict[str, str | int]]) -> None:
    """The books so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, help="only the first so many (default: all)")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results/torture/faults.csv")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "results/torture", help="folder to work in")
    options = parser.parse_args()
    shutil.rmtree(options.work / "campaign", ignore_errors=True)
    campaign = Campaign((options.work / "campaign").resolve())
    campaign.prepare()
    try:
        started = time.monotonic()
        if campaign.run():
            print(f"the undisturbed campaign fails; see {campaign.folder / 'log'}", file=sys.stderr)
            return 1
        calm, seconds = campaign.outcome(), time.monotonic() - started
        print(f"undisturbed: {len(calm)} files in {seconds:.0f} s", flush=True)
        campaign.begin_anew()
        possible = [name for name in faults_of(options.seed, options.faults) if campaign.can_suffer(name)]
        adversary = Adversary(campaign, calm, options.seed, possible, seconds / 12, options.out)
        adversary.work()
    finally:
        campaign.remove()
    counts = {name: sum(row["outcome"] == name for row in adversary.rows) for name in ("survived", "named", "lost")}
    print(f"{len(adversary.rows)} faults: {', '.join(f'{count} {name}' for name, count in counts.items())}")
    return 1 if counts["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
