"""OpenLLMetry (Traceloop): `traceloop.span.kind` with `traceloop.entity.*`, and its older flattened messages.

Tools, agents and workflows carry their arguments and results in `traceloop.entity.input` and `.output`, inside an
envelope of `args` and `kwargs`. Model spans before version 0.50 flatten messages into `gen_ai.prompt.N` and
`gen_ai.completion.N`; newer ones follow the GenAI conventions.
"""

from __future__ import annotations

from functools import partial

from goldspan.extraction import messages, values
from goldspan.extraction.reading import Reading, Role
from goldspan.model import ABSENT, SpanRecord

_KIND = "traceloop.span.kind"
_NAME = "traceloop.entity.name"
_INPUT = "traceloop.entity.input"
_OUTPUT = "traceloop.entity.output"
_SESSION = "traceloop.association.properties.session_id"
_THREAD = "traceloop.association.properties.thread_id"
_ROLES: dict[str, Role] = {"tool": "tool", "agent": "agent", "workflow": "entry"}
_MODEL_CALL = "llm.request.type"


def read(span: SpanRecord) -> Reading | None:
    """Read a span that says its Traceloop kind, a model span of an older version, or a session id."""
    attributes = span.attributes
    kind = attributes.get(_KIND)
    session = attributes.get(_SESSION) or attributes.get(_THREAD)
    if kind is None and session is None and _MODEL_CALL not in attributes:
        return None
    reading = Reading(role=_ROLES.get(str(kind)), session_id=session)
    if reading.role == "tool":
        reading.name = attributes.get("gen_ai.tool.name") or attributes.get(_NAME)
        reading.agent = attributes.get("gen_ai.agent.name")
        reading.arguments = attributes.get(_INPUT, ABSENT)
        reading.result = attributes.get(_OUTPUT, ABSENT)
    elif reading.role is not None:
        reading.name = attributes.get(_NAME)
        reading.agent = reading.name if reading.role == "agent" else None
        reading.input = values.text(attributes.get(_INPUT))
        reading.output = values.text(attributes.get(_OUTPUT))
    elif _MODEL_CALL in attributes:
        reading.role = "model"
        reading.asked = partial(messages.from_flat, attributes, "gen_ai.prompt")
        reading.answered = partial(messages.from_flat, attributes, "gen_ai.completion")
    return reading
