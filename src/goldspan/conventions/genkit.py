"""Genkit: actions with `genkit:*` attributes, the same in JavaScript, Go and Python.

Every action is a span. Its subtype identifies the kind of action: a flow, a tool, a model, an agent or a retriever.
A tool of the subtype `tool.v2`, which every tool in Go is, returns a `MultipartToolResponse`: `go/ai/gen.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes
from goldspan.content.literals import plain_value
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

_SUBTYPE = "genkit:metadata:subtype"
_MULTIPART_TOOL = "tool.v2"
_INPUT, _OUTPUT = "genkit:input", "genkit:output"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if facts.role == "tool":
        facts.kind = "retrieval" if attributes.get(_SUBTYPE) in ("retriever", "reranker") else None
        if attributes.get("genkit:state") == "error" and span.status != "error":
            facts.error = "error"
        if attributes.get(_SUBTYPE) == _MULTIPART_TOOL and _OUTPUT in attributes:
            facts.result = RawValue(attributes[_OUTPUT], _unwrap_multipart_result)
    elif facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes),)
    return facts if facts.role is not None else None


def _unwrap_multipart_result(response: Any) -> envelopes.CallResult:
    """Return the output of a `MultipartToolResponse`. With more content, the whole response is the result."""
    return envelopes.unwrap_result(response, envelopes.keyed_result("output"))


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    request = plain_value(attributes.get(_INPUT))
    return tool_definitions(request.get("tools")) if isinstance(request, Mapping) else ()


CONVENTION = Convention(
    name="genkit",
    title="Genkit",
    source="https://github.com/firebase/genkit",
    versions="1 (recorded with JavaScript 1.42 and Go 1.4)",
    roles={
        _SUBTYPE: {
            **dict.fromkeys(("tool", _MULTIPART_TOOL, "retriever", "reranker"), "tool"),
            "flow": "entry",
            "agent": "agent",
            **dict.fromkeys(("model", "background-model"), "model"),
        }
    },
    attributes_by_role={
        "tool": AttributeMap(name=("genkit:name",), arguments=(_INPUT,), result=(_OUTPUT,)),
        "entry": AttributeMap(input=(_INPUT,), output=(_OUTPUT,)),
        "agent": AttributeMap(name=("genkit:name",), input=(_INPUT,), output=(_OUTPUT,)),
        "model": AttributeMap(input_messages=(FromJson(_INPUT),), output_messages=(FromJson(_OUTPUT),)),
    },
    common_attributes=AttributeMap(session_id=("genkit:sessionId",)),
    postprocess=_postprocess,
    notes=(
        "Retrievers and rerankers are retrievals.",
        "`genkit:state` is `error` if an action failed.",
        "The result of a `tool.v2` is the `output` of its response.",
    ),
)
