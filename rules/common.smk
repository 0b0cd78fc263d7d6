# The chosen scale, its checked settings, and what all rules share. Where a file lies, pcbf_records.layout says.

import hashlib
import os
import platform
import shlex
import sys
from pathlib import Path

from snakemake.logging import logger

from pcbf_experiments.campaign.manifest import FIXED
from pcbf_experiments.campaign.plan import (
    CLONER,
    cloning_folder,
    data_folder,
    data_stamp,
    evaluate_job,
    load_plan,
    takes_proposal,
    train_job,
)
from pcbf_experiments.campaign.scheduler import (
    clear_receipt,
    clear_stale_locks,
    command_line,
    name_kernels,
    stale_receipts,
    target_faults,
)
from pcbf_experiments.campaign.settings import (
    SCALES,
    SettingsError,
    calibration_job,
    calibration_pairs,
    calibration_source,
    exact_job,
    exact_pairs,
    jobs_per_gpu,
    toy_job,
    toy_pairs,
    toy_work,
)
from pcbf_records import layout
from pcbf_records.calibration import CUBE_TASK, DATASETS
from pcbf_records.canonical import canonical_json
from pcbf_records.exact import MDPS
from pcbf_records.runs import is_restored
from pcbf_records.toy import PAPER_PROCESSES, PROCESSES, TOY_METHODS
from pcbf_records.variants import base_method

ROOT = Path(workflow.basedir)

try:
    PLAN = load_plan(ROOT, config)
    JOBS_PER_GPU = jobs_per_gpu(config)
except SettingsError as error:
    sys.exit(str(error))  # a sentence per fault instead of a traceback
SCALE, SETTINGS = PLAN.scale, PLAN.settings
logger.info(PLAN.describe())

# Receipts whose records are missing or changed. They are removed before jobs are planned; who only looks leaves them, and
# the parameter `is_stale` has a dry run plan the same jobs. (Snakemake's own settings are not known yet at this point.)
STALE = set()
ASKED = command_line(sys.argv)
if workflow.is_main_process:
    if ASKED.is_run and clear_stale_locks(Path(".snakemake")):
        logger.info("an earlier run was killed; its lock on this directory was removed")
    for receipt, faults in stale_receipts(Path(layout.scale_folder(SCALE))).items():
        for fault in faults:
            logger.info(f"{fault}; its job runs again")
        if ASKED.is_run:
            clear_receipt(receipt, faults)
        else:
            STALE.add(receipt)

# The commands of the packages are those installed beside this Python.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.getenv("PATH", os.defpath)]))
if JOBS_PER_GPU is not None:
    os.environ.update(PCBF_JOBS_PER_GPU=str(JOBS_PER_GPU))

