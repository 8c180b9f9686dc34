"""Servers with the trace APIs of Grafana Tempo, Jaeger and Langfuse, over traces of files or of the test.

Each server is a function of a request for `product_server`. It has the limits, the time windows and the notation of its
tool: Tempo writes ids in base64 and knows seconds, Jaeger finds the traces of one service, and Langfuse keeps
attributes as text. Parameters that the tool does not know are an error of the test.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan.sources.otlp_documents import plain_value
from goldspan.sources.time_window import TimeWindow
from support.model_endpoint import Whole, raw
from support.product_server import Request, accepted

FIXTURES = Path(__file__).parent.parent / "fixtures"
HTML = raw(b"<!doctype html><html>sign in</html>", 200, {"content-type": "text/html"})
_SECOND = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class StoredTrace:
    """A trace: its parts of OTLP/JSON, each with a resource and its spans."""

    trace_id: str
    resource_spans: list[dict[str, Any]]

    def spans(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """Yield each span with its scope and its resource attributes."""
        for part in self.resource_spans:
            resource = _attributes(part.get("resource", {}))
            for scope_spans in part["scopeSpans"]:
                for span in scope_spans["spans"]:
                    yield span, scope_spans.get("scope", {}), resource

    @property
    def starts_ns(self) -> list[int]:
        """The time when each span began."""
        return [int(span["startTimeUnixNano"]) for span, _, _ in self.spans()]

    @property
    def start_ns(self) -> int:
        """The time when the trace began."""
        return min(self.starts_ns)

    @property
    def end_ns(self) -> int:
        """The time when the trace ended."""
        return max(int(span["endTimeUnixNano"]) for span, _, _ in self.spans())

    @property
    def services(self) -> set[str]:
        """The services that have spans in the trace."""
        return {resource.get("service.name", "missing-service-name") for _, _, resource in self.spans()}

    def starts_in(self, service: str, first_ns: int, last_ns: int) -> bool:
        """Whether a span of a service began between two times, both inclusive."""
        return any(
            resource.get("service.name", "missing-service-name") == service
            and first_ns <= int(span["startTimeUnixNano"]) <= last_ns
            for span, _, resource in self.spans()
        )


def traces_of(*paths: Path) -> list[StoredTrace]:
    """Read the traces of recorded files."""
    traces: dict[str, StoredTrace] = {}
    for path in paths:
        message = ExportTraceServiceRequest.FromString(gzip.decompress(path.read_bytes()))
        for part in MessageToDict(message, use_integers_for_enums=True)["resourceSpans"]:
            for scope_spans in part["scopeSpans"]:
                for span in scope_spans["spans"]:
                    for field in ("traceId", "spanId", "parentSpanId"):
                        if field in span:
                            span[field] = base64.b64decode(span[field]).hex()
                    trace = traces.setdefault(span["traceId"], StoredTrace(span["traceId"], []))
                    trace.resource_spans.append(
                        {**part, "scopeSpans": [{**scope_spans, "spans": [span]}]},
                    )
    return list(traces.values())


def tool_trace(
    number: int, start_ns: int, *, services: Sequence[str] = ("travel",), length_ns: int = 1_000_000
) -> StoredTrace:
    """Return a trace in which an agent calls the tool `search` with its number; each service has a call."""
    trace_id = f"{number + 1:032x}"
    agent = _span(trace_id, 1, None, start_ns, length_ns, {"operation.name": "invoke_agent", "agent.name": "planner"})
    parts = [_part(services[0], agent)]
    for place, service in enumerate(services, 2):
        call = {
            "operation.name": "execute_tool",
            "tool.name": "search",
            "tool.call.arguments": f'{{"number": {number}}}',
        }
        parts.append(_part(service, _span(trace_id, place, 1, start_ns + place * 1000, length_ns // 2, call)))
    return StoredTrace(trace_id, parts)


def window_of(traces: Iterable[StoredTrace]) -> TimeWindow:
    """Return the shortest window in which all traces began."""
    starts = [trace.start_ns for trace in traces]
    return TimeWindow(min(starts), max(starts) + 1)


class TempoApi:
    """Grafana Tempo.

    Args:
        traces: The traces.
        has_v2: Whether it has `GET /api/v2/traces/ID`, which Tempo has since version 2.7.
        max_limit: The setting `max_result_limit`.
        max_duration: The setting `max_duration`, in seconds.
    """

    def __init__(
        self,
        traces: Iterable[StoredTrace],
        *,
        has_v2: bool = True,
        max_limit: int = 262_144,
        max_duration: int = 7 * 24 * 3600,
    ) -> None:
        self.traces = list(traces)
        self.has_v2 = has_v2
        self.max_limit = max_limit
        self.max_duration = max_duration
        self.deleted: set[str] = set()
        """Traces that the search finds, but that cannot be read any more."""
        self.partial: set[str] = set()
        """Traces of which Tempo returns a part, because they are too large."""

    def __call__(self, request: Request) -> Whole:
        if request.path == "/api/search":
            return self._search(request.query)
        version, _, trace_id = request.path.removeprefix("/api/").rpartition("traces/")
        if version not in ("", "v2/") or (version == "v2/" and not self.has_v2):
            return raw(b"404 page not found", 404)
        trace = next((each for each in self.traces if each.trace_id == trace_id), None)
        parts = [_with_base64(part) for part in trace.resource_spans] if trace and trace_id not in self.deleted else []
        if not version:
            return accepted({"batches": parts}) if parts else raw(b"", 404)
        if trace_id in self.partial:
            return accepted({"trace": {"resourceSpans": parts}, "metrics": {}, "status": "PARTIAL", "message": "Trace"})
        return accepted({"trace": {"resourceSpans": parts} if parts else {}, "metrics": {"inspectedBytes": "9"}})

    def _search(self, query: Mapping[str, str]) -> Whole:
        assert set(query) <= {"q", "tags", "minDuration", "maxDuration", "limit", "start", "end", "spss"}, query
        start, end, limit = int(query["start"]), int(query["end"]), int(query["limit"])
        if limit > self.max_limit:
            return raw(f"limit {limit} exceeds max limit {self.max_limit}".encode(), 400)
        if end - start > self.max_duration:
            text = f"range specified by start and end exceeds {self.max_duration}s. received start={start} end={end}"
            return raw(text.encode(), 400)
        if query["q"] != "{}":
            return raw(b"invalid TraceQL query: parse error at line 1", 400)
        found = [each for each in self.traces if each.start_ns <= end * _SECOND and each.end_ns >= start * _SECOND]
        traces = [
            {
                "traceID": each.trace_id.lstrip("0"),
                "rootServiceName": min(each.services),
                "startTimeUnixNano": str(each.start_ns),
                "durationMs": (each.end_ns - each.start_ns) // 1_000_000,
            }
            for each in found[:limit]
        ]
        return accepted({"traces": traces, "metrics": {"completedJobs": 1, "totalJobs": 1}})


class JaegerApi:
    """Jaeger's query service.

    Args:
        traces: The traces.
        has_v3: Whether it has the paths below `/api/v3`. Jaeger answers a path that it does not know with a page.
    """

    def __init__(self, traces: Iterable[StoredTrace], *, has_v3: bool = True) -> None:
        self.traces = list(traces)
        self.has_v3 = has_v3

    def __call__(self, request: Request) -> Whole:
        services = sorted(set().union(*(trace.services for trace in self.traces)) | {"jaeger"})
        if request.path == "/api/services":
            return accepted({"data": services, "total": len(services), "limit": 0, "offset": 0, "errors": None})
        if request.path == "/api/traces":
            return self._find(request.query)
        if not self.has_v3 or not request.path.startswith("/api/v3/"):
            return HTML
        if request.path == "/api/v3/services":
            return accepted({"services": services})
        return self._find_v3(request.query)

    def _find_v3(self, query: Mapping[str, str]) -> Whole:
        """Find traces as version 1.76 does, which ignores `query.search_depth`; later versions have this name too."""
        names = {"service_name", "operation_name", "start_time_min", "start_time_max", "num_traces", "search_depth"}
        assert set(query) <= {f"query.{name}" for name in (*names, "raw_traces")}, query
        first, last = (_nanoseconds(query[f"query.start_time_{edge}"]) for edge in ("min", "max"))
        found = self._newest(query["query.service_name"], first, last, int(query["query.num_traces"]))
        if not found:
            return raw(json.dumps({"error": {"httpCode": 404, "message": "No traces found"}}).encode(), 404)
        parts = [_with_service(part) for trace in found for part in trace.resource_spans]
        return accepted({"result": {"resourceSpans": parts}})

    def _find(self, query: Mapping[str, str]) -> Whole:
        assert set(query) <= {"service", "operation", "start", "end", "limit", "raw", "lookback"}, query
        first, last = int(query["start"]) * 1000, int(query["end"]) * 1000
        found = self._newest(query["service"], first, last, int(query["limit"]))
        return accepted({"data": [_jaeger_json(trace) for trace in found], "total": 0, "limit": 0, "errors": None})

    def _newest(self, service: str, first_ns: int, last_ns: int, limit: int) -> list[StoredTrace]:
        found = [trace for trace in self.traces if trace.starts_in(service, first_ns, last_ns)]
        return sorted(found, key=lambda trace: trace.start_ns)[-limit:]


class LangfuseApi:
    """Langfuse, with the attributes that it keeps of OTLP.

    Args:
        traces: The traces.
        has_v2: Whether it has `GET /api/public/v2/observations`.
    """

    def __init__(self, traces: Iterable[StoredTrace], *, has_v2: bool = True) -> None:
        self.traces = list(traces)
        self.has_v2 = has_v2
        rows = [_observation(*parts) for trace in self.traces for parts in trace.spans()]
        self.observations = sorted(rows, key=lambda row: (row["startTime"], row["traceId"], row["id"]), reverse=True)

    def __call__(self, request: Request) -> Whole:
        if request.path == "/api/public/v2/observations":
            if not self.has_v2:
                message = "The observations v2 API is only available in a Langfuse v4 write mode."
                return raw(json.dumps({"message": message, "error": "LangfuseNotFoundError"}).encode(), 404)
            return self._find_observations(request.query)
        if request.path == "/api/public/traces":
            return self._find_traces(request.query)
        trace_id = request.path.removeprefix("/api/public/traces/")
        rows = [row for row in self.observations if row["traceId"] == trace_id]
        if not rows:
            return raw(json.dumps({"message": "Trace not found", "error": "LangfuseNotFoundError"}).encode(), 404)
        return accepted({**self._trace(rows), "observations": list(map(_v1_observation, rows)), "scores": []})

    def _find_observations(self, query: Mapping[str, str]) -> Whole:
        names = {"fields", "expandMetadata", "limit", "cursor", "traceId", "fromStartTime", "toStartTime"}
        assert set(query) <= names, query
        limit = int(query["limit"])
        assert limit <= 1000
        rows = [row for row in self.observations if _is_wanted(row, query)]
        if "cursor" in query:
            last = tuple(json.loads(base64.b64decode(query["cursor"])))
            rows = [row for row in rows if (row["startTime"], row["traceId"], row["id"]) < last]
        page, rest = rows[:limit], rows[limit:]
        meta = {}
        if rest:
            last = [page[-1][name] for name in ("startTime", "traceId", "id")]
            meta["cursor"] = base64.b64encode(json.dumps(last).encode()).decode()
        return accepted({"data": [_v2_observation(row, query) for row in page], "meta": meta})

    def _find_traces(self, query: Mapping[str, str]) -> Whole:
        names = {"page", "limit", "fromTimestamp", "toTimestamp", "orderBy", "fields"}
        assert set(query) <= names, query
        assert query["orderBy"] == "timestamp.desc"
        rows_of: dict[str, list[dict[str, Any]]] = {}
        for row in self.observations:
            rows_of.setdefault(row["traceId"], []).append(row)
        found = [self._trace(rows) for rows in rows_of.values()]
        first, last = (_nanoseconds(query[name]) for name in ("fromTimestamp", "toTimestamp"))
        found = [trace for trace in found if first <= _nanoseconds(trace["timestamp"]) < last]
        found.sort(key=lambda trace: trace["timestamp"], reverse=True)
        page, limit = int(query["page"]), int(query["limit"])
        assert limit <= 100
        meta = {"page": page, "limit": limit, "totalItems": len(found), "totalPages": -(-len(found) // limit)}
        return accepted({"data": found[(page - 1) * limit : page * limit], "meta": meta})

    def _trace(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        owners = {name: next((row[name] for row in rows if row[name]), None) for name in ("sessionId", "userId")}
        first = min(row["startTime"] for row in rows)
        return {"id": rows[0]["traceId"], "timestamp": first, "projectId": "project", "tags": [], **owners}


_INPUTS_AND_OUTPUTS = (
    ("langfuse.observation.input", "langfuse.observation.output"),
    ("gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"),
    ("gcp.vertex.agent.tool_call_args", "gcp.vertex.agent.tool_response"),
    ("mlflow.spanInputs", "mlflow.spanOutputs"),
    ("traceloop.entity.input", "traceloop.entity.output"),
    ("input.value", "output.value"),
    ("input", "output"),
    ("pydantic_ai.all_messages", "final_result"),
    ("tool_arguments", "tool_response"),
    ("gen_ai.input.messages", "gen_ai.output.messages"),
    ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
)
"""The attributes that Langfuse reads as input and output, the first pair of which one exists, and then removes."""
_FLATTENED = (("gen_ai.prompt", "gen_ai.completion"), ("llm.input_messages", "llm.output_messages"))
"""The prefixes of attributes that Langfuse joins, if there is no other input or output."""
_KEPT = ("tool_arguments", "tool_response")
_REMOVED_PREFIXES = tuple(prefix for pair in _FLATTENED for prefix in pair)
_TYPES = {
    "langfuse.observation.type": {name: name.upper() for name in ("span", "generation", "agent", "tool", "chain")},
    "openinference.span.kind": {"LLM": "GENERATION", "AGENT": "AGENT", "TOOL": "TOOL", "CHAIN": "CHAIN"},
    "gen_ai.operation.name": {"chat": "GENERATION", "invoke_agent": "AGENT", "execute_tool": "TOOL"},
}
"""The attributes from which Langfuse reads the type of an observation, in order."""


def _observation(span: Mapping[str, Any], scope: Mapping[str, Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Langfuse stores of a span."""
    attributes = _attributes(span)
    pair = next(
        (pair for pair in _INPUTS_AND_OUTPUTS if any(attributes.get(name) not in (None, "", "{}") for name in pair)),
        ("", ""),
    )
    removed = {name for names in _INPUTS_AND_OUTPUTS for name in names} - set(_KEPT)
    kept = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in attributes.items()
        if name not in removed and not name.startswith(_REMOVED_PREFIXES)
    }
    types = (mapping.get(attributes.get(name, "")) for name, mapping in _TYPES.items())
    values = [attributes.get(name) for name in pair]
    if not any(pair):
        prefixes = next((pair for pair in _FLATTENED if any(name.startswith(pair) for name in attributes)), ("", ""))
        values = [attributes.get(prefix) or _nested(attributes, f"{prefix}.") for prefix in prefixes]
    texts = [value if isinstance(value, str | None) else json.dumps(value) for value in values]
    status = span.get("status", {})
    return {
        "id": span["spanId"],
        "traceId": span["traceId"],
        "parentObservationId": span.get("parentSpanId"),
        "projectId": "project",
        "type": next(filter(None, types), "SPAN"),
        "name": attributes.get("gen_ai.tool.name") or span["name"],
        "startTime": _milliseconds(span["startTimeUnixNano"]),
        "endTime": _milliseconds(span["endTimeUnixNano"]),
        "level": attributes.get("langfuse.observation.level") or ("ERROR" if status.get("code") == 2 else "DEFAULT"),
        "statusMessage": attributes.get("langfuse.observation.status_message") or status.get("message"),
        "sessionId": attributes.get("session.id") or attributes.get("gen_ai.conversation.id"),
        "userId": attributes.get("user.id"),
        "model": attributes.get("gen_ai.request.model") or attributes.get("llm.model_name"),
        "input": texts[0],
        "output": texts[1],
        "metadata": {"attributes": kept, "resourceAttributes": dict(resource), "scope": dict(scope)},
    }


