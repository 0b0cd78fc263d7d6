"""The paper's 1,768 runs, from records to tables, claims and report: the wait after the last job of a campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from work import best_seconds

from pcbf_analysis import artefacts, claims, report
from pcbf_analysis.results import Results
from pcbf_experiments.campaign.plan import Plan, TrainJob, load_plan
from pcbf_records.control import collect_control
from pcbf_records.runs import Evaluation, EvaluationRecord, RunRecord, save_evaluations, save_run

ROOT = Path(__file__).parent.parent
NUM_EVALUATIONS, NUM_EPISODES, NUM_FINAL = 10, 50, 3


def write_job(results: Path, plan: Plan, job: TrainJob) -> None:
    """Run and evaluation records of the seeds of a job, with random successes."""
    files, steps = job.files(results), plan.steps(job)
    at = tuple(steps * (index + 1) // NUM_EVALUATIONS for index in range(NUM_EVALUATIONS))
    agent = {"hidden_sizes": [512] * 4, "learning_rate": 3e-4, "discount": 0.99, "control_weight": 0.4}
    config = {"task": job.task, "method": job.method, "change": job.change, "run": {"steps": steps}, "agent": agent}
    dataset = {"name": plan.sheets.tasks[job.task].dataset, "source": "official"}
    for seed in job.seeds:
        random = np.random.default_rng([seed, *f"{job.task}{job.method}{job.change}".encode()])
        run = RunRecord(job.task, job.method, seed, "finished", steps, at, NUM_FINAL, config, dataset)
        played = tuple(_evaluation(step, random) for step in at)
        save_run(files.record(seed), run)
        save_evaluations(files.evaluations(seed), EvaluationRecord(job.task, job.method, seed, run.config_hash, played))


def _evaluation(step: int, random: np.random.Generator) -> Evaluation:
    successes = (random.random(NUM_EPISODES) < 0.6).astype(float)
    lengths = random.integers(1, 1000, NUM_EPISODES)
    returns, scores = -lengths.astype(float), 100 * successes
    return Evaluation(
        step,
        scores=tuple(scores.tolist()),
        returns=tuple(returns.tolist()),
        lengths=tuple(lengths.tolist()),
        successes=tuple(successes.tolist()),
    )


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    """A results folder with every run of the paper's suite."""
    results, plan = tmp_path_factory.mktemp("campaign") / "paper", load_plan(ROOT, {"scale": "paper"})
    for job in plan.control(plan.scale):
        write_job(results, plan, job)
    collect_control(results, plan.sheets.tasks)
    return results, plan


def test_collect(benchmark: BenchmarkFixture, ledger: Any, campaign: tuple[Path, Plan]) -> None:
    """All records into one table, against reading their bytes."""
    results, plan = campaign
    seconds = benchmark.pedantic(
        lambda: best_seconds(lambda: collect_control(results, plan.sheets.tasks), repeats=1, warm=False), rounds=1
    )
    files = sorted(results.glob("**/seed*.json"))
    plain = best_seconds(lambda: sum(len(path.read_bytes()) for path in files), repeats=1)
    ledger.add(
        "files",
        work=f"collect {len(files) // 2} runs",
        seconds=round(seconds, 2),
        reference="read their bytes",
        times_reference=round(seconds / plain, 2),
    )


@pytest.mark.parametrize("work", ["tables", "claims", "report"])
def test_made_from_the_collected_table(
    benchmark: BenchmarkFixture, ledger: Any, campaign: tuple[Path, Plan], work: str
) -> None:
    """What a command computes, from the collected table on, against reading that table."""

    def make() -> None:
        results = Results(campaign[0], ROOT)
        if work == "tables":
            for table in artefacts.TABLES.values():
                table.render(results)
        else:
            {"claims": claims.decide, "report": report.render}[work](results)

    seconds = benchmark.pedantic(lambda: best_seconds(make, repeats=1, warm=False), rounds=1)
    plain = best_seconds(lambda: Results(campaign[0], ROOT).control, repeats=1)
    ledger.add(
        "files",
        work=f"{work} of {len(Results(campaign[0], ROOT).control.runs)} runs",
        seconds=round(seconds, 2),
        reference="read the collected table",
        times_reference=round(seconds / plain, 2),
    )
