"""AG2, a dialect of the GenAI conventions.

Agents converse: each turn is an agent's span, one agent asks its model for a tool and another one executes it. What
stands for the request is the conversation around them, whose operation is read together with those of the standard.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import AttributeMap, Convention, FromJson

_CHAT_ATTRIBUTES = AttributeMap(
    name=(semconv.AGENT_NAME,),
    input_messages=(FromJson(semconv.INPUT_MESSAGES),),
    output_messages=(FromJson(semconv.OUTPUT_MESSAGES),),
)

CONVENTION = Convention(
    name="ag2",
    title="AG2",
    source="https://github.com/ag2ai/ag2",
    versions="0.11 to 0.13",
    roles={
        "ag2.span.type": {
            "conversation": "entry",
            "multi_conversation": "entry",
            # A model that chooses who speaks next calls no tool of the request.
            "speaker_selection": "aside",
        },
    },
    marker_attributes=("ag2.span.type",),
    attributes_by_role={"entry": _CHAT_ATTRIBUTES},
    notes=("A conversation stands for the request; the agents that take turns in it are its agents.",),
)
