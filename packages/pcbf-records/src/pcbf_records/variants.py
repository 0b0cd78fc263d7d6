"""Variants: one method with some settings changed, under a name of its own, `<method>-<what is changed>`."""

from __future__ import annotations

MARK = "-"


def base_method(name: str) -> str:
    """The method that a name belongs to: `pcbf_flow` of `pcbf_flow-independent`, and of itself."""
    return name.partition(MARK)[0]


def is_variant(name: str) -> bool:
    return MARK in name
