"""How a run ends when it does not finish."""

from __future__ import annotations

DIVERGED_REMEDY = "Change the settings (a smaller learning rate, gradient clipping), or pass --restart to try again."


class RunError(RuntimeError):
    """A run that cannot start or go on; the message says what to do."""


class RunDiverged(RunError):
    """A run that stopped because a metric became NaN or infinite."""


class RunStopped(RunError):
    """A run that a signal asked to stop, and that did so right after a checkpoint."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
