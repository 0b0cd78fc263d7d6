"""Published agents: an episode to watch beside the card that says what it is."""

from __future__ import annotations

import base64
from typing import Any

from pcbf_analysis.results import Results, json_object
from pcbf_records import layout

FACTS = ("task", "method", "seed", "step", "summary", "licence")
MOST_BYTES = 500_000  # of moving pictures in the page; what is beyond it is linked


def agent_views(results: Results) -> list[dict[str, Any]]:
    """Every episode that was filmed, with its card; those that fit are in the page, the others beside it."""
    views, used = [], 0
    for path in sorted(results.root.glob(layout.agent_file("*", "gif"))):
        content = path.read_bytes()
        fits = used + len(content) <= MOST_BYTES
        used += len(content) if fits else 0
        card = path.with_suffix(".json")
        told = json_object(card, "publish the agent again.") if card.exists() else {}
        image = f"data:image/gif;base64,{base64.b64encode(content).decode()}" if fits else ""
        address = f"../{layout.agent_file(path.stem, 'gif')}"
        views.append({"name": path.stem, "image": image, "address": address, "facts": _facts(told)})
    return views


def _facts(card: dict[str, Any]) -> list[tuple[str, str]]:
    """What a card says that a reader wants to know; the file has the rest."""
    return [(name, str(card[name])) for name in FACTS if name in card]
