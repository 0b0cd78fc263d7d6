"""What Snakemake was asked for: mistyped targets, and commands that only look."""

from __future__ import annotations

import pytest

from pcbf_experiments.campaign.scheduler import CommandLine, command_line, target_faults

RULES = ("all", "runs", "data")
MADE = ("results/smoke/figures/residual.pdf", "results/smoke/tables/cost.csv", "results/smoke/report/index.html")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--cores", "all", "--config", "scale=smoke"], CommandLine()),
        (["runs", "--cores", "2", "--config", "scale=smoke"], CommandLine(("runs",))),
        (["-n", "runs"], CommandLine(("runs",), is_run=False)),
        (["--lint"], CommandLine(is_run=False)),
        (["--summary"], CommandLine(is_run=False)),
        (["--unlock"], CommandLine(is_run=False)),
        (["--dag"], CommandLine(is_run=False)),
    ],
)
def test_looking_is_told_from_running(words, asked):
    assert command_line(["/usr/bin/snakemake", *words]) == asked
    assert command_line(["/usr/bin/pytest", *words]) == CommandLine()


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("dat", "there is no target dat; did you mean data?"),
        ("figures", "there is no target figures\ntargets: all, runs, data, or a file of results/<scale>"),
        ("results/smoke/figures/residul.pdf", "did you mean results/smoke/figures/residual.pdf?"),
    ],
)
def test_a_mistyped_target_is_told_what_there_is(target, hint):
    (fault,) = target_faults([target], RULES, MADE)
    assert hint in fault


def test_rules_artefacts_and_other_files_are_left_to_snakemake():
    assert not target_faults([*RULES, *MADE, "results/smoke/runs/x.json", "data/raw/y"], RULES, MADE)
