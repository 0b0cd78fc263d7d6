"""What a run may also write: TensorBoard, Weights & Biases and video, each by an extra that may be absent."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pcbf_experiments.running.errors import RunError
from pcbf_experiments.running.sinks import tensorboard_sink, wandb_sink
from pcbf_experiments.video import _write_frames

from ..waiting import wait_for

ROWS = [(0, 10, {"critic_loss": 2.0, "reward": -1.0}), (0, 20, {"critic_loss": 1.5, "reward": -0.5})]


def extra(module: str, name: str):
    """The module of an extra, or a skipped test that says how to get it."""
    return pytest.importorskip(module, reason=f"needs `pip install pcbf-experiments[{name}]`")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of protobuf
def test_tensorboard_gets_every_metric_of_every_seed(tmp_path: Path):
    extra("tensorboardX", "tensorboard")
    write = tensorboard_sink(tmp_path)
    for row in ROWS:
        write(*row)
    (file,) = tmp_path.iterdir()
    expected = {(f"seed{seed}/{name}", step): value for seed, step, metrics in ROWS for name, value in metrics.items()}
    values = wait_for(  # a thread of its own writes the file, once a second
        lambda: {(tag, step): value for tag, step, value in scalars(file)}, lambda found: len(found) == len(expected)
    )
    assert values == expected


def scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    """(tag, step, value) of an events file: records of a length, its check, a message and its check."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-not-found]

    data = file.read_bytes()
    while len(data) >= 16:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 16 + length:  # not whole yet
            return
        event = Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        for value in event.summary.value:
            yield value.tag, event.step, value.simple_value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_weights_and_biases_logs_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wandb = extra("wandb", "wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write = wandb_sink("project", "a run", {"control_weight": 0.4})
    for row in ROWS:
        write(*row)
    assert wandb.run.config["control_weight"] == 0.4
    assert wandb.run.summary["seed0/critic_loss"] == 1.5 and wandb.run.summary["step"] == 20
    wandb.finish()
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.parametrize(
    ("module", "make", "named"),
    [
        ("tensorboardX", lambda folder: tensorboard_sink(folder), "tensorboard"),
        ("wandb", lambda folder: wandb_sink("p", "n", {}), "wandb"),
    ],
)
def test_an_absent_extra_is_named(module, make, named, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.split(".")[0] == module:
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(RunError, match=rf"pcbf-experiments\[{named}\]"):
        make(tmp_path)


@pytest.mark.filterwarnings("ignore")  # of JAX, because a program is started, and of a reader that stays open
@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_frames_come_back_from_a_video(ending: str, tmp_path: Path):
    """Six frames that grow brighter, of a size that video codecs like."""
    imageio = extra("imageio.v2", "video")
    if ending == ".mp4":
        extra("imageio_ffmpeg", "video")
    frames = [np.full((64, 128, 3), 40 * brightness, np.uint8) for brightness in range(6)]
    path = tmp_path / "videos" / f"episode{ending}"
    _write_frames(imageio, path, frames, 20)
    seen = [np.asarray(frame)[..., :3] for frame in imageio.mimread(path)]
    assert len(seen) == 6 and seen[0].shape == (64, 128, 3)
    brightness = [float(frame.mean()) for frame in seen]
    np.testing.assert_allclose(brightness, [40 * i for i in range(6)], atol=6)
