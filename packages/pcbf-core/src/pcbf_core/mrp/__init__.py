"""Markov reward processes with exact return laws."""

from pcbf_core.mrp.base import MarkovRewardProcess
from pcbf_core.mrp.bernoulli import Bernoulli
from pcbf_core.mrp.chain import MonteCarloChain
from pcbf_core.mrp.laws import DiscreteLaw, NormalLaw, ReturnLaw, UniformLaw
from pcbf_core.mrp.solitaire import SolitaireDice

_PROCESSES = (SolitaireDice(), Bernoulli(), MonteCarloChain())
MRPS: dict[str, MarkovRewardProcess] = {process.name: process for process in _PROCESSES}

__all__ = [
    "MRPS",
    "Bernoulli",
    "DiscreteLaw",
    "MarkovRewardProcess",
    "MonteCarloChain",
    "NormalLaw",
    "ReturnLaw",
    "SolitaireDice",
    "UniformLaw",
]
