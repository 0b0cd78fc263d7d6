"""The DAG: what is planned, what is made again after which change, and the whole of it at the smoke scale."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pcbf_analysis import artefacts
from pcbf_analysis.control import ablation_jobs, control_jobs, load_plan, load_sheets, train_job
from pcbf_analysis.progress import RunLog
from pcbf_analysis.provenance import faults, read_manifest, record_names
from pcbf_analysis.publish import RECORD_FOLDERS
from pcbf_analysis.settings import ENVIRONMENTS, METHODS, SCALES, load_scale

from .conftest import REPOSITORY, copy_pipeline, let_smoke_be_published, read_rows

FIGURE_RULES = [f"figures_{name}" for name in ("residual", "flows", "distances", "control", "ablations", "pictures")]
TABLE_RULES = [f"tables_{name}" for name in ("toy", "control", "comparison", "ablations")]
ARTEFACT_RULES = [*FIGURE_RULES, *TABLE_RULES, "claims", "report"]
TASK = "cube-single-play-singletask-task1-v0"
Plan = Callable[..., dict[str, int]]


def everything(scale: str) -> dict[str, int]:
    """The jobs per rule of a whole scale, counted from its settings."""
    settings, sheets = load_scale(REPOSITORY / f"config/scales/{scale}.yaml"), load_sheets(REPOSITORY)
    train, ablate = control_jobs(settings, sheets), ablation_jobs(settings, sheets)
    datasets = {sheets.tasks[job.task].dataset for job in [*train, *ablate]}
    once = ["toy_collect", "theory", "render", "manifest", "all", *ARTEFACT_RULES]
    return {
        "toy": len(ENVIRONMENTS) * len(METHODS),
        "train": len(train),
        "ablate": len(ablate),
        "fetch_data" if settings["control"]["data"] is None else "make_data": len(datasets),
        **dict.fromkeys(once, 1),
    }


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
    assert plan(checkout, *config_of(scale)) == everything(scale)


def test_the_paper_scale_has_the_papers_runs():
    plan = load_plan(REPOSITORY, {"scale": "paper"})
    runs = Counter(plan.sheets.tasks[job.task].kind == "pixel" for job in plan.control("paper") for _ in job.seeds)
    assert runs == {False: 28 * 7 * 8, True: 10 * 5 * 4}
    assert plan.describe().startswith("scale paper: control suite 1768 runs in 442 jobs")


def test_a_domain_or_method_can_be_asked_for_by_name(checkout, plan):
    jobs = plan(checkout, "runs", "--config", "scale=paper", "domains=scene-play", "methods=[pcbf, iql]")
    groups = 8 // load_scale(REPOSITORY / "config/scales/paper.yaml")["control"]["seeds_per_job"]
    weights = len(load_scale(REPOSITORY / "config/scales/paper.yaml")["control"]["ablations"]["control_weights"])
    assert jobs == {"train": 5 * 2 * groups, "ablate": weights * groups, "fetch_data": 1, "runs": 1}


def test_an_unknown_name_gets_a_suggestion(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run", "--config", "scale=paper", "domains=scene-plai")
    assert done.returncode != 0
    sentence = '--config: domains = "scene-plai": not part of this scale; did you mean scene-play?'
    assert done.stderr.strip().endswith(sentence)


def test_any_setting_can_be_changed_by_the_name_of_a_target(checkout, plan):
    receipt = f"results/smoke/ablations/action_reuse=1/receipts/{TASK}/pcbf/seeds0-1-2.json"
    assert plan(checkout, receipt) == {"ablate": 1, "make_data": 1}
    settings, sheets = load_scale(REPOSITORY / "config/scales/laptop.yaml"), load_sheets(REPOSITORY)
    ours, changed = (train_job(settings, sheets, TASK, "pcbf", change) for change in (None, "action_reuse=1"))
    assert changed == {**ours, "method": {**ours["method"], "action_reuse": 1}}


def test_one_table_of_the_control_suite_asks_for_runs_and_no_toys(checkout, plan):
    jobs = plan(checkout, "results/smoke/tables/aggregated.csv")
    assert jobs == {"make_data": 1, "train": everything("smoke")["train"], "tables_control": 1}


def test_the_laptop_scale_is_the_default(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run")
    assert "results/laptop/report/index.html" in done.stdout
    assert "results/smoke" not in done.stdout


def test_one_figure_asks_for_its_own_runs_only(checkout, plan):
    assert plan(checkout, "results/smoke/figures/residual.pdf") == {"toy": 2, "figures_residual": 1}


def test_every_artefact_is_made_once_and_after_the_records_it_reads(checkout, run_module):
    text = run_module(checkout, "snakemake", "--dry-run", *config_of("smoke")).stdout
    blocks = re.findall(r"rule (?:figures|tables)_\w+:\n    input: (.*)\n    output: (.*)\n", text)
    planned = {output: inputs.split(", ") for inputs, outputs in blocks for output in outputs.split(", ")}
    wanted = {
        artefacts.output_path(Path("results/smoke"), artefact, file_format).as_posix(): artefact.inputs
        for kind in ("figure", "table")
        for artefact in artefacts.of_kind(kind).values()
        for file_format in artefact.formats
    }
    assert set(planned) == set(wanted)
    for output, names in wanted.items():
        for name in names:
            assert any(path.startswith(made_by(name)) for path in planned[output]), (output, name)


def made_by(name: str) -> str:
    """How the path of the declared file begins that stands for a record, or for a folder of them."""
    folder = {"runs": "receipts", "cost": "receipts", "renders": "renders"}.get(name.partition("/")[0], name)
    return f"results/smoke/{folder}"


def test_snakemakes_own_lint_is_content(checkout, run_module):
    done = run_module(checkout, "snakemake", "--lint")
    assert done.returncode == 0, done.stdout + done.stderr


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
    assert f"all {sum(everything('smoke').values())} jobs done" in done.stdout


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
        for artefact in [*artefacts.of_kind("figure").values(), *artefacts.TABLES.values()]:
            for file_format in artefact.formats:
                assert artefacts.output_path(results, artefact, file_format).stat().st_size > 0
        for name in ("report/index.html", "claims.csv", "claims.md"):
            assert (results / name).stat().st_size > 0
        settings = load_scale(smoke / "config/scales/smoke.yaml")
        assert not list(faults(results, read_manifest(results), record_names(settings, load_sheets(smoke))))
        assert read_manifest(results)["config"]["settings"] == settings

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
        made = ("theory", "tables_toy", "claims", "manifest", "report", "all")
        assert jobs == dict.fromkeys(made, 1)

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
        assert jobs == dict.fromkeys([*ARTEFACT_RULES, "all"], 1)

    @pytest.mark.parametrize(
        ("name", "rule"),
        [
            ("toy/runs/chain/pcbf.npz", "toy"),
            ("theory/checks.csv", "theory"),
            ("toy/w1.csv", "toy_collect"),
            (f"receipts/{TASK}/iql/seeds0-1.json", "train"),
        ],
    )
    def test_a_lost_record_is_made_again(self, smoke_copy, plan, name, rule):
        (smoke_copy / "results/smoke" / name).unlink()
        assert plan(smoke_copy, *config_of("smoke"))[rule] == 1

    def test_new_dates_of_data_and_all_else_train_nothing(self, smoke_copy, plan):
        """What `git clone` and `dvc pull` do: every file is there, its date is any, Snakemake's memory is gone."""
        shutil.rmtree(smoke_copy / ".snakemake")
        for path in (smoke_copy / "data").rglob("*"):
            os.utime(path, (2e9, 2e9))  # newer than every record
        jobs = plan(smoke_copy, *config_of("smoke"))
        assert not {"train", "ablate", "make_data", "toy"} & set(jobs)

    def test_a_new_version_of_a_control_method_trains_its_runs_only(self, smoke_copy, plan):
        sheet = smoke_copy / "config/methods.tsv"
        text = sheet.read_text(encoding="utf-8")
        sheet.write_text(text.replace("iql\tIQL\t1\t1", "iql\tIQL\t1\t2"), encoding="utf-8")
        jobs = plan(smoke_copy, *config_of("smoke"))
        assert jobs["train"] == 1
        assert not {"ablate", "toy", "make_data"} & set(jobs)

    def test_other_settings_of_a_control_method_train_its_runs_only(self, smoke_copy, plan):
        jobs = plan(smoke_copy, *config_of("smoke", control={"method_settings": {"pcbf": {"num_candidates": 2}}}))
        assert (jobs["train"], jobs["ablate"]) == (1, 1)
        assert not {"toy", "make_data"} & set(jobs)

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
        stages = run_module(clone, "dvc", "stage", "list", "--all", "--name-only").stdout.split()
        assert {"data/dvc.yaml:official", "results/dvc.yaml:runs@paper", "figures@smoke"} <= set(stages)
        for folder in ("figures", "tables", "report"):
            shutil.rmtree(clone / "results/published/smoke" / folder)
        (clone / "results/published/smoke/claims.csv").unlink()
        again = run_module(clone, "dvc", "repro")
        assert again.returncode == 0, again.stdout + again.stderr
        assert "pcbf-toy" not in again.stdout
        assert "pcbf-train" not in again.stdout
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
        "claims": f"pcbf-claims {made_from}",
        "report": f"pcbf-report {made_from}",
    }
    outs = [out for stage in pipeline["stages"].values() for out in stage["outs"]]
    assert all(options == {"cache": False} for out in outs for options in out.values())  # they are in git


