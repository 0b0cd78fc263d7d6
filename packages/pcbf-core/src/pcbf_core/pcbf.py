"""PCBF as an agent: the path-coupled critic and the proposal flow behind one protocol."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, final

import jax
from jax import Array

from pcbf_core.candidates import CandidateAgent, CandidateConfig
from pcbf_core.config import Count, OneOf, PositiveShare, check_choice, config_from
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig
from pcbf_core.flow import Solver
from pcbf_core.flow_critic import FlowCritic, FlowCriticConfig
from pcbf_core.learner import LearnerState
from pcbf_core.noise import even_levels, noise_at_levels
from pcbf_core.released import VARIANTS, DoneSource, with_terminals_of
from pcbf_core.types import Metrics, PyTree, TaskSpec, Transition

NextAction = Literal["rejection", "bc_sample", "dataset_next", "current_action"]
ScoreNoise = Literal["shared", "per_candidate", "even"]


@dataclass(frozen=True)
class FlowAgentConfig(FlowCriticConfig, CandidateConfig):
    """Settings of agents that act by the candidates of a proposal and a critic whose return law is a flow.

    Attributes:
      clip_returns: keep flows inside `TaskSpec.return_range`; all published code does.
      score: "mean" of M terminal returns (eq:qhat-mean), mean of M "one_step" Euler estimates, or "cvar",
        the mean of M returns spread over the tail that `risk_level` and `risk_seeking` name.
      num_return_samples: M when acting. The paper does not give it.
      score_noise: "shared" scores the candidates of a state under common noises; "per_candidate" under
        their own, which adds about a standard deviation of the return to each score if M = 1; "even" under the normal
        quantiles of M even levels, the same for all states: of a monotone map few give the mean.
      next_action: a' of the targets: the best of K candidates ("rejection"), one sample of the proposal,
        the data's own next action, or the current action (as the paper's repository does).
      next_score, num_next_samples: score and M for the targets' candidates. The paper does not give them;
        one Euler step costs a tenth of a full flow and has the same mean.
      done_source: "masks" stops bootstrapping where the return ends (`Transition.terminal`); "terminals"
        where a recorded trajectory ends (`Transition.trajectory_end`), as the paper's repository does.
    """

    scores: ClassVar[tuple[str, ...]] = ("mean", "one_step", "cvar")

    clip_returns: bool = True
    num_return_samples: Count = 16
    score_noise: ScoreNoise = "shared"
    next_action: NextAction = "rejection"
    next_score: Annotated[str, OneOf("scores")] = "one_step"
    num_next_samples: Count = 4
    done_source: DoneSource = "masks"


@dataclass(frozen=True)
class FlowAgent(CandidateAgent):
    """A critic whose return law is a flow, with a cloned proposal."""

    config: FlowAgentConfig
    spec: TaskSpec

    @property
    @abstractmethod
    def critic(self) -> FlowCritic:
        """The critic with its loss."""

    def init_critic(self, key: Array) -> PyTree:
        return self.critic.init_params(key)

    def choose_next_action(self, state: LearnerState, batch: Transition, key: Array) -> Array:
        """a' at s', (batch, action_dim), by `FlowAgentConfig.next_action`."""
        config = self.config
        if config.next_action == "current_action":
            return batch.action
        if config.next_action == "dataset_next":
            if batch.next_action is None:
                raise ValueError(
                    '`next_action="dataset_next"` needs `Transition.next_action`, which this data lacks; '
                    'fill it in, or use `next_action="rejection"`.'
                )
            return batch.next_action
        if config.next_action == "bc_sample":
            if batch.next_candidates is not None:
                return batch.next_candidates[..., 0, :]
            return self.proposal.sample(self.proposal_params(state), batch.next_observation, key)
        return self.best_next_action(state, batch, key)

    def critic_loss(self, params: PyTree, state: LearnerState, batch: Transition, key: Array) -> tuple[Array, Metrics]:
        """The critic's own loss, with d by `done_source`."""
        batch = with_terminals_of(self.config.done_source, batch)
        return self.critic.loss(params, state.target_params["critic"], batch, key, state.coefficients)

    def score(self, state: LearnerState, observation: Array, action: Array, key: Array, *, for_target: bool) -> Array:
        """Scores (*batch, candidates), see `FlowAgentConfig.score`."""
        config, critic = self.config, self.critic
        kind = config.next_score if for_target else config.score
        num_samples = config.num_next_samples if for_target else config.num_return_samples
        if kind == "cvar":
            level, upper = config.risk_level, config.risk_seeking
            return critic.cvar(state, observation, action, level, num_samples, upper=upper)
        *batch, num_candidates, _ = action.shape
        if config.score_noise == "even":
            noise = noise_at_levels(even_levels(num_samples))
        else:
            per_candidate = 1 if config.score_noise == "shared" else num_candidates
            noise = jax.random.normal(key, (*batch, per_candidate, num_samples))
        returns = critic.one_step_returns if kind == "one_step" else critic.returns_at
        return returns(state, observation, action, noise).mean(axis=-1)

    def sample_returns(
        self, state: LearnerState, observation: Array, action: Array, key: Array, num_samples: int
    ) -> Array:
        """Independent samples of the return, (*batch, samples)."""
        return self.critic.sample_returns(state, observation, action, key, num_samples)

    def quantiles(self, state: LearnerState, observation: Array, action: Array, levels: Array) -> Array:
        """Return quantiles at `levels` in (0, 1), (*batch, levels)."""
        return self.critic.quantiles(state, observation, action, levels)


@final
@dataclass(frozen=True)
class PCBFConfig(FlowAgentConfig, PCBFCriticConfig):
    """Settings of PCBF: those of its critic and of acting. The defaults are the best we know, see `variant`."""

    variants: ClassVar[tuple[str, ...]] = tuple(VARIANTS)

    polyak_rate: PositiveShare = PCBFCriticConfig.polyak_rate  # a dataclass takes them from its first base otherwise
    num_flow_steps: Count = PCBFCriticConfig.num_flow_steps
    solver: Solver = PCBFCriticConfig.solver
    stratified: bool = PCBFCriticConfig.stratified
    score: Annotated[str, OneOf("scores")] = "one_step"
    score_noise: ScoreNoise = "even"
    num_return_samples: Count = 4

    @classmethod
    def variant(cls, name: str, **settings: Any) -> PCBFConfig:
        """The settings of a named form of the method, changed by `settings`.

        "paper" is the paper's algorithm (linear path, Euler steps); "released" does what the source in the paper's
        repository does; "compiled" what the older compiled code in that repository does.
        """
        check_choice("variant", name, VARIANTS)
        return config_from(cls, {**VARIANTS[name], **settings})


@final
@dataclass(frozen=True)
class PCBF(FlowAgent):
    """Path-Coupled Bellman Flows (alg:pcbf-train, app:policy-extraction)."""

    config: PCBFConfig
    spec: TaskSpec

    @property
    def critic(self) -> PCBFCritic:
        return PCBFCritic(self.config, self.spec)
