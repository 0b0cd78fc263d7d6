"""Pictures of the tasks, rendered from their simulators (fig:ogbench), and the sizes of their spaces.

`pcbf-render TASK --out DIR` writes `<task>.png`, start and goal side by side (Adroit: start only), and `<task>.json`
with what the simulator says of its observations and actions. State-based tasks are rendered at `--size`; image-based
ones are shown as the agent sees them. Without an OpenGL renderer only the json is written when `--sizes-only` is given;
otherwise the command fails and says how to choose a renderer.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcbf_experiments.simulators import make_simulator
from pcbf_experiments.tasks import find_task
from pcbf_records.commands import Parser, whole_number
from pcbf_records.files import atomic_write
from pcbf_records.sheets import Task

if TYPE_CHECKING:
    import gymnasium

    from pcbf_experiments.suites import Suite

DESCRIPTION = "Pictures of tasks from their simulators, and the sizes of their spaces."
Frame = np.ndarray  # (height, width, 3), uint8


class RenderError(RuntimeError):
    """No picture can be made on this machine."""


def _suite(task: Task) -> Suite:
    from pcbf_experiments.suites import suite_of  # needs JAX, which `--help` does not

    return suite_of(task)


@contextmanager
def simulator(task: Task, **options: Any) -> Iterator[gymnasium.Env]:
    """The task's simulator, closed at the end; whatever fails is told with its remedy."""
    try:
        env = make_simulator(_suite(task).simulator(task, **options))
        try:
            yield env
        finally:
            env.close()
    except Exception as error:  # each OpenGL binding has errors of its own
        raise RenderError(
            f"{task.name} does not start with MUJOCO_GL={os.environ.get('MUJOCO_GL')} "
            f"({type(error).__name__}: {error}); "
            "set MUJOCO_GL to egl, osmesa or glfw, whichever this machine has."
        ) from error


def spaces(task: Task) -> dict[str, Any]:
    """What the simulator says of its observations and actions; image-based tasks need a renderer."""
    with simulator(task) as env:
        shapes, env_id = (env.observation_space.shape, env.action_space.shape), _suite(task).simulator(task).id
    return {
        "task": task.name,
        "environment": env_id,
        "observation_shape": list(shapes[0] or ()),
        "action_dim": int(np.prod(shapes[1] or ())),
    }


def render(task: Task, size: int) -> Frame:
    """Start (and goal, on OGBench) of the task's first evaluation episode; raises `RenderError` without a renderer."""
    options = {} if task.is_pixel else {"render_mode": "rgb_array", "width": size, "height": size}
    with simulator(task, **options) as env:
        views = _suite(task).views(task, env)
    frames = [np.asarray(view, np.uint8)[..., :3] for view in views]
    return np.concatenate(frames, axis=1)


def png(frame: Frame) -> bytes:
    """`frame` as the content of a png file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-render TASK… --out DIR`."""
    parser = Parser(
        prog="pcbf-render",
        description=DESCRIPTION,
        examples=["pcbf-render pen-expert-v1 --out pictures --size 400"],
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="tasks by the paper's names")
    parser.add_argument("--out", type=Path, required=True, help="folder, such as results/laptop/renders")
    parser.add_argument(
        "--size", type=whole_number(), default=200, help="pixels per side of a picture (default: %(default)s)"
    )
    parser.add_argument("--sizes-only", action="store_true", help="write the json only, which needs no renderer")
    given = parser.parse_args(arguments)
    try:
        for task in [find_task(name) for name in given.tasks]:
            with atomic_write(given.out / f"{task.name}.json") as file:
                file.write(json.dumps(spaces(task), indent=1) + "\n")
            if not given.sizes_only:
                with atomic_write(given.out / f"{task.name}.png", "wb") as file:
                    file.write(png(render(task, given.size)))
            print(given.out / task.name)
    except (RenderError, ValueError, KeyError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
