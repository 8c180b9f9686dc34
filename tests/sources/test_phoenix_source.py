"""Tests of reading traces out of Phoenix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError
from goldspan.sources.phoenix_source import PhoenixSource, _otlp_span
from goldspan.sources.source_catalog import create_source
from goldspan.sources.time_window import TimeWindow, nanoseconds
from support.model_endpoint import Whole
from support.product_server import ProductServer, accepted, failed, product_server
from support.pulls import captured_runs, contents_of, pull, runs_of, spans_by_trace
from support.recorded_products import PhoenixApi, whole_window
from support.trace_servers import HTML

KEY = "a-key-of-phoenix"


def phoenix(server: ProductServer, query: str = "") -> str:
    return f"phoenix+{server.url}{query}"


def attributes(*pairs: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def without_services(runs: dict[str, Any]) -> dict[str, Any]:
    """Return what Phoenix keeps of runs, which is not the service."""
    return {run_id: (*content[:2], *content[3:]) for run_id, content in contents_of(runs).items()}


@pytest.mark.parametrize("page_size", [1, 5, 100])
def test_the_runs_read_from_phoenix_are_those_of_the_files(page_size: int, tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server:
        assert pull(phoenix(server), tmp_path, whole_window(), page_size=page_size) == []
    assert without_services(runs_of(tmp_path)) == without_services(captured_runs())


def test_the_spans_of_a_page_are_read_in_parts(tmp_path: Path) -> None:
    api = PhoenixApi(max_spans=7)
    with product_server(api) as server:
        pull(phoenix(server), tmp_path, whole_window())
    assert spans_by_trace(tmp_path).total() == len(api.spans)


def test_only_traces_that_began_in_the_window_are_read(tmp_path: Path) -> None:
    api = PhoenixApi()
    starts = sorted(nanoseconds(trace["start_time"]) for trace in api.traces)
    window = TimeWindow(starts[2], starts[5])
    wanted = {trace["trace_id"] for trace in api.traces if starts[2] <= nanoseconds(trace["start_time"]) < starts[5]}
    with product_server(api) as server:
        pull(phoenix(server), tmp_path, window)
    assert set(spans_by_trace(tmp_path)) == wanted


def test_the_key_is_in_the_header_only(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server:
        pull(phoenix(server), tmp_path, whole_window(), environment={"PHOENIX_API_KEY": KEY})
    assert {request.headers["authorization"] for request in server.received} == {f"Bearer {KEY}"}
    assert not any(KEY in file.read_text(encoding="utf-8") for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("query", "environment", "path"),
    [
        ("", {}, "/v1/projects/default/traces"),
        ("", {"PHOENIX_PROJECT_NAME": "mine"}, "/v1/projects/mine/traces"),
        ("?project=shop", {"PHOENIX_PROJECT_NAME": "mine"}, "/v1/projects/shop/traces"),
        ("?project=a/b c", {}, "/v1/projects/a%2Fb%20c/traces"),
    ],
)
def test_the_project(query: str, environment: dict[str, str], path: str, tmp_path: Path) -> None:
    with product_server(lambda request: accepted({"data": [], "next_cursor": None})) as server:
        pull(phoenix(server, query), tmp_path, environment=environment)
    assert [request.path for request in server.received] == [path]


def test_a_project_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server, pytest.raises(GoldspanError, match="404"):
        pull(phoenix(server, "?project=other"), tmp_path)


@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_is_an_error_that_names_the_variable(status: int, tmp_path: Path) -> None:
    with (
        product_server(lambda request: failed(status, "no")) as server,
        pytest.raises(ConfigurationError, match="PHOENIX_API_KEY") as caught,
    ):
        pull(phoenix(server), tmp_path, environment={"PHOENIX_API_KEY": KEY})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        HTML,
        accepted([]),
        accepted({"data": 3}),
        accepted({"data": [3]}),
        accepted({"data": [{"id": "x"}]}),
    ],
)
def test_a_reply_of_another_form_is_an_error(answer: Whole, tmp_path: Path) -> None:
    with (
        product_server(lambda request: answer) as server,
        pytest.raises(TraceFileError, match=f"^{server.url} does not answer as the API of phoenix does$"),
    ):
        pull(phoenix(server), tmp_path)


def test_an_attribute_without_a_key_is_an_error(tmp_path: Path) -> None:
    api = PhoenixApi()
    api.spans[0]["attributes"].append({"value": {"string_value": "x"}})
    with (
        product_server(api) as server,
        pytest.raises(TraceFileError, match=r"does not answer as the API of phoenix does: KeyError\('key'\)$"),
    ):
        pull(phoenix(server), tmp_path, whole_window())


def test_the_parts_of_a_structured_attribute_are_joined() -> None:
    parts = attributes(
        ("gen_ai.tool.call.arguments.city", {"string_value": "Rome"}),
        ("gen_ai.tool.call.arguments.stars.0", {"int_value": "4"}),
        ("gen_ai.tool.call.arguments.stars.1", {"int_value": "5"}),
        ("gen_ai.tool.call.arguments.exact", {"bool_value": False}),
        ("other.0", {"string_value": "kept"}),
    )
    found = _otlp_span({"kind": "SPAN_KIND_INTERNAL", "span_id": "1", "parent_span_id": None, "attributes": parts})
    stars = {"arrayValue": {"values": [{"intValue": "4"}, {"intValue": "5"}]}}
    values = [
        *({"key": "city", "value": {"stringValue": "Rome"}}, {"key": "stars", "value": stars}),
        {"key": "exact", "value": {"boolValue": False}},
    ]
    assert found == {
        "spanId": "1",
        "attributes": attributes(
            ("other.0", {"stringValue": "kept"}), ("gen_ai.tool.call.arguments", {"kvlistValue": {"values": values}})
        ),
    }


def test_the_parts_of_a_json_text_are_written_as_text_again() -> None:
    parts = attributes(("tool.parameters.city", {"string_value": "Rome"}), ("tool.parameters.days", {"int_value": "2"}))
    found = {pair["key"]: pair["value"] for pair in _otlp_span({"kind": "", "attributes": parts})["attributes"]}
    assert found["tool.parameters"] == {"stringValue": '{"city": "Rome", "days": 2}'}
    assert found["tool.parameters.city"] == {"stringValue": "Rome"}


def test_a_whole_attribute_has_precedence_over_its_parts() -> None:
    whole = {"string_value": '{"city": "Oslo"}'}
    parts = attributes(
        ("gen_ai.tool.call.arguments", whole), ("gen_ai.tool.call.arguments.city", {"string_value": "Rome"})
    )
    assert _otlp_span({"kind": "", "attributes": parts})["attributes"] == attributes(
        ("gen_ai.tool.call.arguments", {"stringValue": '{"city": "Oslo"}'})
    )


def test_the_source_of_a_url_is_that_of_phoenix() -> None:
    source = create_source("phoenix://", {"PHOENIX_COLLECTOR_ENDPOINT": "https://phoenix.example/s/team"})
    assert isinstance(source, PhoenixSource)
    assert source.base_url == "https://phoenix.example/s/team"
