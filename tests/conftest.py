"""What holds for every test: JAX on the CPU, types of core checked, no window opened."""

from __future__ import annotations

import fcntl
import os
import tempfile

# Set before anything imports JAX or matplotlib.
os.environ["JAX_PLATFORMS"] = "cpu"
# Compiling is what most tests spend their time on; the code it makes need not be fast (`optimised` is for those that
# train for long). XLA's older emitters compile a fused loop in half the time.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["MPLBACKEND"] = "agg"
# What tests start shares its compiled programs: each is made once per run of pytest, not once per process.
if "PYTEST_XDIST_WORKER" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="pcbf-compiled-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "true"
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

# The same examples in every run, at any load of the machine; `--hypothesis-profile=default` looks for new ones.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

jax.config.update("jax_enable_compilation_cache", False)  # here few programs are made twice: writing them does not pay

# From here on every function of pcbf_core is called with what its annotations say, shapes included.
install_import_hook("pcbf_core", "checked_types.checked")


@pytest.fixture
def optimised() -> Iterator[None]:
    """Programs compiled meanwhile are made to run fast: for tests that train for hundreds of steps."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function that gives the folder of a name, filled by the first test process to ask; the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = base / name, base / f"{name}.done"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return folder_of


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first, so that no worker waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slurm") is None)
