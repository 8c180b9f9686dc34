"""How much is kept of a live process, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from goldspan.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is in flight. At one, the trace that has been idle for longest is taken as it is.

    Raises `ConfigurationError` for a bound that is no positive number.
    """

    max_traces: int = 10_000
    """Traces in flight."""
    max_spans: int = 100_000
    """Spans in flight: started, and their run not given out."""
    max_spans_per_trace: int = 10_000
    """A trace with more in flight is not scored."""
    max_bytes: int = 64 * 1024 * 1024
    """Bytes of ended spans that are kept for runs in flight and for runs given out lately."""
    max_queue: int = 50_000
    """Spans that wait to be scored in the background. Beyond it they are handed on, and their traces not scored."""
    idle: float = 300.0
    """Seconds without any span after which a run is scored as it is, and what never ended is let go."""
    lifetime: float = 3600.0
    """Seconds after which it is, however busy."""
    late: float = 60.0
    """Seconds for which a run that was given out is kept, so that late spans can change it."""
    settle: float = 1.0
    """Seconds without a further late span before a run is scored again."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least: float = 0 if each.name in ("late", "settle") else 1 if each.type == "int" else math.ulp(0.0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
                wanted = "0 or more" if least == 0 else "at least 1" if least == 1 else "more than 0"
                raise ConfigurationError(f"{each.name} is a number of {wanted}, not {value!r}")
