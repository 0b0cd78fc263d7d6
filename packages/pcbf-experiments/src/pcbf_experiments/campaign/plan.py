"""The plan of the control suite: which method trains on which task with which seeds, and what each job is told.

Nothing here imports JAX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pcbf_experiments.campaign.settings import OVERRIDE_SOURCE, Settings, SettingsError, load_scales, selection
from pcbf_experiments.method_settings import default_faults, method_schemas, setting_faults
from pcbf_records import layout
from pcbf_records.calibration import CALIBRATED
from pcbf_records.canonical import suggestion
from pcbf_records.runs import steps_to_judge
from pcbf_records.sheets import METHODS_FILE, Sheets, Task, domain_settings, load_sheets
from pcbf_records.variants import base_method, is_variant

PAPER = "paper"  # in place of a list of tasks: all tasks of the paper
ABLATED = "pcbf"  # whose control weight the ablation varies
CLONER = "bc"  # whose flow is the proposal of methods that do not train their own
TRIAL = re.compile(r"[a-z_]+=[^/{}\s]+")  # a setting changed, as it can stand in the name of a folder


@dataclass(frozen=True)
class TrainJob:
    """A group of seeds of one method on one task; `change` is that of an ablation or trial, or empty."""

    task: str
    method: str
    seeds: tuple[int, ...]
    change: str = ""

    @property
    def group(self) -> str:
        return layout.group_name(self.seeds)

    @property
    def folder(self) -> str:
        """Its results folder inside that of the scale."""
        return layout.ablation(self.change) if self.change else "."

    def files(self, results: Path | str = "") -> layout.JobFiles:
        """Its files, in the results folder of the scale."""
        return layout.JobFiles.of_seeds(Path(results) / self.folder, self.task, self.method, self.seeds)

    @property
    def records(self) -> list[str]:
        """Names, inside the results folder of the scale, of the run and evaluation records of its seeds."""
        files = self.files()
        return [path.as_posix() for seed in self.seeds for path in (files.record(seed), files.evaluations(seed))]


def changed_settings(change: str) -> Settings:
    """The setting that `<setting>=<value>`, an ablation or a trial, changes; values are written as in YAML."""
    setting, value = layout.changed(change)
    return {setting: yaml.safe_load(value)}


def check_names(settings: Settings, sheets: Sheets, source: str) -> None:
    """Raise unless every task and method that the settings name is in the sheets and the run settings fit together."""
    control, exact, calibration = settings["control"], settings["exact"], settings["calibration"]
    search = _search(settings)
    named = {
        "control.tasks": ([] if control["tasks"] == PAPER else control["tasks"], sheets.tasks),
        "control.methods": (control["methods"], sheets.methods),
        "control.ablations.tasks": (control["ablations"]["tasks"], sheets.tasks),
        "control.method_runs": (control.get("method_runs", {}), sheets.methods),
        "control.method_settings": ([n for n in control["method_settings"] if n != "default"], sheets.methods),
        "control.tuning.task": ([search["task"]] if search else [], sheets.tasks),
        "control.tuning.trials": (search.get("trials", {}), sheets.methods),
        "control.tuning.method_settings": (search.get("method_settings", {}), sheets.methods),
        "exact.methods": (exact["methods"], sheets.methods),
        "exact.method_settings": ([n for n in exact["method_settings"] if n != "default"], sheets.methods),
        "exact.variants": (map(base_method, exact["variants"]), exact["methods"]),
        "calibration.method_settings": ([n for n in calibration["method_settings"] if n != "default"], CALIBRATED),
        "calibration.variants": (map(base_method, calibration["variants"]), calibration["methods"]),
        "renders": (settings["renders"], sheets.tasks),
    }
    faults = [
        f'{source}: {key} = "{name}": unknown{suggestion(name, known)}'
        for key, (names, known) in named.items()
        for name in names
        if name not in known
    ]
    for section in ("exact", "calibration", "control"):
        faults += [f"{source}: {section}.method_settings.{fault}" for fault in _setting_faults(settings[section])]
    for section in ("exact", "calibration"):
        faults += [f"{source}: {section}.variants.{fault}" for fault in _variant_faults(settings[section]["variants"])]
    faults += [f"{source}: control.tuning.{fault}" for fault in _trial_faults(search)]
    faults += [f"{source}: control.{fault}" for fault in _run_faults(settings)]
    if not faults:
        told = [*_proposal_faults(settings, sheets), *_search_faults(settings, sheets)]
        faults = [f"{source}: {fault}" for fault in told]
    if faults:
        raise SettingsError("\n".join(faults))


def _proposal_faults(settings: Settings, sheets: Sheets) -> Iterator[str]:
    """What methods with a frozen proposal lack in a scale: the runs that clone it, and their last snapshots."""
    control, trials = settings["control"], _search(settings).get("trials", {})
    for key, jobs, methods in (
        ("control.methods", control_jobs(settings, sheets), control["methods"]),
        ("control.tuning.trials", tuning_jobs(settings, sheets), trials),
    ):
        takers = {job.method for job in jobs if takes_proposal(settings, sheets, job.task, job.method, job.change)}
        told = f"the frozen proposal of {', '.join(sorted(takers))}"
        if takers and CLONER not in methods:
            yield f"{key}: has no {CLONER}, which clones {told}; add it"
        if takers and control["keep_snapshots"] == "none":
            yield f'control.keep_snapshots = "none": removes {told}; keep "final" or "all"'


def _search(settings: Settings) -> Settings:
    """The search for settings of a scale; empty if it has none."""
    return settings["control"].get("tuning", {})


def _trial_faults(search: Settings) -> Iterator[str]:
    """What is wrong with single trials of a search, and with the settings that it starts from."""
    for method, settings in search.get("method_settings", {}).items():
        yield from (f"method_settings.{method}.{fault}" for fault in setting_faults(method, settings))
    for method, trials in search.get("trials", {}).items():
        seen: list[Settings] = []
        for trial in trials:
            changed = _read_trial(trial)
            if not changed:
                yield f'trials.{method} = "{trial}": must be <setting>=<value> in one word, such as discount=0.99'
            elif changed in seen:
                yield f'trials.{method} = "{trial}": is there already, written otherwise; choose another value'
            yield from (f"trials.{method}.{fault}" for fault in setting_faults(method, changed))
            seen.append(changed)


def _read_trial(trial: str) -> Settings:
    """The setting that a trial changes; empty if it is none, or cannot be the name of a folder."""
    try:
        return changed_settings(trial) if TRIAL.fullmatch(trial) else {}
    except yaml.YAMLError:
        return {}


def _search_faults(settings: Settings, sheets: Sheets) -> Iterator[str]:
    """What makes a search unequal or its seeds known: other numbers of trials, tasks not for all, reported seeds."""
    search = _search(settings)
    if not search.get("trials"):
        return
    trials, task = search["trials"], search["task"]
    tuned = [name for name in settings["control"]["methods"] if method_schemas().get(name, {}).get("properties", True)]
    counts = {name: len(trials.get(name, ())) for name in dict.fromkeys([*tuned, *trials])}
    most, fewest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if counts[most] != counts[fewest]:
        yield (
            f"control.tuning.trials: {most} has {counts[most]} and {fewest} has {counts[fewest]}: must be as many for "
            "every method; the suite's own value may be one of them"
        )
    blind = [name for name in trials if sheets.tasks[task].is_pixel and not sheets.methods[name].visual]
    if blind:
        yield f'control.tuning.task = "{task}": has images, which {", ".join(blind)} cannot take; choose one without'
    reported = {seed for job in control_jobs(settings, sheets) for seed in job.seeds}
    known = [str(seed) for seed in search["seeds"] if seed in reported]
    if known:
        yield (
            f"control.tuning.seeds = {search['seeds']}: the suite reports {', '.join(known)}; choose seeds from "
            f"{max(reported) + 1} on"
        )


def _run_faults(settings: Settings) -> Iterator[str]:
    """What does not fit together in how methods train: what happens between calls must end one."""
    control = settings["control"]
    own = {f"method_runs.{method}": run_settings(settings, method) for method in control.get("method_runs", {})}
    for place, run in {"run": control["run"], **own}.items():
        for name in ("eval_every", "redraw_every"):
            if run.get(name) is not None and run[name] % run["log_every"]:
                wanted = f"must be a multiple of control.run.log_every = {run['log_every']}"
                yield f"{place}.{name} = {run[name]}: {wanted}"


def _variant_faults(variants: Settings) -> Iterator[str]:
    """What is wrong with variants: each is called `<method>-<word>`, and changes settings that its method has."""
    for name, settings in variants.items():
        if not is_variant(name):
            yield f"{name}: must be called by its method, a - and a word, such as {name}-independent"
        yield from (f"{name}.{fault}" for fault in setting_faults(base_method(name), settings))


def _setting_faults(section: Settings) -> Iterator[str]:
    """What is wrong with the method settings of a section: each must be one that its method has, or some method."""
    for name, settings in section["method_settings"].items():
        faults = default_faults(settings, section["methods"]) if name == "default" else setting_faults(name, settings)
        yield from (f"{name}.{fault}" for fault in faults)


def check_domains(sheets: Sheets) -> None:
    """Raise unless the settings of every domain are settings of their methods."""
    faults = [
        f"{METHODS_FILE}: domains.{domain}.methods.{method}.{fault}"
        for domain, values in sheets.domains.items()
        for method, settings in values["methods"].items()
        for fault in setting_faults(method, settings)
    ]
    if faults:
        raise SettingsError("\n".join(faults))


def control_jobs(settings: Settings, sheets: Sheets) -> list[TrainJob]:
    """The training jobs of a scale: every method on every task, images only where the paper runs the method on them."""
    control = settings["control"]
    tasks = sheets.paper_tasks if control["tasks"] == PAPER else control["tasks"]
    return [
        job
        for task in map(sheets.tasks.__getitem__, tasks)
        for method in control["methods"]
        if not task.is_pixel or sheets.methods[method].visual
        for job in _groups(task, method, control)
    ]


def ablation_jobs(settings: Settings, sheets: Sheets) -> list[TrainJob]:
    """The jobs that train PCBF with other control weights (fig:ablations)."""
    control = settings["control"]
    return [
        job
        for weight in control["ablations"]["control_weights"]
        for task in map(sheets.tasks.__getitem__, control["ablations"]["tasks"])
        for job in _groups(task, ABLATED, control, f"control_weight={weight:g}")
    ]


def tuning_jobs(settings: Settings, sheets: Sheets) -> list[TrainJob]:
    """The jobs of the search for settings: every trial of every method, on the seeds of the search."""
    search = _search(settings)
    return [
        TrainJob(search["task"], method, group, layout.tuning(trial))
        for method, trials in search.get("trials", {}).items()
        for trial in trials
        for group in _batched(search["seeds"], settings["control"]["seeds_per_job"])
    ]


def all_jobs(settings: Settings, sheets: Sheets) -> list[TrainJob]:
    """The training jobs of a scale: the control suite, its ablations, and the search for its settings."""
    return [job for jobs in (control_jobs, ablation_jobs, tuning_jobs) for job in jobs(settings, sheets)]


def _groups(task: Task, method: str, control: Settings, change: str = "") -> Iterator[TrainJob]:
    seeds = range(task.seeds if control["num_seeds"] is None else control["num_seeds"])
    for group in _batched(seeds, control["seeds_per_job"]):
        yield TrainJob(task.name, method, group, change)


def _batched(seeds: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    return (tuple(seeds[start : start + size]) for start in range(0, len(seeds), size))


def run_settings(settings: Settings, method: str) -> Settings:
    """How a method trains at a scale: as all do, but for what `method_runs` says of it."""
    control = settings["control"]
    run = {name: value for name, value in control["run"].items() if name != "evaluation"}
    return {**run, **control.get("method_runs", {}).get(method, {})}


def train_job(settings: Settings, sheets: Sheets, task: str, method: str, change: str | None = None) -> Settings:
    """What one training job depends on: how it runs, and the method's settings in the order in which they apply.

    How it is judged is no part of that, so that other episodes train nothing.

    The method's settings are the domain's, then the scale's for every method that has them, then the scale's for this
    method, then for a trial those that the search starts from, then the one that an ablation or trial changes.
    """
    control, run = settings["control"], run_settings(settings, method)
    start = _search(settings).get("method_settings", {}).get(method, {}) if layout.is_tuning(change or "") else {}
    changed = changed_settings(change) if change else {}
    return {
        "run": {**run, "steps": run["steps"] or sheets.tasks[task].steps},
        "domain": domain_settings(sheets.domains, sheets.tasks[task], method),
        "default": control["method_settings"]["default"],
        "method": {**control["method_settings"].get(method, {}), **start, **changed},
    }


def takes_proposal(settings: Settings, sheets: Sheets, task: str, method: str, change: str | None = None) -> bool:
    """Whether a training job takes proposals that were cloned before (`proposal_training: frozen`)."""
    job, name = train_job(settings, sheets, task, method, change), "proposal_training"
    known = method_schemas().get(method, {}).get("properties", {})
    default = job["default"] if name in known else {}
    return {**job["domain"], **default, **job["method"]}.get(name) == "frozen"


def cloning_folder(settings: Settings, change: str | None = None) -> str:
    """Where, in the results folder of a scale, the proposals of a job are cloned: by the suite, or by the first trial.

    A trial has seeds of its own, so its proposals are those of the cloner's first trial.
    """
    if not layout.is_tuning(change or ""):
        return "."
    trials = _search(settings).get("trials", {}).get(CLONER)
    if not trials:
        raise SettingsError(f"{change}: control.tuning.trials has no {CLONER}, which clones its proposal; add it")
    return layout.ablation(layout.tuning(trials[0]))


def evaluate_job(settings: Settings) -> Settings:
    """What one evaluation job depends on, besides the snapshots: how agents are judged."""
    return settings["control"]["run"]["evaluation"]


def data_folder(settings: Settings) -> str:
    """Where the datasets of a scale lie: official files, or those generated with the scale's own settings."""
    data = settings["control"]["data"]
    if data is None:
        return layout.RAW_DATA
    return layout.local_data(**data)


