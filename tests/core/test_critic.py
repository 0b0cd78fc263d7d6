"""The critic: gradients, target network, read-outs of a known law, learning of known laws, configuration errors."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_core import (
    Dataset,
    LearnerState,
    PCBFCritic,
    PCBFCriticConfig,
    TaskSpec,
    Transition,
    init_many,
    train_chunk,
)
from pcbf_core.mrp import MRPS
from pcbf_core.noise import even_levels, noise_and_times

SPEC = TaskSpec(observation_shape=(3,), action_dim=2)
KEY = jax.random.key(0)
SMALL = PCBFCriticConfig(hidden_sizes=(16, 16), num_flow_steps=4, control_weight=0.5, discount=0.9)


def batch(size: int = 32, terminal: float = 0.0) -> Transition:
    keys = jax.random.split(jax.random.key(3), 5)
    return Transition(
        observation=jax.random.normal(keys[0], (size, 3)),
        action=jax.random.uniform(keys[1], (size, 2)),
        reward=jax.random.normal(keys[2], (size,)),
        next_observation=jax.random.normal(keys[3], (size, 3)),
        terminal=jnp.full(size, terminal),
        next_action=jax.random.uniform(keys[4], (size, 2)),
    )


def gradients(critic: PCBFCritic, state: LearnerState, transitions: Transition):
    gradient = jax.grad(
        lambda p, q: critic.loss(p, q, transitions, jax.random.key(0), state.coefficients)[0], argnums=(0, 1)
    )
    return jax.jit(gradient)(state.params["critic"], state.target_params["critic"])


def loss_of(critic: PCBFCritic, transitions: Transition) -> float:
    state = critic.init(jax.random.key(0))
    loss = jax.jit(
        lambda s: critic.loss(s.params["critic"], s.target_params["critic"], transitions, KEY, s.coefficients)
    )
    return float(loss(state)[0])


@pytest.mark.slow
def test_every_online_parameter_of_both_members_gets_a_gradient_and_targets_get_none():
    critic = PCBFCritic(SMALL, SPEC)
    online, target = gradients(critic, critic.init(jax.random.key(0)), batch())
    for path, leaf in jax.tree_util.tree_leaves_with_path(online):
        assert leaf.shape[0] == 2
        for member in range(2):
            assert float(jnp.abs(leaf[member]).max()) > 0, f"member {member} of {path} is not trained"
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(target))


@pytest.mark.slow
def test_the_second_member_affects_scores():
    critic = PCBFCritic(SMALL, SPEC)
    state = critic.init(jax.random.key(0))
    x = batch()
    score = critic.mean_return(state, x.observation, x.action, jax.random.key(1), 8)
    bent = jax.tree.map(lambda leaf: leaf.at[1].multiply(1.5), state.params)
    other = critic.mean_return(state.replace(params=bent), x.observation, x.action, jax.random.key(1), 8)
    assert float(jnp.abs(score - other).min()) > 0


@pytest.mark.slow
def test_the_target_network_follows_the_parameters_after_the_step():
    critic = PCBFCritic(PCBFCriticConfig(hidden_sizes=(16,), polyak_rate=0.25), SPEC)
    old = critic.init(jax.random.key(0))
    new, _ = jax.jit(critic.update)(old, batch(), jax.random.key(1))
    for before, online, target in zip(
        *(jax.tree.leaves(t) for t in (old.target_params, new.params, new.target_params)), strict=True
    ):
        np.testing.assert_allclose(target, 0.25 * online + 0.75 * before, atol=1e-6)
    assert any(
        float(jnp.abs(a - b).max()) > 0
        for a, b in zip(jax.tree.leaves(old.params), jax.tree.leaves(new.params), strict=True)
    )


@pytest.mark.slow
def test_terminal_batches_do_not_look_at_the_successor():
    critic = PCBFCritic(SMALL, SPEC)
    ended = batch(terminal=1.0)
    elsewhere = ended.replace(next_observation=ended.next_observation + 100, next_action=-ended.next_action)
    assert np.isfinite(loss_of(critic, ended))
    assert loss_of(critic, ended) == loss_of(critic, elsewhere)


def test_control_weight_may_be_a_number_the_closed_form_or_a_function():
    time = jnp.array([0.0, 0.5, 1.0])

    def weights(value):
        critic = PCBFCritic(PCBFCriticConfig(discount=0.9, path="linear", control_weight=value), SPEC)
        return critic.control_weight(time, {name: jnp.asarray(v) for name, v in critic.config.coefficients.items()})

    assert float(weights(0.4)) == pytest.approx(0.4)
    np.testing.assert_allclose(weights("optimal"), [0.9, 0.95, 1.0], atol=1e-6)
    np.testing.assert_allclose(weights(jnp.square), [0.0, 0.25, 1.0])
    config = PCBFCriticConfig(discount=0.9, path="linear", control_weight="optimal", shared_noise=False)
    independent = PCBFCritic(config, SPEC)
    np.testing.assert_allclose(independent.control_weight(time, {}), [0.9, 0.45, 0.0], atol=1e-6)


@pytest.mark.slow
def test_a_function_and_a_number_train_alike():
    states = []
    for weight in (0.3, lambda t: 0.3):
        critic = PCBFCritic(PCBFCriticConfig(hidden_sizes=(8,), control_weight=weight), SPEC)
        state, _ = jax.jit(critic.update)(critic.init(jax.random.key(0)), batch(), jax.random.key(1))
        states.append(state.params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *states)


@pytest.mark.slow
def test_shared_and_independent_noise_differ_only_beyond_terminals():
    losses = {}
    for shared in (True, False):
        critic = PCBFCritic(PCBFCriticConfig(hidden_sizes=(8,), shared_noise=shared, control_weight=0.5), SPEC)
        for terminal in (0.0, 1.0):
            losses[terminal, shared] = loss_of(critic, batch(terminal=terminal))
    assert losses[1.0, True] == losses[1.0, False]
    assert losses[0.0, True] != losses[0.0, False]


@pytest.mark.slow
@pytest.mark.parametrize("stratified", [False, True])
def test_noises_and_times_have_their_laws(stratified: bool):
    draw = jax.vmap(lambda key: noise_and_times(key, 64, 4, stratified=stratified))
    noise, time = draw(jax.random.split(jax.random.key(0), 300))
    assert noise.shape == (300, 64, 1) and time.shape == (300, 64, 4)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02) and float(noise.std()) == pytest.approx(1, abs=0.02)
    for element in (0, 17):  # each single element has the law, not only the batch
        assert float(noise[:, element].std()) == pytest.approx(1, abs=0.15)
        assert float(time[:, element].mean()) == pytest.approx(0.5, abs=0.05)
    np.testing.assert_allclose(np.quantile(time, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)


class LinearFlow:
    """A critic whose field is replaced by that of N(mean, std²): v = d/dt of (1-t) x_0 + t (mean + std x_0)."""

    mean, std = 2.0, 0.5

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def velocity(time, point):
            slope = 1 + time * (self.std - 1)
            noise = (point - time * self.mean) / slope
            return self.mean + (self.std - 1) * noise

        critic = PCBFCritic(PCBFCriticConfig(num_flow_steps=100, solver="midpoint", hidden_sizes=(8,)), SPEC)
        monkeypatch.setattr(PCBFCritic, "ensemble", lambda *args, **kwargs: velocity)
        self.critic, self.state = critic, critic.init(jax.random.key(0))


@pytest.mark.slow
def test_read_outs_of_a_gaussian(monkeypatch: pytest.MonkeyPatch):
    flow = LinearFlow(monkeypatch)
    where = (flow.state, jnp.zeros((4, 3)), jnp.zeros((4, 2)))
    critic = flow.critic
    samples = critic.sample_returns(*where, jax.random.key(0), 4000)
    assert samples.shape == (4, 4000)
    assert float(samples.mean()) == pytest.approx(2.0, abs=0.02)
    assert float(samples.std()) == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(
        critic.quantiles(*where, jnp.array([0.5, 0.975]))[0], [2.0, 2 + 0.5 * 1.959964], rtol=1e-3
    )
    np.testing.assert_allclose(critic.cdf(*where, jnp.array([1.5, 2.0]))[2], [0.158655, 0.5], atol=2e-3)
    # CVaR of N(μ, σ) at 10 %: μ - σ φ(z)/0.1 with z = Φ⁻¹(0.1)
    np.testing.assert_allclose(critic.cvar(*where, level=0.1), 2 - 0.5 * 1.754983, atol=5e-3)
    np.testing.assert_allclose(critic.cvar(*where, level=1.0), 2.0, atol=5e-3)
    density = critic.density(*where, jnp.array([2.0, 2.5, 1.0]))
    np.testing.assert_allclose(density[0], [0.797885, 0.483941, 0.107982], rtol=2e-3)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_density_integrates_to_one_and_matches_the_samples():
    process = MRPS["bernoulli"]
    config = PCBFCriticConfig(
        discount=0.5, hidden_sizes=(32, 32), layer_norm=False, num_critics=2, learning_rate=5e-3, polyak_rate=0.05
    )
    critic = PCBFCritic(config, process.spec)
    keys = jax.random.split(jax.random.key(0), 1)
    states, _ = train_chunk(critic, init_many(critic, keys), process, keys, num_steps=300, batch_size=64)
    state = jax.tree.map(lambda x: x[0], states)
    values = jnp.linspace(-4, 6, 8001)
    where = (state, jnp.zeros((), int), jnp.zeros(0))
    density = critic.density(*where, values)
    assert float(jnp.trapezoid(density, values)) == pytest.approx(1, abs=2e-3)
    mean = float(jnp.trapezoid(density * values, values))
    assert mean == pytest.approx(float(critic.quantiles(*where, even_levels(2048), 100).mean()), abs=5e-3)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_bernoulli_returns_become_uniform():
    process = MRPS["bernoulli"]
    config = PCBFCriticConfig(
        discount=process.discount,
        control_weight=0.2,
        hidden_sizes=(32, 32),
        layer_norm=False,
        activation="relu",
        num_critics=1,
        learning_rate=1e-2,
        polyak_rate=0.05,
        stratified=True,
        solver="midpoint",
        num_flow_steps=6,
        num_flow_times=4,
        decay_steps=1500,
    )
    critic = PCBFCritic(config, process.spec)
    keys = jax.random.split(jax.random.key(0), 1)
    states, _ = train_chunk(critic, init_many(critic, keys), process, keys, num_steps=1500, batch_size=64)
    state = jax.tree.map(lambda x: x[0], states)
    learned = critic.quantiles(state, jnp.zeros((), int), jnp.zeros(0), even_levels(1024), 50)
    assert process.return_law(0).wasserstein1(learned) < 0.05


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"discount": 1.5}, r"`discount=1.5` is out of range; it must be > 0 and <= 1"),
        ({"control_weight": -0.1}, r"`control_weight=-0.1`"),
        ({"control_weight": "optimum"}, "Did you mean 'optimal'"),
        ({"solver": "eulr"}, "Did you mean 'euler'"),
        ({"num_flow_steps": 0}, "num_flow_steps=0"),
        ({"num_flow_times": 0}, "num_flow_times=0"),
        ({"hidden_sizes": ()}, "whole number >= 1 in each place"),
        ({"polyak_rate": "fast"}, "pass a number > 0 and <= 1"),
        ({"activation": "rleu"}, "Did you mean 'relu'"),
    ],
)
def test_bad_configuration_says_what_is_allowed(values: dict, message: str):
    with pytest.raises(ValueError, match=message):
        PCBFCriticConfig(**values)


@pytest.mark.slow
def test_bad_tasks_and_batches_say_what_to_do():
    with pytest.raises(ValueError, match="num_states"):
        TaskSpec(observation_shape=(), action_dim=0)
    with pytest.raises(ValueError, match="return_range"):
        PCBFCritic(PCBFCriticConfig(clip_returns=True), SPEC)
    critic = PCBFCritic(SMALL, SPEC)
    with pytest.raises(ValueError, match="next_action"):
        critic.update(critic.init(jax.random.key(0)), batch().replace(next_action=None), jax.random.key(0))
    with pytest.raises(ValueError, match="level=0"):
        critic.cvar(critic.init(jax.random.key(0)), jnp.zeros(3), jnp.zeros(2), level=0)


def test_clipped_returns_stay_in_range():
    spec = TaskSpec(observation_shape=(3,), action_dim=2, return_range=(-1.0, 0.0))
    critic = PCBFCritic(PCBFCriticConfig(hidden_sizes=(8,), clip_returns=True), spec)
    x = batch()
    samples = critic.sample_returns(critic.init(jax.random.key(0)), x.observation, x.action, jax.random.key(1), 50)
    assert float(samples.min()) >= -1 and float(samples.max()) <= 0


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_lines"), [("README.md", 15), ("packages/pcbf-core/README.md", 25)])
def test_readme_example_runs_and_tells_the_truth(name: str, num_lines: int, capsys: pytest.CaptureFixture[str]):
    readme = Path(__file__).parents[2] / name
    code = readme.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= num_lines
    exec(compile(code, str(readme), "exec"), {})
    careful, bold = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert careful == pytest.approx(-0.35, abs=0.3)
    assert bold == pytest.approx(-3.16, abs=0.6)


@pytest.mark.slow
def test_dataset_draws_only_its_own_rows():
    transitions = batch(8).replace(reward=jnp.arange(8.0))
    drawn = Dataset(transitions).sample(jax.random.key(0), 500)
    assert set(np.asarray(drawn.reward)) == set(range(8))
    np.testing.assert_array_equal(drawn.observation, transitions.observation[drawn.reward.astype(int)])
