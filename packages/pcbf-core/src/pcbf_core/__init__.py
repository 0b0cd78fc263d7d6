"""Path-Coupled Bellman Flows: a return-distribution critic trained by flow matching."""

from pcbf_core.agent import Agent, BatchSource, Learner, ReturnSampler
from pcbf_core.critic import FlowCritic, FlowCriticConfig, PCBFCritic, PCBFCriticConfig, path_coupled_pair
from pcbf_core.flow import flow_map, flow_times, flow_trajectory
from pcbf_core.learner import LearnerState, gradient_step
from pcbf_core.networks import MLP, StateEmbedding, VelocityField
from pcbf_core.paths import current_point, current_point_from_successor, successor_point, uncorrected_point
from pcbf_core.pcbf import PCBF, PCBFConfig
from pcbf_core.policy import Proposal, ProposalConfig
from pcbf_core.targets import bellman_velocity, control_variate, optimal_control_weight, velocity_target
from pcbf_core.training import Dataset, init_many, train_chunk
from pcbf_core.types import TaskSpec, Transition

__all__ = [
    "MLP",
    "PCBF",
    "Agent",
    "BatchSource",
    "Dataset",
    "FlowCritic",
    "FlowCriticConfig",
    "Learner",
    "LearnerState",
    "PCBFConfig",
    "PCBFCritic",
    "PCBFCriticConfig",
    "Proposal",
    "ProposalConfig",
    "ReturnSampler",
    "StateEmbedding",
    "TaskSpec",
    "Transition",
    "VelocityField",
    "bellman_velocity",
    "control_variate",
    "current_point",
    "current_point_from_successor",
    "flow_map",
    "flow_times",
    "flow_trajectory",
    "gradient_step",
    "init_many",
    "optimal_control_weight",
    "path_coupled_pair",
    "successor_point",
    "train_chunk",
    "uncorrected_point",
    "velocity_target",
]
