"""Small Markov decision processes whose every policy has an exact return law."""

from pcbf_core.mdp.base import (
    DIRECTIONS,
    EAST,
    NORTH,
    NUM_MOVES,
    SOUTH,
    WEST,
    FiniteMDP,
    Way,
    action_of,
    draw_transitions,
    move_of,
    occupancy,
    outcomes,
    return_range,
    task_spec,
)
from pcbf_core.mdp.cliff import Cliff
from pcbf_core.mdp.gamble import Gamble
from pcbf_core.mdp.risk import best_tail_law, least_shortfall
from pcbf_core.mdp.solve import (
    behaviour_policy,
    deterministic,
    optimal_policy,
    optimal_values,
    policy_values,
    return_laws,
    tail_policy,
    uniform_policy,
)

MDPS: dict[str, FiniteMDP] = {mdp.name: mdp for mdp in (Cliff(), Gamble())}
"""The decision processes by name."""

__all__ = [
    "DIRECTIONS",
    "EAST",
    "MDPS",
    "NORTH",
    "NUM_MOVES",
    "SOUTH",
    "WEST",
    "Cliff",
    "FiniteMDP",
    "Gamble",
    "Way",
    "action_of",
    "behaviour_policy",
    "best_tail_law",
    "deterministic",
    "draw_transitions",
    "least_shortfall",
    "move_of",
    "occupancy",
    "optimal_policy",
    "optimal_values",
    "outcomes",
    "policy_values",
    "return_laws",
    "return_range",
    "tail_policy",
    "task_spec",
    "uniform_policy",
]
