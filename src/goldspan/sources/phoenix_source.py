"""Phoenix (Arize): traces of a project.

`GET /v1/projects/PROJECT/traces` lists the traces that began in a window, `GET /v1/projects/PROJECT/spans/otlpv1`
returns the spans of some traces (checked against Phoenix 20.26). Listing spans by their time instead would cut traces
at the edges of the window.

Phoenix keeps neither resources nor scopes. It returns an attribute that is a mapping, or a list of mappings, as one
attribute for each part, such as `gen_ai.tool.call.arguments.city`; these are joined again. Times are floating-point
numbers, with an error below a microsecond.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from goldspan.integrations.phoenix import Phoenix
from goldspan.integrations.product import ProductRequest
from goldspan.sources.otlp_documents import plain_value, request_document, to_proto_json
from goldspan.sources.time_window import rfc3339
from goldspan.sources.trace_source import (
    JsonObject,
    PageRequest,
    Send,
    TracePage,
    TraceSource,
    objects_of,
    reply_object,
    text_of,
)

DEFAULT_PROJECT = "default"
_MAX_SPANS = 1000
"""The most spans that Phoenix returns at once."""
_JSON_TEXT = re.compile(r"((?:.*?\.)?(?:llm\.prompt_template\.variables|metadata|tool\.parameters))\.")
"""The beginning of attributes whose JSON text Phoenix parsed."""
_STRUCTURED = re.compile(
    r"(gen_ai\.(?:input\.messages|output\.messages|system_instructions|tool\.(?:call\.arguments|call\.result|definitions)))"
    r"\.(?!\d+\.(?:message|tool)\.)"
)
"""The beginning of attributes that are parts of a mapping or a list; traceAI itself writes `NAME.0.message.role`."""

_Paths: TypeAlias = list[tuple[list[str], dict[str, Any]]]
"""The parts of a value: the way to each, and its `AnyValue`."""
_Leaves: TypeAlias = dict[str, _Paths]


class PhoenixSource(TraceSource):
    """Reads the traces of one project.

    Args:
        product: The address and the API key.
        project: The name or the id of the project.
    """

    name = "phoenix"
    variables = ("PHOENIX_COLLECTOR_ENDPOINT", "PHOENIX_API_KEY", "PHOENIX_PROJECT_NAME")
    parameters = ("project",)

    def __init__(self, product: Phoenix, *, project: str = DEFAULT_PROJECT) -> None:
        self.base_url, self.headers = product.base_url, product.headers
        self._path = f"/v1/projects/{quote(project, safe='')}"

    @classmethod
    def create(
        cls, base_url: str | None, parameters: Mapping[str, str], environment: Mapping[str, str]
    ) -> PhoenixSource:
        """Return the source as Phoenix's own variables describe it; the URL has precedence."""
        project = parameters.get("project") or environment.get("PHOENIX_PROJECT_NAME") or DEFAULT_PROJECT
        return cls(Phoenix.from_environment(base_url, environment), project=project)

    def read_page(self, request: PageRequest, send: Send) -> TracePage:
        """Read the spans of the next traces, the latest traces first."""
        query = {
            "start_time": rfc3339(request.window.start_ns),
            "end_time": rfc3339(request.window.end_ns),
            "limit": str(request.page_size),
        }
        if request.cursor is not None:
            query["cursor"] = request.cursor
        reply = reply_object(send(ProductRequest("GET", f"{self._path}/traces", query=query)), self)
        trace_ids = [text_of(trace, "trace_id", self) for trace in objects_of(reply, "data", self)]
        documents = [request_document(spans) for spans in self._spans(trace_ids, send)] if trace_ids else []
        return TracePage(documents, trace_ids, reply.get("next_cursor"))

    def _spans(self, trace_ids: list[str], send: Send) -> Iterator[list[dict[str, Any]]]:
        query: dict[str, Any] = {"trace_id": trace_ids, "limit": str(_MAX_SPANS)}
        while True:
            reply = reply_object(send(ProductRequest("GET", f"{self._path}/spans/otlpv1", query=query)), self)
            yield [_otlp_span(span) for span in objects_of(reply, "data", self)]
            if not reply.get("next_cursor"):
                return
            query["cursor"] = reply["next_cursor"]


def _otlp_span(span: JsonObject) -> dict[str, Any]:
    otlp: dict[str, Any] = to_proto_json(span)
    otlp["attributes"] = _restore_trees(otlp.get("attributes", ()))
    del otlp["kind"]  # Phoenix does not keep it: it writes SPAN_KIND_INTERNAL for every span
    return otlp


def _restore_trees(attributes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the attributes below each structured attribute into its value again."""
    values: dict[str, dict[str, Any]] = {}
    texts: _Leaves = {}
    structures: _Leaves = {}
    for attribute in attributes:
        key, value = attribute["key"], attribute.get("value", {})
        if found := _STRUCTURED.match(key):
            structures.setdefault(found[1], []).append((key[found.end() :].split("."), value))
            continue
        if found := _JSON_TEXT.match(key):
            texts.setdefault(found[1], []).append((key[found.end() :].split("."), value))
        values[key] = value  # some instrumentations write `metadata.NAME` themselves, so the parts remain too
    for key, leaves in texts.items():
        values.setdefault(key, {"stringValue": json.dumps(plain_value(_tree(leaves)), ensure_ascii=False)})
    for key, leaves in structures.items():
        values.setdefault(key, _tree(leaves))
    return [{"key": key, "value": value} for key, value in values.items()]


def _tree(leaves: _Paths) -> dict[str, Any]:
    """Return the `AnyValue` that has some leaves: a list if the names of its parts are 0, 1, 2, ..., else a mapping."""
    parts: _Leaves = {}
    for path, value in leaves:
        if not path:
            return value
        parts.setdefault(path[0], []).append((path[1:], value))
    if set(parts) == set(map(str, range(len(parts)))):
        return {"arrayValue": {"values": [_tree(parts[str(number)]) for number in range(len(parts))]}}
    return {"kvlistValue": {"values": [{"key": name, "value": _tree(below)} for name, below in parts.items()]}}
