"""A method on a task, ready to train, and the config that decides its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from pcbf_baselines.registry import METHODS, make_config
from pcbf_core.agent import Agent
from pcbf_core.config import check_choice, recorded
from pcbf_core.types import TaskSpec
from pcbf_experiments.data.loading import DATA_DIR, Source, load_task
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.running.proposals import GivenProposal, load_proposals
from pcbf_experiments.running.settings import RunSettings
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
from pcbf_records.canonical import plain


@dataclass(frozen=True)
class Problem:
    """A method on a task, ready to train.

    Attributes:
      dataset: what the record says of the data.
      description: further values that decide the run and belong into its config.
      num_final_evaluations: how many of the last evaluations the reported score averages.
      proposals: by seed, for an agent that takes a proposal cloned before.
    """

    task: str
    method: str
    agent: Agent
    spec: TaskSpec
    source: Source
    dataset: Mapping[str, Any]
    scaling: Scaling = field(default_factory=Scaling)
    description: Mapping[str, Any] = field(default_factory=dict)
    num_final_evaluations: int = 1
    proposals: Mapping[int, GivenProposal] = field(default_factory=dict)


def make_problem(
    task_name: str,
    method: str,
    settings: RunSettings,
    method_settings: Mapping[str, Any],
    *,
    data_dir: Path = DATA_DIR,
    memory_budget: float | None = None,
    proposals: Sequence[Path] = (),
) -> Problem:
    """The named method on the named task: data loaded, agent made, proposals read from their snapshots."""
    task = find_task(task_name)
    check_choice("method", method, METHODS)
    chosen = with_discount(METHODS[method].config, method_settings, task.discount)
    config = make_config(method, chosen)
    loaded = load_task(
        task_name,
        data_dir=data_dir,
        discount=getattr(config, "discount", task.discount),
        next_actions=True if getattr(config, "next_action", None) == "dataset_next" else None,
        standardise=settings.standardise,
        reward_scale=settings.reward_scale,
        return_width=settings.return_width,
        memory_budget=memory_budget,
    )
    agent, info = METHODS[method].agent(config, loaded.spec), loaded.info.plain()
    given = load_proposals(proposals, agent, task=task_name, data=info.get("files", {}), scaling=loaded.scaling)
    cloned_with = {"proposal": next(iter(given.values())).config_hash} if given else {}
    return Problem(
        task=task_name,
        method=method,
        agent=agent,
        spec=loaded.spec,
        source=loaded.source,
        dataset=info,
        scaling=loaded.scaling,
        description={"method_settings": chosen, "method_version": METHODS[method].version, **cloned_with},
        num_final_evaluations=suite_of(task).num_final_evaluations,
        proposals=given,
    )


def with_discount(config: type, settings: Mapping[str, Any], discount: float) -> dict[str, Any]:
    """Method settings with the task's discount, unless they set it or the method has none."""
    names = {item.name for item in dataclasses.fields(config)}
    return {**({"discount": discount} if "discount" in names else {}), **settings}


def run_config(problem: Problem, settings: RunSettings) -> dict[str, Any]:
    """Everything that decides the numbers of a run besides its seed, as JSON values."""
    agent_config = getattr(problem.agent, "config", None)
    config = {
        "task": problem.task,
        "method": problem.method,
        "agent": recorded(agent_config) if dataclasses.is_dataclass(agent_config) else {},
        "spec": dataclasses.asdict(problem.spec),
        "run": recorded(settings),
        "data": problem.dataset.get("files", {}),
        "backend": jax.default_backend(),
        **problem.description,
    }
    return plain(config)
