"""What holds for every test: JAX on the CPU, types of core checked, no window opened."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import sys
import tempfile

# Set before anything imports JAX or matplotlib.
os.environ["JAX_PLATFORMS"] = "cpu"
# Compiling is what most tests spend their time on; the code it makes need not be fast (`optimised` is for those that
# train for long). XLA's older emitters compile a fused loop in half the time.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["MPLBACKEND"] = "agg"
# All processes of a run of pytest share their compiled programs, those that tests start included: each is made once.
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

gc.set_threshold(100_000, 20, 50)  # tracing makes objects by the million and few cycles: looking for them takes a tenth

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


GROWTH = 600_000_000  # bytes by which a test process may grow before it forgets its compiled programs
C_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
M_ARENA_MAX = -8
if C_LIBRARY is not None:  # one heap for all threads: simulators and compilers would leave each of many in pieces
    C_LIBRARY.mallopt(M_ARENA_MAX, 1)


@pytest.fixture(scope="session")
def memory() -> dict[str, int]:
    """What this process held when it last forgot its programs."""
    return {"held": resident_bytes()}


@pytest.fixture(autouse=True)
def forget_programs(memory: dict[str, int]) -> Iterator[None]:
    """JAX keeps every program it has compiled; few tests share one, and a process would grow to gigabytes.

    Without the trim the C library keeps what is freed, and the process would look as large as before.
    """
    yield
    if C_LIBRARY is not None and resident_bytes() - memory["held"] > GROWTH:
        jax.clear_caches()
        gc.collect()
        C_LIBRARY.malloc_trim(0)
        memory["held"] = resident_bytes()


def resident_bytes() -> int:
    """Memory that this process holds now; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


LONGEST = (
    "test_slurm_with_a_requeued_job_and_a_local_run_give_the_same_bytes",
    "test_twenty_random_kills_change_nothing",
    "test_a_short_torture_loses_nothing",
    "test_after_the_scheduler_is_killed_its_orphan_and_two_new_ones_do_not_meet",
    "test_killed_at_random_points_it_ends_with_the_same_bytes",
    "test_after_a_kill_amid_evaluation_what_was_judged_is_not_judged_again",
    "test_a_failed_run_is_told_with_its_reason_and_the_others_go_on",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first, so that no worker waits for one at the end: each worker's equal share begins with some.

    The order is the same in every worker, as pytest-xdist asks for.
    """
    names = [getattr(item, "originalname", item.name) for item in items]
    named = list(zip(names, items, strict=True))
    known = sorted((pair for pair in named if pair[0] in LONGEST), key=lambda pair: LONGEST.index(pair[0]))
    longest = [item for _, item in known]
    rest = [item for name, item in named if name not in LONGEST]
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ordered: list[pytest.Item] = []
    for worker in range(count):
        ordered += longest[worker::count]
        while rest and (worker == count - 1 or len(ordered) < (worker + 1) * len(items) // count):
            ordered.append(rest.pop(0))
    items[:] = ordered
