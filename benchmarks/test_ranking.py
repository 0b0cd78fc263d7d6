"""What ranks candidates: cheap scores against the paper's on a trained critic, and what acting by them costs.

pytest benchmarks/test_ranking.py --benchmark-enable --benchmark-only -s
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from pytest_benchmark.fixture import BenchmarkFixture
from work import BATCH_SIZE, SIZES, SPEC, best_of_each, dataset, matmul_flops, peak_gflops, product_chain

from pcbf_core.dataset import Dataset
from pcbf_core.learner import LearnerState
from pcbf_core.pcbf import PCBF, PCBFConfig
from pcbf_core.training import init_many, train_chunk
from pcbf_experiments.data.scaling import Scaling
from pcbf_experiments.evaluation import policy

NUM_STATES, NUM_CANDIDATES, TRAIN_STEPS = 100, 16, 1000
NUM_EPISODES = 50
EXACT: dict[str, Any] = {"score": "mean", "num_return_samples": 256, "score_noise": "even"}
SCORES: dict[str, dict[str, Any]] = {
    "paper: 16 full flows, shared noises": {"score": "mean", "num_return_samples": 16, "score_noise": "shared"},
    "default: 1 Euler step, 4 even noises": {},
    "released: 1 Euler step, 1 noise per candidate": {
        "score": "one_step",
        "num_return_samples": 1,
        "score_noise": "per_candidate",
    },
}


def agent_with(**settings: Any) -> PCBF:
    """PCBF of laptop size with its own defaults."""
    fixed: dict[str, Any] = {**SIZES["3x128"], "num_candidates": NUM_CANDIDATES, "next_action": "current_action"}
    return PCBF(PCBFConfig(**fixed, **settings), SPEC)


def rewarded() -> Dataset:
    """The synthetic transitions with a reward that favours, in each state, actions near a point of its own."""
    rows = dataset().transitions
    wanted = jnp.tanh(rows.observation[:, : SPEC.action_dim])
    reward = -jnp.mean((rows.action - wanted) ** 2, axis=-1)
    return Dataset(rows.replace(reward=reward))


def trained() -> LearnerState:
    """A learner after `TRAIN_STEPS` on `rewarded`."""
    agent, keys = agent_with(discount=0.9, learning_rate=1e-3), jax.random.split(jax.random.key(0), 1)
    sizes: dict[str, Any] = {"num_steps": TRAIN_STEPS, "batch_size": BATCH_SIZE, "across": "map"}
    states, _ = train_chunk(agent, init_many(agent, keys), rewarded(), keys, **sizes)
    return jax.tree.map(lambda leaf: leaf[0], states)


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value of the last axis, from 0."""
    return values.argsort(axis=-1).argsort(axis=-1)


def agreement(scores: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """How well scores (states, candidates) order the candidates of each state as the exact ones do.

    The Spearman correlation; how often both choose the same; what the choice loses, as a share of what the best
    candidate is worth above the mean one.
    """
    correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(ranks(scores), ranks(exact), strict=True)]
    chosen = np.take_along_axis(exact, scores.argmax(-1)[:, None], -1)[:, 0]
    best, mean = exact.max(-1), exact.mean(-1)
    return {
        "spearman": round(float(np.mean(correlations)), 3),
        "same_choice": round(float(np.mean(scores.argmax(-1) == exact.argmax(-1))), 3),
        "loss_of_choice": round(float((best - chosen).sum() / (best - mean).sum()), 4),
    }


def test_agreement(benchmark: BenchmarkFixture, ledger: Any) -> None:
    """Scores of the same candidates by the same critic, against 256 full flows; and what scoring takes."""
    state = trained()
    keys = jax.random.split(jax.random.key(1), 3)
    observation = jax.random.normal(keys[0], (NUM_STATES, 1, *SPEC.observation_shape))
    action = jax.random.uniform(keys[1], (NUM_STATES, NUM_CANDIDATES, SPEC.action_dim), minval=-1.0)

    def scorer(settings: dict[str, Any]) -> Callable[[], Array]:
        score = jax.jit(partial(agent_with(**settings).score, for_target=False))
        compiled = score.lower(state, observation, action, keys[2]).compile()
        return lambda: compiled(state, observation, action, keys[2])

    exact = np.asarray(scorer(EXACT)())
    work = {name: scorer(settings) for name, settings in SCORES.items()}
    seconds = benchmark.pedantic(lambda: best_of_each(work, most_seconds=2), rounds=1)
    dearest = max(seconds.values())
    for name, score in work.items():
        found = agreement(np.asarray(score()), exact)
        ledger.add("ranking", score=name, **found, times_cheaper=round(dearest / seconds[name], 2))


@pytest.mark.parametrize("variant", ["default", "paper"])
def test_acting_together(benchmark: BenchmarkFixture, ledger: Any, variant: str) -> None:
    """A step of 50 episodes without their simulators: one call for all against 50 calls; the actions are the same.

    `bound` is the speed-up that the same products would have at the matmul peak, all else free.
    """
    fixed: dict[str, Any] = {**SIZES["3x128"], "num_candidates": NUM_CANDIDATES}
    config = PCBFConfig(**fixed) if variant == "default" else PCBFConfig.variant("paper", **fixed)
    agent = PCBF(config, SPEC)
    state = jax.jit(agent.init)(jax.random.key(0))
    act = policy(agent, state, Scaling(), jax.random.key(0))
    observation = np.random.default_rng(0).standard_normal((NUM_EPISODES, *SPEC.observation_shape), np.float32)
    episode, step = np.arange(NUM_EPISODES, dtype=np.int32), np.zeros(NUM_EPISODES, np.int32)

    def alone() -> np.ndarray:
        each = (slice(i, i + 1) for i in range(NUM_EPISODES))
        return np.concatenate([act(observation[i], episode[i], step[i]) for i in each])

    work = {"fast": lambda: act(observation, episode, step), "plain": alone, "product": product_chain()}
    together, one_by_one = act(observation, episode, step), alone()
    np.testing.assert_allclose(together, one_by_one, atol=1e-3)
    seconds = benchmark.pedantic(lambda: best_of_each(work, most_seconds=4, rounds=20), rounds=1)
    peak = peak_gflops(seconds["product"])
    flops = matmul_flops(agent.act, state, observation, jax.random.key(0))
    ledger.add(
        "acting_together",
        work=f"a step of {NUM_EPISODES} episodes, {variant} scores",
        size="3x128",
        **{f"{name}_ms": round(1e3 * seconds[name] / NUM_EPISODES, 3) for name in ("fast", "plain")},
        speedup_over_one_by_one=round(seconds["plain"] / seconds["fast"], 2),
        bound=round(seconds["plain"] * 1e9 * peak / flops, 2),
    )
