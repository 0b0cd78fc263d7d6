"""What holds for every test: JAX on the CPU, nothing remembered from earlier runs, no window opened."""

from __future__ import annotations

import os

# Set before anything imports JAX or matplotlib.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
# Compiling is what most tests spend their time on; the code it makes need not be fast.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
os.environ["MPLBACKEND"] = "agg"
