"""The claims ledger: every checkable statement of the paper with the test that decides it, and the verdicts."""

from pcbf_analysis.claims.ledger import TESTS, Claim, ClaimsError, Finding, counts, decide, load_claims, table, write
from pcbf_analysis.claims.verdicts import VERDICTS, Decision, Measure

__all__ = [
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
    "table",
    "write",
]
