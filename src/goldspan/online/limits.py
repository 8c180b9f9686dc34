"""`Limits`: the bounds of the spans in flight and of the time for which they are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from goldspan.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the spans in flight. At a bound, the trace that has been idle for longest is scored unfinished.

    Raises:
        ConfigurationError: If a bound is not a positive number (`late` and `settle` may be 0).
    """

    max_traces: int = 10_000
    """Traces in flight."""
    max_spans: int = 100_000
    """Spans in flight: spans that have started and whose run has not been scored."""
    max_spans_per_trace: int = 10_000
    """Spans in flight of one trace. A trace above it is not scored."""
    max_bytes: int = 64 * 1024 * 1024
    """Bytes of ended spans that are kept for runs in flight and for recently scored runs."""
    max_queue: int = 50_000
    """Spans queued for the background thread. Spans above it are forwarded, and their traces are not scored."""
    idle: float = 300.0
    """Seconds without a span after which a run is scored unfinished."""
    lifetime: float = 3600.0
    """Seconds after which a run is scored unfinished, even if it is active."""
    late: float = 60.0
    """Seconds for which a scored run is kept, so that late spans can change it."""
    settle: float = 1.0
    """Seconds without a further late span before a run is scored again."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            minimum: float = 0 if limit.name in ("late", "settle") else 1 if limit.type == "int" else math.ulp(0.0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= minimum:
                expected = "of at least 0" if minimum == 0 else "of at least 1" if minimum == 1 else "above 0"
                raise ConfigurationError(f"{limit.name} must be a number {expected}, not {value!r}")
