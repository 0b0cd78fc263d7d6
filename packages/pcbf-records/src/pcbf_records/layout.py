"""Where every file of a results folder lies. Rules, programs, analysis and tests all ask here.

A results folder is `results/<scale>`, `results/published/<scale>`, or any other that `pcbf-train --out` was told.
Names are relative to it and use `/`. A run with one setting changed lies in a results folder of its own below it,
`ablations/<setting>=<value>`, which has the same form; a trial of the search for settings in
`ablations/tuning-<setting>=<value>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# --- toys and theory ------------------------------------------------------------------------------------------------

TOY_W1 = "toy/w1.csv"
TOY_LOSS_STD = "toy/loss_std.csv"
TOY_TUNING_W1 = "toy/tuning_w1.csv"
THEORY_CHECKS = "theory/checks.csv"
THEORY_POPULATION = "theory/population.csv"


def toy_run(process: str, method: str) -> str:
    """The record of one method on one reward process: every coefficient and seed."""
    return f"toy/runs/{process}/{method}.npz"


def toy_files(results: Path) -> list[Path]:
    """The toy records of a results folder, by process and method."""
    return sorted(results.glob(toy_run("*", "*")))


# --- exact control ----------------------------------------------------------------------------------------------------

EXACT_RESULTS = "exact/results.csv"
EXACT_OPTIMA = "exact/optima.csv"


def exact_run(mdp: str, method: str) -> str:
    """The record of one method on one small decision process: every seed."""
    return f"exact/runs/{mdp}/{method}.npz"


def exact_files(results: Path) -> list[Path]:
    """The records of exact control in a results folder, by process and method."""
    return sorted(results.glob(exact_run("*", "*")))


def is_exact_run(name: str) -> bool:
    """Whether a record is one method's in exact control."""
    return name.startswith("exact/runs/")


# --- calibration ------------------------------------------------------------------------------------------------------

CALIBRATION_RESULTS = "calibration/results.csv"


def calibration_run(dataset: str, method: str) -> str:
    """The record of one critic on one dataset: every seed."""
    return f"calibration/runs/{dataset}/{method}.npz"


def calibration_files(results: Path) -> list[Path]:
    """The records of calibration in a results folder, by dataset and method."""
    return sorted(results.glob(calibration_run("*", "*")))


def is_calibration_run(name: str) -> bool:
    """Whether a record is one critic's in calibration."""
    return name.startswith("calibration/runs/")


# --- the control suite ----------------------------------------------------------------------------------------------

CONTROL_CONFIGS = "control/configs.json"
CONTROL_EVALUATIONS = "control/evaluations.csv"
ABLATIONS = "ablations"
SNAPSHOTS = "snapshots"
TUNING = "tuning-"  # how a change is called that is a trial of the search for settings


@dataclass(frozen=True)
class JobFiles:
    """The files of one training job: a group of seeds of one method on one task, trained side by side.

    Attributes:
      root: the results folder; relative to another one for an ablation, or a pattern in rules.
      group: name of the seeds, `seeds0-1-2`.
    """

    root: Path
    task: str
    method: str
    group: str

    @classmethod
    def of_seeds(cls, root: Path | str, task: str, method: str, seeds: Sequence[int]) -> JobFiles:
        return cls(Path(root), task, method, group_name(seeds))

    @property
    def seeds(self) -> tuple[int, ...]:
        return group_seeds(self.group)

    def with_seeds(self, seeds: Sequence[int]) -> JobFiles:
        """The files of other seeds of the same method and task."""
        return replace(self, group=group_name(seeds))

    @property
    def name(self) -> str:
        """How logs and status call the job."""
        return f"train-{self.task}-{self.method}-{self.group}"

    @property
    def receipt(self) -> Path:
        """What `train` declares as its output: the run records of a finished group with their hashes."""
        return self._of_group("receipts", "json")

    @property
    def evaluation_receipt(self) -> Path:
        """What `evaluate` declares as its output: the evaluation records of a group with their hashes."""
        return self._of_group("receipts", "evaluated.json")

    @property
    def receipts(self) -> tuple[Path, Path]:
        return self.receipt, self.evaluation_receipt

    @property
    def checkpoint(self) -> Path:
        """The whole state at the last checkpoint, to resume from."""
        return self._of_group("checkpoints", "npz")

    @property
    def cost(self) -> Path:
        """Time and memory of training."""
        return self._of_group("cost", "json")

    @property
    def evaluation_cost(self) -> Path:
        """Time and memory of evaluation."""
        return self._of_group("cost", "evaluated.json")

    @property
    def progress(self) -> Path:
        """How far training is."""
        return self.root / "progress" / f"{self.name}.json"

    @property
    def evaluation_progress(self) -> Path:
        """How far evaluation is."""
        return self.root / "progress" / f"evaluate-{self.task}-{self.method}-{self.group}.json"

    @property
    def failure(self) -> Path:
        """Why the last attempt failed, if it did."""
        return self.root / "failures" / f"{self.name}.json"

    def record(self, seed: int) -> Path:
        """The run record of a seed, written once it is finished or has diverged."""
        return self._of_seed("runs", seed, "json")

    def evaluations(self, seed: int) -> Path:
        """The evaluation record of a seed: every episode after every evaluated step."""
        return self._of_seed("evaluations", seed, "json")

    def metrics(self, seed: int) -> Path:
        """Means of the training metrics over every `log_every` steps."""
        return self._of_seed("metrics", seed, "csv")

    def snapshot(self, seed: int, step: int) -> Path:
        """What acting and the return law need after `step` gradient steps."""
        return self.snapshots(seed) / f"step{step}.safetensors"

    def snapshots(self, seed: int) -> Path:
        return self.root / SNAPSHOTS / self.task / self.method / f"seed{seed}"

    def lock(self, seed: int, stage: str) -> Path:
        """Held while a process works on the stage (train or evaluate) of a seed, so that there is never a second."""
        return self._of_seed(f"locks/{stage}", seed, "lock")

    def log(self, stage: str) -> Path:
        return self._of_group(f"logs/{stage}", "log")

    def benchmark(self, stage: str) -> Path:
        return self._of_group(f"benchmarks/{stage}", "jsonl")

    def _of_group(self, folder: str, ending: str) -> Path:
        return self.root / folder / self.task / self.method / f"{self.group}.{ending}"

    def _of_seed(self, folder: str, seed: int, ending: str) -> Path:
        return self.root / folder / self.task / self.method / f"seed{seed}.{ending}"


