"""Reads spans of families that no convention knows, by the names of their attributes.

Most instrumentations write the kind of a span in an attribute such as `{family}.span.kind`, and an input and an output
in others. The fallback builds a convention for all spans with the same attributes. Its facts are marked with
`guessed_from`, because the names may mean something else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any

from goldspan.content import envelopes, messages
from goldspan.content.literals import plain_value
from goldspan.conventions.convention import AttributeMap, AttributeNames, Convention, FromFlattened, SpanReader
from goldspan.conventions.span_facts import Messages, Role, SpanFacts, has_content
from goldspan.model import SpanRecord, ToolKind

FALLBACK_NAME = "fallback"
"""The name of the conventions that the fallback builds."""

_CERTAIN_KINDS: dict[str, Role] = {
    **dict.fromkeys(("tool", "toolcall", "tooluse", "toolexecution", "executetool", "mcptool"), "tool"),
    **dict.fromkeys(("retriever", "retrieval", "handoff", "agenthandoff"), "tool"),
    **dict.fromkeys(("agent", "invokeagent", "agentrun"), "agent"),
    **dict.fromkeys(("workflow", "chain", "invokeworkflow"), "entry"),
    **dict.fromkeys(("llm", "llmcall", "chatmodel"), "model"),
    "createagent": "aside",
}
"""Roles by kind, for attributes that may also hold the kind of something else.

Kinds are normalized: `ai.toolCall` and `tool_call` both become `toolcall`.
"""
_SPAN_KINDS: dict[str, Role] = {
    **_CERTAIN_KINDS,
    "rag": "tool",
    **dict.fromkeys(("conversation", "crew", "team", "graph"), "entry"),
    **dict.fromkeys(("generation", "chat", "generatecontent", "completion"), "model"),
    **dict.fromkeys(("span", "task", "request", "trace", "session"), "entry"),
}
"""Roles by kind, for attributes that certainly hold the kind of a span."""
_MAX_FAMILIES = 3
_ROOT_KINDS = frozenset({"span", "task", "request", "trace", "session"})
"""Kinds that give a role to root spans only: a request starts there."""
_KINDS: dict[str, ToolKind] = {
    **dict.fromkeys(("retriever", "retrieval", "rag"), "retrieval"),
    **dict.fromkeys(("handoff", "agenthandoff"), "handoff"),
}
_KIND_ATTRIBUTE_PATTERNS: tuple[tuple[re.Pattern[str], dict[str, Role]], ...] = (
    (re.compile(r"(?:.*[._])?(?:span|observation)[._](?:kind|type)"), _SPAN_KINDS),
    (re.compile(r"(?:.*[._])?operation(?:[._]?(?:name|type|id))?"), _SPAN_KINDS),
    (re.compile(r"(?:.*[._])?(?:run|event|node|step|entity|trace)[._](?:kind|type)"), _SPAN_KINDS),
    (re.compile(r"(?:[^.]+\.)+(?:kind|type)"), _CERTAIN_KINDS),
)
"""The attributes that may hold a kind, the most certain first, and the roles by kind."""
_ARGUMENTS = ("arguments", "args", "input", "inputs", "parameters", "params", "request")
_RESULT = ("result", "output", "outputs", "response", "return")
_INPUT = ("input", "inputs", "prompt", "query", "request", "messages")
_OUTPUT = ("output", "outputs", "response", "completion", "result", "answer")
_TOOL_NAME = (
    *("tool.name", "tool_name", "toolcall.name", "tool.call.name", "function.name"),
    *("entity.name", "observation.name", "span.name"),
)
_AGENT_NAME = ("agent.name", "agent_name", "entity.name", "observation.name", "span.name")
_CALL_ID = (
    *("tool.call.id", "toolcall.id", "tool_call.id", "tool.call_id", "tool_call_id"),
    *("call_id", "call.id"),
)
_ERROR = ("error.message", "error_message", "error", "exception.message")
_SESSION = ("session.id", "session_id", "conversation.id", "conversation_id", "thread.id", "thread_id")
_NUMBERED = re.compile(r"(?P<prefix>.*?)\.[0-9]{1,9}\.(?P<inner>message(?=\.))?.*")
_SPAN_NAMES: dict[Role, AttributeNames] = {
    "tool": (
        *("execute_tool {name}", "{name}.tool", "{name}_tool_call", "tool: {name}", "tool {name}", "tool_call {name}"),
        *("tool:{name}", "tool.{name}", "tool/{name}", "call_tool {name}", "{name}"),
    ),
    "agent": (),
}
_GENERAL_NAMESPACES = frozenset(
    {
        *("aws", "azure", "browser", "cicd", "client", "cloud", "code", "container", "cpu", "db", "device", "dns"),
        *("enduser", "error", "exception", "faas", "file", "gcp", "geo", "graphql", "host", "http", "k8s", "log"),
        *("messaging", "net", "network", "os", "otel", "peer", "process", "rpc", "server", "service", "signalr"),
        *("source", "destination", "system", "telemetry", "thread", "tls", "url", "user", "user_agent", "vcs"),
    }
)
"""Namespaces of OpenTelemetry's conventions for other domains: `db.operation.name` is the operation of a database."""


