"""Where else metrics go: TensorBoard and Weights & Biases."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcbf_experiments.running.errors import RunError

Sink = Callable[[int, int, Mapping[str, float]], None]  # told (seed, step, metrics)


def tensorboard_sink(folder: Path) -> Sink:
    """Writes metrics for TensorBoard; needs the extra `pcbf-experiments[tensorboard]`."""
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
    except ImportError as error:
        raise RunError("TensorBoard output needs `pip install pcbf-experiments[tensorboard]`.") from error
    writer = SummaryWriter(str(folder), flush_secs=1)  # by its own thread; its flush() leaves out what waits in a queue
    atexit.register(writer.close)

    def write(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(f"seed{seed}/{name}", value, step)

    return write


def wandb_sink(project: str, name: str, config: Mapping[str, Any]) -> Sink:
    """Sends metrics to Weights & Biases; needs the extra `pcbf-experiments[wandb]`."""
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError as error:
        raise RunError("Weights & Biases output needs `pip install pcbf-experiments[wandb]`.") from error
    session = wandb.init(project=project, name=name, config=dict(config))

    def write(seed: int, step: int, metrics: Mapping[str, float]) -> None:
        session.log({f"seed{seed}/{key}": value for key, value in metrics.items()} | {"step": step})

    return write
