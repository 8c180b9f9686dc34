"""The conventions goldspan reads, one module a family.

A convention is a function from a span to what it understands of it, or `None` where the span is not of its family.
To add one, write a module with such a `read` function and put it into `CONVENTIONS`; the order is the order of trust:
the first convention that knows a span's role decides it, later ones only fill in what it left open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goldspan.extraction.conventions import any_agent, components, genai, openinference, traceloop
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

Convention = Callable[[SpanRecord], Reading | None]
"""Called once a span, in any order and from any thread. Must not raise on any attribute value."""

CONVENTIONS: tuple[Convention, ...] = (components.read, genai.read, openinference.read, traceloop.read, any_agent.read)

_NOTHING = Reading()


def read(span: SpanRecord, conventions: Sequence[Convention] = CONVENTIONS) -> Reading:
    """Everything the conventions understand of one span, joined."""
    joined: Reading | None = None
    for convention in conventions:
        reading = convention(span)
        if reading is None:
            continue
        if joined is None:
            joined = reading
        else:
            joined.complete_with(reading)
    return _NOTHING if joined is None else _with_texts(joined)


def _with_texts(reading: Reading) -> Reading:
    """Names and ids as text: an attribute may hold anything, and what follows compares and sorts them."""
    for field in ("name", "call_id", "agent", "session_id", "input", "output"):
        value = getattr(reading, field)
        if value is not None and not isinstance(value, str):
            setattr(reading, field, str(value))
    return reading