def data_stamp(settings: Settings, sheets: Sheets, task: str) -> str:
    """The file that says that the dataset of `task` is there and verified."""
    return f"{data_folder(settings)}/verified/{sheets.tasks[task].dataset}.txt"


def select(jobs: Sequence[TrainJob], sheets: Sheets, selection: Mapping[str, Sequence[str]]) -> list[TrainJob]:
    """The jobs of the selected tasks, domains and methods; a part that is not given selects everything."""
    known = {
        "tasks": {job.task for job in jobs},
        "domains": {sheets.tasks[job.task].domain for job in jobs},
        "methods": {job.method for job in jobs},
    }
    for part, names in selection.items():
        for name in names:
            if name not in known[part]:
                hint = suggestion(name, known[part]) or f"; this scale has {', '.join(sorted(known[part]))}"
                raise SettingsError(f'{OVERRIDE_SOURCE}: {part} = "{name}": not part of this scale{hint}')
    return [
        job
        for job in jobs
        if job.task in selection.get("tasks", known["tasks"])
        and sheets.tasks[job.task].domain in selection.get("domains", known["domains"])
        and job.method in selection.get("methods", known["methods"])
    ]


def control_names(settings: Settings, sheets: Sheets) -> list[str]:
    """Names, inside a results folder, of the records that the training jobs of a scale leave."""
    return [name for job in all_jobs(settings, sheets) for name in job.records]


