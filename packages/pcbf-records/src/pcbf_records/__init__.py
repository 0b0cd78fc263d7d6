"""What a run leaves on disk and how to read it: layout, records, sheets, versions, progress, locks, atomic files.

Nothing here imports JAX or pandas, so that whatever must start fast can ask where a file lies.
"""

from pcbf_records.errors import RecordError

__all__ = ["RecordError"]
