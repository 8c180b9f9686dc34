"""AG2: GenAI spans with additional attributes for conversations.

Each turn of a conversation is the span of one agent. The model of one agent requests a tool and another agent executes
it. The span of the conversation represents the request; the GenAI convention reads its operation.
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
            # The model that selects the next speaker does not call tools.
            "speaker_selection": "aside",
        },
    },
    marker_attributes=("ag2.span.type",),
    attributes_by_role={"entry": _CHAT_ATTRIBUTES},
    notes=("A conversation represents the request. The agents that take turns in it are the agents of the request.",),
)
