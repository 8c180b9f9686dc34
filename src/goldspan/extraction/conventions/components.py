"""goldspan's own mark: a span that people want scored on its own."""

from __future__ import annotations

from goldspan import semconv
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord


def read(span: SpanRecord) -> Reading | None:
    """Read a span that carries `goldspan.component.name`."""
    name = span.attributes.get(semconv.COMPONENT_NAME)
    if name is None:
        return None
    return Reading(
        role="component",
        name=str(name),
        input=span.attributes.get(semconv.COMPONENT_INPUT),
        output=span.attributes.get(semconv.COMPONENT_OUTPUT),
    )
