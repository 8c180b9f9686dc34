"""Langfuse: traces of a project.

`GET /api/public/v2/observations` returns observations with a cursor (checked against the client `langfuse` 5.0.4):
first those that began in the window, then all observations of each of their traces. Root observations would not be
enough: a trace whose root went to another tool has none. A Langfuse without version 2 has `GET /api/public/traces` and
`GET /api/public/traces/ID`.

An observation is a span. Langfuse keeps the attributes of OTLP in the metadata `attributes`, `resourceAttributes` and
`scope`, except those that it reads as input and output, and writes every value as text. Version 2 returns one key for
each attribute, such as `attributes.gen_ai.tool.name`, and values that are JSON. What Langfuse read goes back to the
attributes from which the span's convention shows that it was read, else to `langfuse.observation.*`, with which
Langfuse's own clients export it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.langfuse import Langfuse
from goldspan.integrations.product import ProductRequest
from goldspan.sources.otlp_documents import attribute_list, begins_in, request_document, starts_of
from goldspan.sources.time_window import nanoseconds, rfc3339
from goldspan.sources.trace_source import (
    JsonObject,
    PageRequest,
    Send,
    TracePage,
    TraceSource,
    object_of,
    objects_of,
    reply_object,
    text_of,
)

_OBSERVATIONS_PATH = "/api/public/v2/observations"
_TRACES_PATH = "/api/public/traces"
_FIELDS = "core,basic,io,metadata,model"
_METADATA_KEYS = "attributes,resourceAttributes,scope"
"""Without keys, Langfuse shortens the values to 200 characters; with any, current versions return all complete."""
_EARLY_MESSAGES = ("gen_ai.prompt", "gen_ai.completion")
"""LangSmith writes a text. Other conventions write one attribute for each part, such as `gen_ai.prompt.0.role`."""
_INPUT_AND_OUTPUT: Sequence[tuple[frozenset[str], tuple[str, str]]] = (
    (
        frozenset({"gcp.vertex.agent.event_id", "gen_ai.tool.name"}),
        ("gcp.vertex.agent.tool_call_args", "gcp.vertex.agent.tool_response"),
    ),
    (
        frozenset({"gcp.vertex.agent.event_id"}),
        ("gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"),
    ),
    (frozenset({"traceloop.span.kind"}), ("traceloop.entity.input", "traceloop.entity.output")),
    (frozenset({"mlflow.spanType"}), ("mlflow.spanInputs", "mlflow.spanOutputs")),
    (frozenset({"openinference.span.kind"}), ("input.value", "output.value")),
    (frozenset({"langsmith.span.kind"}), _EARLY_MESSAGES),
    (frozenset({"gen_ai.tool.name"}), ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")),
    (frozenset({"gen_ai.operation.name"}), ("gen_ai.input.messages", "gen_ai.output.messages")),
    (frozenset({"gen_ai.system"}), _EARLY_MESSAGES),
)
"""Attributes that Langfuse keeps, and the two of the same convention that it reads as input and output."""
_SESSION_NAMES = ("session.id", "langfuse.session.id", "gen_ai.conversation.id")
_USER_NAMES = ("user.id", "langfuse.user.id")
"""The attributes in which Langfuse finds the session and the user."""
_MILLISECOND_NS = 1_000_000
"""Langfuse keeps times in milliseconds."""
_MAX_OBSERVATIONS = 500
_MAX_TRACES = 100
"""The most traces that `GET /api/public/traces` returns at once."""


class LangfuseSource(TraceSource):
    """Reads the traces of the project to which the keys belong.

    Args:
        product: The address and the keys.
    """

    name = "langfuse"
    variables = ("LANGFUSE_BASE_URL", "LANGFUSE_HOST", "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")

    def __init__(self, product: Langfuse) -> None:
        self.base_url, self.headers = product.base_url, product.headers
        self._has_v2 = True
        self._outside: set[str] = set()
        """The traces that have observations in the window, but began before it."""

    @classmethod
    def create(
        cls, base_url: str | None, parameters: Mapping[str, str], environment: Mapping[str, str]
    ) -> LangfuseSource:
        """Return the source as Langfuse's own variables describe it; the URL has precedence."""
        return cls(Langfuse.from_environment(base_url, environment))

    def read_page(self, request: PageRequest, send: Send) -> TracePage:
        """Read the next traces, the latest first."""
        if self._has_v2 and not isinstance(request.cursor, int):
            try:
                return self._read_v2_page(request, send)
            except DeliveryError as error:
                # If its operator did not enable version 2, Langfuse answers 404 or 501 with a text.
                is_missing = error.kind == "not_found" or (error.kind == "refused" and "v2 API" in str(error.reply))
                if not is_missing or request.cursor is not None:
                    raise
                self._has_v2 = False
        return self._read_v1_page(request, send)

    def _read_v2_page(self, request: PageRequest, send: Send) -> TracePage:
        query = {
            "fields": "core",
            "fromStartTime": rfc3339(request.window.start_ns // _MILLISECOND_NS * _MILLISECOND_NS),
            "toStartTime": rfc3339(request.window.end_ns),
            "limit": str(request.page_size),
        }
        observations, cursor = self._observations(query, request.cursor, send)
        found = dict.fromkeys(text_of(each, "traceId", self) for each in observations if each.get("traceId"))
        documents, trace_ids = [], []
        for trace_id in found:
            if not request.is_new(trace_id) or trace_id in self._outside:
                continue
            document = _document(list(self._observations_of(trace_id, send)))
            if begins_in(request.window, starts_of(document), unit_ns=_MILLISECOND_NS):
                documents.append(document)
                trace_ids.append(trace_id)
            else:
                self._outside.add(trace_id)
        return TracePage(documents, trace_ids, cursor)

    def _observations_of(self, trace_id: str, send: Send) -> Iterator[dict[str, Any]]:
        query = {
            "traceId": trace_id,
            "fields": _FIELDS,
            "expandMetadata": _METADATA_KEYS,
            "limit": str(_MAX_OBSERVATIONS),
        }
        cursor = None
        while True:
            observations, cursor = self._observations(query, cursor, send)
            yield from observations
            if cursor is None:
                return

    def _observations(
        self, query: Mapping[str, str], cursor: str | None, send: Send
    ) -> tuple[list[dict[str, Any]], str | None]:
        if cursor is not None:
            query = {**query, "cursor": cursor}
        reply = reply_object(send(ProductRequest("GET", _OBSERVATIONS_PATH, query=query)), self)
        return objects_of(reply, "data", self), object_of(reply, "meta", self).get("cursor") or None

    def _read_v1_page(self, request: PageRequest, send: Send) -> TracePage:
        number = 1 if request.cursor is None else request.cursor
        size = min(request.page_size, _MAX_TRACES)
        query = {
            "fromTimestamp": rfc3339(request.window.start_ns // _MILLISECOND_NS * _MILLISECOND_NS),
            "toTimestamp": rfc3339(request.window.end_ns),
            "orderBy": "timestamp.desc",
            "fields": "core",
            "page": str(number),
            "limit": str(size),
        }
        reply = reply_object(send(ProductRequest("GET", _TRACES_PATH, query=query)), self)
        traces = objects_of(reply, "data", self)
        trace_ids = [text_of(trace, "id", self) for trace in traces]
        read = [self._read_v1_trace(trace_id, send) for trace_id in trace_ids if request.is_new(trace_id)]
        documents = [document for document in read if document is not None]
        return TracePage(documents, trace_ids, number + 1 if len(traces) == size else None)

    def _read_v1_trace(self, trace_id: str, send: Send) -> dict[str, Any] | None:
        """Return a trace; `None` if it was deleted."""
        path = f"{_TRACES_PATH}/{quote(trace_id, safe='')}"
        try:
            trace = reply_object(send(ProductRequest("GET", path)), self)
        except DeliveryError as error:
            if error.kind == "not_found":
                return None
            raise
        observations = objects_of(trace, "observations", self)
        inherited = {"sessionId": trace.get("sessionId"), "userId": trace.get("userId"), "traceId": trace_id}
        return _document([{**inherited, **observation} for observation in observations])


def _document(observations: Sequence[JsonObject]) -> dict[str, Any]:
    """Return observations as one OTLP document, each with its own resource and scope."""
    resource_spans = []
    # Langfuse returns the latest first. Times are in milliseconds, so the order tells which of two is earlier.
    for observation in reversed(observations):
        metadata = _parsed(observation.get("metadata"))
        metadata = metadata if isinstance(metadata, dict) else {}
        resource = {key: _restored(value) for key, value in _section(metadata, "resourceAttributes").items()}
        scope = _section(metadata, "scope").get("name")
        span = _span(observation, _section(metadata, "attributes"))
        resource_spans += request_document([span], resource, scope if isinstance(scope, str) else None)["resourceSpans"]
    return {"resourceSpans": resource_spans}


def _section(metadata: JsonObject, name: str) -> dict[str, Any]:
    """Return a part of the metadata, which is a mapping, its JSON text, or one key for each of its members."""
    members = _parsed(metadata.get(name))
    prefix = f"{name}."
    below = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    return {**members, **below} if isinstance(members, dict) else below


def _span(observation: JsonObject, own: Mapping[str, Any]) -> dict[str, Any]:
    is_error = observation.get("level") == "ERROR"
    names = next((names for markers, names in _INPUT_AND_OUTPUT if markers <= own.keys()), None)
    input_name, output_name = names or ("langfuse.observation.input", "langfuse.observation.output")
    attributes = {
        **({} if names else _exported(observation)),
        **_content(input_name, observation.get("input")),
        **_content(output_name, observation.get("output")),
        **{key: _restored(value) for key, value in own.items()},
        **_owners(observation, own),
    }
    span: dict[str, Any] = {
        "traceId": observation.get("traceId"),
        "spanId": observation.get("id"),
        "name": observation.get("name") or "",
        "attributes": attribute_list(attributes),
        "status": {"code": 2, "message": observation.get("statusMessage") or ""} if is_error else {},
    }
    if observation.get("parentObservationId"):
        span["parentSpanId"] = observation["parentObservationId"]
    for field, time in (("startTimeUnixNano", "startTime"), ("endTimeUnixNano", "endTime")):
        if observation.get(time):
            span[field] = str(nanoseconds(observation[time]))
    return span


def _exported(observation: JsonObject) -> dict[str, Any]:
    """Return the attributes with which Langfuse's own clients export an observation, without input and output."""
    return {
        "langfuse.observation.type": _lower(observation.get("type")),
        "langfuse.observation.level": observation.get("level"),
        "langfuse.observation.status_message": observation.get("statusMessage"),
        "langfuse.observation.model.name": observation.get("providedModelName") or observation.get("model"),
    }


def _content(name: str, value: Any) -> dict[str, Any]:
    """Return the attributes with the input or the output."""
    messages = _parsed(value) if name in _EARLY_MESSAGES else None
    return dict(_parts(name, messages)) if isinstance(messages, list) else {name: _text(value)}


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if members is None:
        yield name, value
        return
    for key, member in members:
        yield from _parts(f"{name}.{key}", member)


def _owners(observation: JsonObject, own: Mapping[str, Any]) -> dict[str, str]:
    """Return the session and the user as text: in the metadata they are numbers if they consist of digits."""
    owners: dict[str, str] = {}
    for names, value in ((_SESSION_NAMES, observation.get("sessionId")), (_USER_NAMES, observation.get("userId"))):
        present = [name for name in names if own.get(name) is not None]
        owners |= {name: str(own[name]) for name in present}
        if value and not own:
            owners[names[0]] = str(value)
    return owners


def _restored(value: Any) -> Any:
    """Return an attribute as instrumentations write it: a boolean or a list of texts as such, other JSON as text."""
    parsed = _parsed(value) if isinstance(value, str) and (value[:1] == "[" or value in ("true", "false")) else value
    if isinstance(parsed, dict) or (isinstance(parsed, list) and not all(isinstance(item, str) for item in parsed)):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return parsed


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _lower(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _text(value: Any) -> str | None:
    """Return input or output as the text that clients export."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
