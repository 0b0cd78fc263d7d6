"""The Makefile, the lock and the files around them."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from pcbf_records.versions import PACKAGES

from .conftest import REPOSITORY

TARGETS = {"setup", "lock", "reproduce", "quick", "test", "check", "publish", "bench", "figures", "tables", "clean"}
CAMPAIGN_TARGETS = {"status", "plan", "test-slurm"}


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=clean)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """What `make setup` reads, without content."""
    (tmp_path / "Makefile").write_bytes((REPOSITORY / "Makefile").read_bytes())
    (tmp_path / "requirements.lock").touch()
    for name in PACKAGES:
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "pyproject.toml").touch()
    return tmp_path


def test_make_alone_lists_the_targets(bare):
    listed = {line.split()[1] for line in make(bare).stdout.splitlines()}
    assert listed >= TARGETS | CAMPAIGN_TARGETS


def test_an_old_python_is_refused_with_a_sentence(bare):
    old = bare / "old-python"
    old.write_text('#!/bin/sh\nif [ "$1" = -V ]; then echo "Python 3.9.2"; else exit 1; fi\n', encoding="utf-8")
    old.chmod(0o755)
    done = make(bare, "setup", f"PYTHON={old}")
    assert done.returncode != 0
    assert f"pcbf needs Python 3.11 or newer, but {old} is Python 3.9.2" in done.stdout
    assert not (bare / ".venv").exists()


def test_setup_done_once_is_not_done_again(bare):
    (bare / ".venv").mkdir()
    (bare / ".venv/.setup-done").touch()
    assert "Nothing to be done" in make(bare, "setup").stdout


def test_clean_keeps_what_is_published(bare):
    kept = {"results/published/laptop/toy/w1.csv", "results/benchmarks/a.json", "results/README.md", "results/dvc.yaml"}
    for name in ("results/smoke/toy/w1.csv", *kept):
        (bare / name).parent.mkdir(parents=True, exist_ok=True)
        (bare / name).touch()
    (bare / "tests").mkdir()
    (bare / "benchmarks").mkdir()
    assert make(bare, "clean").returncode == 0
    left = {path.relative_to(bare).as_posix() for path in (bare / "results").rglob("*") if path.is_file()}
    assert left == kept


def locked() -> dict[str, str]:
    """The block of each locked package, by name."""
    text = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", text.strip())
    return {block.partition("==")[0]: block for block in blocks}


def test_every_locked_package_has_an_exact_version_and_hashes():
    for name, block in locked().items():
        assert re.match(r"[a-z0-9-]+==\S+", block), name
        assert "--hash=sha256:" in block, name


def test_the_lock_holds_what_the_packages_and_the_workspace_ask_for():
    wanted = (REPOSITORY / "requirements.in").read_text(encoding="utf-8").splitlines()
    for file in (REPOSITORY / "packages").glob("*/pyproject.toml"):
        wanted += tomllib.loads(file.read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {found[0].lower() for line in wanted if (found := re.match(r"[A-Za-z][A-Za-z0-9-]*", line))}
    assert names - set(PACKAGES) <= set(locked()), "run `make lock`"


def test_pre_commit_runs_the_linters_of_the_environment():
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert all(hook["language"] == "system" and hook["entry"].startswith(".venv/bin/") for hook in hooks)
    assert {hook["id"] for hook in hooks} == {"ruff-check", "ruff-format", "basedpyright", "snakefmt"}


def test_continuous_integration_runs_the_test_command():
    script = REPOSITORY / ".ci/run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").rstrip().endswith("make test")


def test_the_citation_names_the_paper_and_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    core = tomllib.loads((REPOSITORY / "packages/pcbf-core/pyproject.toml").read_text(encoding="utf-8"))
    assert citation["version"] == core["project"]["version"]
    assert citation["license"] == core["project"]["license"]
    names = [author["family-names"] for author in citation["preferred-citation"]["authors"]]
    assert names == ["Xu", "Zou", "Yang", "Yan"]