def read_by_attribute_names(span: SpanRecord, reader: SpanReader) -> SpanFacts | None:
    """Return the facts of a span that has a kind and an input or an output; `None` for any other span."""
    facts = reader.read(span, span.decode_attributes(reader.attribute_names))
    return facts if facts is not None and has_content(facts) else None


def _is_text(name: object) -> bool:
    return isinstance(name, str)  # the body of a log may have keys of any type


def _is_unrelated(name: str) -> bool:
    """Whether an attribute holds the kind of something other than a span: a database operation, a message or a tool."""
    return (
        name.partition(".")[0] in _GENERAL_NAMESPACES
        or name.endswith((".tool.type", ".tool_type"))
        or _NUMBERED.fullmatch(name) is not None
    )


def reader_for(names: Set[str]) -> SpanReader | None:
    """Return a reader for spans with these attributes; `None` if none of them may hold a kind."""
    kinds = kind_attributes(names)
    if not kinds:
        return None
    family = next(iter(kinds)).partition(".")[0]
    return SpanReader(_convention(kinds, _AttributeLookup(names, family)), names)


def attribute_families(spans: Iterable[SpanRecord]) -> tuple[str, ...]:
    """Return the most frequent first words of attribute names, except those of OpenTelemetry's general conventions.

    `acme.step` and `acme.words` belong to the family `acme`.
    """
    found = Counter(
        prefix
        for span in spans
        for prefix in {name.partition(".")[0] for name in filter(_is_text, span.attribute_names()) if "." in name}
        if prefix not in _GENERAL_NAMESPACES
    )
    ranked = sorted(found, key=lambda prefix: (-found[prefix], prefix))
    return tuple(ranked[:_MAX_FAMILIES])


def kind_attributes(names: Set[str]) -> Mapping[str, _Kinds]:
    """Return the attributes that may hold a kind, the most certain first, with the roles by kind."""
    found: dict[str, _Kinds] = {}
    for form, words in _KIND_ATTRIBUTE_PATTERNS:
        for name in sorted(filter(_is_text, names)):
            if form.fullmatch(name.lower()) and not _is_unrelated(name):
                found.setdefault(name, _Kinds(words))
    return found


class _Kinds(dict[str, Role]):
    """Roles by kind. Lookup normalizes the kind."""

    def get(self, kind: str, default: Any = None) -> Any:
        """Return the role of a kind."""
        return super().get(_normalize_kind(kind), default)


def _normalize_kind(kind: object) -> str:
    return str(kind).lower().rpartition(".")[2].replace("_", "").replace("-", "").replace(" ", "")


