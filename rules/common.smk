# The chosen scale, its checked settings, and what all rules share.

import hashlib
import os
import platform
import sys
from pathlib import Path

from snakemake.logging import logger

from pcbf_analysis.control import data_folder, data_stamp, group_seeds, load_plan, train_job
from pcbf_analysis.provenance import fixed_names
from pcbf_analysis.scheduler import clear_stale_locks
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, SCALES, SettingsError
from pcbf_analysis.settings import compact_json, toy_job

ROOT = Path(workflow.basedir)

try:
    PLAN = load_plan(ROOT, config)
except SettingsError as error:
    sys.exit(str(error))  # a sentence per fault instead of a traceback
SCALE, SETTINGS = PLAN.scale, PLAN.settings
logger.info(PLAN.describe())

if workflow.is_main_process and not workflow.dryrun and clear_stale_locks(Path(".snakemake")):
    logger.info("an earlier run was killed; its lock on this directory was removed")

# The commands of the packages are those installed beside this Python.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.getenv("PATH", os.defpath)]))
if "jobs_per_gpu" in config:
    os.environ.update(PCBF_JOBS_PER_GPU=str(config["jobs_per_gpu"]))

# JAX compiles the same programs again and again: keep them, each machine of a cluster its own, unless the user has said
# where. At the smoke scale compiling is most of the work, and what comes of it need not be fast.
CACHE = str(ROOT / ".cache/jax")
if os.getenv("JAX_COMPILATION_CACHE_DIR", CACHE).startswith(CACHE):
    os.environ.update(JAX_COMPILATION_CACHE_DIR=os.path.join(CACHE, platform.node()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
if SCALE == "smoke":
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# The runs of the first figures (residual, then flow maps) start first.
FIRST_RUNS = [("solitaire", "pcbf"), ("solitaire", "pcbf-independent"), ("bernoulli", "pcbf"), ("chain", "pcbf")]


def toy_runs(environments=ENVIRONMENTS, methods=METHODS):
    """Paths of the run records of these processes and methods; the scale stays open."""
    return expand("results/{{scale}}/toy/runs/{env}/{method}.npz", env=environments, method=methods)


def receipts(scale, jobs):
    """Paths of what training jobs declare as their output."""
    return [f"results/{scale}/{job.receipt}" for job in jobs]


def control_runs(scale):
    """What an artefact needs that is made from the runs of the control suite."""
    return receipts(scale, PLAN.control(scale))


def ablation_runs(scale):
    """What an artefact needs that is made from runs with a setting changed: the scale's own and those made by request."""
    found = Path(f"results/{scale}/ablations").glob("*/receipts/*/*/*.json")
    return list(dict.fromkeys([*receipts(scale, PLAN.ablations(scale)), *sorted(map(str, found))]))


def inputs_of(entries, scale):
    """The input files of artefacts at a scale: each entry is a path with `{scale}` in it, or a function of it."""
    groups = [entry(scale) if callable(entry) else [entry.format(scale=scale)] for entry in entries]
    return [path for group in groups for path in group]


def made_from(entries):
    """An input function: what `inputs_of` gives at the scale of the job."""
    return lambda wildcards: inputs_of(entries, wildcards.scale)


ANIMATIONS = ["flow_chain"]


def figure_files(labels, formats=("pdf", "png", "svg")):
    """Paths of figures; the scale stays open. Moving pictures are gif files."""
    endings = {label: ["gif"] if label in ANIMATIONS else formats for label in labels}
    return [f"results/{{scale}}/figures/{label}.{ending}" for label in labels for ending in endings[label]]


def table_files(labels, formats=("csv", "tex", "md")):
    """Paths of tables; the scale stays open."""
    return expand("results/{{scale}}/tables/{label}.{ending}", label=labels, ending=formats)


def labels_of(groups):
    """All labels of groups of artefacts, each a pair of labels and inputs."""
    return [label for labels, _ in groups.values() for label in labels]


# How early a job starts, the higher the earlier: artefacts as soon as their records are there, then the runs of the
# first figures with the data in between, then training, and last the other toy runs, short jobs that fill what is left.
ARTEFACT_PRIORITY, DATA_PRIORITY, TRAIN_PRIORITY = 20, 5, 1


def toy_priority(wildcards):
    run = (wildcards.env, wildcards.method)
    return 2 * (len(FIRST_RUNS) - FIRST_RUNS.index(run)) if run in FIRST_RUNS else 0


def content_hash(files):
    """A short hash of the content of files; their dates do not matter."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]


# What artefacts depend on besides records: the code that makes them, the paper's numbers, the claims and settings that
# they quote. Modules that run checks, move files or watch the pipeline are no part of it.
ANALYSIS = ROOT / "packages/pcbf-analysis/src/pcbf_analysis"
OTHER_CODE = ["campaign", "control", "progress", "provenance", "publish", "scheduler", "settings", "theory_checks"]
ANALYSIS_CODE = content_hash(
    path
    for folder in (ANALYSIS, ROOT / "data/paper", ROOT / "config")
    for path in folder.rglob("*.*")
    if path.suffix in {".py", ".html", ".css", ".js", ".csv", ".yaml", ".tsv"}
    and path.parent.name != "schemas"
    and path not in {ANALYSIS / f"{name}.py" for name in OTHER_CODE}
)


wildcard_constraints:
    scale="|".join(SCALES),
    env="|".join(ENVIRONMENTS),
    method="|".join(METHODS),
    task="|".join(PLAN.sheets.tasks),
    dataset="|".join({task.dataset for task in PLAN.sheets.tasks.values()}),
    group="seeds[0-9-]+",
    change="[a-z_]+=[^/]+",
    episodes="[0-9]+",
    length="[0-9]+",
    seed="[0-9]+",
