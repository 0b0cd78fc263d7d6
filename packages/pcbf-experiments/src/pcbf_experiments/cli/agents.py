"""`pcbf-agents` makes trained runs into agents to look at; `pcbf-watch` plays an episode of one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcbf_experiments.agents import (
    METHODS,
    AgentError,
    Card,
    cards,
    find_agent,
    make_agent_card,
    save_card,
    write_list,
)
from pcbf_experiments.cli.common import guarded
from pcbf_records import layout
from pcbf_records.commands import Parser, whole_number

if TYPE_CHECKING:
    from pcbf_experiments.evaluation import EvaluationSettings
    from pcbf_experiments.running.snapshot import Snapshot
    from pcbf_experiments.video import Watched
    from pcbf_records.sheets import Task

PUBLISHED = Path(layout.published_folder("laptop"))
RENDERER = "there is no picture ({error}); on Debian and Ubuntu: apt-get install libegl1 libgl1-mesa-dri"


# --- watching ---------------------------------------------------------------------------------------------------------


def watch_parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-watch",
        description="Play one episode of a trained agent and write its video, beside the critic's return law at each "
        "step; needs the simulator but no data, and trains nothing.",
        examples=["pcbf-watch --list", "pcbf-watch iql --out iql.gif", "pcbf-watch MINE.safetensors --episode 3"],
    )
    made.add_argument("agent", nargs="?", default=METHODS[0], help="a method, an agent's name or a file (%(default)s)")
    made.add_argument("--list", action="store_true", help="say which agents there are, and end")
    group = made.add_argument_group("what to play")
    group.add_argument("--results", type=Path, default=PUBLISHED, help="whose agents (default: %(default)s)")
    group.add_argument(
        "--episode", type=whole_number(0), help="number of the episode (default: the first that the agent solves)"
    )
    group.add_argument("--episode-limit", type=whole_number(), help="cut it after so many steps (default: the task's)")
    group = made.add_argument_group("the video")
    group.add_argument("--out", type=Path, help="an .mp4 or .gif (default: build/watch/AGENT.gif)")
    group.add_argument(
        "--every", type=whole_number(), default=1, help="show every so many steps (default: %(default)s)"
    )
    return made


def watch_main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-watch`."""
    options = watch_parser().parse_args(arguments)
    return guarded(lambda: _list(options.results) if options.list else _watch(options))


def _list(results: Path) -> int:
    for card in cards(results):
        print(f"{card['method']:12} {card['task']}  {card['summary']}")
    return 0


def _watch(options: argparse.Namespace) -> int:
    path, card = find_agent(options.results, options.agent)
    out = options.out or Path("build/watch") / f"{path.stem}.gif"
    if out.suffix not in (".gif", ".mp4"):
        raise AgentError(f"`{out}` is neither .mp4 nor .gif; choose one of the two endings.")
    snapshot, task, settings = _loaded(path, card, options.episode_limit)
    episode = options.episode if options.episode is not None else first_solved(card)
    print(f"{snapshot.method} on {task.name}, seed {snapshot.seed}, {snapshot.step:,} steps")
    if card:
        print(f"score {card['summary']}")
    watched = play(snapshot, task, settings, episode)
    print(f"episode {episode}: {'solved' if watched.success else 'not solved'} in {watched.length} steps")
    if watched.frames:
        from pcbf_experiments.video import write_video

        write_video(out, watched, every=options.every)
        print(out)
    return 0


def _loaded(path: Path, card: Card, episode_limit: int | None) -> tuple[Snapshot, Task, EvaluationSettings]:
    """The agent, its task, and how its episodes were played when it was judged."""
    from dataclasses import replace

    from pcbf_core.config import config_from
    from pcbf_experiments.evaluation import EvaluationSettings
    from pcbf_experiments.running.resume import load_agents
    from pcbf_experiments.running.snapshot import load_snapshot
    from pcbf_experiments.tasks import find_task

    snapshot = load_agents(path)[0] if path.suffix == ".npz" else load_snapshot(path)
    settings = config_from(EvaluationSettings, card.get("evaluation", {}))
    if episode_limit is not None:
        settings = replace(settings, episode_limit=episode_limit)
    return snapshot, find_task(snapshot.task), settings


def play(snapshot: Snapshot, task: Task, settings: EvaluationSettings, episode: int) -> Watched:
    """An episode, without pictures where this machine cannot render."""
    from pcbf_experiments.video import play_episode

    try:
        return play_episode(snapshot, task, settings=settings, episode=episode)
    except Exception as error:  # each OpenGL binding has errors of its own
        if task.is_pixel:
            raise
        print(RENDERER.format(error=f"MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {error}"), file=sys.stderr)
        return play_episode(snapshot, task, settings=settings, episode=episode, is_rendered=False)


def first_solved(card: Card) -> int:
    return (card.get("solved") or [0])[0]


# --- making -----------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="pcbf-agents",
        description="Make trained and judged runs of a results folder into agents to look at, in its folder agents/: "
        "the last snapshot, a card and an episode. What has no snapshot any more is told and left out.",
        examples=["pcbf-agents results/laptop --methods pcbf iql bc"],
    )
    made.add_argument("results", type=Path, help="results folder, such as results/laptop")
    made.add_argument("--tasks", nargs="+", metavar="TASK", help="default: all that have runs")
    made.add_argument("--methods", nargs="+", metavar="METHOD", default=list(METHODS), help="default: %(default)s")
    made.add_argument("--seed", type=whole_number(0), default=0, help="whose snapshot (default: %(default)s)")
    made.add_argument("--no-video", action="store_true", help="no episodes")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `pcbf-agents`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _make(options))


def _make(options: argparse.Namespace) -> int:
    runs = layout.run_files(options.results)
    if not runs:
        raise AgentError(f"{options.results} has no runs; train first, or pass another results folder.")
    tasks = options.tasks or sorted({layout.place(path)[0] for path in runs})
    for task in tasks:
        for method in options.methods:
            try:
                card = make_agent_card(options.results, task, method, options.seed)
            except AgentError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            if not options.no_video:
                _add_video(options.results, card)
            print(f"{card['name']}: {card['summary']}")
    write_list(options.results)
    return 0


def _add_video(results: Path, card: Card) -> None:
    """An episode beside the card, small enough for a page."""
    from pcbf_experiments.video import write_small_gif

    path = results / layout.agent_file(card["name"], "safetensors")
    snapshot, task, settings = _loaded(path, card, None)
    episode = first_solved(card)
    watched = play(snapshot, task, settings, episode)
    if not watched.frames:
        return
    file = results / layout.agent_file(card["name"], "gif")
    write_small_gif(file, watched)
    said: dict[str, Any] = {"file": file.name, "episode": episode, "is_solved": watched.success >= 1}
    save_card(results, {**card, "video": {**said, "steps": watched.length}})


if __name__ == "__main__":
    sys.exit(main())
