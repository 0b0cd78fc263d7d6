"""The methods that PCBF is compared with, and the registry that knows all of them by name."""

from pcbf_baselines.registry import METHODS, Method, make_agent, register_method
from pcbf_baselines.values import EnsembleConfig, q_role, q_values

__all__ = [
    "METHODS",
    "EnsembleConfig",
    "Method",
    "make_agent",
    "q_role",
    "q_values",
    "register_method",
]
