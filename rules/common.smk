# The chosen scale, its checked settings, and what all rules share.

import hashlib
import os
import sys
from pathlib import Path

from pcbf_analysis.provenance import record_names
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, SCALES, SettingsError
from pcbf_analysis.settings import compact_json, load_scales, toy_job

ROOT = Path(workflow.basedir)

try:
    SCALE, SETTINGS = load_scales(ROOT, config)
except SettingsError as error:
    sys.exit(str(error))  # a sentence per fault instead of a traceback

# The commands of the packages are those installed beside this Python.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.getenv("PATH", os.defpath)]))

# The runs of the first figures (residual, then flow maps) start first.
FIRST_RUNS = [("solitaire", "pcbf"), ("solitaire", "pcbf-independent"), ("bernoulli", "pcbf"), ("chain", "pcbf")]


def toy_runs(environments=ENVIRONMENTS, methods=METHODS):
    """Paths of the run records of these processes and methods; the scale stays open."""
    return expand("results/{{scale}}/toy/runs/{env}/{method}.npz", env=environments, method=methods)


def toy_priority(wildcards):
    """How early a run starts: the higher, the earlier."""
    run = (wildcards.env, wildcards.method)
    return len(FIRST_RUNS) - FIRST_RUNS.index(run) if run in FIRST_RUNS else 0


def content_hash(files):
    """A short hash of the content of files; their dates do not matter."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]


# What figures and tables depend on besides records: the code that makes them and the paper's numbers.
# Modules that run checks, move files or watch the pipeline are no part of it.
ANALYSIS_CODE = content_hash(
    path
    for folder in ("packages/pcbf-analysis/src/pcbf_analysis", "data/paper")
    for path in (ROOT / folder).rglob("*.*")
    if path.suffix in {".py", ".html", ".css", ".js", ".csv"}
    and path.stem not in {"settings", "provenance", "publish", "progress", "theory_checks"}
)


wildcard_constraints:
    scale="|".join(SCALES),
    env="|".join(ENVIRONMENTS),
    method="|".join(METHODS),
