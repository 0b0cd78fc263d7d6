"""The smoke scale, run once for all tests, is what a cluster's run is held against."""

from ..pipeline.conftest import run_module, smoke

__all__ = ["run_module", "smoke"]
