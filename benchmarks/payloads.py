"""Creates the payloads of the benchmarks: two kinds of OTLP trace requests of 512 spans, reproducible byte for byte.

Payload A is an application in which agents are a part: sixteen traces of 32 spans of about 1 KB. One span in six is a
tool call, each trace has four model calls with messages of 2 KB without calls, and the rest are HTTP, database and
framework spans. Payload B consists of agents only: the recorded fixtures of all instrumentation families, with messages
and history. Spans are in the order of their ends, and their attributes in random order.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

SPANS = 512
"""Number of spans in a request."""
CAPTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "captures"

_SPANS_A_TRACE = 32
_MODEL_CALLS = 4
_MESSAGES = 2048
"""Bytes of the messages of one model call."""
_START = 1_700_000_000_000_000_000
_MILLISECOND = 1_000_000
_HOUR = 3_600_000 * _MILLISECOND
_TOOLS = ("search_hotels", "compare_prices", "check_dates", "book_hotel", "send_email")
_SCOPES = {
    "agent": "shop.agents",
    "http": "opentelemetry.instrumentation.httpx",
    "db": "opentelemetry.instrumentation.sqlalchemy",
    "chain": "shop.pipeline",
}
_CONVERSATIONS = ("session", "conversation", "thread")
"""Words in the names of attributes that identify the conversation of a request."""
_OFFERS = ("definitions", "schema", "parameters", "functions")
"""Words in the names of attributes that contain the offered tools."""
_COMMON_WORDS = (" the ", " is ", " a ")

_Attributes = dict[str, str | int]


def payload_a() -> bytes:
    """Return a request of an application in which agents are a part."""
    chance = random.Random("payload A")
    scopes = {name: ScopeSpans(scope=InstrumentationScope(name=full)) for name, full in _SCOPES.items()}
    for number in range(SPANS // _SPANS_A_TRACE):
        for scope, span in _trace(number, chance):
            scopes[scope].spans.append(span)
    resource = Resource(attributes=_pairs(_resource(), chance))
    resource_spans = ResourceSpans(resource=resource, scope_spans=scopes.values())
    return ExportTraceServiceRequest(resource_spans=[resource_spans]).SerializeToString()


def payload_b(captures: Path = CAPTURES) -> list[bytes]:
    """Return requests of agents of every family: each recorded capture once, filled up with repeats.

    A capture is never split. A repeat has its own trace ids, conversations and times.
    """
    recorded = [request for path in sorted(captures.glob("*.pb.gz")) if (request := _traces(path)) is not None]
    requests = [ExportTraceServiceRequest()]
    room = SPANS
    for position, request in _again_and_again(recorded):
        size = sum(1 for _ in _spans(request))
        if size > room:
            if position >= len(recorded):
                break
            requests.append(ExportTraceServiceRequest())
            room = SPANS
        requests[-1].MergeFrom(request)
        room -= size
    return [request.SerializeToString() for request in requests]


def another(request: bytes, number: int) -> bytes:
    """Return the request with other trace ids, conversations and times; equal numbers give equal bytes."""
    made = ExportTraceServiceRequest.FromString(request)
    _make_another(_spans(made), number)
    return made.SerializeToString()


def cut(request: bytes, spans: int) -> list[bytes]:
    """Return the spans in requests of `spans` spans, in the order in which they ended."""
    whole = ExportTraceServiceRequest.FromString(request)
    placed = [
        (span, resource_spans, scope_spans)
        for resource_spans in whole.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]
    placed.sort(key=lambda place: place[0].end_time_unix_nano)
    return [_together(placed[at : at + spans]) for at in range(0, len(placed), spans)]


def _together(placed: Iterable[tuple[Span, ResourceSpans, ScopeSpans]]) -> bytes:
    """Return a request of these spans with their resources and scopes."""
    request = ExportTraceServiceRequest()
    resources: dict[int, ResourceSpans] = {}
    scopes: dict[int, ScopeSpans] = {}
    for span, resource_spans, scope_spans in placed:
        if (there := resources.get(id(resource_spans))) is None:
            there = resources[id(resource_spans)] = request.resource_spans.add(
                resource=resource_spans.resource, schema_url=resource_spans.schema_url
            )
        if (scope := scopes.get(id(scope_spans))) is None:
            scope = scopes[id(scope_spans)] = there.scope_spans.add(
                scope=scope_spans.scope, schema_url=scope_spans.schema_url
            )
        scope.spans.append(span)
    return request.SerializeToString()


def _trace(number: int, chance: random.Random) -> Iterator[tuple[str, Span]]:
    """Yield the spans of one trace with their scopes: children first, as exporters send them."""
    trace_id = chance.randbytes(16)
    root_id = chance.randbytes(8)
    tools = 6 if number % 3 == 1 else 5  # one span in six
    kinds = ["model"] * _MODEL_CALLS + ["tool"] * tools
    kinds += chance.choices(["http", "db", "chain"], k=_SPANS_A_TRACE - len(kinds) - 1)
    chance.shuffle(kinds)
    began = _START + number * 1000 * _MILLISECOND
    for position, kind in enumerate([*kinds, "root"]):
        name, scope, span_kind, attributes = _work(kind, position, chance)
        is_root = kind == "root"
        start = began if is_root else began + position * 20 * _MILLISECOND
        span = Span(
            trace_id=trace_id,
            span_id=root_id if is_root else chance.randbytes(8),
            parent_span_id=b"" if is_root else root_id,
            flags=0x100,
            name=name,
            kind=span_kind,
            start_time_unix_nano=start,
            end_time_unix_nano=start + (900 if is_root else 15) * _MILLISECOND,
            attributes=_pairs(attributes, chance),
        )
        span.status.SetInParent()
        yield scope, span


def _work(kind: str, position: int, chance: random.Random) -> tuple[str, str, Span.SpanKind.ValueType, _Attributes]:
    """Return the name, scope, kind and attributes of one span."""
    match kind:
        case "root":
            return "invoke_agent concierge", "agent", Span.SPAN_KIND_INTERNAL, _agent(chance)
        case "tool":
            tool = chance.choice(_TOOLS)
            return f"execute_tool {tool}", "agent", Span.SPAN_KIND_INTERNAL, _tool(tool, position, chance)
        case "model":
            return "chat gpt-4o", "agent", Span.SPAN_KIND_CLIENT, _model(chance)
        case "http":
            return "GET /v2/hotels/{hotel_id}/rates", "http", Span.SPAN_KIND_CLIENT, _http(chance)
        case "db":
            return "SELECT shop.bookings", "db", Span.SPAN_KIND_CLIENT, _query(chance)
    return "pipeline.step", "chain", Span.SPAN_KIND_INTERNAL, _step(position, chance)


def _agent(chance: random.Random) -> _Attributes:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "concierge",
        "gen_ai.agent.id": f"agent_{chance.getrandbits(64):016x}",
        "gen_ai.conversation.id": f"conversation_{chance.getrandbits(64):016x}",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.input.messages": _messages(("user", _words(chance, 120))),
        "gen_ai.output.messages": _messages(("assistant", _words(chance, 200))),
        **_common(chance),
    }


def _tool(tool: str, position: int, chance: random.Random) -> _Attributes:
    arguments = {"city": "Paris", "nights": chance.randint(1, 9), "rooms": [1, 2], "note": _words(chance, 60)}
    rooms = [{"hotel": _words(chance, 20), "price": chance.randint(80, 400)} for _ in range(7)]
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": _words(chance, 80),
        "gen_ai.tool.call.id": f"call_{position}_{chance.getrandbits(64):016x}",
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": json.dumps({"rooms": rooms}),
        "gen_ai.agent.name": "concierge",
        **_common(chance),
    }


def _model(chance: random.Random) -> _Attributes:
    """Return a model call that returned text only."""
    asked = _messages(("system", _words(chance, 700)), ("user", _words(chance, 600)))
    answered = _messages(("assistant", _words(chance, _MESSAGES - len(asked) - 90)))
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": f"chatcmpl-{chance.getrandbits(96):024x}",
        "gen_ai.usage.input_tokens": chance.randint(200, 900),
        "gen_ai.usage.output_tokens": chance.randint(20, 300),
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": answered,
        "server.address": "api.openai.com",
        "server.port": 443,
    }


def _http(chance: random.Random) -> _Attributes:
    path = f"/v2/hotels/{chance.getrandbits(32)}/rates"
    query = "&".join(f"{word}={chance.getrandbits(40):010x}" for word in _words(chance, 110).split())
    return {
        "http.request.method": "GET",
        "url.full": f"https://rates.example.com{path}?{query}",
        "url.path": path,
        "server.address": "rates.example.com",
        "server.port": 443,
        "network.protocol.version": "1.1",
        "network.peer.address": f"10.0.{chance.randint(0, 255)}.{chance.randint(0, 255)}",
        "http.response.status_code": 200,
        "http.response.body.size": chance.randint(500, 90_000),
        "user_agent.original": "python-httpx/0.28.1",
        **_common(chance),
    }


def _query(chance: random.Random) -> _Attributes:
    columns = ", ".join(f"bookings.{word}" for word in _words(chance, 140).split())
    return {
        "db.system.name": "postgresql",
        "db.namespace": "shop",
        "db.collection.name": "bookings",
        "db.operation.name": "SELECT",
        "db.query.text": f"SELECT {columns} FROM shop.bookings WHERE bookings.id = %(id_1)s LIMIT %(param_1)s",
        "db.response.returned_rows": chance.randint(0, 50),
        "server.address": "db.internal.example.com",
        "server.port": 5432,
        **_common(chance),
    }


def _step(position: int, chance: random.Random) -> _Attributes:
    return {
        "shop.step.number": position,
        "shop.step.input": json.dumps({"state": _words(chance, 240)}),
        "shop.step.output": json.dumps({"state": _words(chance, 240)}),
        "shop.step.retries": 0,
        **_common(chance),
    }


def _common(chance: random.Random) -> _Attributes:
    """Return the attributes that an application sets on all spans."""
    return {
        "enduser.id": f"user-{chance.getrandbits(48):012x}",
        "code.function.name": "shop.agents.concierge.Concierge.answer",
        "code.file.path": "/srv/shop/releases/current/shop/agents/concierge.py",
        "code.line.number": chance.randint(1, 900),
        "thread.name": "AnyIO worker thread",
    }


def _resource() -> _Attributes:
    return {
        "service.name": "shop",
        "service.version": "4.11.2",
        "service.instance.id": "627cc493-f310-47de-96bd-71410b7dec09",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": "1.45.1",
        "k8s.pod.name": "shop-7c9d5b8f64-x2m5q",
        "host.name": "node-17",
    }


def _messages(*spoken: tuple[str, str]) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in spoken])


def _words(chance: random.Random, length: int) -> str:
    """Return lower-case words with a total of `length` characters."""
    words: list[str] = []
    while sum(map(len, words)) + len(words) <= length:
        words.append("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))))
    return " ".join(words)[:length].rstrip()


def _pairs(attributes: _Attributes, chance: random.Random) -> Iterator[KeyValue]:
    for key in chance.sample(list(attributes), k=len(attributes)):
        value = attributes[key]
        made = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        yield KeyValue(key=key, value=made)


def _traces(path: Path) -> ExportTraceServiceRequest | None:
    """Return a recorded request; `None` if it has another signal, such as logs."""
    try:
        request = ExportTraceServiceRequest.FromString(gzip.decompress(path.read_bytes()))
    except DecodeError:
        return None
    return request if all(len(span.trace_id) == 16 for span in _spans(request)) else None


def _again_and_again(
    recorded: list[ExportTraceServiceRequest],
) -> Iterator[tuple[int, ExportTraceServiceRequest]]:
    """Yield the recorded requests endlessly, each with its position in the sequence."""
    repeat = 0
    while recorded:
        for number, request in enumerate(recorded):
            made = ExportTraceServiceRequest.FromString(request.SerializeToString())
            if repeat:
                _make_another(_spans(made), repeat)
            yield repeat * len(recorded) + number, made
        repeat += 1


def _make_another(spans: Iterable[Span], repeat: int) -> None:
    for span in spans:
        span.trace_id = _fresh(span.trace_id, repeat)
        for link in span.links:
            link.trace_id = _fresh(link.trace_id, repeat)
        span.start_time_unix_nano += repeat * _HOUR
        span.end_time_unix_nano += repeat * _HOUR
        for event in span.events:
            event.time_unix_nano += repeat * _HOUR
        for pair in span.attributes:
            _tell_apart(pair, repeat)


def _tell_apart(pair: KeyValue, repeat: int) -> None:
    """Change the texts, so that caching texts of other requests has no effect; the offered tools stay the same."""
    text = pair.value.string_value
    if not text or any(word in pair.key for word in _OFFERS):
        return
    if any(word in pair.key for word in _CONVERSATIONS):
        text += f"-{repeat}"
    for word in _COMMON_WORDS:
        text = text.replace(word, f"{word}{repeat} ")
    pair.value.string_value = text


def _fresh(trace_id: bytes, repeat: int) -> bytes:
    return hashlib.blake2b(trace_id, digest_size=16, salt=repeat.to_bytes(16, "big")).digest()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans
