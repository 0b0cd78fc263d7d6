"""What was done to the data before learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Scaling:
    """What was done to the data before learning, and must be done to observations before acting.

    Attributes:
      observation_mean, observation_std: statistics of the data, or None for observations as they are.
      reward_scale: factor on every reward.
    """

    observation_mean: np.ndarray | None = None
    observation_std: np.ndarray | None = None
    reward_scale: float = 1.0

    def observations(self, observation: Any) -> Any:
        """Observations as the learner sees them."""
        if self.observation_mean is None or self.observation_std is None:
            return observation
        return (observation - self.observation_mean) / self.observation_std