def group_name(seeds: Sequence[int]) -> str:
    return "seeds" + "-".join(map(str, seeds))


def group_seeds(group: str) -> tuple[int, ...]:
    """The seeds of a group's name."""
    return tuple(map(int, group.removeprefix("seeds").split("-")))


def ablation(change: str) -> str:
    """The results folder of the runs with one setting changed, `<setting>=<value>`, inside that of the suite."""
    return f"{ABLATIONS}/{change}"


def tuning(trial: str) -> str:
    """The change that a trial of the search for settings, `<setting>=<value>`, is called by."""
    return f"{TUNING}{trial}"


def is_tuning(change: str) -> bool:
    """Whether a change is a trial of the search for settings, which is no ablation and never reported as a score."""
    return change.startswith(TUNING)


def changed(change: str) -> tuple[str, str]:
    """The setting that a change changes, a trial or an ablation, and its value as text."""
    setting, _, value = change.removeprefix(TUNING).partition("=")
    return setting, value


def ablation_folders(results: Path) -> list[Path]:
    """The results folders of all changes that a results folder has."""
    return sorted(path for path in (results / ABLATIONS).glob("*=*") if path.is_dir())


def change_of(name: str) -> str:
    """The change that the file called `name` in a results folder belongs to; empty for the suite's own."""
    parts = name.split("/")
    return parts[1] if parts[0] == ABLATIONS else ""


def run_files(results: Path) -> list[Path]:
    """The run records of a results folder without its ablations, by task, method and seed."""
    return _of_seeds(results, "runs")


def evaluation_files(results: Path) -> list[Path]:
    """The evaluation records of a results folder without its ablations, by task, method and seed."""
    return _of_seeds(results, "evaluations")


def snapshot_steps(files: JobFiles, seed: int) -> list[int]:
    """The steps of which a seed has snapshots, ascending."""
    found = files.snapshots(seed).glob("step*.safetensors")
    return sorted(int(path.stem.removeprefix("step")) for path in found)


def place(path: Path) -> tuple[str, str, int]:
    """Task, method and seed of a file that belongs to one seed."""
    return path.parts[-3], path.parts[-2], int(path.stem.removeprefix("seed"))


def group_place(path: Path) -> tuple[str, str, str]:
    """Task, method and group of a file that belongs to a group of seeds."""
    return path.parts[-3], path.parts[-2], path.name.partition(".")[0]


def cost_files(results: Path) -> list[Path]:
    """The costs of training in a results folder without its ablations."""
    return sorted(path for path in results.glob("cost/*/*/seeds*.json") if not path.name.endswith(".evaluated.json"))


def receipt_files(results: Path) -> list[Path]:
    """Receipts of training and of evaluation in a results folder without its ablations."""
    return sorted(results.glob("receipts/*/*/seeds*.json"))


