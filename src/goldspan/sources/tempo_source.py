"""Grafana Tempo: traces that a TraceQL query finds.

`GET /api/search` returns the first traces that have a part in a time window, without a cursor, so the window is divided
into slices that have fewer traces than the limit. `GET /api/v2/traces/ID` returns a trace as OTLP/JSON, with resources
and scopes; Tempo before 2.7 has `GET /api/traces/ID` (https://grafana.com/docs/tempo/latest/api_docs/).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import ProductRequest
from goldspan.sources.otlp_documents import begins_in, starts_of
from goldspan.sources.time_window import SliceCursor, TimeWindow
from goldspan.sources.trace_source import (
    PageRequest,
    Send,
    TracePage,
    TraceSource,
    object_of,
    objects_of,
    reply_object,
    text_of,
)

DEFAULT_URL = "http://localhost:3200"
DEFAULT_QUERY = "{}"
_SECOND_NS = 10**9
"""Tempo's search takes times in seconds."""
_MAX_TRACES_IN_A_SECOND = 10_000
"""The limit for a slice that cannot be divided. The search returns ids only, and Tempo's own maximum is 262,144."""
_TOO_MANY = "exceeds max limit"
"""The reply to a search with a limit above Tempo's setting `max_result_limit`."""
_TOO_LONG = "range specified by start and end exceeds"
"""The reply to a search of more time than Tempo's setting `max_duration` allows, by default a week."""


class TempoSource(TraceSource):
    """Reads the traces that a query finds.

    Args:
        base_url: The address of Tempo, or of its data source in Grafana Cloud.
        query: The TraceQL query.
        token: A bearer token. With a user name it is the password of basic authentication, as in Grafana Cloud.
        username: The user name.
        tenant: The tenant of a Tempo with several.
    """

    name = "tempo"
    variables = ("TEMPO_URL", "TEMPO_TOKEN", "TEMPO_USERNAME", "TEMPO_TENANT")
    has_cursor = False
    parameters = ("query",)

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        query: str = DEFAULT_QUERY,
        token: str | None = None,
        username: str | None = None,
        tenant: str | None = None,
    ) -> None:
        self.base_url = base_url
        self._query = query
        headers = {"x-scope-orgid": tenant} if tenant else {}
        if token and username:
            headers["authorization"] = f"Basic {base64.b64encode(f'{username}:{token}'.encode()).decode()}"
        elif token:
            headers["authorization"] = f"Bearer {token}"
        self.headers = headers
        self._versions: Sequence[str] = ("v2/", "")
        """The versions of the API that Tempo can have. Only one is left when it has answered."""
        self._has_low_limit = False
        self._outside: set[str] = set()
        """The traces that began before or after the window."""

    @classmethod
    def create(cls, base_url: str | None, parameters: Mapping[str, str], environment: Mapping[str, str]) -> TempoSource:
        """Return the source at an address, with the credentials in the variables."""
        return cls(
            base_url or environment.get("TEMPO_URL") or DEFAULT_URL,
            query=parameters.get("query") or DEFAULT_QUERY,
            token=environment.get("TEMPO_TOKEN"),
            username=environment.get("TEMPO_USERNAME"),
            tenant=environment.get("TEMPO_TENANT"),
        )

    def read_page(self, request: PageRequest, send: Send) -> TracePage:
        """Read the traces of the next slice, or divide it."""
        seconds = _whole_seconds(request.window)
        cursor = SliceCursor.first(seconds) if request.cursor is None else SliceCursor.from_json(request.cursor)
        half = cursor.halved(seconds, _SECOND_NS)
        limit = request.page_size if half or self._has_low_limit else max(request.page_size, _MAX_TRACES_IN_A_SECOND)
        try:
            found = self._search(cursor.slice_of(seconds), limit, send)
        except DeliveryError as error:
            if half and error.kind == "refused" and _TOO_LONG in str(error.reply):
                return TracePage([], [], half.to_json())
            if limit > request.page_size and error.kind == "refused" and _TOO_MANY in str(error.reply):
                self._has_low_limit = True
                return TracePage([], [], cursor.to_json())
            raise
        notices = []
        if len(found) >= limit:
            if half:
                return TracePage([], [], half.to_json())
            notices = [f"Tempo has {len(found)} traces or more in one second, and returned no more of them"]
        documents, trace_ids, parts = [], [], 0
        for trace_id in found:
            if not request.is_new(trace_id) or trace_id in self._outside:
                continue
            document, is_part = self._read_trace(trace_id, send)
            if not begins_in(request.window, starts_of(document)):
                self._outside.add(trace_id)
                continue
            trace_ids.append(trace_id)
            documents += [document] if document else []
            parts += is_part
        if parts:
            notices.append(f"Tempo returned only a part of {parts} traces, which exceed its `max_bytes_per_trace`")
        following = cursor.following(seconds)
        return TracePage(documents, trace_ids, following.to_json() if following else None, notices)

    def _search(self, part: TimeWindow, limit: int, send: Send) -> list[str]:
        """Return the ids of the traces that have a part in a slice."""
        query = {
            "q": self._query,
            "limit": str(limit),
            "spss": "1",
            "start": str(part.start_ns // _SECOND_NS),
            "end": str(part.end_ns // _SECOND_NS),
        }
        reply = reply_object(send(ProductRequest("GET", "/api/search", query=query)), self)
        return [text_of(trace, "traceID", self).zfill(32) for trace in objects_of(reply, "traces", self)]

    def _read_trace(self, trace_id: str, send: Send) -> tuple[dict[str, Any], bool]:
        """Return a trace as an OTLP document, in which Tempo writes ids in base64, and whether it is only a part.

        It is empty if the trace was deleted: version 2 answers with a trace without spans, and version 1 with 404.
        """
        for version in self._versions:
            try:
                reply = reply_object(send(ProductRequest("GET", f"/api/{version}traces/{trace_id}")), self)
            except DeliveryError as error:
                if error.kind != "not_found":
                    raise
            else:
                self._versions = (version,)
                document = object_of(reply, "trace", self) if "trace" in reply else reply
                return document, reply.get("status") in ("PARTIAL", 1)
        return {}, False


def _whole_seconds(window: TimeWindow) -> TimeWindow:
    """Return a window extended to whole seconds, so that a slice can be as short as one second."""
    end_ns = -(-window.end_ns // _SECOND_NS) * _SECOND_NS
    return TimeWindow(window.start_ns // _SECOND_NS * _SECOND_NS, end_ns)
