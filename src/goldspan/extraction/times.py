"""Times in nanoseconds since the epoch, always integers: a float is exact only to 256 ns today."""

from __future__ import annotations

from goldspan.model import SpanRecord

NEVER = 1 << 64
"""Stands for a time that is not known, and sorts last: OTLP's times are unsigned integers of 64 bits."""
JITTER_NS = 2_000_000
"""Some SDKs take starts from a clock of milliseconds and ends from another one."""


def start_of(span: SpanRecord) -> int:
    """When a span started; `NEVER` where that is not known."""
    return NEVER if span.start_ns is None else span.start_ns


def end_of(span: SpanRecord) -> int:
    """When a span ended; `NEVER` where that is not known."""
    return NEVER if span.end_ns is None else span.end_ns
