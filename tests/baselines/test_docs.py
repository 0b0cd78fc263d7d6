"""The worked examples of docs/ run and give what they promise."""

from pathlib import Path

import jax
import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_adding_an_mrp(capsys: pytest.CaptureFixture[str]):
    text = (DOCS / "adding-an-mrp.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    scope: dict = {"__name__": "coin_toss"}
    for block in blocks:
        exec(compile(block, "docs/adding-an-mrp.md", "exec"), scope)
    process = scope["process"]
    for state in process.live_states:
        samples = np.asarray(process.monte_carlo_returns(jax.random.key(0), state, 20_000, max_steps=2))
        assert process.return_law(state).wasserstein1(samples) < 0.02
    assert (scope["w1"] < 0.08).all()
    assert "0:" in capsys.readouterr().out