def _nested(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]] | None:
    """Return the messages whose parts are attributes such as `gen_ai.prompt.0.role`."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            *parents, last = name.removeprefix(prefix).split(".")
            node = root
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = value
    return _with_lists(root) if root else None


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    members = {key: _with_lists(value) for key, value in node.items()}
    return list(members.values()) if all(key.isdecimal() for key in members) else members


def _v1_observation(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an observation of version 1, which parses input and output, and knows no session of an observation."""
    parsed = {name: _parsed(row[name]) for name in ("input", "output")}
    return {name: value for name, value in row.items() if name not in ("sessionId", "userId")} | parsed


def _v2_observation(row: Mapping[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the requested fields of an observation of version 2, with one key for each value in the metadata."""
    groups = {
        "core": ("id", "traceId", "startTime", "endTime", "projectId", "parentObservationId", "type"),
        "basic": ("name", "level", "statusMessage", "userId", "sessionId"),
        "io": ("input", "output"),
        "model": ("model",),
    }
    fields = query["fields"].split(",")
    found = {name: row[name] for group in {*fields, "core"} for name in groups.get(group, ())}
    if "metadata" in fields:
        length = None if query.get("expandMetadata") else 200
        flat = {name: _parsed(text[:length]) for name, text in _flattened(row["metadata"])}
        found["metadata"] = flat
    return found


def _flattened(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if isinstance(member, Mapping):
            yield from _flattened(member, f"{prefix}{name}.")
        else:
            yield prefix + name, member if isinstance(member, str) else json.dumps(member)


def _is_wanted(row: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    start = _nanoseconds(row["startTime"])
    return (
        query.get("traceId", row["traceId"]) == row["traceId"]
        and ("fromStartTime" not in query or start >= _nanoseconds(query["fromStartTime"]))
        and ("toStartTime" not in query or start < _nanoseconds(query["toStartTime"]))
    )


def _jaeger_json(trace: StoredTrace) -> dict[str, Any]:
    """Return a trace in Jaeger's own JSON."""
    spans, processes = [], {}
    for number, (span, scope, resource) in enumerate(trace.spans(), 1):
        name = resource.get("service.name", "missing-service-name")
        tags = {key: value for key, value in resource.items() if key != "service.name"}
        processes[f"p{number}"] = {"serviceName": name, "tags": list(map(_tag, tags.items()))}
        attributes = _attributes(span) | {"otel.scope.name": scope.get("name", "")}
        status = span.get("status", {})
        if status.get("code") == 2:
            attributes |= {"error": True, "otel.status_description": status.get("message", "")}
        parent = {"refType": "CHILD_OF", "traceID": trace.trace_id, "spanID": span.get("parentSpanId")}
        start = int(span["startTimeUnixNano"]) // 1000
        spans.append(
            {
                "traceID": trace.trace_id,
                "spanID": span["spanId"],
                "operationName": span["name"],
                "references": [parent] if parent["spanID"] else [],
                "startTime": start,
                "duration": int(span["endTimeUnixNano"]) // 1000 - start,
                "tags": list(map(_tag, attributes.items())),
                "logs": [
                    {
                        "timestamp": int(event["timeUnixNano"]) // 1000,
                        "fields": list(map(_tag, {"event": event["name"], **_attributes(event)}.items())),
                    }
                    for event in span.get("events", ())
                ],
                "processID": f"p{number}",
            }
        )
    return {"traceID": trace.trace_id, "spans": spans, "processes": processes, "warnings": None}


def _tag(attribute: tuple[str, Any]) -> dict[str, Any]:
    key, value = attribute
    for kind, name in ((bool, "bool"), (int, "int64"), (float, "float64"), (str, "string")):
        if isinstance(value, kind):
            return {"key": key, "type": name, "value": value}
    return {"key": key, "type": "string", "value": json.dumps(value)}


def _with_service(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a trace with the service that Jaeger writes if there is none."""
    attributes = part.get("resource", {}).get("attributes", [])
    if not any(attribute["key"] == "service.name" for attribute in attributes):
        attributes = [*attributes, {"key": "service.name", "value": {"stringValue": "missing-service-name"}}]
    return {**part, "resource": {"attributes": attributes}}


def _with_base64(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a trace as protobuf's JSON: ids in base64, enums by their names."""
    scopes = []
    for scope_spans in part["scopeSpans"]:
        spans = []
        for span in scope_spans["spans"]:
            ids = {name: span[name] for name in ("traceId", "spanId", "parentSpanId") if name in span}
            encoded = {name: base64.b64encode(bytes.fromhex(value)).decode() for name, value in ids.items()}
            kind = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")[span.get("kind", 0)]
            spans.append({**span, **encoded, "kind": f"SPAN_KIND_{kind}"})
        scopes.append({**scope_spans, "spans": spans})
    return {**part, "scopeSpans": scopes}


def _attributes(parent: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as plain values."""
    return {each["key"]: plain_value(each.get("value", {})) for each in parent.get("attributes", ())}


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _span(
    trace_id: str, place: int, parent: int | None, start_ns: int, length_ns: int, attributes: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": f"{place:016x}",
        **({"parentSpanId": f"{parent:016x}"} if parent else {}),
        "name": attributes["operation.name"],
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + length_ns),
        "attributes": [{"key": f"gen_ai.{key}", "value": {"stringValue": text}} for key, text in attributes.items()],
    }


def _part(service: str, span: Mapping[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resource": resource, "scopeSpans": [{"scope": {"name": "agents"}, "spans": [span]}]}


def _milliseconds(time_ns: str) -> str:
    time = _EPOCH + timedelta(milliseconds=int(time_ns) // 1_000_000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _nanoseconds(text: str) -> int:
    return (datetime.fromisoformat(text.replace("Z", "+00:00")) - _EPOCH) // timedelta(microseconds=1) * 1000