class _AttributeLookup:
    """Finds attributes of a span by the ends of their names. Those of the family of the kind attribute come first."""

    def __init__(self, names: Set[str], family: str) -> None:
        self._names = sorted(
            filter(_is_text, names), key=lambda name: (not name.startswith(f"{family}."), name.count("."), name)
        )
        self.flat = dict.fromkeys(
            (hit["prefix"], hit["inner"] or "") for hit in map(_NUMBERED.fullmatch, self._names) if hit
        )

    def ending(self, ends: Iterable[str]) -> AttributeNames:
        """Return the attributes with one of the endings, in the order of the endings."""
        return tuple(name for end in ends for name in self._names if _has_ending(name.lower(), end))


def _has_ending(name: str, end: str) -> bool:
    """Whether a name is the ending or ends with it after `.` or `_`. A suffix `.value` is ignored."""
    name = name.removesuffix(".value")
    return name == end or name.endswith((f".{end}", f"_{end}"))


def _convention(kinds: Mapping[str, _Kinds], names: _AttributeLookup) -> Convention:
    inputs, outputs = names.ending(_INPUT), names.ending(_OUTPUT)
    input_sources = [FromFlattened(prefix, inner) for prefix, inner in names.flat if _is_input_prefix(prefix)]
    output_sources = [FromFlattened(prefix, inner) for prefix, inner in names.flat if not _is_input_prefix(prefix)]
    model_attributes = AttributeMap(
        input_messages=(*input_sources, *map(_TypedValueMessages, inputs)),
        output_messages=(*output_sources, *map(_TypedValueMessages, outputs)),
    )
    return Convention(
        name=FALLBACK_NAME,
        title="",
        source="",
        versions="",
        roles=kinds,
        attributes_by_role={
            "tool": AttributeMap(
                name=names.ending(_TOOL_NAME),
                call_id=names.ending(_CALL_ID),
                arguments=names.ending(_ARGUMENTS),
                result=names.ending(_RESULT),
                error=names.ending(_ERROR),
            ),
            "agent": AttributeMap(name=names.ending(_AGENT_NAME)),
            "entry": AttributeMap(name=names.ending(_AGENT_NAME)),
            "model": model_attributes,
        },
        common_attributes=AttributeMap(input=inputs, output=outputs, session_id=names.ending(_SESSION)),
        span_name_templates=_SPAN_NAMES,
        unwrap_arguments=_arguments,
        unwrap_result=_result,
        postprocess=lambda span, facts: _postprocess(span, facts, kinds),
    )


def _is_input_prefix(prefix: str) -> bool:
    """Whether a flattened list of messages is a model's input, by its name."""
    return not any(word in prefix.lower() for word in ("output", "completion", "response", "answer"))


def _postprocess(span: SpanRecord, facts: SpanFacts, kinds: Mapping[str, _Kinds]) -> SpanFacts | None:
    candidates = ((key, _normalize_kind(span.attributes.get(key)), roles) for key, roles in kinds.items())
    key, word = next(((key, word) for key, word, roles in candidates if word in roles), (None, ""))
    if key is None or (word in _ROOT_KINDS and span.parent_id is not None):
        return None
    facts.guessed_from = key
    facts.kind = _KINDS.get(word)
    facts.input, facts.output = _unwrap_typed_value(facts.input), _unwrap_typed_value(facts.output)
    if facts.role in ("agent", "entry"):
        facts.name = facts.name or span.name
    return facts


class _TypedValueMessages:
    """Reads messages from one attribute, also inside `{"type": ..., "value": ...}`."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        return messages.from_json(_unwrap_typed_value(span.attributes.get(self._attribute)))

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has the attribute."""
        return self._attribute in span.attributes


def _unwrap_typed_value(value: object) -> object:
    """Unwrap a value from an envelope that states its type."""
    read = plain_value(value)
    return read["value"] if isinstance(read, dict) and read.keys() == {"type", "value"} else value


def _arguments(value: object) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(_unwrap_typed_value(value))


def _result(value: object) -> envelopes.CallResult:
    return envelopes.unwrap_result(_unwrap_typed_value(value))
