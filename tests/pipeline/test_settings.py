"""Settings of a scale: what is refused and how, and how they are cut into jobs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pcbf_core.config import config_from
from pcbf_core.flow import SOLVERS
from pcbf_core.mdp import MDPS as PROBLEMS
from pcbf_core.mrp import MRPS
from pcbf_core.networks import ACTIVATIONS
from pcbf_core.types import TaskSpec
from pcbf_experiments.calibration import CalibrationSettings, make_critic
from pcbf_experiments.campaign.plan import evaluate_job, load_plan, takes_proposal, train_job
from pcbf_experiments.campaign.settings import (
    SCALES,
    SettingsError,
    calibration_job,
    calibration_pairs,
    calibration_source,
    exact_job,
    exact_pairs,
    jobs_per_gpu,
    load_scale,
    load_scales,
    toy_job,
    toy_work,
)
from pcbf_experiments.evaluation import EvaluationSettings
from pcbf_experiments.exact import ExactSettings, exact_agent
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.toy import ToySettings
from pcbf_records.calibration import CALIBRATED, DATASETS, MARGINAL
from pcbf_records.canonical import canonical_json, content_hash, differences
from pcbf_records.exact import MDPS
from pcbf_records.toy import PROCESSES, TOY_METHODS

REPOSITORY = Path(__file__).parents[2]
SMOKE = REPOSITORY / "config/scales/smoke.yaml"


@pytest.fixture
def laptop(checkout: Path) -> Path:
    return checkout / "config/scales/laptop.yaml"


def edit(path: Path, **changes: Any) -> None:
    """Replace values of the toy section in a scale file; None removes the key."""
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["toy"].update(changes)
    settings["toy"] = {name: value for name, value in settings["toy"].items() if value is not None}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_is_valid(scale):
    settings = load_scale(REPOSITORY / f"config/scales/{scale}.yaml")
    assert set(settings) == {"toy", "theory", "exact", "calibration", "control", "renders"}


def test_no_scale_file_is_unknown():
    assert {path.stem for path in (REPOSITORY / "config/scales").iterdir()} == set(SCALES)


def test_schema_knows_the_core():
    schema = yaml.safe_load((REPOSITORY / "config/schemas/scale.schema.yaml").read_text(encoding="utf-8"))
    toy, grids = schema["properties"]["toy"]["properties"], schema["$defs"]["control_weights"]["properties"]
    assert set(toy["solver"]["enum"]) == set(SOLVERS)
    assert set(toy["activation"]["enum"]) == set(ACTIVATIONS)
    assert set(toy) == set(schema["properties"]["toy"]["required"])
    assert list(grids) == list(PROCESSES) == list(MRPS) == toy["processes"]["items"]["enum"]
    assert toy["methods"]["items"]["enum"] == list(TOY_METHODS)
    exact = schema["properties"]["exact"]
    assert exact["properties"]["mdps"]["items"]["enum"] == list(MDPS)
    assert exact["properties"]["variant_mdps"]["items"]["enum"] == list(MDPS)
    assert set(exact["properties"]) == set(exact["required"])
    calibration = schema["properties"]["calibration"]
    assert list(calibration["properties"]["datasets"]["properties"]) == list(DATASETS)
    assert calibration["properties"]["variant_datasets"]["items"]["enum"] == list(DATASETS)
    assert calibration["properties"]["methods"]["items"]["enum"] == list(CALIBRATED)
    assert set(calibration["properties"]) == set(calibration["required"])
    assert {process: grid["items"]["maximum"] for process, grid in grids.items()} == {
        process: MRPS[process].discount for process in MRPS
    }


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_steps": -5}, "toy.num_steps = -5: must be >= 1"),
        ({"num_steps": 50.0}, "toy.num_steps = 50.0: must be an integer >= 1"),
        ({"num_steps": True}, "toy.num_steps = true: must be an integer >= 1"),
        ({"hold_fraction": 1.5}, "toy.hold_fraction = 1.5: must be >= 0 and <= 1"),
        ({"polyak_rate": float("nan")}, "toy.polyak_rate = NaN: must be a number > 0 and <= 1"),
        ({"learning_rate": "5e-3"}, "must be a number > 0; YAML reads this as text, write 0.005"),
        ({"solver": "heunn"}, 'toy.solver = "heunn": must be one of euler, midpoint, heun; did you mean heun?'),
        ({"stratified": "yes"}, 'toy.stratified = "yes": must be true or false'),
        ({"hidden_sizes": []}, "toy.hidden_sizes = []: must be a list of at least 1"),
        ({"hidden_sizes": [64, 0]}, "toy.hidden_sizes[1] = 0: must be >= 1"),
        (
            {"dcfm_weights": {name: [0.0] * (1 + (name == "solitaire")) for name in PROCESSES}},
            "toy.dcfm_weights.solitaire = [0.0, 0.0]: must be a list without repetition",
        ),
        ({"num_step": 3}, "toy.num_step = 3: unknown key; did you mean num_steps?"),
        ({"num_steps": None}, "toy.num_steps is missing: must be an integer >= 1"),
        (
            {"control_weights": {name: [0.6 if name == "bernoulli" else 0.0] for name in PROCESSES}},
            "[0] = 0.6: must be >= 0 and <= 0.5",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(laptop, changes, sentence):
    edit(laptop, **changes)
    with pytest.raises(SettingsError) as error:
        load_scale(laptop)
    assert str(error.value).startswith("config/scales/laptop.yaml: toy.")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_every_fault_has_its_sentence(laptop):
    edit(laptop, num_steps=0, batch_size=0)
    with pytest.raises(SettingsError) as error:
        load_scale(laptop)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("toy: [", "line 1 cannot be read as YAML"),
        ("toy: {num_steps: 1,\n  num_steps: 2}", "line 2 cannot be read as YAML: the key num_steps stands there twice"),
        ("5", "holds 5: must be a mapping of sections"),
    ],
)
def test_an_unreadable_file_is_named_with_the_line(laptop, text, sentence):
    laptop.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"^config/scales/laptop\.yaml: ") as error:
        load_scale(laptop)
    assert sentence in str(error.value)


def test_overrides_replace_key_by_key_and_lists_whole():
    plain, changed = load_scale(SMOKE), load_scale(SMOKE, {"toy": {"num_steps": 50, "hidden_sizes": [8]}})
    assert changed["toy"] == {**plain["toy"], "num_steps": 50, "hidden_sizes": [8]}
    assert changed["theory"] == plain["theory"]


def test_a_bad_override_is_blamed_on_the_command_line():
    with pytest.raises(SettingsError, match=r"^--config: toy\.num_steps = -5: must be >= 1$"):
        load_scale(SMOKE, {"toy": {"num_steps": -5}})


def test_snakemake_hands_over_text_and_it_is_read_as_json():
    config = {
        "scale": "smoke",
        "toy": {"num_steps": "50", "learning_rate": "1e-3", "solver": "heun", "stratified": "false"},
    }
    scale, settings = load_scales(REPOSITORY, config)
    toy = settings["smoke"]["toy"]
    assert scale == "smoke"
    assert (toy["num_steps"], toy["learning_rate"], toy["solver"], toy["stratified"]) == (50, 0.001, "heun", False)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"scale": "laptp"}, "scale = laptp: must be one of smoke, laptop, desk, paper; did you mean laptop?"),
        ({"scal": "smoke"}, '--config: scal = "smoke": unknown key; did you mean scale?'),
        (
            {"xyz": "1"},
            "--config: xyz = 1: unknown key; known are scale, tasks, domains, methods, jobs_per_gpu, toy, theory, "
            "exact, calibration, control, renders",
        ),
    ],
)
def test_an_unknown_scale_or_section_gets_a_suggestion(config, sentence):
    with pytest.raises(SettingsError) as error:
        load_scales(REPOSITORY, config)
    assert str(error.value) == sentence


# --- settings of methods --------------------------------------------------------------------------------------------


def with_method_settings(checkout: Path, **changes: Any) -> Path:
    """A repository whose smoke scale has these method settings."""
    path = checkout / "config/scales/smoke.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["control"]["method_settings"].update(changes)
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return checkout


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"default": {"hiden_sizes": [8, 8]}},
            "default.hiden_sizes = [8, 8]: no method has it; did you mean hidden_sizes?",
        ),
        ({"default": {"num_cosines": 8}}, "default.num_cosines = 8: no method has it"),  # IQN's, which smoke lacks
        ({"default": {"hidden_sizes": 8}}, "default.hidden_sizes = 8: must be a list, each item an integer >= 1"),
        ({"iql": {"control_weight": 0.4}}, "iql.control_weight = 0.4: unknown key; known are "),
        (
            {"pcbf": {"control_weight": 1.4}},
            "pcbf.control_weight = 1.4: must be a number >= 0 and <= 1 or one",
        ),
        ({"pcbf": {"num_critics": 2.5}}, "pcbf.num_critics = 2.5: must be an integer >= 1"),
    ],
)
def test_settings_that_no_method_reads_are_refused(checkout, changes, sentence):
    root = with_method_settings(checkout, **changes)
    with pytest.raises(SettingsError) as error:
        load_plan(root, {"scale": "smoke"})
    assert f"config/scales/smoke.yaml: control.method_settings.{sentence}" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_settings_that_some_method_reads_are_taken(checkout):
    load_plan(
        with_method_settings(checkout, default={"expectile": 0.8}, pcbf={"variant": "released"}), {"scale": "smoke"}
    )


FROZEN = {"default": {"hidden_sizes": [8, 8], "proposal_training": "frozen"}}


def test_methods_that_search_or_distil_take_a_frozen_proposal_and_others_have_none():
    control = {"methods": ["pcbf", "c51", "fql", "iql", "bc"], "method_settings": {**FROZEN, "c51": {"num_atoms": 5}}}
    plan = load_plan(REPOSITORY, {"scale": "smoke", "control": control})
    settings, task = plan.settings["smoke"], plan.control("smoke")[0].task
    takers = [method for method in control["methods"] if takes_proposal(settings, plan.sheets, task, method)]
    assert takers == ["pcbf", "c51", "fql"]
    assert not takes_proposal(settings, plan.sheets, task, "pcbf", "proposal_training=joint")
    paper = load_plan(REPOSITORY, {}).settings["paper"]
    assert not takes_proposal(paper, plan.sheets, task, "pcbf")
    assert takes_proposal(paper, plan.sheets, task, "pcbf", "proposal_training=frozen")


@pytest.mark.parametrize(
    ("control", "sentence"),
    [
        ({}, "control.methods: has no bc, which clones the frozen proposal of pcbf; add it"),
        (
            {"methods": ["pcbf", "bc"], "keep_snapshots": "none"},
            'control.keep_snapshots = "none": removes the frozen proposal of pcbf; keep "final" or "all"',
        ),
        (
            {"methods": ["pcbf", "bc"], "run": {"redraw_every": 7}},
            "control.run.redraw_every = 7: must be a multiple of control.run.log_every = 5",
        ),
        (
            {"method_settings": {"pcbf": {"proposal_training": "frosen"}}},
            'control.method_settings.pcbf.proposal_training = "frosen": must be one of joint, frozen',
        ),
    ],
)
def test_what_a_frozen_proposal_lacks_is_told(control, sentence):
    with pytest.raises(SettingsError) as error:
        load_plan(REPOSITORY, {"scale": "smoke", "control": {"method_settings": FROZEN, **control}})
    assert sentence in str(error.value)


def test_wrong_settings_of_a_domain_are_named(checkout):
    path = checkout / "config/methods.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("control_weight:", "control_wieght:", 1), encoding="utf-8")
    with pytest.raises(
        SettingsError, match=r"^config/methods\.yaml: domains\..*\.methods\.pcbf\.control_wieght = .*control_weight\?"
    ):
        load_plan(checkout, {"scale": "smoke"})


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "two"])
def test_jobs_per_gpu_is_a_number_of_jobs(value):
    with pytest.raises(SettingsError, match="^--config: jobs_per_gpu = .*: must be an integer >= 1$"):
        jobs_per_gpu({"jobs_per_gpu": value})
    assert (jobs_per_gpu({}), jobs_per_gpu({"jobs_per_gpu": 2})) == (None, 2)


# --- anything at all ------------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 30),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.integers(0, 3), max_size=2),
    st.builds(dict),
    st.builds(dict, a=st.just(1)),
)


def places(tree: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where every value of nested settings stands."""
    if not isinstance(tree, dict):
        return [above]
    return [above, *(place for name, value in tree.items() for place in places(value, (*above, name)))]


