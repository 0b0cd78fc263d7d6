"""Closed forms of the paper's theory and the quantities that its claims are checked with."""

from __future__ import annotations
