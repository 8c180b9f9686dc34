"""Opik (Comet): feedback scores of spans and traces.

Opik gives a trace and a span of OTLP a UUIDv7: 48 bits of time, then bits of the SHA-256 of the OTLP id (checked
against `OpenTelemetryMapper` of the backend, and the client `opik` 2.2.122). The time is the same for a trace and its
spans: the earliest start in the first request that had spans of the trace, which only Opik knows. So each trace is
first searched by the end of its id, and its time gives the ids of its spans.

A trace or span has one score for each name. A request with the same name replaces it, also if it comes from another
run of the same span, or of the same trace for runs without a span. A score has a number, so a score that cannot be
evaluated is not sent, and a revision deletes it. Opik keeps no metadata of scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import Product, ProductRequest, Send
from goldspan.integrations.scored_runs import RunScore, ScoredRun

DEFAULT_URL = "https://www.comet.com/opik/api"
DEFAULT_PROJECT = "Default Project"
_MAX_KNOWN_TRACES = 10_000
_TIME_LENGTH = 6
"""The bytes of a UUIDv7 that are its time."""


class Opik(Product):
    """Writes scores as numbers, with the label as their category.

    Args:
        base_url: The address of Opik's API.
        api_key: The API key, which Opik in the cloud requires.
        workspace: The workspace, if it is not the default one.
        project: The name of the project that has the traces.
    """

    name = "opik"
    max_runs = 10
    """Opik accepts 1,000 scores in one request."""
    preview_note = "the traces are searched first, and the time in their ids replaces the first 12 digits of each id"

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        workspace: str | None = None,
        project: str = DEFAULT_PROJECT,
    ) -> None:
        self.base_url = base_url
        self._api_key = api_key
        self._workspace = workspace
        self._project = project
        self._known_traces: dict[str, UUID] = {}

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> Opik:
        """Return the product as Opik's own variables describe it; an explicit address has precedence."""
        url = (base_url or environment.get("OPIK_URL_OVERRIDE") or DEFAULT_URL).rstrip("/")
        api_key = environment.get("OPIK_API_KEY")
        if url == DEFAULT_URL and not api_key:
            raise ConfigurationError("opik needs the variable OPIK_API_KEY for the cloud, or OPIK_URL_OVERRIDE")
        workspace, project = environment.get("OPIK_WORKSPACE"), environment.get("OPIK_PROJECT_NAME")
        return cls(url, api_key=api_key, workspace=workspace, project=project or DEFAULT_PROJECT)

    @property
    def headers(self) -> Mapping[str, str]:
        """The API key and the workspace, if there are any."""
        headers = {"authorization": self._api_key, "comet-workspace": self._workspace}
        return {name: value for name, value in headers.items() if value}

    @property
    def destination(self) -> str:
        """The address, the workspace and the project."""
        return f"{self.base_url} {self._workspace or ''} {self._project}"

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return the searches of the traces, then the other requests, with the time 0 in Opik's ids."""
        trace_ids = dict.fromkeys(run.trace_id for run in runs)
        yield from map(self._search, trace_ids)
        without_time = bytes(_TIME_LENGTH)
        yield from self._changes(runs, {trace_id: _uuid7(without_time, trace_id) for trace_id in trace_ids})

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Search the traces, then write the scores of spans, those of traces, and delete what became unknown."""
        trace_ids = dict.fromkeys(run.trace_id for run in runs)
        traces = {trace_id: self._find_trace(trace_id, send) for trace_id in trace_ids}
        unknown = [run for run in runs if traces[run.trace_id] is None]
        for request in self._changes(runs, traces):
            send(request)
        if unknown:
            text = f"{self.name} has no trace {unknown[0].trace_id} in the project {self._project}"
            raise DeliveryError("not_found", text, unknown_run_ids={run.run_id for run in unknown})
        return {}

    def _changes(self, runs: Sequence[ScoredRun], traces: Mapping[str, UUID | None]) -> Iterable[ProductRequest]:
        """Return the requests for the runs whose trace is known."""
        scores: dict[str, list[dict[str, Any]]] = {"spans": [], "traces": []}
        deletions = []
        for run in runs:
            trace = traces[run.trace_id]
            if trace is None:
                continue
            kind, target = ("traces", trace) if run.span_id is None else ("spans", _uuid7(trace.bytes, run.span_id))
            for score in run.scores:
                if score.value is not None:
                    scores[kind].append(self._score(target, score))
                elif run.revision > 1:
                    path = f"/v1/private/{kind}/{target}/feedback-scores/delete"
                    deletions.append(ProductRequest("POST", path, {"name": score.name}, absent_is_success=True))
        for kind, of_kind in scores.items():
            if of_kind:
                yield ProductRequest("PUT", f"/v1/private/{kind}/feedback-scores", {"scores": of_kind})
        yield from deletions

    def _find_trace(self, trace_id: str, send: Send) -> UUID | None:
        """Return Opik's id of a trace; `None` if it does not know the trace."""
        known = self._known_traces.get(trace_id)
        if known is not None:
            return known
        found = _found_id(send(self._search(trace_id)).body, trace_id)
        if found is not None:
            if len(self._known_traces) >= _MAX_KNOWN_TRACES:
                self._known_traces.clear()
            self._known_traces[trace_id] = found
        return found

    def _search(self, trace_id: str) -> ProductRequest:
        end = str(_uuid7(bytes(_TIME_LENGTH), trace_id))[14:]  # after the time
        filters = json.dumps([{"field": "id", "operator": "ends_with", "value": end}])
        query = {"project_name": self._project, "filters": filters, "size": "1", "truncate": "true"}
        return ProductRequest("GET", "/v1/private/traces", query=query)

    def _score(self, target: UUID, score: RunScore) -> dict[str, Any]:
        optional = {"category_name": score.label, "reason": score.comment}
        return {
            "id": str(target),
            "project_name": self._project,
            "name": score.name,
            "value": score.value,
            "source": "sdk",
            **{name: value for name, value in optional.items() if value is not None},
        }


def _uuid7(time: bytes, otlp_id: str) -> UUID:
    """Return Opik's id for a trace or span, with the time of another UUIDv7."""
    digest = hashlib.sha256(bytes.fromhex(otlp_id)).digest()
    value = bytearray(time[:_TIME_LENGTH] + digest[: 16 - _TIME_LENGTH])
    value[6] = value[6] & 0x0F | 0x70  # the version
    value[8] = value[8] & 0x3F | 0x80  # the variant
    return UUID(bytes=bytes(value))


def _found_id(page: Any, trace_id: str) -> UUID | None:
    """Return the id of the trace in a page of traces, if it is the one of that OTLP id."""
    content = page.get("content") if isinstance(page, Mapping) else None
    for trace in content if isinstance(content, list) else ():
        try:
            found = UUID(trace["id"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        if found == _uuid7(found.bytes, trace_id):
            return found
    return None
