"""The core's formulas in double precision: plain arithmetic, so they serve float64 NumPy arrays as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pcbf_core import paths, targets, theory

Values = NDArray[np.float64]
Formula = Callable[..., Values]

current_point = cast(Formula, paths.current_point)
current_point_from_successor = cast(Formula, paths.current_point_from_successor)
successor_point = cast(Formula, paths.successor_point)
uncorrected_point = cast(Formula, paths.uncorrected_point)
flow_path_point = cast(Formula, paths.flow_path_point)
bellman_velocity = cast(Formula, targets.bellman_velocity)
control_variate = cast(Formula, targets.control_variate)
velocity_target = cast(Formula, targets.velocity_target)
flow_path_velocity = cast(Formula, targets.flow_path_velocity)
optimal_control_weight = cast(Formula, theory.optimal_control_weight)
