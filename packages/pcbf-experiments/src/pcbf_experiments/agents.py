"""Published agents: a snapshot of a judged run, a card that says what it is, and an episode to look at.

An agent is the last snapshot of a seed, byte for byte, so that nothing is picked by its score. Its card comes from the
records of the run. Nothing here imports JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcbf_records import layout
from pcbf_records.canonical import nearest, plain, readable_json
from pcbf_records.files import atomic_write, read_json, sha256, write_text
from pcbf_records.layout import JobFiles
from pcbf_records.runs import Evaluation, RunRecord, final_score, load_evaluations, load_run

METHODS = ("pcbf", "iql", "bc")
MAX_BYTES = 1_000_000
LICENCE = "Apache-2.0"
LEVEL = 0.95
Card = dict[str, Any]


class AgentError(ValueError):
    """Why there is no such agent, and what to do."""


def agent_name(task: str, method: str) -> str:
    return f"{method}-{task}"


def make_agent_card(results: Path, task: str, method: str, seed: int = 0) -> Card:
    """The card of the last snapshot of a run, both in `agents/` of the results folder from now on."""
    files = JobFiles.of_seeds(results, task, method, [seed])
    if not files.record(seed).exists() or not files.evaluations(seed).exists():
        raise AgentError(f"{method} on {task}, seed {seed}, has no record in {results}; train and evaluate it first.")
    run, judged = load_run(files.record(seed)), load_evaluations(files.evaluations(seed))
    snapshot = files.snapshot(seed, run.steps)
    evaluation = judged.at(run.steps)
    if evaluation is None or not snapshot.is_file() or evaluation.snapshot != sha256(snapshot):
        raise AgentError(
            f"{snapshot} is missing, or is not what was judged; `keep_snapshots: none` of a scale keeps none."
        )
    if snapshot.stat().st_size > MAX_BYTES:
        raise AgentError(f"{snapshot} has {snapshot.stat().st_size:,} bytes; agents have at most {MAX_BYTES:,}.")
    card = _card(files, run, evaluation, snapshot)
    copy = results / layout.agent_file(card["name"], "safetensors")
    with atomic_write(copy, "wb") as file:
        file.write(snapshot.read_bytes())
    save_card(results, card)
    return card


def save_card(results: Path, card: Card) -> None:
    write_text(results / layout.agent_file(card["name"], "json"), readable_json(card))


def _card(files: JobFiles, run: RunRecord, evaluation: Evaluation, snapshot: Path) -> Card:
    own, of_method = episode_score(evaluation.scores), method_score(files)
    return {
        "name": agent_name(run.task, run.method),
        "method": run.method,
        "task": run.task,
        "seed": run.seed,
        "step": run.steps,
        "sha256": sha256(snapshot),
        "bytes": snapshot.stat().st_size,
        "config_hash": run.config_hash,
        "settings": plain(run.config),
        "data": plain(run.dataset),
        "score": own,
        "method_score": of_method,
        "summary": summary(own, of_method),
        "evaluation": plain(evaluation.settings),
        "solved": [number for number, success in enumerate(evaluation.successes) if success >= 1],
        "licence": LICENCE,
        "versions": plain(run.versions),
        "code": plain(run.code),
    }


def episode_score(scores: Sequence[float]) -> dict[str, float]:
    """Mean score of an agent's episodes, with Wilson's interval for successes and Student's for other scores."""
    from scipy.stats import binomtest

    if set(scores) <= {0.0, 100.0}:
        found = binomtest(sum(score > 0 for score in scores), len(scores)).proportion_ci(LEVEL, method="wilson")
        mean, low, high = sum(scores) / len(scores), 100 * found.low, 100 * found.high
    else:
        mean, low, high = _student(scores)
    return {"mean": mean, "low": round(low, 2), "high": round(high, 2), "episodes": len(scores)}


def method_score(files: JobFiles) -> dict[str, float]:
    """Mean of the final scores of all seeds that the method has on the task, with Student's interval."""
    scores = []
    for path in layout.run_files(files.root):
        task, method, seed = layout.place(path)
        if (task, method) == (files.task, files.method) and files.evaluations(seed).exists():
            score = final_score(load_run(path), load_evaluations(files.evaluations(seed)))
            scores += [] if score is None else [score]
    mean, low, high = _student(scores)
    return {"mean": round(mean, 2), "low": round(low, 2), "high": round(high, 2), "seeds": len(scores)}


