"""What the tests of experiments share: a task and a method that take no time, known to all commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("MUJOCO_GL", "egl")  # as the commands do; before a test brings MuJoCo

from pcbf_records.sheets import Task

from .tiny import TASK, registered


@pytest.fixture(scope="module")
def tiny_task() -> Iterator[Task]:
    """The tiny task; its suite and the method `linear` are registered until the tests of a file are over."""
    with registered():
        yield TASK


@pytest.fixture(scope="session")
def renderer() -> None:
    """Skips where no image can be rendered, in another process because a failing EGL can end it."""
    code = "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); mujoco.Renderer(m, 8, 8).render()"
    environment = {**os.environ, "MUJOCO_GL": "egl"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no EGL renderer: {done.stderr.strip().splitlines()[-1:]}")
