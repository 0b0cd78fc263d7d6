"""Published agents: what a card says, how an agent is found, published and watched."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcbf_experiments import video
from pcbf_experiments.agents import (
    MAX_BYTES,
    AgentError,
    cards,
    episode_score,
    find_agent,
    is_of,
    make_agent_card,
    publish_agents,
)
from pcbf_experiments.cli import agents
from pcbf_experiments.video import SMALL_BYTES, Watched, composed, write_small_gif
from pcbf_records import layout
from pcbf_records.files import sha256
from pcbf_records.layout import JobFiles
from pcbf_records.runs import load_evaluations, load_run, save_evaluations

from ..records.samples import write_group

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / layout.published_folder("laptop")
DATA = {"source": "local", "name": "d", "num_transitions": 1000}


def judged_group(results: Path, **changes: Any) -> JobFiles:
    """Two judged seeds of `m` on `t`, with the snapshots of their last step."""
    files = write_group(results, (0, 1), dataset=DATA, **changes)
    for seed in files.seeds:
        snapshot, record = files.snapshot(seed, 40), load_evaluations(files.evaluations(seed))
        snapshot.parent.mkdir(parents=True)
        snapshot.write_bytes(b"agent %d" % seed)
        last = dataclasses.replace(record.evaluations[-1], scores=(100.0, 0.0), snapshot=sha256(snapshot))
        save_evaluations(files.evaluations(seed), record.added(last))
    return files


def test_a_card_says_what_the_records_say(tmp_path):
    files = judged_group(tmp_path)
    card = make_agent_card(tmp_path, "t", "m")
    copy = tmp_path / layout.agent_file("m-t", "safetensors")
    assert copy.read_bytes() == files.snapshot(0, 40).read_bytes() and card["sha256"] == sha256(copy)
    assert (card["seed"], card["step"], card["licence"], card["solved"]) == (0, 40, "Apache-2.0", [0])
    assert card["config_hash"] == load_run(files.record(0)).config_hash and card["data"] == DATA
    # (50 / 2 + 20 / 2 + 100 / 2) / 3 of both seeds: the interval of equal numbers has no width
    assert card["method_score"] == {"mean": 28.33, "low": 28.33, "high": 28.33, "seeds": 2}
    assert cards(tmp_path) == [card]


def test_successes_have_wilsons_interval_and_other_scores_students():
    # Wilson 1927 for 3 of 16: (p + z²/2n ± z √(p (1-p) / n + z²/4n²)) / (1 + z²/n) with z = 1.96
    assert episode_score([100.0] * 3 + [0.0] * 13) == {"mean": 18.75, "low": 6.59, "high": 43.01, "episodes": 16}
    assert episode_score([10.0, 20.0]) == {"mean": 15.0, "low": -48.53, "high": 78.53, "episodes": 2}  # 15 ± 12.706 · 5


def test_what_was_not_judged_or_is_too_large_is_no_agent(tmp_path):
    with pytest.raises(AgentError, match="has no record"):
        make_agent_card(tmp_path, "t", "m")
    files = judged_group(tmp_path)
    files.snapshot(0, 40).write_bytes(b"another")
    with pytest.raises(AgentError, match="not what was judged"):
        make_agent_card(tmp_path, "t", "m")
    files.snapshot(1, 40).write_bytes(bytes(MAX_BYTES + 1))
    record = load_evaluations(files.evaluations(1))
    last = dataclasses.replace(record.evaluations[-1], snapshot=sha256(files.snapshot(1, 40)))
    save_evaluations(files.evaluations(1), record.added(last))
    with pytest.raises(AgentError, match="at most 1,000,000"):
        make_agent_card(tmp_path, "t", "m", seed=1)


def test_an_agent_is_found_by_method_name_or_file(tmp_path):
    judged_group(tmp_path)
    card = make_agent_card(tmp_path, "t", "m")
    file = tmp_path / layout.agent_file("m-t", "safetensors")
    assert find_agent(tmp_path, "m") == find_agent(tmp_path, "m-t") == (file, card)
    assert find_agent(tmp_path, str(file)) == (file, card)
    assert find_agent(tmp_path, "mine.safetensors") == (Path("mine.safetensors"), {})
    with pytest.raises(AgentError, match=r"no agent is called 'm-d'.*Did you mean 'm-t'"):
        find_agent(tmp_path, "m-d")


def test_publishing_takes_agents_along_and_drops_those_whose_run_has_changed(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    judged_group(source)
    write_group(target, (0, 1), dataset=DATA)
    make_agent_card(source, "t", "m")
    assert publish_agents(source, target) == ["m-t"]
    assert {path.name for path in layout.agent_files(target)} == {"m-t.json", "m-t.safetensors", "README.md"}
    write_group(target, (0, 1), dataset=DATA, config={"task": "t", "method": "m", "agent": {}})
    assert publish_agents(tmp_path / "nothing", target) == [] and not cards(target)


def test_the_list_of_agents_is_made_from_their_cards(tmp_path, capsys):
    judged_group(tmp_path)
    assert agents.main([str(tmp_path), "--methods", "m", "other", "--no-video"]) == 0
    assert "left out: other on t, seed 0, has no record" in capsys.readouterr().err
    text = (tmp_path / layout.AGENTS / "README.md").read_text(encoding="utf-8")
    assert "[m](m-t.safetensors), seed 0, step 40" in text and "local data, 1,000 transitions" in text
    assert agents.watch_main(["--list", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("m            t  50.0 (")


# --- videos -----------------------------------------------------------------------------------------------------------


def test_laws_of_an_episode_share_one_axis():
    frames = [np.zeros((60, 60, 3), np.uint8)] * 5
    watched = Watched(frames, [np.linspace(low, low + 1, 50) for low in (0.0, 4.0, 4.0, 4.0, 9.0)])
    first, _, last = composed(watched, every=2)
    assert first.shape == (60, 120, 3)
    blue = [(frame[20:40, 60:] == [31, 119, 180]).all(axis=-1).any(axis=0).nonzero()[0] for frame in (first, last)]
    assert blue[0].max() < 15 and blue[1].min() > 45
    assert len(composed(dataclasses.replace(watched, returns=[]), every=3)) == 3  # 0, 3 and the last


def test_a_gif_for_a_page_stays_small(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    frames = list(rng.integers(0, 255, (24, 150, 150, 3), dtype=np.uint8))  # noise cannot be compressed
    write_small_gif(tmp_path / "a.gif", Watched(frames))
    assert (tmp_path / "a.gif").stat().st_size <= SMALL_BYTES
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.n_frames > 2


# --- what is published ------------------------------------------------------------------------------------------------


def test_the_published_agents_are_trained_as_the_published_runs():
    published = cards(PUBLISHED)
    assert {card["method"] for card in published} >= {"pcbf"}
    for card in published:
        file = PUBLISHED / layout.agent_file(card["name"], "safetensors")
        files = JobFiles.of_seeds(PUBLISHED, card["task"], card["method"], [card["seed"]])
        run = load_run(files.record(card["seed"]))
        assert file.stat().st_size == card["bytes"] <= MAX_BYTES and sha256(file) == card["sha256"]
        assert is_of(card, run) and card["score"]["episodes"] == card["evaluation"]["num_episodes"]
        gif = PUBLISHED / layout.agent_file(card["name"], "gif")
        assert gif.stat().st_size <= SMALL_BYTES


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the simulators
def test_a_published_agent_can_be_watched(tmp_path, monkeypatch, capsys):
    """Without a renderer the episode is played and told."""
    real = video.play_episode

    def without_screen(*args: Any, is_rendered: bool = True, **options: Any) -> Watched:
        if is_rendered:
            raise RuntimeError("no OpenGL here")
        return real(*args, is_rendered=False, **options)

    monkeypatch.setattr(video, "play_episode", without_screen)
    words = ["bc", "--results", str(PUBLISHED), "--episode-limit", "3", "--out", str(tmp_path / "a.gif")]
    _, card = find_agent(PUBLISHED, "bc")
    assert agents.watch_main(words) == 0
    shown = capsys.readouterr()
    assert f"bc on {card['task']}, seed {card['seed']}, {card['step']:,} steps" in shown.out
    assert "not solved in 3 steps" in shown.out
    assert "apt-get install libegl1" in shown.err and not (tmp_path / "a.gif").exists()


def test_cards_are_json_that_others_can_read():
    for path in layout.agent_cards(PUBLISHED):
        card = json.loads(path.read_text(encoding="utf-8"))
        assert {"task", "data", "score", "settings", "licence"} <= set(card)
