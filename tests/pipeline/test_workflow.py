"""The DAG: what is planned, what is made again after which change, and the whole of it at the smoke scale."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pcbf_analysis import artefacts
from pcbf_experiments.campaign.compare import MACHINE_DEPENDENT
from pcbf_experiments.campaign.manifest import faults, read_manifest, record_names
from pcbf_experiments.campaign.plan import ablation_jobs, control_jobs, load_plan, train_job, tuning_jobs
from pcbf_experiments.campaign.publish import publish_finished, restore
from pcbf_experiments.campaign.scheduler import KERNELS, name_kernels
from pcbf_experiments.campaign.settings import (
    SCALES,
    calibration_pairs,
    calibration_source,
    exact_pairs,
    load_scale,
    toy_pairs,
)
from pcbf_experiments.campaign.watch import RunLog, told_to_log
from pcbf_records import layout
from pcbf_records.layout import JobFiles
from pcbf_records.runs import load_evaluations, load_run, save_evaluations, save_run
from pcbf_records.sheets import load_sheets
from pcbf_records.toy import PAPER_PROCESSES, W1_COLUMNS
from pcbf_records.variants import base_method

from .conftest import REPOSITORY, commit, git, read_rows, said_by, write_finished_scale

FIGURE_RULES = [
    f"figures_{name}" for name in ("residual", "flows", "distances", "exact", "calibration", "control", "pictures")
]
TABLE_RULES = [f"tables_{name}" for name in ("toy", "exact", "calibration", "control", "comparison", "overview")]
ARTEFACT_RULES = [*FIGURE_RULES, *TABLE_RULES, "claims", "report"]
OF_CONTROL = ["collect", "figures_control", *TABLE_RULES[3:], "claims", "manifest", "report", "all"]
TASK = "cube-single-play-singletask-task1-v0"
SMOKE = Path(layout.scale_folder("smoke"))
Plan = Callable[..., dict[str, int]]


def everything(scale: str) -> dict[str, int]:
    """The jobs per rule of a whole scale, counted from its settings."""
    settings, sheets = load_scale(REPOSITORY / f"config/scales/{scale}.yaml"), load_sheets(REPOSITORY)
    train = control_jobs(settings, sheets)
    ablate = [*ablation_jobs(settings, sheets), *tuning_jobs(settings, sheets)]
    datasets = {sheets.tasks[job.task].dataset for job in [*train, *ablate]}
    made = {"fetch_data" if settings["control"]["data"] is None else "make_data": len(datasets)}
    has_cube = "cube" in settings["calibration"]["datasets"]  # from files like the suite's
    if has_cube and settings["control"]["data"] != calibration_source(settings, "cube"):
        made["make_data"] = made.get("make_data", 0) + 1
    once = [
        "toy_collect",
        "exact_collect",
        "calibration_collect",
        "theory",
        "collect",
        "render",
        "manifest",
        "all",
        *ARTEFACT_RULES,
    ]
    return {
        "toy": len(toy_pairs(settings)),
        "exact": len(exact_pairs(settings)),
        "calibrate": len(calibration_pairs(settings)),
        "calibration_data": len(settings["calibration"]["datasets"]),
        "train": len(train),
        "evaluate": len(train),
        "ablate": len(ablate),
        "evaluate_ablation": len(ablate),
        **made,
        **dict.fromkeys(once, 1),
    }


@pytest.fixture(scope="session")
def plan(run_module) -> Plan:
    """A function that gives the jobs per rule which a dry-run in a folder counts."""

    def counts(folder: Path, *arguments: str) -> dict[str, int]:
        done, jobs = scheduled(run_module, folder, *arguments, "--dry-run")
        assert done.returncode == 0, done.stderr
        return jobs

    return counts


def scheduled(run_module, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, int]]:
    """A run of Snakemake, and the jobs per rule that it planned."""
    run = RunLog()
    with tempfile.TemporaryDirectory() as place:
        events = Path(place) / "events"
        done = run_module(folder, *told_to_log(["snakemake", *arguments], events))
        for line in events.read_text(encoding="utf-8").splitlines() if events.exists() else []:
            run.feed(line)
    assert ("Nothing to be done" in done.stdout + done.stderr) == (not run.planned)
    return done, dict(run.planned)


def config_of(scale: str, **sections: dict) -> list[str]:
    return ["--config", f"scale={scale}", *(f"{name}={json.dumps(value)}" for name, value in sections.items())]


# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_is_the_same_dag(checkout, plan, scale):
    assert plan(checkout, *config_of(scale)) == everything(scale)


def test_the_paper_scale_has_the_papers_runs():
    plan = load_plan(REPOSITORY, {"scale": "paper"})
    runs = Counter(plan.sheets.tasks[job.task].is_pixel for job in plan.control("paper") for _ in job.seeds)
    assert runs == {False: 28 * 7 * 8, True: 10 * 5 * 4}
    assert plan.describe().startswith("scale paper: control suite 1768 runs in 442 jobs")


@pytest.mark.slow
def test_a_domain_or_method_can_be_asked_for_by_name(checkout, plan):
    jobs = plan(checkout, "runs", "--config", "scale=paper", "domains=scene-play", "methods=[pcbf, iql]")
    groups = 8 // load_scale(REPOSITORY / "config/scales/paper.yaml")["control"]["seeds_per_job"]
    weights = len(load_scale(REPOSITORY / "config/scales/paper.yaml")["control"]["ablations"]["control_weights"])
    train, ablate = 5 * 2 * groups, weights * groups
    assert jobs == {
        "train": train,
        "evaluate": train,
        "ablate": ablate,
        "evaluate_ablation": ablate,
        "fetch_data": 1,
        "runs": 1,
    }


@pytest.mark.slow
def test_an_unknown_name_gets_a_suggestion(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run", "--config", "scale=paper", "domains=scene-plai")
    assert done.returncode != 0
    sentence = '--config: domains = "scene-plai": not part of this scale; did you mean scene-play?'
    assert done.stderr.strip().endswith(sentence)


@pytest.mark.slow
def test_any_setting_can_be_changed_by_the_name_of_a_target(checkout, plan):
    files = JobFiles.of_seeds(SMOKE / layout.ablation("action_reuse=1"), TASK, "pcbf", (0, 1, 2))
    assert plan(checkout, str(files.receipt)) == {"ablate": 1, "make_data": 1}
    assert plan(checkout, str(files.evaluation_receipt)) == {"ablate": 1, "evaluate_ablation": 1, "make_data": 1}
    settings, sheets = load_scale(REPOSITORY / "config/scales/laptop.yaml"), load_sheets(REPOSITORY)
    ours, changed = (train_job(settings, sheets, TASK, "pcbf", change) for change in (None, "action_reuse=1"))
    assert changed == {**ours, "method": {**ours["method"], "action_reuse": 1}}


@pytest.mark.slow
def test_a_frozen_proposal_is_cloned_once_for_all_methods_that_take_it(checkout, plan, run_module):
    default = {"hidden_sizes": [8, 8], "proposal_training": "frozen"}
    chosen = config_of("smoke", control={"methods": ["pcbf", "iqn", "bc"], "method_settings": {"default": default}})
    wanted = [JobFiles.of_seeds(SMOKE, TASK, method, (0, 1)).receipt.as_posix() for method in ("pcbf", "iqn")]
    wanted.append(JobFiles.of_seeds(SMOKE / layout.ablation("score=cvar"), TASK, "pcbf", (0, 1)).receipt.as_posix())
    assert plan(checkout, *wanted, *chosen) == {"make_data": 1, "train": 3, "ablate": 1}
    told = run_module(checkout, "snakemake", *wanted, *chosen, "--dry-run", "--printshellcmds").stdout
    cloner = JobFiles.of_seeds(SMOKE, TASK, "bc", (0, 1))
    option = " ".join(["--proposal", *(cloner.snapshot(seed, 20).as_posix() for seed in (0, 1))])
    assert told.count(option) == 3 and f"pcbf-train {TASK} bc" in told


@pytest.mark.slow
def test_what_was_restored_is_not_trained_again_where_its_data_are_not(checkout, plan):
    """Neither for data that would be made first, nor for proposals that came back later than what rests on them."""
    scale = checkout / "config/scales/smoke.yaml"
    told = scale.read_text(encoding="utf-8").replace("methods: [pcbf, iql, random]", "methods: [pcbf, iql, bc]")
    told = told.replace("default: {hidden_sizes: [8, 8]}", "default: {hidden_sizes: [8, 8], proposal_training: frozen}")
    scale.write_text(told, encoding="utf-8")
    results = write_finished_scale(checkout)
    publish_finished(checkout, "smoke")
    shutil.rmtree(results)
    restore(checkout, "smoke")
    assert plan(checkout, "runs", "--config", "scale=smoke") == {}
    for receipt in JobFiles.of_seeds(results, TASK, "iql", (0, 1)).receipts:
        receipt.unlink()
    wanted = {"make_data": 1, "train": 1, "evaluate": 1, "runs": 1}
    assert plan(checkout, "runs", "--config", "scale=smoke") == wanted


@pytest.mark.parametrize(
    ("flags", "given", "wanted"),
    [
        ("avx2 avx512f avx512cd avx512bw avx512dq avx512vl", {}, {"OPENBLAS_CORETYPE": KERNELS}),
        (
            "avx2 avx512f avx512cd avx512bw avx512dq avx512vl",
            {"OPENBLAS_CORETYPE": "Zen"},
            {"OPENBLAS_CORETYPE": "Zen"},
        ),
        ("avx2 avx512f", {}, {}),
        ("avx2", {"OPENBLAS_CORETYPE": KERNELS}, {}),
    ],
    ids=["able", "told otherwise", "not able", "of a scheduler that was able"],
)
def test_jobs_multiply_by_the_kernels_that_made_the_published_data(tmp_path, flags, given, wanted):
    cpu, environment = tmp_path / "cpuinfo", dict(given)
    cpu.write_text(f"flags\t\t: fpu {flags}\n", encoding="utf-8")
    name_kernels(environment, cpu)
    assert environment == wanted


@pytest.mark.slow
def test_one_table_of_the_control_suite_asks_for_runs_and_no_toys(checkout, plan):
    jobs = plan(checkout, "results/smoke/tables/aggregated.csv")
    wanted = ("make_data", "train", "evaluate", "ablate", "evaluate_ablation", "collect", "tables_control")
    assert jobs == {rule: everything("smoke")[rule] for rule in wanted}


@pytest.mark.slow
def test_the_laptop_scale_is_the_default(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run")
    assert "results/laptop/report/index.html" in done.stdout
    assert "results/smoke" not in done.stdout


@pytest.mark.slow
def test_one_figure_asks_for_its_own_runs_only(checkout, plan):
    assert plan(checkout, "results/smoke/figures/residual.pdf") == {"toy": 2, "figures_residual": 1}


@pytest.mark.slow
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
            collected = {"toy/runs/": layout.TOY_W1, "exact/runs/": layout.EXACT_RESULTS}
            collected["calibration/runs/"] = layout.CALIBRATION_RESULTS  # from all runs
            stands_for = made_by(next((file for folder, file in collected.items() if name.startswith(folder)), name))
            found = [path.startswith((made_by(name), stands_for)) for path in planned[output]]
            assert any(found), (output, name)


def made_by(name: str) -> str:
    """How the path of the declared file begins that stands for a record, or for a folder of them."""
    declared = {"cost": layout.CONTROL_EVALUATIONS, "renders": layout.RENDERED}
    return f"results/smoke/{declared.get(name.partition('/')[0], name)}"


@pytest.mark.slow
def test_snakemakes_own_lint_is_content(checkout, run_module):
    done = run_module(checkout, "snakemake", "--lint")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_bad_override_stops_snakemake_with_a_sentence(checkout, run_module):
    done = run_module(checkout, "snakemake", "--dry-run", *config_of("smoke", toy={"num_steps": -5}))
    assert done.returncode != 0
    assert done.stderr.strip().endswith("--config: toy.num_steps = -5: must be >= 1")


# --- the whole pipeline -------------------------------------------------------------------------------------------


@pytest.fixture
def smoke_copy(smoke, tmp_path) -> Path:
    """A copy of the finished checkout, dates included, to change."""
    return Path(shutil.copytree(smoke, tmp_path / "checkout", symlinks=True))


def of_method(results: Path, method: str) -> JobFiles:
    """The files of a training job of the smoke scale."""
    return JobFiles.of_seeds(results, TASK, method, (0, 1))


def trained_files(results: Path) -> dict[Path, bytes]:
    """What training leaves besides records: metrics, checkpoints and snapshots."""
    found = [path for name in ("metrics", "checkpoints", "snapshots") for path in results.rglob(f"{name}/**/*.*")]
    return {path.relative_to(results): path.read_bytes() for path in found}


def scores(results: Path) -> dict[Path, list[tuple[float, ...]]]:
    """The scores of all episodes of all evaluations, by file."""
    folders = [results, *layout.ablation_folders(results)]
    found = [path for folder in folders for path in layout.evaluation_files(folder)]
    return {path.relative_to(results): [e.scores for e in load_evaluations(path).evaluations] for path in found}


@pytest.mark.slow
class TestSmoke:
    def test_everything_is_there(self, smoke):
        assert f"all {sum(everything('smoke').values())} jobs done" in said_by(smoke).read_text(encoding="utf-8")
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
        rows = read_rows(smoke / SMOKE / layout.TOY_W1)
        assert list(rows[0]) == list(W1_COLUMNS)
        assert all(float(row["w1"]) >= 0 for row in rows)
        found = [row for row in rows if (row["env"], row["method"]) == ("bernoulli", "value_flows")]
        assert len(found) == toy["num_seeds"] * len(toy["dcfm_weights"]["bernoulli"])

    def test_a_second_run_does_nothing(self, smoke_copy, run_module):
        done = run_module(smoke_copy, "pcbf_experiments.campaign.watch", "--", "snakemake", "--config", "scale=smoke")
        assert done.returncode == 0
        assert "nothing to do" in done.stdout

    def test_touching_code_or_notes_or_how_a_rule_calls_its_command_makes_nothing_again(self, smoke_copy, plan):
        (smoke_copy / "NOTES.md").write_text("a note\n", encoding="utf-8")
        for rules in (smoke_copy / "rules/data.smk", smoke_copy / "rules/toy.smk"):
            commands = rules.read_text(encoding="utf-8")
            rules.write_text(commands.replace("JAX_PLATFORMS=cpu", "JAX_PLATFORMS=cpu TZ=UTC"), encoding="utf-8")
        for path in (smoke_copy / "packages").rglob("*.py"):
            path.touch()
        assert plan(smoke_copy, *config_of("smoke")) == {}

    def test_other_dcfm_weights_train_value_flows_only(self, smoke_copy, plan):
        weights = {process: [0.0, 1.0] for process in PAPER_PROCESSES}
        jobs = plan(smoke_copy, *config_of("smoke", toy={"dcfm_weights": weights}))
        assert jobs["toy"] == len(PAPER_PROCESSES)
        assert "theory" not in jobs

    def test_another_theory_seed_trains_nothing(self, smoke_copy, plan):
        jobs = plan(smoke_copy, *config_of("smoke", theory={"seed": 1}))
        made = ("theory", "tables_toy", "figures_distances", "claims", "manifest", "report", "all")
        assert jobs == dict.fromkeys(made, 1)

    def test_a_new_version_of_a_method_trains_that_method_only(self, smoke_copy, plan):
        rules = smoke_copy / "rules/toy.smk"
        text = rules.read_text(encoding="utf-8")
        version = yaml.safe_load(text.partition("TOY_VERSION = ")[2].partition("\n")[0])
        changed = {**version, "pcbf-independent": version["pcbf-independent"] + 1}
        rules.write_text(text.replace(json.dumps(version), json.dumps(changed)), encoding="utf-8")
        assert plan(smoke_copy, *config_of("smoke"))["toy"] == len(PAPER_PROCESSES)

    def test_a_change_of_the_analysis_code_draws_again_and_trains_nothing(self, smoke_copy, plan):
        with (smoke_copy / "packages/pcbf-analysis/src/pcbf_analysis/theme.py").open("a", encoding="utf-8") as file:
            file.write("\n# a change\n")
        jobs = plan(smoke_copy, *config_of("smoke"))
        assert jobs == dict.fromkeys([*ARTEFACT_RULES, "all"], 1)

    @pytest.mark.parametrize(
        ("name", "rule"),
        [
            (layout.toy_run("chain", "pcbf"), "toy"),
            (layout.exact_run("cliff", "iqn"), "exact"),
            (layout.EXACT_OPTIMA, "exact_collect"),
            (layout.calibration_run("hopper", "gaussian"), "calibrate"),
            (layout.THEORY_CHECKS, "theory"),
            (layout.TOY_W1, "toy_collect"),
            (layout.CONTROL_EVALUATIONS, "collect"),
            (of_method(Path(), "iql").receipt, "train"),
            (of_method(Path(), "iql").evaluation_receipt, "evaluate"),
            (of_method(Path(), "iql").record(0), "train"),
            (of_method(Path(), "iql").evaluations(1), "evaluate"),
        ],
        ids=str,
    )
    def test_a_lost_record_is_made_again(self, smoke_copy, plan, name, rule):
        (smoke_copy / SMOKE / name).unlink()
        assert plan(smoke_copy, *config_of("smoke"))[rule] == 1

    @pytest.mark.parametrize("changed", [{"num_episodes": 2}, {"success_timing": "post"}])
    def test_another_way_to_judge_plays_again_and_trains_nothing(self, smoke_copy, plan, changed):
        jobs = plan(smoke_copy, *config_of("smoke", control={"run": {"evaluation": changed}}))
        again = {rule: everything("smoke")[rule] for rule in ("evaluate", "evaluate_ablation", *OF_CONTROL)}
        assert jobs == again

    def test_records_that_are_lost_or_edited_are_made_again_from_checkpoints_and_snapshots(
        self, smoke, smoke_copy, run_module
    ):
        """Four faults, each in a job of its own, which the same command mends; the dry run names and plans them."""
        results = smoke_copy / SMOKE
        lost_run, lost_judged = of_method(results, "iql").record(0), of_method(results, "pcbf").evaluations(1)
        edited_run = of_method(results, "random").record(1)
        edited_judged = of_method(results / layout.ablation("control_weight=0.5"), "pcbf").evaluations(0)
        lost_run.unlink()
        lost_judged.unlink()
        save_run(edited_run, replace(load_run(edited_run), steps=21))
        judged = load_evaluations(edited_judged)
        save_evaluations(edited_judged, judged.added(replace(judged.evaluations[-1], scores=(77.0,))))
        before = trained_files(results)

        dry, planned = scheduled(run_module, smoke_copy, *config_of("smoke"), "--dry-run")
        for path, fault in (
            (lost_run, "is missing"),
            (lost_judged, "is missing"),
            (edited_run, "has changed since it was made"),
            (edited_judged, "has changed since it was made"),
        ):
            assert f"{path.relative_to(smoke_copy)} {fault}; its job runs again" in dry.stdout + dry.stderr
        jobs = {"train": 2, "evaluate": 3, "evaluate_ablation": 1, **dict.fromkeys(OF_CONTROL, 1)}
        assert planned == jobs
        assert trained_files(results) == before
        assert edited_run.exists() and of_method(results, "iql").receipt.exists()  # a dry run leaves all as it is

        done, planned = scheduled(run_module, smoke_copy, "--cores", "2", *config_of("smoke"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert planned == jobs
        for method in ("iql", "random"):
            assert "resuming from step 20" in of_method(results, method).log("train").read_text(encoding="utf-8")
        assert trained_files(results) == before
        assert scores(results) == scores(smoke / SMOKE)
        made = {path.name: path.read_bytes() for path in (results / "tables").iterdir()}
        undisturbed = {path.name: path.read_bytes() for path in (smoke / SMOKE / "tables").iterdir()}
        depends_on_time = {name for name in made if Path(name).stem in MACHINE_DEPENDENT}
        assert {n: made[n] for n in made if n not in depends_on_time} == {
            n: undisturbed[n] for n in undisturbed if n not in depends_on_time
        }
        assert scheduled(run_module, smoke_copy, *config_of("smoke"), "--dry-run")[1] == {}

    def test_new_dates_of_data_and_all_else_train_nothing(self, smoke_copy, plan):
        """What `git clone` and `dvc pull` do: every file is there, its date is any, Snakemake's memory is gone."""
        shutil.rmtree(smoke_copy / ".snakemake")
        for path in (smoke_copy / "data").rglob("*"):
            os.utime(path, (2e9, 2e9))  # newer than every record
        jobs = plan(smoke_copy, *config_of("smoke"))
        assert not {"train", "ablate", "evaluate", "evaluate_ablation", "make_data", "toy", "calibrate"} & set(jobs)

    def test_a_new_version_of_a_control_method_trains_its_runs_only(self, smoke_copy, plan):
        sheet = smoke_copy / "config/methods.tsv"
        text = sheet.read_text(encoding="utf-8")
        sheet.write_text(text.replace("iql\tIQL\t1\t1", "iql\tIQL\t1\t2"), encoding="utf-8")
        jobs = plan(smoke_copy, *config_of("smoke"))
        assert jobs["train"] == jobs["evaluate"] == 1
        pairs = exact_pairs(load_scale(REPOSITORY / "config/scales/smoke.yaml"))
        assert jobs["exact"] == sum(base_method(method) == "iql" for _, method in pairs)  # its variants included
        assert not {"ablate", "toy", "make_data"} & set(jobs)

    def test_other_settings_of_a_control_method_train_its_runs_only(self, smoke_copy, plan):
        jobs = plan(smoke_copy, *config_of("smoke", control={"method_settings": {"pcbf": {"num_candidates": 2}}}))
        assert (jobs["train"], jobs["ablate"]) == (1, 1)
        assert not {"toy", "exact", "make_data"} & set(jobs)

    def test_publishing_and_rebuilding_from_what_is_published(self, smoke_copy, run_module, tmp_path):
        """Publish, let DVC make the artefacts, and have a fresh clone find and remake the very same bytes."""
        done = run_module(smoke_copy, "pcbf_experiments.campaign.publish", "smoke")
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
        assert {"data/dvc.yaml:official", "results/dvc.yaml:runs@paper", "figures_of_laws@smoke"} <= set(stages)
        shutil.rmtree(clone / "results/published/smoke/tables")
        (clone / "results/published/smoke/claims.csv").unlink()
        again = run_module(clone, "dvc", "repro")
        assert again.returncode == 0, again.stdout + again.stderr
        assert "pcbf-toy" not in again.stdout
        assert "pcbf-train" not in again.stdout
        assert git(clone, "status", "--porcelain") == ""


