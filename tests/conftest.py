"""What holds for every test: JAX on the CPU, nothing remembered from earlier runs, no window opened."""

from __future__ import annotations

import os

# Set before anything imports JAX or matplotlib.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
os.environ["MPLBACKEND"] = "agg"