@pytest.mark.slow
@pytest.mark.skipif(not (REPOSITORY / "dvc.lock").exists(), reason="nothing is published yet")
def test_what_is_published_is_up_to_date(run_module):
    done = run_module(REPOSITORY, "dvc", "status", "--json", "dvc.yaml")  # not the stages that fetch and train
    assert json.loads(done.stdout) == {}, "run `dvc repro` and commit what it changes"


@pytest.mark.parametrize("scale", SCALES)
def test_records_of_a_scale_are_named_once(scale):
    plan = load_plan(REPOSITORY, {"scale": scale})
    names = record_names(plan.settings[scale], plan.sheets)
    num_runs = sum(len(job.seeds) for job in [*plan.control(scale), *plan.ablations(scale)])
    assert len(names) == len(set(names)) == 12 + num_runs


def test_every_kind_of_record_is_published_and_read_by_a_stage():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    read = {name for stage in stages.values() for name in stage["deps"]}
    assert {f"results/published/${{item.scale}}/{folder}" for folder in RECORD_FOLDERS} <= read


@pytest.mark.parametrize("folder", ["data", "results"])
def test_the_stages_that_fetch_and_train_keep_what_is_there(folder):
    stages = yaml.safe_load((REPOSITORY / folder / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    for stage in stages.values():
        assert stage["wdir"] == ".."
        assert "snakemake" in stage["cmd"]
        assert all(options["persist"] for out in stage["outs"] for options in out.values())
