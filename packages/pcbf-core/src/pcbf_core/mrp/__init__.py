"""Markov reward processes with exact return laws."""

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.bernoulli import Bernoulli
from pcbf_core.mrp.chain import MonteCarloChain
from pcbf_core.mrp.crossroads import Crossroads
from pcbf_core.mrp.finite import FiniteProcess, finite_process, normal_process
from pcbf_core.mrp.laws import DiscreteLaw, NormalLaw, NormalMixtureLaw, ReturnLaw, UniformLaw
from pcbf_core.mrp.normal import NormalRewards
from pcbf_core.mrp.solitaire import SolitaireDice

_PROCESSES = (SolitaireDice(), Bernoulli(), MonteCarloChain(), NormalRewards(), Crossroads())
MRPS: dict[str, MarkovRewardProcess] = {process.name: process for process in _PROCESSES}
"""The reward processes by name."""

__all__ = [
    "MRPS",
    "Bernoulli",
    "Crossroads",
    "DiscreteLaw",
    "FiniteProcess",
    "MarkovRewardProcess",
    "MonteCarloChain",
    "NormalLaw",
    "NormalMixtureLaw",
    "NormalRewards",
    "ReturnLaw",
    "SolitaireDice",
    "UniformLaw",
    "finite_process",
    "normal_process",
]
