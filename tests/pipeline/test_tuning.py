"""The search for settings: what is refused before a job starts, which jobs it is, and that it stays apart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pcbf_experiments.campaign.compare import compare
from pcbf_experiments.campaign.manifest import build_manifest
from pcbf_experiments.campaign.plan import Plan, changed_settings, cloning_folder, control_names, load_plan, train_job
from pcbf_experiments.campaign.settings import SettingsError
from pcbf_experiments.campaign.watch import plan_work
from pcbf_records import layout
from pcbf_records.canonical import readable_json
from pcbf_records.control import collect_control
from pcbf_records.files import write_text

from .conftest import REPOSITORY, Runner, write_finished_scale, write_job
from .test_workflow import config_of, scheduled

TASK = "cube-single-play-singletask-task1-v0"
TRIALS = {
    "bc": ["num_candidates=1", "learning_rate=0.001"],
    "pcbf": ["discount=0.98", "discount=0.99"],
    "iql": ["expectile=0.7", "expectile=0.9"],
}
SUITE = {
    "methods": ["pcbf", "iql", "bc", "random"],
    "method_settings": {"default": {"hidden_sizes": [8, 8], "proposal_training": "frozen"}},
}


def searched(**changes: Any) -> dict[str, Any]:
    """The control section of a scale with a search; `changes` replace its parts, None takes one out."""
    search = {"task": TASK, "seeds": [100, 101], "trials": TRIALS, **changes}
    return {**SUITE, "tuning": {name: value for name, value in search.items() if value is not None}}


def plan_of(control: dict[str, Any]) -> Plan:
    return load_plan(REPOSITORY, {"scale": "smoke", "control": control})


def replaced(**trials: list[str]) -> dict[str, list[str]]:
    return {**TRIALS, **trials}


def without(method: str) -> dict[str, list[str]]:
    return {name: trials for name, trials in TRIALS.items() if name != method}


@pytest.mark.parametrize(
    ("control", "sentence"),
    [
        (searched(task="cube-single"), 'control.tuning.task = "cube-single": unknown'),
        (searched(task=None), "control.tuning.task is missing: must be a name"),
        (searched(seeds=[]), "control.tuning.seeds = []: must be a list of at least 1"),
        (searched(seeds=[1, 100]), "control.tuning.seeds = [1, 100]: the suite reports 1; choose seeds from 2 on"),
        (
            searched(trials=replaced(pcbf=["discount=0.98"])),
            "control.tuning.trials: iql has 2 and pcbf has 1: must be as many for every method",
        ),
        (searched(trials=without("iql")), "control.tuning.trials: pcbf has 2 and iql has 0: must be as many"),
        (
            searched(trials=without("bc")),
            "control.tuning.trials: has no bc, which clones the frozen proposal of pcbf; add it",
        ),
        (searched(trials={**TRIALS, "iqll": []}), "control.tuning.trials.iqll = []: must be a list of at least 1"),
        (searched(trials={**TRIALS, "iqll": ["a=1"]}), 'control.tuning.trials = "iqll": unknown; did you mean iql?'),
        (
            searched(trials=replaced(iql=["expectil=0.7", "expectile=0.9"])),
            "control.tuning.trials.iql.expectil = 0.7: unknown key; did you mean expectile?",
        ),
        (
            searched(trials=replaced(pcbf=["discount=0.98", "control_weight=1.4"])),
            "control.tuning.trials.pcbf.control_weight = 1.4: must be a number >= 0 and <= 1",
        ),
        (
            searched(trials=replaced(pcbf=["discount=0.98", "discount"])),
            'control.tuning.trials.pcbf = "discount": must be <setting>=<value> in one word, such as discount=0.99',
        ),
        (searched(trials=replaced(pcbf=["discount=0.98", "hidden_sizes=[8"])), 'trials.pcbf = "hidden_sizes=[8": must'),
        (searched(trials=replaced(pcbf=["discount=0.98", "discount=0.980"])), "is there already, written otherwise"),
        (
            searched(method_settings={"pcbf": {"discont": 0.9}}),
            "control.tuning.method_settings.pcbf.discont = 0.9: unknown key; did you mean discount?",
        ),
        (
            {**searched(), "keep_snapshots": "none"},
            'control.keep_snapshots = "none": removes the frozen proposal of pcbf; keep "final" or "all"',
        ),
        (
            searched(
                task="visual-cube-double-play-singletask-task1-v0",
                trials={**TRIALS, "c51": ["discount=0.98", "discount=0.99"]},
            ),
            "has images, which c51 cannot take; choose one without",
        ),
    ],
)
def test_a_search_that_is_unequal_or_cannot_be_run_is_told_in_a_sentence(control, sentence):
    with pytest.raises(SettingsError) as error:
        plan_of(control)
    assert sentence in str(error.value)


def test_every_trial_of_every_method_is_a_job_on_the_seeds_of_the_search():
    plan = plan_of({**searched(), "seeds_per_job": 1})
    jobs = plan.tuning("smoke")
    assert [(job.method, job.change, job.seeds) for job in jobs] == [
        (method, f"tuning-{trial}", (seed,))
        for method, trials in TRIALS.items()
        for trial in trials
        for seed in (100, 101)
    ]
    assert plan.describe().endswith("tuning 12 runs in 12 jobs")
    assert set(jobs) <= set(plan.selected())
    names = control_names(plan.settings["smoke"], plan.sheets)
    assert len(names) == len({*names}) and {name for job in jobs for name in job.records} <= {*names}
    assert f"ablate-tuning-expectile=0.7-{TASK}-iql-seeds100" in plan_work(plan)


def test_a_scale_without_a_search_has_no_trials():
    plan = load_plan(REPOSITORY, {"scale": "smoke"})
    assert plan.tuning("smoke") == [] and "tuning" not in plan.describe()


def test_a_trial_is_the_suites_job_with_one_setting_changed():
    plan = plan_of(searched())
    settings, place = plan.settings["smoke"], (TASK, "iql")
    own = train_job(settings, plan.sheets, *place)
    changed = train_job(settings, plan.sheets, *place, layout.tuning("expectile=0.7"))
    assert changed == {**own, "method": {**own["method"], "expectile": 0.7}}
    assert changed_settings("tuning-expectile=0.7") == changed_settings("expectile=0.7") == {"expectile": 0.7}


def test_a_choice_that_is_taken_over_trains_no_trial_again():
    """The search keeps what it started from, whatever the suite uses since."""
    start, chosen = {"pcbf": {"control_weight": 0.4}}, {"pcbf": {"control_weight": 0.2}}
    before = plan_of({**searched(), "method_settings": {**SUITE["method_settings"], **start}})
    after = plan_of({**searched(method_settings=start), "method_settings": {**SUITE["method_settings"], **chosen}})
    own, trials = (
        [train_job(plan.settings["smoke"], plan.sheets, TASK, "pcbf", change) for plan in (before, after)]
        for change in (None, "tuning-discount=0.98")
    )
    assert [job["method"]["control_weight"] for job in own] == [0.4, 0.2]
    assert trials[0] == trials[1]


def test_proposals_of_trials_come_from_the_first_trial_of_cloning():
    settings = plan_of(searched()).settings["smoke"]
    assert cloning_folder(settings, "tuning-discount=0.98") == layout.ablation("tuning-num_candidates=1")
    assert cloning_folder(settings) == cloning_folder(settings, "discount=0.98") == "."
    with pytest.raises(SettingsError, match=r"^tuning-a=1: control\.tuning\.trials has no bc"):
        cloning_folder(load_plan(REPOSITORY, {}).settings["laptop"], "tuning-a=1")


@pytest.mark.slow
def test_tune_plans_the_trials_and_nothing_else(checkout: Path, run_module: Runner):
    chosen = config_of("smoke", control=searched())
    done, jobs = scheduled(run_module, checkout, "tune", *chosen, "--dry-run", "--printshellcmds")
    assert done.returncode == 0, done.stderr
    num_trials = sum(map(len, TRIALS.values()))
    assert jobs == {"make_data": 1, "ablate": num_trials, "evaluate_ablation": num_trials, "tune": 1}
    results = Path(layout.scale_folder("smoke"))
    cloner = layout.JobFiles.of_seeds(results / layout.ablation("tuning-num_candidates=1"), TASK, "bc", (100, 101))
    option = " ".join(["--proposal", *(cloner.snapshot(seed, 20).as_posix() for seed in (100, 101))])
    assert done.stdout.count(option) == done.stdout.count("--proposal") == len(TRIALS["pcbf"])
    assert done.stdout.count(f"pcbf-train {TASK} bc") == len(TRIALS["bc"])


@pytest.mark.slow
def test_tune_without_a_search_says_what_to_add(checkout: Path, run_module: Runner):
    done = run_module(checkout, "snakemake", "tune", "--dry-run", "--config", "scale=smoke")
    assert done.returncode != 0
    told = "tune: scale smoke has no trials to run; give config/scales/smoke.yaml a section control.tuning"
    assert done.stderr.strip().endswith(told)


@pytest.mark.slow
def test_the_collected_table_waits_for_trials_and_leaves_those_of_an_earlier_search(checkout: Path, run_module: Runner):
    earlier = checkout / layout.scale_folder("smoke") / layout.ablation("tuning-discount=0.9")
    write_job(layout.JobFiles.of_seeds(earlier, TASK, "pcbf", (100, 101)), {100: 1.0, 101: 2.0})
    table = f"{layout.scale_folder('smoke')}/{layout.CONTROL_EVALUATIONS}"
    done, jobs = scheduled(run_module, checkout, table, *config_of("smoke", control=searched()), "--dry-run")
    assert "tuning-discount=0.9/" not in done.stdout
    assert jobs["ablate"] == 1 + sum(map(len, TRIALS.values()))  # and the ablation of the smoke scale


def test_a_search_that_only_one_folder_has_is_not_compared(checkout: Path):
    published = write_finished_scale(checkout)
    ours = published.with_name("ours")
    shutil.copytree(published, ours)
    plan = load_plan(checkout, {"scale": "smoke"})
    trial = layout.JobFiles.of_seeds(ours / layout.ablation("tuning-discount=0.9"), TASK, "pcbf", (100,))
    write_job(trial, {100: 7.0})
    collect_control(ours, plan.sheets.tasks)
    for folder, text in ((ours, "a trial"), (published, "none")):
        write_text(folder / layout.table("tuning", "csv"), text)
    write_text(ours / layout.MANIFEST, readable_json(build_manifest(ours, plan.settings["smoke"], plan.sheets)))
    comparison = compare(ours, published)
    assert comparison.one_sided == [layout.ablation("tuning-discount=0.9")]
    assert comparison.names("differs") == []
