"""Why a run could not go on, for `pcbf-status`."""

from __future__ import annotations

import contextlib

from pcbf_records.canonical import readable_json
from pcbf_records.files import write_text
from pcbf_records.layout import JobFiles


def note_failure(files: JobFiles, error: BaseException) -> None:
    with contextlib.suppress(OSError):
        write_text(files.failure, readable_json({"job": files.name, "reason": str(error) or type(error).__name__}))


def forget_failure(files: JobFiles) -> None:
    files.failure.unlink(missing_ok=True)