# JAX compiles the same programs again and again: keep them, each machine of a cluster its own, unless the user has said
# where. At the smoke scale compiling is most of the work, and what comes of it need not be fast.
CACHE = str(ROOT / ".cache/jax")
if os.getenv("JAX_COMPILATION_CACHE_DIR", CACHE).startswith(CACHE):
    os.environ.update(JAX_COMPILATION_CACHE_DIR=os.path.join(CACHE, platform.node()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
if SCALE == "smoke":
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

name_kernels(os.environ)

# The runs of the first figures (residual, then flow maps) start first.
FIRST_RUNS = [("solitaire", "pcbf"), ("solitaire", "pcbf-independent"), ("bernoulli", "pcbf"), ("chain", "pcbf")]

RESULTS = layout.scale_folder("{scale}")


def at_scale(name):
    """Path of a file of a results folder; the scale stays open."""
    return f"{RESULTS}/{name}"


def job_files(change=False):
    """The files of the training jobs of the suite, or of its ablations; scale, task, method and seeds stay open."""
    root = at_scale(layout.ablation("{change}")) if change else RESULTS
    return layout.JobFiles(Path(root), "{task}", "{method}", "{group}")


def results_folder(wildcards):
    """The results folder of a job of the suite: that of its scale, or that of the change it is made with."""
    folder = Path(layout.scale_folder(wildcards.scale))
    change = wildcards.get("change")
    return (folder / layout.ablation(change) if change else folder).as_posix()


def cloning_jobs(wildcards):
    """The files of the job that clones what a training job proposes by, as a list; none if it trains its own proposal."""
    settings, change = SETTINGS[wildcards.scale], wildcards.get("change")
    if not takes_proposal(settings, PLAN.sheets, wildcards.task, wildcards.method, change):
        return []
    folder = Path(layout.scale_folder(wildcards.scale)) / cloning_folder(settings, change)
    return [layout.JobFiles(folder, wildcards.task, CLONER, wildcards.group)]


def proposal_option(wildcards):
    """The option of `pcbf-train` that names the last snapshots of the cloning job; empty without one."""
    steps = train_job(SETTINGS[wildcards.scale], PLAN.sheets, wildcards.task, CLONER)["run"]["steps"]
    found = [files.snapshot(seed, steps) for files in cloning_jobs(wildcards) for seed in files.seeds]
    return f"--proposal {shlex.join(path.as_posix() for path in found)}" if found else ""


def files_of(wildcards):
    """The files of one training job."""
    return layout.JobFiles(Path(results_folder(wildcards)), wildcards.task, wildcards.method, wildcards.group)


def data_of(wildcards):
    """What says that a training job has its data; nothing if its records were made elsewhere and no data are here.

    Snakemake would train for data that it has just made, `ancient` or not.
    """
    stamp = data_stamp(SETTINGS[wildcards.scale], PLAN.sheets, wildcards.task)
    return [] if is_restored(files_of(wildcards).receipt) and not Path(stamp).exists() else ancient(stamp)


def is_stale(wildcards, stage):
    """Whether the receipt of a job's stage names records that are gone; only in a dry run, others remove it first."""
    return getattr(files_of(wildcards), stage) in STALE


def toy_runs(processes, methods):
    """Paths of run records that every scale has; the scale stays open."""
    return [at_scale(layout.toy_run(process, method)) for process in processes for method in methods]


def toys_of(scale):
    """Paths of all toy runs of a scale."""
    return [f"{layout.scale_folder(scale)}/{layout.toy_run(*pair)}" for pair in toy_pairs(SETTINGS[scale])]


def exact_of(scale):
    """Paths of all runs of exact control of a scale."""
    return [f"{layout.scale_folder(scale)}/{layout.exact_run(*pair)}" for pair in exact_pairs(SETTINGS[scale])]


def calibration_of(scale):
    """Paths of all calibration runs of a scale."""
    pairs = calibration_pairs(SETTINGS[scale])
    return [f"{layout.scale_folder(scale)}/{layout.calibration_run(*pair)}" for pair in pairs]


def episodes_of(scale, source):
    """Path of the episodes of a calibration dataset, as many as the scale wants."""
    return layout.calibration_data(source, **calibration_source(SETTINGS[scale], source))


def calibration_origin(wildcards):
    """What the episodes of a calibration dataset are read from: none are, but those of the arm."""
    folder = layout.local_data(wildcards.episodes, wildcards.length, wildcards.seed)
    return [f"{folder}/verified/{PLAN.sheets.tasks[CUBE_TASK].dataset}.txt"] if wildcards.source == "cube" else []


def everything(scale):
    """All that is made of a scale besides training runs: its toys, exact control, and what `EVERYTHING` lists."""
    runs = [*toys_of(scale), *exact_of(scale), *calibration_of(scale)]
    return [*runs, *(path.format(scale=scale) for path in EVERYTHING)]


def receipts(jobs):
    """Paths of what jobs declare as their output, given by their files: the receipts of training and of evaluation.

    Both, though the second needs the first: Snakemake would not make the first again for a second that is there.
    """
    return [path.as_posix() for files in jobs for path in (files.receipt, files.evaluation_receipt)]


def planned_files(scale, jobs):
    """The files of planned jobs of a scale."""
    return [job.files(layout.scale_folder(scale)) for job in jobs]


def evaluated(scale):
    """What the collected table of the control suite needs: all runs of the scale, and ablations made by request.

    Trials that the scale no longer has are not made again: nothing says what cloned their proposals.
    """
    changed = layout.ablation_folders(Path(layout.scale_folder(scale)))
    folders = [folder for folder in changed if not layout.is_tuning(folder.name)]
    found = [(folder, *layout.group_place(path)) for folder in folders for path in layout.receipt_files(folder)]
    asked = [layout.JobFiles(*place) for place in found]
    return receipts(dict.fromkeys([*planned_files(scale, PLAN.jobs(scale)), *asked]))


def figure_files(labels, formats=("pdf", "png", "svg")):
    """Paths of figures; the scale stays open. Moving pictures are gif files."""
    endings = {label: ["gif"] if label in ANIMATIONS else formats for label in labels}
    return [at_scale(layout.figure(label, ending)) for label in labels for ending in endings[label]]


def table_files(labels, formats=("csv", "tex", "md")):
    """Paths of tables; the scale stays open."""
    return [at_scale(layout.table(label, ending)) for label in labels for ending in formats]


ANIMATIONS = ["flow_chain"]


def labels_of(groups):
    """All labels of groups of artefacts, each a pair of labels and inputs."""
    return [label for labels, _ in groups.values() for label in labels]


# How early a job starts, the higher the earlier: artefacts as soon as their records are there, then the runs of the
# first figures with the data in between, then training (before evaluation, so that GPUs never wait for a simulator),
# and last the other toy runs, which fill what is left, the longest first, so that no core waits for it at the end.
ARTEFACT_PRIORITY, DATA_PRIORITY, TRAIN_PRIORITY, EVALUATE_PRIORITY = 20, 5, 2, 1


def toy_priority(wildcards):
    run = (wildcards.process, wildcards.method)
    if run in FIRST_RUNS:
        return 2 * (len(FIRST_RUNS) - FIRST_RUNS.index(run))
    settings = SETTINGS[wildcards.scale]
    work = {pair: toy_work(toy_job(settings, *pair), pair[1]) for pair in toy_pairs(settings)}
    return EVALUATE_PRIORITY * work[run] / (1 + max(work.values()))


# Domains in the order of their tasks in the sheets, which is that of the tables.
DOMAINS = list(dict.fromkeys(task.domain for task in PLAN.sheets.tasks.values()))


def domain_turn(wildcards):
    """How much earlier than the last domain a task's comes, below 1: tables fill domain by domain."""
    return 1 - (1 + DOMAINS.index(PLAN.sheets.tasks[wildcards.task].domain)) / (1 + len(DOMAINS))


def content_hash(files):
    """A short hash of the content of files; their dates do not matter."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]


# What artefacts depend on besides records: the code that makes them and reads records, the paper's numbers, the claims
# and settings that they quote.
ANALYSIS_CODE = content_hash(
    path
    for folder in ("packages/pcbf-analysis/src", "packages/pcbf-records/src", layout.PAPER_NUMBERS, layout.CONFIG)
    for path in (ROOT / folder).rglob("*.*")
    if path.suffix in {".py", ".html", ".css", ".js", ".csv", ".yaml", ".tsv"} and path.parent.name != "schemas"
)


wildcard_constraints:
    scale="|".join(SCALES),
    process="|".join(PROCESSES),
    method="|".join(TOY_METHODS),
    mdp="|".join(MDPS),
    agent="|".join([*PLAN.sheets.methods, *(name for each in SETTINGS.values() for name in each["exact"]["variants"])]),
    source="|".join(DATASETS),
    critic="[a-z0-9_]+(-[A-Za-z0-9_.]+)?",
    task="|".join(PLAN.sheets.tasks),
    dataset="|".join({task.dataset for task in PLAN.sheets.tasks.values()}),
    group="seeds[0-9-]+",
    change=f"({layout.TUNING})?[a-z_]+=[^/]+",
    episodes="[0-9]+",
    length="[0-9]+",
    seed="[0-9]+",