@pytest.mark.slow
@hypothesis.settings(max_examples=150)
@given(choice=st.data())
def test_any_change_of_a_scale_is_a_plan_or_a_sentence(choice):
    settings = yaml.safe_load(SMOKE.read_text(encoding="utf-8"))
    for _ in range(choice.draw(st.integers(1, 3))):
        place = choice.draw(st.sampled_from([place for place in places(settings) if place]))
        name = choice.draw(st.sampled_from([place[-1], "nonsense"]))
        part = settings
        for key in place[:-1]:
            part = part[key]
        part[name] = choice.draw(VALUES)
    overrides = {name: settings[name] for name in settings}
    try:
        plan = load_plan(REPOSITORY, {"scale": "smoke", **overrides})
    except SettingsError as error:
        lines = str(error).splitlines()
    else:
        lines = []
        for job in plan.selected():
            train_job(plan.settings["smoke"], plan.sheets, job.task, job.method, job.change or None)
    assert all(line.startswith(("--config", "config/")) for line in lines)


def test_laptop_is_the_default():
    assert load_scales(REPOSITORY, {})[0] == "laptop"


def test_a_job_depends_on_its_own_grid_only():
    plain = load_scale(SMOKE)
    changed = load_scale(SMOKE, {"toy": {"dcfm_weights": {"normal": [0.25]}, "control_weights": {"chain": [0.1]}}})
    different = {
        (process, method)
        for process in PROCESSES
        for method in TOY_METHODS
        if toy_job(plain, process, method) != toy_job(changed, process, method)
    }
    assert different == {("chain", "pcbf"), ("normal", "value_flows")}


