"""Exact control: every method trains on a small decision process and is judged by dynamic programming."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcbf_baselines.registry import METHODS
from pcbf_core.mdp import MDPS, deterministic, optimal_policy, return_laws
from pcbf_experiments import exact
from pcbf_experiments.cli.exact import main
from pcbf_experiments.exact import ExactSettings, acting_by, exact_agent, make_data, move_probabilities
from pcbf_records.exact import load_exact_record
from pcbf_records.layout import EXACT_OPTIMA, EXACT_RESULTS, exact_run

from ..methods import TINY

SETTINGS = ExactSettings(num_seeds=2, num_steps=4, batch_size=8, data_size=200, risk_levels=(0.1,), num_draws=6)
OF_A_LAW = {"pcbf", "pcbf_flow", "value_flows", "iqn", "codac", "c51"}


def test_settings_reach_the_methods_that_have_them():
    mdp = MDPS["cliff"]
    agent = exact_agent(mdp, "iqn", {"hidden_sizes": (8,), "num_flow_steps": 3}, {"num_levels": 2})
    assert (agent.config.discount, agent.config.hidden_sizes, agent.config.num_levels) == (mdp.discount, (8,), 2)
    risky = acting_by(agent, 0.1)
    assert risky == dataclasses.replace(agent, config=dataclasses.replace(agent.config, score="cvar", risk_level=0.1))
    assert acting_by(agent, 1.0) is agent
    assert acting_by(exact_agent(mdp, "iql", {}, {}), 0.1) is None
    assert acting_by(exact_agent(mdp, "random", {}, {}), 0.1) is None


def test_draws_become_probabilities():
    actions = jnp.array([[[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [-1.0, 0.0]]])
    np.testing.assert_allclose(move_probabilities(actions), [[0.5, 0.25, 0.25, 0.0]])


def test_data_repeat_with_their_seed():
    mdp = MDPS["gamble"]
    first, again, other = (make_data(mdp, dataclasses.replace(SETTINGS, data_seed=seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.transitions.action, again.transitions.action)
    assert (first.transitions.action != other.transitions.action).any()


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_the_optima_bound_each_other(mdp):
    rows = {row[1:4]: row[4] for row in exact.optima(mdp.name, (0.1, 0.5))}
    best = return_laws(mdp, optimal_policy(mdp))[mdp.start]
    assert rows["optimum", 1.0, "mean"] == pytest.approx(best.mean)
    for level in (0.1, 0.5):
        name = f"cvar_{level:g}"
        assert rows["optimum", level, name] >= rows["exact critic", level, name] - 0.02
        assert rows["optimum", level, name] >= best.cvar(level) - 0.02
        assert rows["optimum", level, "mean"] <= best.mean + 1e-3


def test_acting_by_cvar_with_the_exact_law_takes_the_long_way_round_the_cliff():
    rows = {row[1:4]: row[4] for row in exact.optima("cliff", (0.1, 0.25, 0.5))}
    for level in (0.1, 0.25, 0.5):
        assert rows["exact critic", level, f"cvar_{level:g}"] == pytest.approx(
            rows["optimum", level, f"cvar_{level:g}"], abs=0.01
        )
    assert rows["exact critic", 0.1, "cvar_0.1"] > rows["optimum", 1.0, "cvar_0.1"] + 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["iqn", "codac", "iql", "random"])
def test_a_method_trains_and_is_judged(method: str):
    with jax.default_prng_impl("unsafe_rbg"):  # compiles in a fraction of the time
        record = exact.make_record("gamble", method, SETTINGS, {}, TINY[method])
    can_act = "cvar" in getattr(METHODS[method].config, "scores", ())
    assert record["risk_levels"].tolist() == ([1.0, 0.1] if can_act else [1.0])
    np.testing.assert_allclose(record["policies"].sum(axis=-1), 1, atol=1e-6)
    assert np.isfinite(record["w1"]).all() == (method in OF_A_LAW)
    assert (record["cvar"][..., 1] <= record["cvar"][..., 0] + 1e-6).all()


@pytest.mark.slow
def test_the_command_writes_and_collects(tmp_path: Path):
    chosen = {**dataclasses.asdict(SETTINGS), "default": {"hidden_sizes": [8, 8]}, "own": {"num_action_steps": 2}}
    output = tmp_path / exact_run("gamble", "bc")
    main(["run", "gamble", "bc", "--settings", json.dumps(chosen), "--output", str(output)])
    record = load_exact_record(output)
    assert record.metadata["own"] == {"num_action_steps": 2}
    law = return_laws(MDPS["gamble"], record.policies[0, 0].astype(float))[0]
    assert record.cvar[0, 0, 0] == pytest.approx(law.mean, abs=1e-5)
    main(["collect", "--results", str(tmp_path)])
    assert (tmp_path / EXACT_RESULTS).read_text().splitlines()[0] == "mdp,method,seed,risk_level,measure,value"
    assert "exact critic" in (tmp_path / EXACT_OPTIMA).read_text()


def test_the_best_policy_has_no_regret():
    mdp = MDPS["gamble"]
    law = return_laws(mdp, deterministic(np.zeros(6, int)))[mdp.start]
    rows = {row[1:4]: row[4] for row in exact.optima("gamble", (0.5,))}
    assert rows["optimum", 1.0, "mean"] == pytest.approx(law.mean)
