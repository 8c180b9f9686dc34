"""Genkit: actions with `genkit:*` attributes, the same in JavaScript, Go and Python.

Every action is a span whose subtype says what it is: a flow, a tool, a model, an agent, a retriever.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

_SUBTYPE = "genkit:metadata:subtype"
_INPUT, _OUTPUT = "genkit:input", "genkit:output"


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if reading.role == "tool":
        reading.kind = "retrieval" if attributes.get(_SUBTYPE) in ("retriever", "reranker") else None
        if attributes.get("genkit:state") == "error" and span.status != "error":
            reading.error = "error"
    elif reading.role == "model":
        reading.tools = (partial(_offered, attributes),)
    return reading if reading.role is not None else None


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    request = plain(attributes.get(_INPUT))
    return messages.definitions(request.get("tools")) if isinstance(request, Mapping) else ()


CONVENTION = Convention(
    name="genkit",
    title="Genkit",
    source="https://github.com/firebase/genkit",
    versions="1 (recorded with JavaScript 1.42)",
    roles={
        _SUBTYPE: {
            **dict.fromkeys(("tool", "tool.v2", "retriever", "reranker"), "tool"),
            "flow": "entry",
            "agent": "agent",
            **dict.fromkeys(("model", "background-model"), "model"),
        }
    },
    of={
        "tool": Places(name=("genkit:name",), arguments=(_INPUT,), result=(_OUTPUT,)),
        "entry": Places(input=(_INPUT,), output=(_OUTPUT,)),
        "agent": Places(name=("genkit:name",), input=(_INPUT,), output=(_OUTPUT,)),
        "model": Places(asked=(FromJson(_INPUT),), answered=(FromJson(_OUTPUT),)),
    },
    everywhere=Places(session_id=("genkit:sessionId",)),
    refine=_refine,
    notes=(
        "Retrievers and rerankers are retrievals.",
        "`genkit:state` says `error` where an action failed.",
    ),
)
