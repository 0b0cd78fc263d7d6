"""Docstrings as Markdown: the star of a shape, `(*batch, levels)`, is not emphasis."""

from __future__ import annotations

import re
from typing import Any

import griffe


def escaped(text: str) -> str:
    """The text with the stars of shapes escaped, but not in code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"(?<=[(\s])\*(?=\w+[,)])", r"\\*", part) for part in parts[::2]]
    return "".join(parts)


class Escape(griffe.Extension):
    """Escapes the docstrings of everything that is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = escaped(obj.docstring.value)