# --- what belongs together ----------------------------------------------------------------------------------------


def test_dvc_makes_figures_tables_and_report_and_trains_nothing():
    pipeline = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))
    whole, begun = (names for var in pipeline["vars"] for names in var.values())
    assert sorted({*whole, *begun}) == sorted([*whole, *begun]) and {*whole, *begun} <= set(SCALES)
    commands = {name: stage["cmd"].partition("$PATH ")[2] for name, stage in pipeline["stages"].items()}
    assert "pcbf-collect" in commands["unfinished"] and "pcbf-table" in commands.pop("unfinished")
    made_from = "--results results/published/${item.scale}"
    drawn = {name: commands.pop(name) for name in list(commands) if name.startswith("figures_of_")}
    assert all(told.startswith("pcbf-figure ") and told.endswith(f" --jobs 2 {made_from}") for told in drawn.values())
    assert commands == {
        "tables": f"pcbf-table all {made_from}",
        "claims": f"pcbf-claims {made_from}",
        "report": f"pcbf-report {made_from}",
    }
    outs = [out for stage in pipeline["stages"].values() for out in stage["outs"]]
    assert all(options == {"cache": False} for out in outs for options in out.values())  # they are in git


def test_every_figure_is_drawn_by_one_stage_which_has_the_records_that_it_reads():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    folder, made = "results/published/${item.scale}", []
    for stage in (stage for name, stage in stages.items() if name.startswith("figures_of_")):
        labels = stage["cmd"].partition("pcbf-figure ")[2].partition(" --jobs")[0].split()
        figures = [artefacts.of_kind("figure")[label] for label in labels]
        wanted = [f"{folder}/figures/{figure.label}.{ending}" for figure in figures for ending in figure.formats]
        assert [name for out in stage["outs"] for name in out] == wanted
        assert {f"{folder}/{name.partition('/')[0]}" for figure in figures for name in figure.inputs} <= {
            *stage["deps"]
        }
        made += labels
    assert sorted(made) == sorted(artefacts.of_kind("figure"))


