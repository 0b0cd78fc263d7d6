"""The helper that tests wait with: files that are absent, half-written, replaced, or never say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .waiting import text_of, wait_for, wait_for_words


def test_what_is_absent_half_written_and_removed_in_between_is_not_there_yet(tmp_path: Path):
    file = tmp_path / "said.json"
    stages = iter(
        [
            lambda: None,
            lambda: file.write_text('{"done": '),
            lambda: file.write_text('{"done": 1}'),
            lambda: file.unlink(),
            lambda: file.write_bytes(b'{"done": "\xc3'),
            lambda: file.write_text('{"done": 2}'),
        ]
    )

    def look() -> int:
        next(stages)()
        return json.loads(text_of(file))["done"]

    assert wait_for(look, lambda done: done == 2, every=0.0) == 2


def test_who_gives_up_shows_what_was_there(tmp_path: Path):
    file = tmp_path / "log"
    with pytest.raises(AssertionError, match=r"(?s)0 s have passed; last seen:.*FileNotFoundError.*log"):
        wait_for_words(file, "ready", patience=0.0)
    file.write_text("still starting")
    with pytest.raises(AssertionError, match="still starting"):
        wait_for_words(file, "ready", patience=0.0)


def test_the_last_words_of_a_program_are_heard_and_then_nobody_is_waited_for(tmp_path: Path):
    file = tmp_path / "log"

    def ended() -> bool:
        file.write_text("ready")
        return True

    assert wait_for_words(file, "ready", ended=ended) == "ready"
    with pytest.raises(AssertionError, match="nobody is left who could"):
        wait_for_words(file, "steady", ended=ended)
