"""The claims ledger: every checkable statement of the paper with the test that decides it, and the verdicts."""

from pcbf_analysis.claims.ledger import (
    BEYOND,
    MAIN,
    TESTS,
    Claim,
    ClaimsError,
    Finding,
    counts,
    decide,
    load_claims,
    of_paper,
    table,
    write,
)
from pcbf_analysis.claims.verdicts import VERDICTS, Decision, Measure

__all__ = [
    "BEYOND",
    "MAIN",
    "TESTS",
    "VERDICTS",
    "Claim",
    "ClaimsError",
    "Decision",
    "Finding",
    "Measure",
    "counts",
    "decide",
    "load_claims",
    "of_paper",
    "table",
    "write",
]
