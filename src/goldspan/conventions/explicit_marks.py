"""Session ids that people give to a platform's SDK, which puts them on the spans of whatever framework.

They count more than the conversation ids that frameworks make up for themselves, a new one for each request.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import ANY, AttributeMap, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

COMPONENTS = Convention(
    name="components",
    title="goldspan components",
    source="goldspan's own decorator, or any span that carries the attribute",
    versions="all",
    roles={semconv.COMPONENT_NAME: {ANY: "component"}},
    attributes_by_role={
        "component": AttributeMap(
            name=(semconv.COMPONENT_NAME,), input=(semconv.COMPONENT_INPUT,), output=(semconv.COMPONENT_OUTPUT,)
        )
    },
)


_SESSION_ID_ATTRIBUTES = ("confident.trace.thread_id", "lmnr.association.properties.session_id")


def _postprocess(_span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    facts.conventions = ()  # the family of the platform says that it knew the span
    return facts


PLATFORM_SESSIONS = Convention(
    name="sessions",
    title="Session ids of platforms",
    source="Confident AI (DeepEval) and Laminar",
    versions="those of the platforms below",
    marker_attributes=_SESSION_ID_ATTRIBUTES,
    common_attributes=AttributeMap(session_id=_SESSION_ID_ATTRIBUTES),
    postprocess=_postprocess,
    notes=("These count more than `gen_ai.conversation.id`, which frameworks such as Pydantic AI make up.",),
)
