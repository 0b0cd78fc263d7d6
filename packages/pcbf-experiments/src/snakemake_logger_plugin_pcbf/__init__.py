"""A logger plugin of Snakemake: what it plans, starts, ends and fails at, as lines of JSON that `pcbf-progress` reads.

Snakemake finds it by the package's name; `snakemake --logger pcbf --logger-pcbf-events FILE` turns it on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from logging import LogRecord
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

# what is told of an event: our names of Snakemake's attributes
TOLD: dict[LogEvent, dict[str, str]] = {
    LogEvent.RUN_INFO: {"stats": "jobs"},
    LogEvent.JOB_INFO: {"jobid": "id", "rule_name": "rule", "wildcards": "wildcards"},
    LogEvent.JOB_FINISHED: {"job_id": "id"},
    LogEvent.JOB_ERROR: {"jobid": "id", "rule_name": "rule", "log": "logs"},
    LogEvent.ERROR: {},
}


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options of the command line."""

    events: Path | None = field(
        default=None,
        metadata={"help": "file to which events are added, a line of JSON each", "required": True, "type": Path},
    )


class LogHandler(LogHandlerBase):
    """Adds events to a file; Snakemake's own log, which is for people, goes on beside it."""

    def emit(self, record: LogRecord) -> None:
        told = event_of(record)
        if told and isinstance(self.settings, LogHandlerSettings) and self.settings.events:
            with self.settings.events.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told, default=str) + "\n")

    @property
    def writes_to_stream(self) -> bool:
        return False

    @property
    def writes_to_file(self) -> bool:
        return False  # it would take the place of Snakemake's log

    @property
    def has_filter(self) -> bool:
        return True

    @property
    def has_formatter(self) -> bool:
        return True

    @property
    def needs_rulegraph(self) -> bool:
        return False


def event_of(record: LogRecord) -> dict[str, Any]:
    """What a record tells, empty if nothing that we want to know; an error comes with its message."""
    event = getattr(record, "event", None)
    if event is None or event not in TOLD:
        return {}
    values = {ours: getattr(record, theirs, None) for theirs, ours in TOLD[event].items()}
    return {"event": str(event), **values, **({"message": record.getMessage()} if event == LogEvent.ERROR else {})}
