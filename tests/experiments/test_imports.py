"""What must start fast imports no JAX, and importing us changes nobody's environment."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pcbf_analysis
import pcbf_baselines
import pcbf_core
import pcbf_experiments
import pcbf_records

PACKAGES = (pcbf_core, pcbf_baselines, pcbf_records, pcbf_experiments, pcbf_analysis)


def modules_of(package: object) -> list[str]:
    """Dotted names of all modules of a package, itself included."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [package.__name__, *(module.name for module in found if not module.name.endswith("__main__"))]


def run(code: str, *words: str) -> str:
    """What a fresh Python says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX", "XLA", "MUJOCO", "MPL"))}
    done = subprocess.run([sys.executable, "-c", code, *words], env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


LIGHT = [
    *modules_of(pcbf_records),
    *(name for name in modules_of(pcbf_experiments) if ".campaign" in name or ".cli" in name),
    "pcbf_experiments",
    "pcbf_experiments.tasks",
    "pcbf_experiments.simulators",
]
WITHOUT_JAX = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert "jax" not in sys.modules, f"{name} imports JAX"
"""


@pytest.mark.slow
def test_what_plans_watches_or_parses_imports_no_jax() -> None:
    assert len(LIGHT) > 25 and "pcbf_experiments.cli.train" in LIGHT and "pcbf_records.toy" in LIGHT
    run(WITHOUT_JAX, *LIGHT)


def test_records_import_neither_pandas_nor_simulators() -> None:
    code = "import importlib, sys; [importlib.import_module(n) for n in sys.argv[1:]]; print(*sys.modules)"
    imported = set(run(code, *modules_of(pcbf_records)).split())
    heavy = {"jax", "flax", "pandas", "gymnasium", "mujoco", "matplotlib", "pcbf_core", "pcbf_experiments"}
    assert not imported & heavy


@pytest.mark.parametrize("command", ["train", "evaluate", "data", "toy", "exact", "calibrate"])
def test_a_command_shows_its_options_without_jax(command: str) -> None:
    code = f"import sys; from pcbf_experiments.cli.{command} import parser; parser(); assert 'jax' not in sys.modules"
    run(code)


WRITES = """
import importlib, os, sys, traceback, warnings
warnings.simplefilter("ignore")
ours = []

def noted(real):
    def write(self, name, *rest):
        where = [frame.filename for frame in traceback.extract_stack()[:-1]]
        between = ("_collections_abc", "frozen os", "/os.py")
        caller = [file for file in where if not any(word in file for word in between)]
        if "/pcbf_" in caller[-1]:
            ours.append(f"{name} by {caller[-1]}")
        return real(self, name, *rest)
    return write

kind = type(os.environ)
kind.__setitem__, kind.__delitem__ = noted(kind.__setitem__), noted(kind.__delitem__)
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
TELL = 'print(*ours, sep="; ")'


@pytest.mark.slow
def test_no_environment_variable_is_written_at_import() -> None:
    """By a module of ours; libraries do as they please."""
    modules = [name for package in PACKAGES for name in modules_of(package)]
    assert len(modules) > 100
    assert run(WRITES + TELL, *modules).strip() == ""


@pytest.mark.slow
def test_the_look_out_for_written_variables_would_see_one() -> None:
    """A command that begins to run does write some: where JAX keeps compiled programs."""
    begun = "importlib.import_module('pcbf_experiments.cli.common').keep_compiled_programs()\n"
    assert "JAX_COMPILATION_CACHE_DIR by" in run(WRITES + begun + TELL)


RENDERER = """
import sys
from pathlib import Path
import numpy as np
from pcbf_experiments.suites import suite_of
from pcbf_experiments.tasks import find_task
task = find_task("pointmaze-medium-navigate-singletask-task1-v0")
suite_of(task).load_rows(task, Path(sys.argv[1]))
import mujoco
assert "egl" in mujoco.GLContext.__module__, mujoco.GLContext.__module__
"""


@pytest.mark.slow
def test_mujoco_renders_without_a_screen_whoever_brings_it(renderer: None, tmp_path: Path) -> None:
    """It asks for MUJOCO_GL once, when it is imported: loading data must not bring it before that is set."""
    position = np.arange(8, dtype=np.float32).reshape(4, 2)
    arrays = dict(observations=position, actions=position / 8, qpos=position, qvel=position)
    (tmp_path / "ogbench").mkdir()
    for suffix in ("", "-val"):
        file = tmp_path / "ogbench" / f"pointmaze-medium-navigate-v0{suffix}.npz"
        np.savez(file, allow_pickle=False, **arrays, terminals=np.array([0, 0, 0, 1], bool))
    code = "import warnings; warnings.simplefilter('ignore')\n" + RENDERER
    for _ in range(2):  # the second time rewards are read from a file
        run(code, str(tmp_path))