def found_groups(results: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    """Task, method and seeds of every group that has left something in a results folder without its ablations."""
    of_groups = [
        path for folder in ("checkpoints", "cost", "receipts") for path in results.glob(f"{folder}/*/*/seeds*")
    ]
    groups = {(task, method, group_seeds(group)) for task, method, group in map(group_place, of_groups)}
    known = {(task, method, seed) for task, method, seeds in groups for seed in seeds}
    of_seeds = [*results.glob("locks/train/*/*/seed*.lock"), *run_files(results)]
    alone = {(task, method, seed) for task, method, seed in map(place, of_seeds)} - known
    return sorted([*groups, *((task, method, (seed,)) for task, method, seed in alone)])


def progress_files(results: Path) -> list[Path]:
    return sorted([*results.glob("progress/*.json"), *results.glob(f"{ABLATIONS}/*/progress/*.json")])


def checkpoint_files(results: Path) -> list[Path]:
    return sorted(results.glob("**/checkpoints/*/*/seeds*.npz"))


def benchmark_files(results: Path, stage: str) -> list[Path]:
    """What Snakemake measured of the jobs of a stage: toy, exact, theory, train or evaluate."""
    return sorted([*results.glob(f"benchmarks/{stage}.jsonl"), *results.glob(f"benchmarks/{stage}/**/*.jsonl")])


def _of_seeds(results: Path, folder: str) -> list[Path]:
    found = results.glob(f"{folder}/*/*/seed*.json")
    return sorted(found, key=lambda path: (*path.parts[-3:-1], len(path.stem), path.stem))


# --- what a folder is made of ---------------------------------------------------------------------------------------

MANIFEST = "manifest.json"
CLAIMS = ("claims.csv", "claims.md")
REPORT = "report/index.html"
RENDERS = "renders"
RENDERED = f"{RENDERS}/rendered.txt"  # the list of pictures, written last
SNAKEMAKE_LOG = "logs/snakemake.log"
SNAKEMAKE_EVENTS = "logs/snakemake.jsonl"
RECORD_FOLDERS = (
    "toy",
    "theory",
    "exact",
    "calibration",
    "runs",
    "evaluations",
    "control",
    "ablations",
    "cost",
    "renders",
)

AGENTS = "agents"


def agent_file(name: str, ending: str) -> str:
    """A published agent: its snapshot (safetensors), its card (json), an episode of it (gif)."""
    return f"{AGENTS}/{name}.{ending}"


def agent_cards(results: Path) -> list[Path]:
    """The cards of the agents of a results folder."""
    return sorted(results.glob(agent_file("*", "json")))


def agent_files(results: Path) -> list[Path]:
    """All files of the agents of a results folder, their list included."""
    return sorted(path for path in (results / AGENTS).glob("*.*") if not path.name.startswith("."))


def table(label: str, ending: str) -> str:
    return f"tables/{label}.{ending}"


def figure(label: str, ending: str) -> str:
    return f"figures/{label}.{ending}"


def progress_of_toy(process: str, method: str) -> str:
    return f"progress/toy-{process}-{method}.json"


def progress_of_exact(mdp: str, method: str) -> str:
    return f"progress/exact-{mdp}-{method}.json"


def progress_of_calibration(dataset: str, method: str) -> str:
    return f"progress/calibrate-{dataset}-{method}.json"


def picture(task: str) -> str:
    """What a task looks like."""
    return f"{RENDERS}/{task}.png"


def spaces(task: str) -> str:
    """What a task's simulator says of its observations and actions."""
    return f"{RENDERS}/{task}.json"


def is_run(name: str) -> bool:
    """Whether a record is that of a training run."""
    return _folder(name) == "runs"


def is_evaluation(name: str) -> bool:
    return _folder(name) == "evaluations"


def is_cost(name: str) -> bool:
    return _folder(name) == "cost"


def is_picture(name: str) -> bool:
    return _folder(name) == RENDERS


def _folder(name: str) -> str:
    """The folder that says what a record is, whether it belongs to the suite or to an ablation."""
    parts = name.split("/")
    return parts[2] if parts[0] == ABLATIONS else parts[0]


def found_records(results: Path) -> Iterator[str]:
    """Names of records whose number depends on the machine and on what was asked for: costs, pictures, ablations."""
    patterns = ["cost/*/*/*.json", f"{RENDERS}/*.*"]
    patterns += [f"{ABLATIONS}/*/{folder}/*/*/*.json" for folder in ("cost", "runs", "evaluations")]
    found = [path for pattern in patterns for path in results.glob(pattern) if not path.name.startswith(".")]
    yield from sorted(path.relative_to(results).as_posix() for path in found)


# --- the repository around it ---------------------------------------------------------------------------------------

PAPER_NUMBERS = "data/paper"
RAW_DATA = "data/raw"


def local_data(episodes: object, length: object, seed: object) -> str:
    """The folder of datasets generated with these settings."""
    return f"data/local/episodes{episodes}-length{length}-seed{seed}"


def calibration_data(dataset: str, episodes: object, length: object, seed: object) -> str:
    """The episodes whose behaviour calibration evaluates."""
    return f"data/local/calibration/{dataset}-episodes{episodes}-length{length}-seed{seed}.npz"


CONFIG = "config"
PUBLISHED_REHEARSAL = "results/published/rehearsal.csv"
PUBLISHED_FAULTS = "results/published/faults.csv"


def scale_folder(scale: str) -> str:
    return f"results/{scale}"


def published_folder(scale: str) -> str:
    return f"results/published/{scale}"


def rehearsal_folder(scale: str) -> str:
    """Where every cell of a scale is tried before a campaign."""
    return f"results/rehearsal/{scale}"


def rehearsal_table(scale: str) -> str:
    """What came of that, a row per cell."""
    return f"{rehearsal_folder(scale)}/rehearsal.csv"
