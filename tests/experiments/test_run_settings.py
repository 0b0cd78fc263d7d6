"""Settings of a run that came after records were published: told where they are used, silent otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pcbf_core.config import recorded
from pcbf_experiments.cli import train
from pcbf_experiments.cli.common import repeat_to_the_bit
from pcbf_experiments.running.settings import RunSettings

JOB = '{"run": {"deterministic": true}, "domain": {}, "default": {}, "method": {}}'


def test_precision_and_determinism_are_recorded_only_where_they_are_asked_for():
    assert not {"precision", "deterministic"} & set(recorded(RunSettings()))
    told = recorded(RunSettings(precision="bfloat16", deterministic=True))
    assert (told["precision"], told["deterministic"]) == ("bfloat16", True)
    with pytest.raises(ValueError, match="precision='float16'"):
        RunSettings(precision="float16")


def test_flags_of_the_user_stay(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=2")
    repeat_to_the_bit()
    repeat_to_the_bit()
    assert os.environ["XLA_FLAGS"] == "--xla_gpu_autotune_level=2 --xla_gpu_deterministic_ops=true"


@pytest.mark.parametrize("words", [["--deterministic"], ["--job", JOB]])
def test_the_command_sets_them_before_jax_starts(words, monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(train, "guarded", lambda body: 7)
    assert train.main(["t", "m", *words]) == 7
    assert os.environ["XLA_FLAGS"] == "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


@pytest.mark.slow
def test_xla_knows_the_flags(monkeypatch):
    """It ends a process that is given one that it does not know."""
    monkeypatch.setenv("XLA_FLAGS", "")
    repeat_to_the_bit()
    code = "import jax; print(jax.numpy.ones(2).sum())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "2.0"
