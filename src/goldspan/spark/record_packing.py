"""Packs the records of a trace as bytes, for the shuffle and for the state of a stream."""

from __future__ import annotations

import marshal
from collections.abc import Iterable

from goldspan.batch.record_rows import record_to_row, row_to_record
from goldspan.model import TelemetryRecord

_VERSION = 4
"""The format of `marshal` that every Python since 3.4 reads: the executors may run another version than the driver."""


def pack_records(records: Iterable[TelemetryRecord]) -> bytes:
    """Returns records as bytes. `marshal` writes a resource that several records share only once.

    Log records without a trace and a session are left out, as they are part of no run.
    """
    rows = (record_to_row(record, 0) for record in records)
    return marshal.dumps([row for row in rows if row is not None], _VERSION)


def unpack_records(packed: bytes) -> list[TelemetryRecord]:
    """Returns records that are equal to those that were packed."""
    return list(map(row_to_record, marshal.loads(packed)))