@pytest.mark.parametrize("scale", SCALES)
def test_every_job_can_be_read_by_the_experiment(scale):
    settings = load_scale(REPOSITORY / f"config/scales/{scale}.yaml")
    for process, method in itertools.product(PROCESSES, TOY_METHODS):
        job = toy_job(settings, process, method)
        assert set(job) == {field.name for field in dataclasses.fields(ToySettings)}  # nothing is left to defaults
        assert config_from(ToySettings, job).num_steps == settings["toy"]["num_steps"]


@pytest.mark.parametrize("scale", SCALES)
def test_every_job_of_exact_control_makes_an_agent(scale):
    settings = load_scale(REPOSITORY / f"config/scales/{scale}.yaml")
    for mdp, method in exact_pairs(settings):
        job = exact_job(settings, method)
        default, own = job.pop("default"), job.pop("own")
        assert set(job) == {field.name for field in dataclasses.fields(ExactSettings)}  # nothing is left to defaults
        agent = exact_agent(PROBLEMS[mdp], method, default, own)
        wanted = default.get("decay_steps") if hasattr(agent.config, "decay_steps") else None
        assert wanted in (None, config_from(ExactSettings, job).num_steps)


@pytest.mark.parametrize("scale", SCALES)
def test_every_job_of_calibration_makes_a_critic(scale):
    settings = load_scale(REPOSITORY / f"config/scales/{scale}.yaml")
    spec = TaskSpec((3,), 2, return_range=(-1.0, 1.0))
    for dataset, method in calibration_pairs(settings):
        job = calibration_job(settings, dataset, method)
        default, own = job.pop("default"), job.pop("own")
        assert set(job) == {field.name for field in dataclasses.fields(CalibrationSettings)}
        made = config_from(CalibrationSettings, job)
        assert made.discount**made.horizon < made.truncation
        assert made.horizon < calibration_source(settings, dataset)["length"]
        if method != MARGINAL:
            critic = make_critic(method, spec, made.discount, default, own)
            assert critic.config.decay_steps in (None, made.num_steps)


