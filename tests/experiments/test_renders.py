"""Pictures of the tasks: what is written, from a stand-in for the simulator, and the error without OpenGL."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pcbf_experiments import renders

STATE, PIXEL, HAND = "scene-play-singletask-task2-v0", "visual-cube-double-play-singletask-task1-v0", "door-expert-v1"


class Stage:
    """A simulator that shows black at the start and white at the goal, and remembers how it was made."""

    def __init__(self, spec: Any) -> None:
        self.options = dict(spec.options)
        self.size = self.options.get("width", 64)
        self.observation_space = SimpleNamespace(shape=(64, 64, 3) if "visual" in spec.id else (40,))
        self.action_space = SimpleNamespace(shape=(28,))
        self.is_open = True

    def reset(self, *, seed: int, options: Any = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        white = np.full((self.size, self.size, 3), 255, np.uint8)
        return 0 * white, {"goal": white, "goal_rendered": white}

    def render(self) -> np.ndarray:
        return np.zeros((self.size, self.size, 3), np.uint8)

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renders, "make_simulator", Stage)


@pytest.mark.parametrize(("task", "shape"), [(STATE, (32, 64, 3)), (PIXEL, (64, 128, 3)), (HAND, (32, 32, 3))])
def test_start_and_goal_stand_side_by_side(stage: None, tmp_path: Path, task: str, shape: tuple[int, ...]) -> None:
    assert renders.main([task, "--out", str(tmp_path), "--size", "32"]) == 0
    with Image.open(tmp_path / f"{task}.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == shape
    assert (pixels[:, : shape[0]] == 0).all()
    assert (pixels[:, shape[0] :] == 255).all()
    sizes = json.loads((tmp_path / f"{task}.json").read_text())
    assert sizes["action_dim"] == 28
    assert sizes["observation_shape"] == ([64, 64, 3] if task == PIXEL else [40])


def test_sizes_need_no_picture(stage: None, tmp_path: Path) -> None:
    assert renders.main([HAND, "--out", str(tmp_path), "--sizes-only"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [f"{HAND}.json"]


def test_the_same_frame_gives_the_same_bytes() -> None:
    frame = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    assert renders.png(frame) == renders.png(frame.copy())
    with Image.open(io.BytesIO(renders.png(frame))) as picture:
        np.testing.assert_array_equal(np.asarray(picture), frame)


def test_without_opengl_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(spec: Any) -> Any:
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setattr(renders, "make_simulator", broken)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert renders.main([HAND, "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "does not start with MUJOCO_GL=osmesa" in told
    assert "set MUJOCO_GL to egl, osmesa or glfw" in told
    assert not list(tmp_path.iterdir())
