"""What core refuses, and in which words: data, settings, sizes, levels. Nothing wrong trains silently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import PCBF, Dataset, PCBFConfig, PCBFCritic, PCBFCriticConfig, TaskSpec, Transition, first_divergence
from pcbf_core.training import init_many, train_chunk

SPEC = TaskSpec(observation_shape=(3,), action_dim=2)
CONFIG = PCBFCriticConfig(hidden_sizes=(8, 8), num_flow_steps=2)
ROWS = 40


def transitions(**changes: Any) -> Transition:
    rng = np.random.default_rng(0)
    fields = dict(
        observation=rng.normal(size=(ROWS, 3)),
        action=rng.uniform(-1, 1, size=(ROWS, 2)),
        reward=rng.normal(size=ROWS),
        next_observation=rng.normal(size=(ROWS, 3)),
        terminal=np.zeros(ROWS),
        next_action=rng.uniform(-1, 1, size=(ROWS, 2)),
    )
    return Transition(**{**fields, **changes})


def with_value(name: str, value: float) -> Transition:
    array = np.array(getattr(transitions(), name))
    array.flat[5] = value
    return transitions(**{name: array})


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (transitions(reward=np.zeros(10)), r"different lengths \(.*reward 10.*\); pass one row per transition"),
        (transitions(reward=np.zeros((ROWS, 1))), r"`Transition.reward` has shape \(40, 1\); pass one number"),
        (transitions(reward=0.5 * np.ones(())), "`Transition.reward` is a single value"),
        (transitions(observation=[[1.0, 2.0], [3.0]]), "not a rectangular array"),
        (with_value("reward", np.nan), "`Transition.reward` has 1 NaN or infinite values"),
        (with_value("observation", np.inf), "`Transition.observation` has 1 NaN or infinite values"),
        (with_value("terminal", 2.0), r"`Transition.terminal` lies in \[0, 2\]; pass 1 where the return ends"),
        (with_value("action", 7.0), r"`Transition.action` reaches 7; actions lie in \[-1, 1\]"),
        (jax.tree.map(lambda array: array[:0], transitions()), "`Transition` has no rows"),
    ],
)
def test_data_that_cannot_be_right_is_refused(data: Transition, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        Dataset(data)


def test_lists_become_arrays():
    fields = {name: np.asarray(value).tolist() for name, value in vars(transitions()).items() if value is not None}
    stored = Dataset(Transition(**fields)).transitions
    np.testing.assert_allclose(stored.reward, np.float32(fields["reward"]))
    assert isinstance(stored.observation, jax.Array) and stored.observation.shape == (ROWS, 3)


@pytest.mark.parametrize(
    ("sizes", "data", "sentence"),
    [
        ({"batch_size": 0}, transitions(), "`batch_size=0` must be a whole number >= 1"),
        ({"num_steps": 0}, transitions(), "`num_steps=0` must be a whole number >= 1"),
        ({"count": 3}, transitions(), "`count=3` is more than `num_steps=2`"),
        ({}, transitions(observation=np.zeros((ROWS, 4))), r"rows of shape \(4,\), the learner's TaskSpec says \(3,\)"),
        ({}, transitions(action=np.zeros((ROWS, 1))), r"`Transition.action` has rows of shape \(1,\)"),
    ],
)
def test_training_refuses_what_does_not_fit(sizes: dict, data: Transition, sentence: str):
    critic, keys = PCBFCritic(CONFIG, SPEC), jax.random.split(jax.random.key(0), 1)
    with pytest.raises(ValueError, match=sentence):
        train_chunk(critic, init_many(critic, keys), Dataset(data), keys, **{"num_steps": 2, "batch_size": 4, **sizes})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_critics": 2.5}, "`num_critics=2.5` is not what it should be; pass a whole number >= 1"),
        ({"num_critics": True}, "`num_critics=True` is not what it should be"),
        ({"hidden_sizes": 64}, r"`hidden_sizes=64` is not what it should be; pass a list .*e.g. \(64, 64\)"),
        ({"hidden_sizes": [64, 0]}, r"`hidden_sizes=\(64, 0\)` is out of range"),
        ({"learning_rate": float("nan")}, "`learning_rate=nan` is out of range; it must be > 0"),
        ({"learning_rate": float("inf")}, "`learning_rate=inf` is out of range"),
        ({"shared_noise": 1}, "`shared_noise=1` is not what it should be; pass true or false"),
        ({"control_weight": {}}, "pass a number >= 0 and <= 1 or one of optimal or a function"),
    ],
)
def test_settings_of_the_wrong_type_are_told_in_a_sentence(settings: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        PCBFCriticConfig(**settings)


def test_settings_take_lists_and_numpy_numbers():
    given = PCBFConfig(hidden_sizes=[64, 64], num_critics=np.int64(2), discount=np.float32(0.5), risk_level=1)  # type: ignore[arg-type]
    assert given == PCBFConfig(hidden_sizes=(64, 64), num_critics=2, discount=0.5, risk_level=1)
    assert hash(given) == hash(replace(given)) and type(given.num_critics) is int and type(given.discount) is float
    PCBF(given, replace(SPEC, return_range=(-1.0, 1.0)))


# --- read-outs ------------------------------------------------------------------------------------------------------


CRITIC = PCBFCritic(CONFIG, SPEC)
PLACE = (jnp.ones((2, 3)), jnp.zeros((2, 2)))


@pytest.fixture(scope="module")
def state():
    return CRITIC.init(jax.random.key(3))


@pytest.mark.slow
def test_quantiles_come_in_the_order_they_are_asked_for(state):
    up, down = (np.asarray(CRITIC.quantiles(state, *PLACE, levels)) for levels in ([0.1, 0.5, 0.9], [0.9, 0.5, 0.1]))
    np.testing.assert_array_equal(up, down[:, ::-1])
    assert (np.diff(up, axis=1) > 0).all()


@pytest.mark.parametrize("levels", [[5, 50, 95], [-0.1, 0.5], np.nan, 1.5])
def test_levels_outside_0_1_are_refused(state, levels):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; 0.9 is the 90 % quantile"):
        CRITIC.quantiles(state, *PLACE, levels)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [float, np.float32, np.float64, jnp.float32])
def test_single_numbers_of_any_kind_are_taken_and_answered_without_an_axis(state, kind):
    one = kind(0.25)
    for read in (CRITIC.quantiles, CRITIC.cdf, CRITIC.density):
        single, several = read(state, *PLACE, one), read(state, *PLACE, [0.25])
        assert single.shape == (2,)
        np.testing.assert_array_equal(single, several[:, 0])
    np.testing.assert_array_equal(CRITIC.cvar(state, *PLACE, one), CRITIC.cvar(state, *PLACE, 0.25))


# --- divergence -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_divergence_is_seen_in_what_train_chunk_returns():
    critic, keys = PCBFCritic(replace(CONFIG, learning_rate=1e30), SPEC), jax.random.split(jax.random.key(0), 2)
    _, metrics = train_chunk(critic, init_many(critic, keys), Dataset(transitions()), keys, num_steps=30, batch_size=4)
    found = first_divergence(metrics)
    assert set(found) == {0, 1}
    assert all(1 <= step <= 30 and "became" in reason for step, reason in found.values())
    critic = PCBFCritic(CONFIG, SPEC)
    _, metrics = train_chunk(critic, init_many(critic, keys), Dataset(transitions()), keys, num_steps=3, batch_size=4)
    assert first_divergence(metrics) == {}
