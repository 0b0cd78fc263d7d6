"""The DAG: what is planned, what is made again after which change, and the whole of it at the smoke scale."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pcbf_analysis import artefacts
from pcbf_analysis.progress import RunLog
from pcbf_analysis.provenance import faults, read_manifest, record_names
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, SCALES, load_scale

from .conftest import REPOSITORY, copy_pipeline, let_smoke_be_published, read_rows

EVERYTHING = {
    "toy": len(ENVIRONMENTS) * len(METHODS),
    "toy_collect": 1,
    "theory": 1,
    "figure": len(artefacts.FIGURES),
    "table": len(artefacts.TABLES),
    "manifest": 1,
    "report": 1,
    "all": 1,
}
Plan = Callable[..., dict[str, int]]


@pytest.fixture(scope="session")
def plan(run_module) -> Plan:
    """A function that gives the jobs per rule which a dry-run in a folder counts."""

    def counts(folder: Path, *arguments: str) -> dict[str, int]:
        done = run_module(folder, "snakemake", *arguments, "--dry-run")
        assert done.returncode == 0, done.stderr
        run = RunLog()
        for line in (done.stdout + done.stderr).splitlines():
            run.feed(line)
        assert run.nothing_to_do == (not run.planned)
        return dict(run.planned)

    return counts


def config_of(scale: str, **sections: dict) -> list[str]:
    return ["--config", f"scale={scale}", *(f"{name}={json.dumps(value)}" for name, value in sections.items())]


# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_is_the_same_dag(checkout, plan, scale):
    assert plan(checkout, *config_of(scale)) == EVERYTHING


def test_the_laptop_scale_is_the_default(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run")
    assert "results/laptop/report/index.html" in done.stdout
    assert "results/smoke" not in done.stdout


def test_one_figure_asks_for_its_own_runs_only(checkout, plan):
    assert plan(checkout, "results/smoke/figures/residual.pdf") == {"toy": 2, "figure": 1}


def test_the_labels_and_inputs_are_those_of_the_analysis(checkout, run_module):
    text = run_module(checkout, "snakemake", "--dry-run", *config_of("smoke")).stdout
    blocks = re.findall(r"rule (?:figure|table):\n    input: (.*)\n    output: (\S+),", text)
    planned = {output: set(inputs.split(", ")) for inputs, output in blocks}
    wanted = {
        artefacts.output_path(Path("results/smoke"), artefact, artefact.formats[0]).as_posix(): {
            f"results/smoke/{name}" for name in artefact.inputs
        }
        for artefact in [*artefacts.FIGURES.values(), *artefacts.TABLES.values()]
    }
    assert planned == wanted


def test_snakemakes_own_lint_asks_for_nothing_but_a_container(checkout, run_module):
    done = run_module(checkout, "snakemake", "--lint")
    complaints = {line.strip() for line in done.stderr.splitlines() if line.startswith("    * ")}
    assert complaints <= {"* Specify a conda environment or container for each rule.:"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("num_steps: -5", "config/scales/laptop.yaml: toy.num_steps = -5: must be >= 1"),
        ("num_stesp: 5", "config/scales/laptop.yaml: toy.num_stesp = 5: unknown key; did you mean num_steps?"),
    ],
)
def test_a_bad_file_stops_snakemake_with_a_sentence(checkout, run_module, change, sentence):
    file = checkout / "config/scales/laptop.yaml"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([lines[0], lines[1], f"  {change}", *drop(lines[2:], change)]), encoding="utf-8")
    done = run_module(checkout, "snakemake", "--dry-run")
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert "Building DAG" not in done.stderr + done.stdout


def drop(lines: list[str], change: str) -> list[str]:
    """`lines` without the key that `change` sets."""
    return [line for line in lines if line.strip().partition(":")[0] != change.partition(":")[0]]


def test_a_bad_override_stops_snakemake_with_a_sentence(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run", *config_of("smoke", toy={"num_steps": -5}))
    assert done.returncode != 0
    assert done.stderr.strip().endswith("--config: toy.num_steps = -5: must be >= 1")


# --- the whole pipeline -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def smoke(tmp_path_factory, run_module) -> Path:
    """A checkout under git in which the smoke scale has been run; tests leave it as it is.

    Test processes share it: the first one to ask runs the scale, the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    root = base / "smoke" / "checkout"
    with (base / "smoke.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (base / "smoke" / "done").exists():
            run_smoke(root, run_module)
            (base / "smoke" / "done").touch()
    return root


def run_smoke(root: Path, run_module) -> None:
    copy_pipeline(root)
    let_smoke_be_published(root)
    git(root, "init", "--quiet")
    commit(root, "pipeline")
    command = ["--", "snakemake", "--cores", "2", "--config", "scale=smoke"]
    done = run_module(root, "pcbf_analysis.progress", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"all {sum(EVERYTHING.values())} jobs done" in done.stdout


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    return subprocess.run(["git", *name, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


@pytest.fixture
def smoke_copy(smoke, tmp_path) -> Path:
    """A copy of the finished checkout, dates included, to change."""
    return Path(shutil.copytree(smoke, tmp_path / "checkout", symlinks=True))


@pytest.mark.slow
class TestSmoke:
    def test_everything_is_there(self, smoke):
        results = smoke / "results/smoke"
        for artefact in [*artefacts.FIGURES.values(), *artefacts.TABLES.values()]:
            for file_format in artefact.formats:
                assert artefacts.output_path(results, artefact, file_format).stat().st_size > 0
        assert (results / "report/index.html").stat().st_size > 0
        assert not list(faults(results, read_manifest(results)))
        assert read_manifest(results)["config"]["settings"] == load_scale(smoke / "config/scales/smoke.yaml")

    def test_the_distances_cover_every_run(self, smoke):
        toy = load_scale(smoke / "config/scales/smoke.yaml")["toy"]
        rows = read_rows(smoke / "results/smoke/toy/w1.csv")
        assert list(rows[0]) == ["env", "state", "method", "coefficient", "seed", "w1"]
        assert all(float(row["w1"]) >= 0 for row in rows)
        found = [row for row in rows if (row["env"], row["method"]) == ("bernoulli", "value_flows")]
        assert len(found) == toy["num_seeds"] * len(toy["dcfm_weights"])

    def test_a_second_run_does_nothing(self, smoke_copy, run_module):
        done = run_module(smoke_copy, "pcbf_analysis.progress", "--", "snakemake", "--config", "scale=smoke")
        assert done.returncode == 0
        assert "nothing to do" in done.stdout

    def test_touching_code_or_notes_makes_nothing_again(self, smoke_copy, plan):
        (smoke_copy / "NOTES.md").write_text("a note\n", encoding="utf-8")
        for path in (smoke_copy / "packages").rglob("*.py"):
            path.touch()
        assert plan(smoke_copy, *config_of("smoke")) == {}

    def test_other_dcfm_weights_train_value_flows_only(self, smoke_copy, plan):
        jobs = plan(smoke_copy, *config_of("smoke", toy={"dcfm_weights": [0.0, 1.0]}))
        assert jobs["toy"] == len(ENVIRONMENTS)
        assert "theory" not in jobs

    def test_another_theory_seed_trains_nothing(self, smoke_copy, plan):
        jobs = plan(smoke_copy, *config_of("smoke", theory={"seed": 1}))
        assert jobs == {"theory": 1, "table": 1, "manifest": 1, "report": 1, "all": 1}

    def test_a_new_version_of_a_method_trains_that_method_only(self, smoke_copy, plan):
        rules = smoke_copy / "rules/toy.smk"
        text = rules.read_text(encoding="utf-8")
        version = yaml.safe_load(text.partition("TOY_VERSION = ")[2].partition("\n")[0])
        changed = {**version, "pcbf-independent": version["pcbf-independent"] + 1}
        rules.write_text(text.replace(json.dumps(version), json.dumps(changed)), encoding="utf-8")
        assert plan(smoke_copy, *config_of("smoke"))["toy"] == len(ENVIRONMENTS)

    def test_a_change_of_the_analysis_code_draws_again_and_trains_nothing(self, smoke_copy, plan):
        with (smoke_copy / "packages/pcbf-analysis/src/pcbf_analysis/theme.py").open("a", encoding="utf-8") as file:
            file.write("\n# a change\n")
        jobs = plan(smoke_copy, *config_of("smoke"))
        assert jobs == {name: EVERYTHING[name] for name in ("figure", "table", "report", "all")}

    @pytest.mark.parametrize("name", ["toy/runs/chain/pcbf.npz", "theory/checks.csv", "toy/w1.csv"])
    def test_a_lost_record_is_made_again(self, smoke_copy, plan, name):
        (smoke_copy / "results/smoke" / name).unlink()
        rule = {"toy/w1.csv": "toy_collect", "theory/checks.csv": "theory"}.get(name, "toy")
        assert plan(smoke_copy, *config_of("smoke"))[rule] == 1

    def test_publishing_and_rebuilding_from_what_is_published(self, smoke_copy, run_module, tmp_path):
        """Publish, let DVC make the artefacts, and have a fresh clone find and remake the very same bytes."""
        done = run_module(smoke_copy, "pcbf_analysis.publish", "smoke")
        assert done.returncode == 0, done.stderr
        repro = run_module(smoke_copy, "dvc", "repro")
        assert repro.returncode == 0, repro.stdout + repro.stderr
        ours, published = smoke_copy / "results/smoke", smoke_copy / "results/published/smoke"
        for folder in ("figures", "tables"):
            made = {path.name: path.read_bytes() for path in (ours / folder).iterdir()}
            assert made == {path.name: path.read_bytes() for path in (published / folder).iterdir()}
        commit(smoke_copy, "published")

        clone = tmp_path / "clone"
        git(smoke_copy, "clone", "--quiet", ".", str(clone))
        assert "up to date" in run_module(clone, "dvc", "repro").stdout
        for folder in ("figures", "tables", "report"):
            shutil.rmtree(clone / "results/published/smoke" / folder)
        again = run_module(clone, "dvc", "repro")
        assert again.returncode == 0, again.stdout + again.stderr
        assert "pcbf-toy" not in again.stdout
        assert git(clone, "status", "--porcelain") == ""


# --- what belongs together ----------------------------------------------------------------------------------------


def test_dvc_makes_figures_tables_and_report_and_trains_nothing():
    pipeline = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))
    assert set(pipeline["vars"][0]["published"]) <= set(SCALES)
    commands = {name: stage["cmd"].partition("$PATH ")[2] for name, stage in pipeline["stages"].items()}
    made_from = "--results results/published/${item.scale}"
    assert commands == {
        "figures": f"pcbf-figure all {made_from}",
        "tables": f"pcbf-table all {made_from}",
        "report": f"pcbf-report {made_from}",
    }
    outs = [out for stage in pipeline["stages"].values() for out in stage["outs"]]
    assert all(options == {"cache": False} for out in outs for options in out.values())  # they are in git


@pytest.mark.slow
@pytest.mark.skipif(not (REPOSITORY / "dvc.lock").exists(), reason="nothing is published yet")
def test_what_is_published_is_up_to_date(run_module):
    done = run_module(REPOSITORY, "dvc", "status", "--json")
    assert json.loads(done.stdout) == {}, "run `dvc repro` and commit what it changes"


def test_records_of_a_scale_are_named_once():
    assert len(record_names()) == len(set(record_names())) == 12
