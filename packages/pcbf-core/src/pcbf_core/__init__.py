"""Path-Coupled Bellman Flows: a return-distribution critic trained by flow matching."""

from pcbf_core.agent import Agent, BatchSource, GradientAgent, Learner, PlainAgent, ReturnSampler
from pcbf_core.candidates import CandidateAgent, CandidateConfig
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig, path_coupled_pair
from pcbf_core.dataset import Dataset
from pcbf_core.flow import flow_map, flow_times, flow_trajectory
from pcbf_core.flow_critic import FlowCritic, FlowCriticConfig, ReturnFlow
from pcbf_core.learner import LearnerConfig, LearnerState, ReturnCritic, gradient_step
from pcbf_core.networks import MLP, StateEmbedding, VelocityField
from pcbf_core.noise import even_levels, noise_and_times, noise_at_levels
from pcbf_core.paths import (
    current_point,
    current_point_from_successor,
    flow_path_point,
    successor_point,
    uncorrected_point,
)
from pcbf_core.pcbf import PCBF, PCBFConfig
from pcbf_core.policy import Proposal, ProposalConfig, draw_candidates
from pcbf_core.proposing import ProposingAgent, ProposingConfig
from pcbf_core.targets import (
    bellman_velocity,
    control_variate,
    flow_path_velocity,
    optimal_control_weight,
    velocity_target,
)
from pcbf_core.training import first_divergence, init_many, train_chunk
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition

__all__ = [
    "MLP",
    "PCBF",
    "Agent",
    "BatchSource",
    "CandidateAgent",
    "CandidateConfig",
    "Dataset",
    "FlowCritic",
    "FlowCriticConfig",
    "GradientAgent",
    "Learner",
    "LearnerConfig",
    "LearnerState",
    "Metrics",
    "PCBFConfig",
    "PCBFCritic",
    "PCBFCriticConfig",
    "PlainAgent",
    "Proposal",
    "ProposalConfig",
    "ProposingAgent",
    "ProposingConfig",
    "PyTree",
    "ReturnCritic",
    "ReturnFlow",
    "ReturnSampler",
    "StateEmbedding",
    "TaskSpec",
    "Transition",
    "VelocityField",
    "bellman_velocity",
    "control_variate",
    "current_point",
    "current_point_from_successor",
    "draw_candidates",
    "even_levels",
    "first_divergence",
    "flow_map",
    "flow_path_point",
    "flow_path_velocity",
    "flow_times",
    "flow_trajectory",
    "gradient_step",
    "init_many",
    "noise_and_times",
    "noise_at_levels",
    "optimal_control_weight",
    "path_coupled_pair",
    "successor_point",
    "train_chunk",
    "uncorrected_point",
    "velocity_target",
]
