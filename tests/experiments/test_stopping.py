"""Ctrl-C and SIGTERM: the first asks where something would be lost, and ends where nothing would; the second ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from pcbf_experiments.running.stopping import SAME_SECONDS

from ..waiting import wait_for

WORK = """
import sys, time
from pcbf_experiments.running.stopping import Stopper
with Stopper() as stopper, getattr(stopper, sys.argv[1])():
    print("ready", flush=True)
    while not stopper.is_asked or sys.argv[2] == "deaf":
        sum(range(10_000_000))  # holds the main thread, as a compiled call does
    print("asked by", stopper.number, flush=True)
"""


def start(where: str, how: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, where, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_something_would_be_lost_a_signal_asks(number):
    process = start("while_something_is_lost")
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert (said, process.returncode) == (f"asked by {number.value}\n", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_nothing_would_be_lost_it_ends(number):
    process = start("nothing_to_lose", "deaf")
    process.send_signal(number)
    said, told = process.communicate(timeout=60)
    assert (said, process.returncode) == ("", 128 + number)
    assert told == "stopped; rerun to resume, finished work is skipped\n"


def test_a_second_signal_ends_and_several_of_one_wish_do_not():
    process = start("while_something_is_lost", "deaf")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    time.sleep(SAME_SECONDS / 4)
    assert process.poll() is None
    time.sleep(SAME_SECONDS)

    def has_ended() -> (
        bool
    ):  # on a busy machine the first may have been heard late, so that this one still counts to it
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    wait_for(has_ended, every=0.2)
    process.communicate(timeout=60)
    assert process.returncode == 130