def _student(scores: Sequence[float]) -> tuple[float, float, float]:
    """Mean and interval; the interval of a single number is that number."""
    import numpy as np
    from scipy.stats import t

    mean = float(np.mean(scores))
    if len(scores) < 2:
        return mean, mean, mean
    half = float(t.ppf((1 + LEVEL) / 2, len(scores) - 1) * np.std(scores, ddof=1) / np.sqrt(len(scores)))
    return mean, mean - half, mean + half


def summary(own: dict[str, float], of_method: dict[str, float]) -> str:
    """The scores in a phrase: the agent's own, and the method's where several seeds were judged."""
    episodes = f"{own['mean']:.1f} ({own['low']:.1f} to {own['high']:.1f}) in {own['episodes']} episodes"
    if of_method["seeds"] < 2:
        return episodes
    spread = f"({of_method['low']:.1f} to {of_method['high']:.1f})"
    return f"{episodes}; the method {of_method['mean']:.1f} {spread} over {of_method['seeds']} seeds"


# --- finding and listing ----------------------------------------------------------------------------------------------


def cards(results: Path) -> list[Card]:
    """The cards of a results folder."""
    return [card for path in layout.agent_cards(results) if (card := read_json(path))]


def find_agent(results: Path, word: str) -> tuple[Path, Card]:
    """File and card of the agent that `word` names: a file, the name of an agent, or its method.

    A file that has no card beside it has an empty one.
    """
    path = Path(word)
    if path.suffix in (".safetensors", ".npz"):
        return path, read_json(path.with_suffix(".json")) if path.with_suffix(".json").exists() else {}
    known = cards(results)
    for card in known:
        if word in (card["name"], card["method"]):
            return results / layout.agent_file(card["name"], "safetensors"), card
    names = [name for card in known for name in (card["method"], card["name"])]
    near = nearest(word, names, count=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    there = ", ".join(card["method"] for card in known) or "none"
    raise AgentError(f"no agent is called {word!r} in {results / layout.AGENTS}; there are: {there}.{hint}")


def write_list(results: Path) -> None:
    """`agents/README.md`: all agents of a results folder in a table, with their episodes."""
    known = cards(results)
    lines = ["# Agents", "", "Trained agents to look at: `make watch`, or `pcbf-watch AGENT`. Success in percent.", ""]
    lines += ["| agent | task | score (95 %) | trained on | licence |", "|---|---|---|---|---|"]
    lines += [
        f"| [{card['method']}]({card['name']}.safetensors), seed {card['seed']}, step {card['step']} "
        f"([card]({card['name']}.json)) | {card['task']} | {card['summary']} | {card['data']['source']} data, "
        f"{card['data']['num_transitions']:,} transitions | {card['licence']} |"
        for card in known
    ]
    for card in known:
        if card.get("video"):
            lines += ["", f"![{card['method']}, episode {card['video']['episode']}]({card['name']}.gif)"]
    write_text(results / layout.AGENTS / "README.md", "\n".join(lines) + "\n")


def is_of(card: Card, run: RunRecord) -> bool:
    """Whether an agent was trained as a run was; its data may have been made on another machine, to other bytes."""
    settings = [
        {name: value for name, value in config.items() if name != "data"} for config in (card["settings"], run.config)
    ]
    return settings[0] == settings[1] and card["step"] == run.steps


def publish_agents(source: Path, target: Path) -> list[str]:
    """Names of the agents that `target` has in the end: those of `source`, and its own that are trained as its runs."""
    for file in layout.agent_files(source):
        with atomic_write(target / layout.AGENTS / file.name, "wb") as copy:
            copy.write(file.read_bytes())
    kept = []
    for card in cards(target):
        record = JobFiles.of_seeds(target, card["task"], card["method"], [card["seed"]]).record(card["seed"])
        if record.exists() and is_of(card, load_run(record)):
            kept.append(card["name"])
            continue
        for file in layout.agent_files(target):
            if file.stem == card["name"]:
                file.unlink()
    if (target / layout.AGENTS).is_dir():
        write_list(target)
    return kept
