"""Servers with the trace APIs of Phoenix and MLflow, with the replies of the real servers for recorded traces.

`make recordings` writes the replies. Paging, time windows and choice of traces are those of the products. Parameters
that the product does not know are an error of the test.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from goldspan.sources.time_window import TimeWindow, nanoseconds
from support.model_endpoint import Whole, raw
from support.product_server import Request, accepted

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted((FIXTURES / "captures").glob("*.pb.gz"))
"""The files with the recorded traces."""


class PhoenixApi:
    """Phoenix with the recorded traces in its project `default`.

    Args:
        max_spans: The number of spans in a reply.
    """

    def __init__(self, *, max_spans: int = 1000) -> None:
        recording = _recording("phoenix")
        self.traces: list[dict[str, Any]] = recording["traces"]
        self.spans: list[dict[str, Any]] = recording["spans"]
        self.max_spans = max_spans

    def __call__(self, request: Request) -> Whole:
        if request.path == "/v1/projects/default/traces":
            assert set(request.query) <= {"start_time", "end_time", "limit", "cursor"}, request.query
            start, end = nanoseconds(request.query["start_time"]), nanoseconds(request.query["end_time"])
            found = [trace for trace in self.traces if start <= nanoseconds(trace["start_time"]) < end]
            return _page(found, request, int(request.query["limit"]))
        if request.path == "/v1/projects/default/spans/otlpv1":
            assert set(request.query_lists) <= {"trace_id", "limit", "cursor"}, request.query
            wanted = set(request.query_lists["trace_id"])
            found = [span for span in self.spans if span["trace_id"] in wanted]
            return _page(found, request, min(self.max_spans, int(request.query["limit"])))
        return raw(b"Project with identifier other not found", 404)


def _page(rows: list[Any], request: Request, limit: int) -> Whole:
    start = int(request.query.get("cursor", "0"))
    rest = start + limit < len(rows)
    return accepted({"data": rows[start : start + limit], "next_cursor": str(start + limit) if rest else None})


class MLflowApi:
    """MLflow with the recorded traces in the experiment `shop` with the id 0."""

    def __init__(self) -> None:
        recording = _recording("mlflow")
        self.traces: list[dict[str, Any]] = recording["traces"]
        self.spans: list[dict[str, Any]] = recording["spans"]
        self.incomplete: set[str] = set()
        """Traces of which spans are missing, so that MLflow returns none."""

    def __call__(self, request: Request) -> Whole:
        if request.path == "/api/2.0/mlflow/experiments/get-by-name":
            if request.query == {"experiment_name": "shop"}:
                return accepted({"experiment": {"experiment_id": "0", "name": "shop", "lifecycle_stage": "active"}})
            error = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Could not find experiment"}
            return raw(json.dumps(error).encode(), 404)
        if request.path == "/api/3.0/mlflow/traces/search":
            return self._search(request.body)
        assert request.path == "/api/3.0/mlflow/traces/batchGet", request.path
        wanted = set(request.query_lists["trace_ids"]) - self.incomplete
        return accepted({"traces": [trace for trace in self.spans if trace["trace_info"]["trace_id"] in wanted]})

    def _search(self, search: dict[str, Any]) -> Whole:
        assert set(search) <= {"locations", "filter", "order_by", "max_results", "page_token"}, search
        assert search["locations"] == [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}]
        assert search["order_by"] == ["timestamp_ms DESC"]
        edges = re.fullmatch(r"timestamp_ms >= (\d+) AND timestamp_ms < (\d+)", search["filter"])
        assert edges, search["filter"]
        found = [
            trace
            for trace in self.traces
            if int(edges[1]) <= nanoseconds(trace["request_time"]) // 1_000_000 < int(edges[2])
        ]
        start = int(search.get("page_token", "0"))
        stop = start + search["max_results"]
        more = {"next_page_token": str(stop)} if stop < len(found) else {}
        return accepted({"traces": found[start:stop], **more})


def whole_window() -> TimeWindow:
    """Return a window with every recorded trace."""
    starts = [nanoseconds(trace["start_time"]) for trace in _recording("phoenix")["traces"]]
    return TimeWindow(min(starts) - 1_000_000, max(starts) + 1_000_000)


def _recording(name: str) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(gzip.decompress((FIXTURES / "pulled" / f"{name}.json.gz").read_bytes()))
    return recording
