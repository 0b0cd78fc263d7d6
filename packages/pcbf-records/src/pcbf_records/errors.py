"""What goes wrong with records."""

from __future__ import annotations


class RecordError(ValueError):
    """A file that is there but not as agreed; the message names it, the fault and the remedy."""
