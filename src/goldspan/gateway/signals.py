"""What goes through the gateway: signals, how they are written, where they come from, and who scores them."""

from __future__ import annotations

from typing import Literal
from zlib import crc32

Signal = Literal["traces", "logs", "metrics"]
Media = Literal["protobuf", "json"]
Origin = Literal["received", "held", "result", "enriched"]
"""`received` from a client, or from there and `held` until it is scored; the `result` of scoring, or what was held,
`enriched` with results.
"""
FROM_CLIENTS: frozenset[Origin] = frozenset({"received", "held"})
"""What is scored."""
TO_BACK_ENDS: frozenset[Origin] = frozenset({"received", "result", "enriched"})
"""What is handed on."""

PARTITIONS = 32
"""Each trace is in one of so many partitions, and each partition is scored by one worker."""
ALL_PARTITIONS = 2**PARTITIONS - 1


def partition_of(trace_id: bytes) -> int:
    """The partition of a trace. Not all makers of trace ids fill them evenly, so it is taken from a checksum."""
    return crc32(trace_id) % PARTITIONS
