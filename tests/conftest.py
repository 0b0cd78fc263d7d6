"""What holds for every test: JAX on the CPU, types of core checked, nothing remembered, no window opened."""

from __future__ import annotations

import os

# Set before anything imports JAX or matplotlib.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
# Compiling is what most tests spend their time on; the code it makes need not be fast (`optimised` is for those that
# train for long). XLA's older emitters compile a fused loop in half the time.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["MPLBACKEND"] = "agg"

from collections.abc import Iterator

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

# The same examples in every run, at any load of the machine; `--hypothesis-profile=default` looks for new ones.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

# From here on every function of pcbf_core is called with what its annotations say, shapes included.
install_import_hook("pcbf_core", "checked_types.checked")


@pytest.fixture
def optimised() -> Iterator[None]:
    """Programs compiled meanwhile are made to run fast: for tests that train for hundreds of steps."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which the programs that tests start compile every function once per session, not once each."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(base / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first, so that no worker waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slurm") is None)
