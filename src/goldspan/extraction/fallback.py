"""Spans of families that no convention knows, read by what their attributes are called.

Most instrumentations tell what a span is in an attribute such as `{family}.span.kind`, and write an input and an output
beside it. A convention is made up for spans that have the same attributes; what it reads is marked as such, since names
may mean something else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any

from goldspan.extraction import envelopes, messages, values
from goldspan.extraction.convention import Convention, FromFlat, Keys, Places, Reader
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Messages, Reading, Role, says_something
from goldspan.model import SpanRecord, ToolKind

NAME = "fallback"
"""The name of the convention that is made up."""

_CERTAIN: dict[str, Role] = {
    **dict.fromkeys(("tool", "toolcall", "tooluse", "toolexecution", "executetool", "mcptool"), "tool"),
    **dict.fromkeys(("retriever", "retrieval", "handoff", "agenthandoff"), "tool"),
    **dict.fromkeys(("agent", "invokeagent", "agentrun"), "agent"),
    **dict.fromkeys(("workflow", "chain", "invokeworkflow"), "entry"),
    **dict.fromkeys(("llm", "llmcall", "chatmodel"), "model"),
    "createagent": "aside",
}
"""What a span is by its kind, whatever else may have one: of `ai.toolCall` and `tool_call`, the word is `toolcall`."""
_WORDS: dict[str, Role] = {
    **_CERTAIN,
    "rag": "tool",
    **dict.fromkeys(("conversation", "crew", "team", "graph"), "entry"),
    **dict.fromkeys(("generation", "chat", "generatecontent", "completion"), "model"),
    **dict.fromkeys(("span", "task", "request", "trace", "session"), "entry"),
}
"""The same where it is certain that the kind is that of a span."""
_MOST_FAMILIES = 3
_ROOTS = frozenset({"span", "task", "request", "trace", "session"})
"""Kinds that say nothing but of a root: there a request enters."""
_KINDS: dict[str, ToolKind] = {
    **dict.fromkeys(("retriever", "retrieval", "rag"), "retrieval"),
    **dict.fromkeys(("handoff", "agenthandoff"), "handoff"),
}
_TELLS_KIND: tuple[tuple[re.Pattern[str], dict[str, Role]], ...] = (
    (re.compile(r"(?:.*[._])?(?:span|observation)[._](?:kind|type)"), _WORDS),
    (re.compile(r"(?:.*[._])?operation(?:[._]?(?:name|type|id))?"), _WORDS),
    (re.compile(r"(?:.*[._])?(?:run|event|node|step|entity|trace)[._](?:kind|type)"), _WORDS),
    (re.compile(r"(?:[^.]+\.)+(?:kind|type)"), _CERTAIN),
)
"""The attributes that tell a kind, the surest first, and what they may tell."""
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
_SPAN_NAMES: dict[Role, Keys] = {
    "tool": (
        *("execute_tool {name}", "{name}.tool", "{name}_tool_call", "tool: {name}", "tool {name}", "tool_call {name}"),
        *("tool:{name}", "tool.{name}", "tool/{name}", "call_tool {name}", "{name}"),
    ),
    "agent": (),
}
_OTHERS = frozenset(
    {
        *("aws", "azure", "browser", "cicd", "client", "cloud", "code", "container", "cpu", "db", "device", "dns"),
        *("enduser", "error", "exception", "faas", "file", "gcp", "geo", "graphql", "host", "http", "k8s", "log"),
        *("messaging", "net", "network", "os", "otel", "peer", "process", "rpc", "server", "service", "signalr"),
        *("source", "destination", "system", "telemetry", "thread", "tls", "url", "user", "user_agent", "vcs"),
    }
)
"""What OpenTelemetry's conventions for anything but agents put their attributes under: `db.operation.name` is SQL's."""


def read(span: SpanRecord, reader: Reader) -> Reading | None:
    """What the attributes of a span say by their names: its kind, and an input or an output, or else nothing."""
    reading = reader.read(span, span.values_of(reader.keys))
    return reading if reading is not None and says_something(reading) else None


def _is_text(name: object) -> bool:
    return isinstance(name, str)  # a log's body may have keys of any kind


def _is_of_others(name: str) -> bool:
    """Whether a name tells the kind of something else than a span: of a database's operation, a message, or a tool."""
    return (
        name.partition(".")[0] in _OTHERS
        or name.endswith((".tool.type", ".tool_type"))
        or _NUMBERED.fullmatch(name) is not None
    )


def reader(names: Set[str]) -> Reader | None:
    """A reader for spans with these attributes; `None` where none of them may tell a kind."""
    kinds = telling(names)
    if not kinds:
        return None
    family = next(iter(kinds)).partition(".")[0]
    return Reader(_convention(kinds, _Names(names, family)), names)


