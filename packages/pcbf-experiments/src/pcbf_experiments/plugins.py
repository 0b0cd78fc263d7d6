"""Modules of yours that add tasks, suites and methods, imported once before the first name is looked up."""

from __future__ import annotations

import importlib
import os
from functools import cache
from importlib.metadata import entry_points

PLUGINS_VARIABLE = "PCBF_PLUGINS"
PLUGINS_GROUP = "pcbf.plugins"


@cache
def load_plugins() -> None:
    """Import the modules named in PCBF_PLUGINS (separated by spaces), and the entry points `pcbf.plugins`."""
    for module in os.environ.get(PLUGINS_VARIABLE, "").split():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{PLUGINS_VARIABLE} names {module!r}, which cannot be imported ({error}); "
                "install it, or put its folder on PYTHONPATH."
            ) from error
    for point in entry_points(group=PLUGINS_GROUP):
        point.load()
