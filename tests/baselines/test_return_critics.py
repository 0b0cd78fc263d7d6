"""Facts of the critics without a policy: FlowIQN's sorted coupling, and what all return laws have in common."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.c51 import CategoricalCritic, CategoricalCriticConfig
from pcbf_baselines.codac import ConservativeCritic, ConservativeCriticConfig
from pcbf_baselines.flow_iqn import SortedFlowCritic, SortedFlowCriticConfig, sorted_in_groups
from pcbf_baselines.gaussian import GaussianCritic, GaussianCriticConfig
from pcbf_baselines.quantiles import QuantileCritic, QuantileCriticConfig
from pcbf_core.critic import PCBFCritic, PCBFCriticConfig
from pcbf_core.learner import ReturnCritic
from pcbf_core.mrp import Bernoulli, Crossroads
from pcbf_core.types import TaskSpec, Transition

from ..methods import SPECS, random_batch

SMALL = {"hidden_sizes": (16, 16), "layer_norm": False, "num_critics": 1, "discount": 0.5}
KEY = jax.random.key(0)


def sorted_critic(group_size: int) -> SortedFlowCritic:
    config = SortedFlowCriticConfig(**SMALL, num_flow_steps=4, solver="midpoint", group_size=group_size)
    return SortedFlowCritic(config, Bernoulli().spec)


def target_loss(critic: ReturnCritic, batch: Transition, state_key: jax.Array = KEY) -> float:
    state = critic.init(state_key)
    pair = state.params["critic"], state.target_params["critic"]
    return float(critic.loss(*pair, batch, jax.random.key(1), state.coefficients)[0])


def test_sorting_keeps_each_groups_values():
    values = jnp.array([[3.0], [1.0], [2.0], [9.0], [7.0], [8.0]])
    np.testing.assert_array_equal(sorted_in_groups(values, 3)[:, 0], [1, 2, 3, 7, 8, 9])


@pytest.mark.slow
def test_groups_of_a_process_start_in_one_state():
    batch = Crossroads().sample(KEY, 48, absorbing_fraction=0.3, group_size=8)
    assert (batch.observation.reshape(6, 8) == batch.observation[::8, None]).all()
    assert len(set(batch.observation.tolist())) > 2
    with pytest.raises(ValueError, match="not a multiple"):
        Crossroads().sample(KEY, 10, group_size=4)


@pytest.mark.slow
def test_noises_of_a_group_are_even_and_increase():
    noise = sorted_critic(8).group_noise(KEY, 32)[:, 0].reshape(4, 8)
    levels = jax.scipy.special.ndtr(noise)
    np.testing.assert_allclose(jnp.diff(levels, axis=1), 1 / 8, atol=1e-5)


@pytest.mark.slow
def test_sorting_a_mixture_lowers_the_targets_variance_with_the_groups_size():
    """Bernoulli has two successors: in groups the pairing of the whole mixture is monotone, one by one it is not."""
    batch = Bernoulli().sample(jax.random.key(2), 4096)
    losses = [target_loss(sorted_critic(size), batch) for size in (1, 4, 64)]
    assert losses[0] > 1.2 * losses[1] > 1.2 * losses[2]


@pytest.mark.slow
def test_with_one_successor_sorting_is_sharing_the_noise():
    """R + γψ(x) increases in x: in a group whose rewards are equal, sorted pairs are those of one noise."""
    batch = Bernoulli().sample(KEY, 64)
    batch = batch.replace(reward=jnp.ones_like(batch.reward))
    critic = sorted_critic(64)
    params = critic.init(KEY).params["critic"]
    noise = critic.group_noise(jax.random.key(3), 64)
    flow = critic.flow_at(params, batch.next_observation, batch.successor_action, aggregation="mean")
    bellman = 1 + 0.5 * flow.returns(noise)
    np.testing.assert_array_equal(sorted_in_groups(bellman, 64), bellman)


@pytest.mark.slow
def test_a_batch_without_whole_groups_is_refused():
    with pytest.raises(ValueError, match="no groups of `group_size=8`"):
        target_loss(sorted_critic(8), Bernoulli().sample(KEY, 12))


@pytest.mark.slow
@pytest.mark.parametrize(
    "critic",
    [
        sorted_critic(8),
        QuantileCritic(QuantileCriticConfig(**SMALL, quantile_features=16, num_levels=8), Bernoulli().spec),
        CategoricalCritic(
            CategoricalCriticConfig(**SMALL), TaskSpec((), 0, num_states=1, return_range=(0.0, 2.0))
        ),
        PCBFCritic(PCBFCriticConfig(**SMALL), Bernoulli().spec),
    ],
    ids=lambda critic: type(critic).__name__,
)  # fmt: skip
def test_every_critic_steps_and_reads_quantiles_in_order(critic: ReturnCritic):
    state = critic.init(KEY)
    batch = Bernoulli().sample(KEY, 64, group_size=8)
    after, metrics = jax.jit(critic.update)(state, batch, KEY)
    assert np.isfinite(float(metrics["critic_loss"]))
    assert any(jax.tree.leaves(jax.tree.map(lambda a, b: (a != b).any(), state.params, after.params)))
    levels = jnp.linspace(0.05, 0.95, 7)
    quantiles = critic.quantiles(after, jnp.zeros(3, int), jnp.zeros((3, 0)), levels)
    assert quantiles.shape == (3, 7)
    if not isinstance(critic, QuantileCritic):  # whose quantile function may cross itself before it is trained
        assert (jnp.diff(quantiles, axis=-1) >= 0).all()


# --- critics that evaluate a given policy -------------------------------------------------------------------------

SPEC = SPECS["state"]


@pytest.mark.slow
def test_a_normal_law_has_the_quantiles_of_its_moments():
    critic = GaussianCritic(GaussianCriticConfig(hidden_sizes=(4,), num_critics=2, least_deviation=0.3), SPEC)
    batch, levels = random_batch(SPEC, 3), jnp.array([0.5, 0.8413447])

    @jax.jit
    def both() -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        state, place = critic.init(KEY), (batch.observation, batch.action)
        return critic.moments(state.params["critic"], *place), critic.quantiles(state, *place, levels)

    (mean, deviation), found = both()
    np.testing.assert_allclose(found, jnp.stack([mean, mean + deviation], axis=-1), rtol=1e-5)
    assert (deviation > 0.3).all()


@pytest.mark.slow
def test_codacs_critic_without_its_penalty_is_iqns():
    small = {"hidden_sizes": (4,), "quantile_features": 4, "num_cosines": 3, "num_levels": 2, "num_critics": 1}
    batch = random_batch(SPEC, 5)
    batch = batch.replace(next_action=batch.action)

    def critic(weight: float) -> ConservativeCritic:
        return ConservativeCritic(ConservativeCriticConfig(**small, penalty_weight=weight), SPEC)

    @jax.jit
    def losses() -> tuple[jax.Array, ...]:
        params, key = critic(0.0).init_params(KEY), jax.random.key(1)
        regression = critic(0.0).law.regression(params, params, batch, jax.random.split(key, 3)[0])[0]
        (plain, _), (weighed, metrics) = (critic(w).loss(params, params, batch, key, {}) for w in (0.0, 0.5))
        return regression, plain, weighed, metrics["penalty"]

    regression, plain, weighed, penalty = map(float, losses())
    assert plain == pytest.approx(regression, rel=1e-6)
    assert weighed - plain == pytest.approx(0.5 * penalty, rel=1e-4)
