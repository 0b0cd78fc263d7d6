"""The container recipe, as far as it can be checked without building the image."""

from __future__ import annotations

import re

from ..pipeline.conftest import REPOSITORY

RECIPE = (REPOSITORY / "containers/pcbf.def").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^%(\w+)\n(.*?)(?=^%|\Z)", RECIPE, flags=re.MULTILINE | re.DOTALL))
HOME = "/opt/pcbf/"


def copied() -> dict[str, str]:
    """Files and folders of the repository by their place in the image."""
    return {target: source for source, target in map(str.split, SECTIONS["files"].strip().splitlines())}


def test_the_image_holds_what_make_setup_reads():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    stamp = re.search(r"^\$\(STAMP\): (.*)$", makefile, flags=re.MULTILINE)
    assert stamp and stamp[1].split() == ["requirements.lock", "$(PACKAGES:%=%/pyproject.toml)"]
    assert copied() == {f"{HOME}{name}": name for name in copied().values()}
    assert {"Makefile", "requirements.lock", "packages"} <= set(copied().values())
    assert all((REPOSITORY / name).exists() for name in copied().values())


def test_the_image_is_set_up_by_make_setup_and_the_locked_cuda_build():
    steps = [line.strip() for line in SECTIONS["post"].splitlines() if line.strip()]
    assert steps[-3] == f"cd {HOME.rstrip('/')}"
    assert steps[-2].startswith("make setup")
    assert steps[-1].endswith("--require-hashes -r requirements-cuda.lock")
    assert f"PATH={HOME}.venv/bin:$PATH" in SECTIONS["environment"]


def test_the_cuda_build_is_of_the_locked_jax():
    versions = [
        set(re.findall(r"^(jax(?:lib)?==\S+)", (REPOSITORY / name).read_text(encoding="utf-8"), flags=re.MULTILINE))
        for name in ("requirements.lock", "requirements-cuda.lock")
    ]
    assert versions[0] == versions[1], "run `make lock`"


def test_the_workflow_uses_the_image_that_the_recipe_says_how_to_build():
    built = re.search(r"apptainer build (\S+) (\S+)", RECIPE)
    assert built and built[2] == "containers/pcbf.def"
    assert f'container: "{built[1]}"' in (REPOSITORY / "Snakefile").read_text(encoding="utf-8")
