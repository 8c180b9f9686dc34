"""Jaeger: traces of its services.

`GET /api/v3/traces` returns complete traces as OTLP/JSON, with resources and scopes, and `GET /api/traces` of earlier
versions returns them in Jaeger's own JSON. Both return the first traces of a time window, without a cursor, and only of
one service, so the window is divided into slices that have fewer traces than the limit, for one service after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import ProductRequest
from goldspan.otlp.jaeger_json import MISSING_SERVICE_NAMES
from goldspan.sources.otlp_documents import begins_in, starts_of
from goldspan.sources.time_window import SliceCursor, TimeWindow, rfc3339
from goldspan.sources.trace_source import (
    JsonObject,
    PageRequest,
    Send,
    TracePage,
    TraceSource,
    object_of,
    objects_of,
    raise_not_the_api,
    reply_object,
    text_of,
)

DEFAULT_URL = "http://localhost:16686"
_MICROSECOND_NS = 1000
_OWN_SERVICES = ("jaeger", "jaeger-query", "jaeger-all-in-one", "jaeger-collector")
"""The services of Jaeger itself, which records traces of its own API."""


class JaegerSource(TraceSource):
    """Reads the traces of one service, or of all.

    Args:
        base_url: The address of Jaeger's query API.
        service: The service; `None` for all except Jaeger itself.
        token: A bearer token.
    """

    name = "jaeger"
    variables = ("JAEGER_URL", "JAEGER_TOKEN")
    has_cursor = False
    parameters = ("service",)

    def __init__(self, base_url: str = DEFAULT_URL, *, service: str | None = None, token: str | None = None) -> None:
        self.base_url = base_url
        self.headers = {"authorization": f"Bearer {token}"} if token else {}
        self._service = service
        self._has_v3 = True
        self._services: list[str] | None = None

    @classmethod
    def create(
        cls, base_url: str | None, parameters: Mapping[str, str], environment: Mapping[str, str]
    ) -> JaegerSource:
        """Return the source at an address, with the token in the variable."""
        url = base_url or environment.get("JAEGER_URL") or DEFAULT_URL
        return cls(url, service=parameters.get("service"), token=environment.get("JAEGER_TOKEN"))

    def read_page(self, request: PageRequest, send: Send) -> TracePage:
        """Read the traces of a service in the next slice, or divide it."""
        if self._services is None:
            self._services = self._read_services(send)
        if request.cursor is None:
            services = [self._service] if self._service else self._services
            cursor = SliceCursor.first(request.window)
        else:
            services, cursor = request.cursor["services"], SliceCursor.from_json(request.cursor["slice"])
        if not services:
            return TracePage([], [], None)
        traces = self._search(services[0], cursor.slice_of(request.window), request.page_size, send)
        notices = []
        if len(traces) >= request.page_size:
            if half := cursor.halved(request.window, _MICROSECOND_NS):
                return TracePage([], [], {"services": services, "slice": half.to_json()})
            notices = [f"Jaeger has {len(traces)} traces or more in one microsecond, and returned no more of them"]
        # A trace with a span in the slice can have begun before the window.
        new = {
            trace_id: document
            for trace_id, document in traces.items()
            if request.is_new(trace_id) and begins_in(request.window, _starts_of(document), unit_ns=_MICROSECOND_NS)
        }
        following = cursor.following(request.window)
        if following is None:
            services, following = services[1:], SliceCursor.first(request.window)
        next_cursor = {"services": services, "slice": following.to_json()} if services else None
        return TracePage(list(new.values()), list(new), next_cursor, notices)

    def _read_services(self, send: Send) -> list[str]:
        """Return the services, and note which version of the API Jaeger has."""
        services: Any = None
        try:
            reply = send(ProductRequest("GET", "/api/v3/services")).body
        except DeliveryError as error:
            if error.kind != "not_found":
                raise
            reply = None
        # Jaeger answers a path that it does not know with the page of its user interface.
        self._has_v3 = isinstance(reply, dict) and "services" in reply
        if self._has_v3:
            services = reply["services"]
        else:
            services = reply_object(send(ProductRequest("GET", "/api/services")), self).get("data")
        if not isinstance(services or [], list):
            raise_not_the_api(self)
        return sorted(str(service) for service in services or () if service not in _OWN_SERVICES)

    def _search(self, service: str, part: TimeWindow, limit: int, send: Send) -> dict[str, JsonObject]:
        """Return the traces that have a span of a service in a slice as documents, by their ids."""
        # The end is inclusive. Where a time is more precise than a microsecond, it must not be between two slices.
        end_us = -(-part.end_ns // _MICROSECOND_NS)
        if self._has_v3:
            return self._search_v3(service, TimeWindow(part.start_ns, end_us * _MICROSECOND_NS), limit, send)
        query = {
            "service": service,
            "start": str(part.start_ns // _MICROSECOND_NS),
            "end": str(end_us),
            "limit": str(limit),
            "raw": "true",
        }
        reply = reply_object(send(ProductRequest("GET", "/api/traces", query=query)), self)
        traces = objects_of(reply, "data", self)
        return {text_of(trace, "traceID", self).zfill(32): {"data": [trace]} for trace in traces}

    def _search_v3(self, service: str, part: TimeWindow, limit: int, send: Send) -> dict[str, JsonObject]:
        query = {
            "query.service_name": service,
            "query.start_time_min": rfc3339(part.start_ns),
            "query.start_time_max": rfc3339(part.end_ns),
            # The limit has two names: every version knows the first, and a later one can know the second only.
            "query.num_traces": str(limit),
            "query.search_depth": str(limit),
            # Jaeger would correct the times of spans whose clocks seem to differ.
            "query.raw_traces": "true",
        }
        try:
            reply = reply_object(send(ProductRequest("GET", "/api/v3/traces", query=query)), self)
        except DeliveryError as error:
            if error.kind == "not_found":  # no trace was found
                return {}
            raise
        result = object_of(reply, "result", self) if "result" in reply else reply
        traces: dict[str, list[dict[str, Any]]] = {}
        for resource_spans in objects_of(result, "resourceSpans", self):
            for trace_id, part_of_trace in _split_by_trace(resource_spans, self).items():
                traces.setdefault(trace_id, []).append(part_of_trace)
        return {trace_id: {"resourceSpans": parts} for trace_id, parts in traces.items()}


def _split_by_trace(resource_spans: JsonObject, source: TraceSource) -> dict[str, dict[str, Any]]:
    """Return the spans of a resource separately for each trace."""
    traces: dict[str, dict[str, Any]] = {}
    resource = object_of(resource_spans, "resource", source)
    attributes = [each for each in objects_of(resource, "attributes", source) if not _is_missing_service(each)]
    resource_spans = {**resource_spans, "resource": {**resource, "attributes": attributes}}
    for scope_spans in objects_of(resource_spans, "scopeSpans", source):
        spans: dict[str, list[JsonObject]] = {}
        for span in objects_of(scope_spans, "spans", source):
            spans.setdefault(text_of(span, "traceId", source), []).append(span)
        for trace_id, spans_of_trace in spans.items():
            part = traces.setdefault(trace_id, {**resource_spans, "scopeSpans": []})
            part["scopeSpans"].append({**scope_spans, "spans": spans_of_trace})
    return traces


def _is_missing_service(attribute: JsonObject) -> bool:
    """Return whether an attribute is the name that Jaeger writes for a resource without a service."""
    value = attribute.get("value")
    name = value.get("stringValue") if isinstance(value, Mapping) else None
    return attribute.get("key") == "service.name" and name in MISSING_SERVICE_NAMES


def _starts_of(document: JsonObject) -> Iterator[int]:
    """Yield when each span began, of a document in OTLP or in Jaeger's own JSON."""
    if "data" not in document:
        return starts_of(document)
    return (int(span.get("startTime") or 0) * _MICROSECOND_NS for trace in document["data"] for span in trace["spans"])