@pytest.mark.parametrize(
    ("section", "variants", "sentence"),
    [
        ("exact", {"pcbf_flow": {}}, "exact.variants.pcbf_flow: must be called by its method, a - and a word"),
        ("exact", {"pcbf_flwo-x": {}}, 'exact.variants = "pcbf_flwo": unknown; did you mean pcbf_flow?'),
        ("calibration", {"pcbf_flow-x": {"lr": 1}}, "calibration.variants.pcbf_flow-x.lr = 1: unknown key"),
    ],
)
def test_a_variant_is_called_by_its_method_and_has_its_settings(section, variants, sentence):
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        load_plan(REPOSITORY, {"scale": "smoke", section: {"variants": variants}})


@pytest.mark.parametrize("scale", SCALES)
def test_every_job_can_be_read_by_training_and_by_evaluation(scale):
    plan = load_plan(REPOSITORY, {"scale": scale})
    settings = plan.settings[scale]
    judged_by = evaluate_job(settings)
    fields = {field.name: not field.metadata.get("later") for field in dataclasses.fields(EvaluationSettings)}
    assert {name for name, is_told in fields.items() if is_told} <= set(judged_by) <= set(fields)
    judges = config_from(EvaluationSettings, judged_by)
    for job in plan.selected():
        run = config_from(RunSettings, train_job(settings, plan.sheets, job.task, job.method)["run"])
        assert plan.episodes(job) == len(job.seeds) * len(run.snapshot_steps) * judges.num_episodes


