"""Session ids that people give to a platform's SDK, which puts them on the spans of whatever framework.

They count more than the conversation ids that frameworks make up for themselves, a new one for each request.
"""

from __future__ import annotations

from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_GIVEN = ("confident.trace.thread_id", "lmnr.association.properties.session_id")


def _refine(_span: SpanRecord, reading: Reading) -> Reading:
    reading.by = ()  # the family of the platform says that it knew the span
    return reading


CONVENTION = Convention(
    name="sessions",
    title="Session ids of platforms",
    source="Confident AI (DeepEval) and Laminar",
    versions="those of the platforms below",
    signs=_GIVEN,
    everywhere=Places(session_id=_GIVEN),
    refine=_refine,
    notes=("These count more than `gen_ai.conversation.id`, which frameworks such as Pydantic AI make up.",),
)
