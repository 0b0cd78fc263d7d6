"""The paper's theoretical statements as measurements.

Every check compares a measured number with what the paper says it is, or with the bound it must keep.
A check that fails is written down as failing. Identities are evaluated in double precision, conditional
expectations of finite laws exactly, and where random samples are used the tolerance is five standard errors.
"""

from pcbf_experiments.theory.checks import CHECKS, TheorySettings, parse_settings, run_checks
from pcbf_experiments.theory.population import population_checks, population_rows
from pcbf_experiments.theory.residual import residual_rows
from pcbf_experiments.theory.rows import at_least, at_most, near

__all__ = [
    "CHECKS",
    "TheorySettings",
    "at_least",
    "at_most",
    "near",
    "parse_settings",
    "population_checks",
    "population_rows",
    "residual_rows",
    "run_checks",
]