def test_a_method_may_train_longer_than_the_others():
    control = {"methods": ["pcbf", "iql"], "method_runs": {"iql": {"steps": 40, "eval_every": 10}}}
    plan = load_plan(REPOSITORY, {"scale": "smoke", "control": control})
    longer, usual = ({job.method: job for job in plan.control("smoke")}[name] for name in ("iql", "pcbf"))
    assert plan.steps(longer) == 40 and plan.judged_steps(longer) == (10, 20, 30, 40)
    assert plan.steps(usual) == plan.settings["smoke"]["control"]["run"]["steps"] != 40
    job = train_job(plan.settings["smoke"], plan.sheets, longer.task, "iql")
    assert config_from(RunSettings, job["run"]).snapshot_steps == plan.judged_steps(longer)
    for wrong, sentence in (
        ({"iql": {"eval_every": 7}}, "control.method_runs.iql.eval_every = 7: must be a multiple of control.run.log"),
        ({"iqll": {"steps": 40}}, 'control.method_runs = "iqll": unknown; did you mean iql?'),
    ):
        with pytest.raises(SettingsError, match=re.escape(sentence)):
            load_plan(REPOSITORY, {"scale": "smoke", "control": {"method_runs": wrong}})


def test_work_counts_the_steps_of_all_learners():
    settings = load_scale(SMOKE, {"toy": {"num_seeds": 2, "num_steps": 10, "learning_rates": [0.1, 0.2, 0.3]}})
    assert toy_work(toy_job(settings, "chain", "value_flows"), "value_flows") == 3 * (2 + 1) * 10
    assert toy_work(toy_job(settings, "chain", "iqn"), "iqn") == (2 + 3 * 1) * 10, "reported seeds train at one rate"


def test_the_hash_ignores_order_and_nothing_else():
    assert content_hash({"a": 1, "b": [2, 3]}) == content_hash(json.loads('{"b": [2, 3],  "a": 1}'))
    assert content_hash({"a": 1, "b": [2, 3]}) != content_hash({"a": 1, "b": [3, 2]})
    assert canonical_json({"b": 0.5, "a": "γ"}) == '{"a":"γ","b":0.5}'


def test_differences_name_the_key():
    assert list(differences({"toy": {"a": 1, "b": 2}}, {"toy": {"a": 1, "b": 3}})) == [("toy.b", "2", "3")]