@pytest.mark.slow
@pytest.mark.skipif(not (REPOSITORY / "dvc.lock").exists(), reason="nothing is published yet")
def test_what_is_published_is_up_to_date(run_module):
    done = run_module(REPOSITORY, "dvc", "status", "--json", "dvc.yaml")  # not the stages that fetch and train
    assert json.loads(done.stdout) == {}, "run `dvc repro` and commit what it changes"


@pytest.mark.parametrize("scale", SCALES)
def test_records_of_a_scale_are_named_once(scale):
    plan = load_plan(REPOSITORY, {"scale": scale})
    names = record_names(plan.settings[scale], plan.sheets)
    num_runs = sum(len(job.seeds) for job in plan.jobs(scale))
    num_jobs = sum(len(pairs(plan.settings[scale])) for pairs in (toy_pairs, exact_pairs, calibration_pairs))
    num_fixed = num_jobs + 3 + 2 + 1 + 2 + 2  # and the tables of toys, exact control, calibration; theory; the suite's
    assert len(names) == len(set(names)) == num_fixed + 2 * num_runs  # run and evaluation records


def test_every_kind_of_record_is_published_and_read_by_a_stage():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    read = {name for stage in stages.values() for name in stage["deps"]}
    collected = {"runs", "evaluations"}  # into the table in control/, which stages read instead
    for folder in {*layout.RECORD_FOLDERS} - collected:
        assert f"results/published/${{item.scale}}/{folder}" in read
    assert {Path(layout.CONTROL_EVALUATIONS).parts[0], *collected} <= set(layout.RECORD_FOLDERS)


@pytest.mark.parametrize("folder", ["data", "results"])
def test_the_stages_that_fetch_and_train_keep_what_is_there(folder):
    stages = yaml.safe_load((REPOSITORY / folder / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    for stage in stages.values():
        assert stage["wdir"] == ".."
        assert "snakemake" in stage["cmd"]
        assert all(options["persist"] for out in stage["outs"] for options in out.values())