def families(spans: Iterable[SpanRecord]) -> tuple[str, ...]:
    """How the attributes of some spans begin, the commonest first, but for OpenTelemetry's general conventions.

    `acme.step` and `acme.words` are of the family `acme`.
    """
    found = Counter(
        prefix
        for span in spans
        for prefix in {name.partition(".")[0] for name in filter(_is_text, span.keys()) if "." in name}
        if prefix not in _OTHERS
    )
    ranked = sorted(found, key=lambda prefix: (-found[prefix], prefix))
    return tuple(ranked[:_MOST_FAMILIES])


def telling(names: Set[str]) -> Mapping[str, _Kinds]:
    """Those of some attributes that may tell a kind, the surest first, with what their words mean."""
    found: dict[str, _Kinds] = {}
    for form, words in _TELLS_KIND:
        for name in sorted(filter(_is_text, names)):
            if form.fullmatch(name.lower()) and not _is_of_others(name):
                found.setdefault(name, _Kinds(words))
    return found


class _Kinds(dict[str, Role]):
    """Roles by kinds, however these are written."""

    def get(self, kind: str, default: Any = None) -> Any:
        """The role of a kind."""
        return super().get(_word(kind), default)


def _word(kind: object) -> str:
    return str(kind).lower().rpartition(".")[2].replace("_", "").replace("-", "").replace(" ", "")


class _Names:
    """The attributes of a span, to be found by how their names end: those of the family that tells its kind first."""

    def __init__(self, names: Set[str], family: str) -> None:
        self._names = sorted(
            filter(_is_text, names), key=lambda name: (not name.startswith(f"{family}."), name.count("."), name)
        )
        self.flat = dict.fromkeys(
            (hit["prefix"], hit["inner"] or "") for hit in map(_NUMBERED.fullmatch, self._names) if hit
        )

    def ending(self, ends: Iterable[str]) -> Keys:
        """The attributes with one of some endings, in the order of these."""
        return tuple(name for end in ends for name in self._names if _ends(name.lower(), end))


def _ends(name: str, end: str) -> bool:
    """Whether a name is an ending, or ends with it, also as in `input.value` and `tool.call.arguments`."""
    name = name.removesuffix(".value")
    return name == end or name.endswith((f".{end}", f"_{end}"))


def _convention(kinds: Mapping[str, _Kinds], names: _Names) -> Convention:
    given, gave = names.ending(_INPUT), names.ending(_OUTPUT)
    asked = [FromFlat(prefix, inner) for prefix, inner in names.flat if _asks(prefix)]
    answered = [FromFlat(prefix, inner) for prefix, inner in names.flat if not _asks(prefix)]
    spoken = Places(
        asked=(*asked, *map(_Spoken, given)),
        answered=(*answered, *map(_Spoken, gave)),
    )
    return Convention(
        name=NAME,
        title="",
        source="",
        versions="",
        roles=kinds,
        of={
            "tool": Places(
                name=names.ending(_TOOL_NAME),
                call_id=names.ending(_CALL_ID),
                arguments=names.ending(_ARGUMENTS),
                result=names.ending(_RESULT),
                error=names.ending(_ERROR),
            ),
            "agent": Places(name=names.ending(_AGENT_NAME)),
            "entry": Places(name=names.ending(_AGENT_NAME)),
            "model": spoken,
        },
        everywhere=Places(input=given, output=gave, session_id=names.ending(_SESSION)),
        span_names=_SPAN_NAMES,
        open_arguments=_arguments,
        open_result=_result,
        refine=lambda span, reading: _refine(span, reading, kinds),
    )


def _asks(prefix: str) -> bool:
    """Whether a list of messages is what a model was asked, by what it is called."""
    return not any(word in prefix.lower() for word in ("output", "completion", "response", "answer"))


def _refine(span: SpanRecord, reading: Reading, kinds: Mapping[str, _Kinds]) -> Reading | None:
    told = ((key, _word(span.attributes.get(key)), roles) for key, roles in kinds.items())
    key, word = next(((key, word) for key, word, roles in told if word in roles), (None, ""))
    if key is None or (word in _ROOTS and span.parent_id is not None):
        return None
    reading.guessed_by = key
    reading.kind = _KINDS.get(word)
    reading.input, reading.output = _valued(reading.input), _valued(reading.output)
    if reading.role in ("agent", "entry"):
        reading.name = reading.name or span.name
    return reading


class _Spoken:
    """Messages in one attribute, perhaps inside `{"type": ..., "value": ...}`."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_json(_valued(span.attributes.get(self._attribute)))

    def is_there(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return self._attribute in span.attributes


def _valued(value: object) -> object:
    """A value out of the envelope that says of which type it is."""
    read = plain(value)
    return read["value"] if isinstance(read, dict) and read.keys() == {"type", "value"} else value


def _arguments(value: object) -> envelopes.Request:
    return values.request(_valued(value))


def _result(value: object) -> envelopes.Result:
    return values.result(_valued(value))
