"""goldspan's own component attributes, and session ids that applications set through a platform's SDK.

The SDK of a platform writes the session id on the spans of every framework. This id takes precedence over the
conversation ids that frameworks generate, because a framework may generate a new id for each request.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import ANY, AttributeMap, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

COMPONENTS = Convention(
    name="components",
    title="goldspan components",
    source="goldspan's own decorator, or any span that has the attribute",
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
    facts.conventions = ()  # the platform's own convention reports that it recognized the span
    return facts


PLATFORM_SESSIONS = Convention(
    name="sessions",
    title="Session ids of platforms",
    source="Confident AI (DeepEval) and Laminar",
    versions="those of the platforms below",
    marker_attributes=_SESSION_ID_ATTRIBUTES,
    common_attributes=AttributeMap(session_id=_SESSION_ID_ATTRIBUTES),
    postprocess=_postprocess,
    notes=("These take precedence over `gen_ai.conversation.id`, which frameworks such as Pydantic AI generate.",),
)