@dataclass(frozen=True)
class Plan:
    """What Snakemake's command line asks for: a scale, the settings and jobs of every scale, and a selection."""

    scale: str
    settings: Mapping[str, Settings]
    sheets: Sheets
    selection: Mapping[str, Sequence[str]]

    def control(self, scale: str) -> list[TrainJob]:
        return control_jobs(self.settings[scale], self.sheets)

    def ablations(self, scale: str) -> list[TrainJob]:
        return ablation_jobs(self.settings[scale], self.sheets)

    def tuning(self, scale: str) -> list[TrainJob]:
        return tuning_jobs(self.settings[scale], self.sheets)

    def jobs(self, scale: str) -> list[TrainJob]:
        return all_jobs(self.settings[scale], self.sheets)

    def selected(self) -> list[TrainJob]:
        """The jobs of the chosen scale that the selection leaves; all of them without one."""
        return select(self.jobs(self.scale), self.sheets, self.selection)

    def steps(self, job: TrainJob) -> int:
        """Gradient steps of each seed of a job of the chosen scale."""
        return run_settings(self.settings[self.scale], job.method)["steps"] or self.sheets.tasks[job.task].steps

    def judged_steps(self, job: TrainJob) -> tuple[int, ...]:
        """The steps after which each seed of a job of the chosen scale is judged."""
        run = run_settings(self.settings[self.scale], job.method)
        return steps_to_judge(self.steps(job), run["eval_every"], run.get("eval_from", 0))

    def episodes(self, job: TrainJob) -> int:
        """Episodes that all seeds of a job of the chosen scale are judged by, over all their snapshots."""
        num_episodes = evaluate_job(self.settings[self.scale])["num_episodes"]
        return len(job.seeds) * len(self.judged_steps(job)) * num_episodes

    def episode_limit(self, job: TrainJob) -> int:
        """Simulator steps of the longest episode of a job of the chosen scale."""
        evaluation = self.settings[self.scale]["control"]["run"]["evaluation"]
        return min(filter(None, [evaluation["episode_limit"], self.sheets.tasks[job.task].episode_limit]))

    def describe(self) -> str:
        """How many runs the chosen scale has, for people."""
        parts = {"control suite": self.control(self.scale), "ablations": self.ablations(self.scale)}
        parts |= {"tuning": trials} if (trials := self.tuning(self.scale)) else {}
        chosen = f"; selected: {counted(self.selected())}" if self.selection else ""
        return f"scale {self.scale}: {', '.join(f'{name} {counted(jobs)}' for name, jobs in parts.items())}{chosen}"


def counted(jobs: Sequence[TrainJob]) -> str:
    return f"{sum(len(job.seeds) for job in jobs)} runs in {len(jobs)} jobs"


def load_plan(root: str | Path, config: Mapping[str, Any]) -> Plan:
    """The plan of the scales under `root`, given what `--config` says; a wrong name raises `SettingsError`."""
    scale, settings = load_scales(root, config)
    sheets = load_sheets(root)
    check_domains(sheets)
    for name, values in settings.items():
        changed = f" with {OVERRIDE_SOURCE}" if name == scale and "control" in config else ""
        check_names(values, sheets, f"config/scales/{name}.yaml{changed}")
    plan = Plan(scale, settings, sheets, selection(config))
    plan.selected()
    return plan
