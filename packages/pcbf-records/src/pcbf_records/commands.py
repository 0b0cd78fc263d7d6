"""What the commands of all packages share: options checked as they are read, and faults told in a line."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pcbf_records.canonical import suggestion

COMPLETE = "PCBF_COMPLETE"  # names a shell: the command prints its completions for it instead of running


class Help(argparse.HelpFormatter):
    """Help whose examples stand on lines of their own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        head, sign, examples = text.partition("examples:\n")
        filled = super()._fill_text(head, width, indent) + ("\n\n" if sign and head else "")
        return f"{filled}{sign}{examples}"


class Parser(argparse.ArgumentParser):
    """Options of a command. What is wrong with them is told in one line, with the option that was probably meant."""

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        """`examples` are command lines that the help ends with."""
        if examples:
            options["epilog"] = options.get("epilog", "") + "\n  ".join(["examples:", *examples])
        super().__init__(**{"allow_abbrev": False, "formatter_class": Help, **options})

    def parse_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        if shell := os.environ.get(COMPLETE):
            import shtab

            print(shtab.complete(self, shell))
            self.exit()
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--?[^\s=]+)", message)
        hint = suggestion(unknown[1], self._known()) if unknown else ""
        self.exit(2, f"{self.prog}: error: {message}{hint or f'; `{self.prog} --help` shows what there is'}\n")

    def _known(self) -> Iterator[str]:
        yield from self._option_string_actions
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._option_string_actions


def whole_number(at_least: int = 1) -> Callable[[str], int]:
    """Reads an option that is a whole number of at least so much."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or value < at_least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number >= {at_least}")
        return value

    return read


def positive_number(text: str) -> float:
    """Reads an option that is a finite number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number > 0")
    return value


def json_object(text: str) -> dict[str, Any]:
    """Reads an option that is a JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is not a JSON object, such as {{"discount": 0.99}}')
    return value


def check_writable(folder: Path) -> None:
    """Make the folder, and raise an `OSError` that names it unless files can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".tmp") as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise type(error)(error.errno, f"{error.strerror}; nothing can be written there", str(folder)) from error
