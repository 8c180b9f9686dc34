"""Tests of reading traces out of Jaeger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError
from goldspan.sources.source_catalog import create_source
from goldspan.sources.time_window import TimeWindow
from support.model_endpoint import Whole, raw
from support.product_server import ProductServer, Request, accepted, failed, product_server
from support.pulls import HOUR, contents_of, pull, runs_of, spans_by_trace
from support.trace_servers import FIXTURES, HTML, JaegerApi, StoredTrace, tool_trace, traces_of, window_of

SECOND = 10**9
FILES = sorted((FIXTURES / "captures").glob("*.pb.gz"))
VERSIONS = pytest.mark.parametrize("has_v3", [True, False])


def jaeger(server: ProductServer) -> str:
    return f"jaeger+{server.url}"


def without_service(trace: StoredTrace) -> StoredTrace:
    return StoredTrace(trace.trace_id, [{**part, "resource": {}} for part in trace.resource_spans])


def test_the_runs_read_from_jaeger_are_those_of_the_files(tmp_path: Path) -> None:
    traces = traces_of(*FILES)
    with product_server(JaegerApi(traces)) as server:
        assert pull(jaeger(server), tmp_path, window_of(traces), page_size=4) == []
    assert runs_of(tmp_path) == runs_of(*FILES)


def test_an_earlier_jaeger_returns_the_same_runs_in_its_own_json(tmp_path: Path) -> None:
    traces = traces_of(*FILES)
    with product_server(JaegerApi(traces, has_v3=False)) as server:
        assert pull(jaeger(server), tmp_path, window_of(traces), page_size=4) == []
    assert contents_of(runs_of(tmp_path)) == contents_of(runs_of(*FILES))
    assert [request.path for request in server.received if "v3" in request.path] == ["/api/v3/services"]


@VERSIONS
def test_a_service_that_jaeger_made_up_is_no_service(has_v3: bool, tmp_path: Path) -> None:
    traces = [without_service(tool_trace(0, HOUR.start_ns)), tool_trace(1, HOUR.start_ns + SECOND)]
    with product_server(JaegerApi(traces, has_v3=has_v3)) as server:
        pull(jaeger(server), tmp_path)
    assert {run.trace_ids[0]: run.service for run in runs_of(tmp_path).values()} == {
        traces[0].trace_id: None,
        traces[1].trace_id: "travel",
    }


@VERSIONS
def test_a_window_with_more_traces_than_the_limit_is_divided(has_v3: bool, tmp_path: Path) -> None:
    starts = [HOUR.start_ns + number * 120 * SECOND for number in range(20)]
    starts += [HOUR.end_ns - 60 * SECOND + number * 100_000 for number in range(20)]
    traces = [tool_trace(number, start) for number, start in enumerate(starts)]
    with product_server(JaegerApi(traces, has_v3=has_v3)) as server:
        assert pull(jaeger(server), tmp_path, page_size=4) == []
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


@VERSIONS
def test_a_notice_says_that_one_microsecond_has_more_traces_than_the_limit(has_v3: bool, tmp_path: Path) -> None:
    many = [tool_trace(number, HOUR.start_ns + 7000) for number in range(9)]
    others = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(10, 20)]
    with product_server(JaegerApi([*many, *others], has_v3=has_v3)) as server:
        notices = pull(jaeger(server), tmp_path, page_size=4)
    assert notices
    assert set(notices) == {"Jaeger has 4 traces or more in one microsecond, and returned no more of them"}
    found = spans_by_trace(tmp_path)
    assert {trace.trace_id for trace in others} < set(found)
    assert sum(trace.trace_id in found for trace in many) == 4


@VERSIONS
def test_a_time_that_is_more_precise_than_a_slice_is_not_lost(has_v3: bool, tmp_path: Path) -> None:
    # Traces that began in every tenth of three microseconds cannot be in the gap between two slices.
    traces = [tool_trace(number, HOUR.start_ns + number * 100) for number in range(30)]
    window = TimeWindow(HOUR.start_ns, HOUR.start_ns + 3050)
    with product_server(JaegerApi(traces, has_v3=has_v3)) as server:
        pull(jaeger(server), tmp_path, window, page_size=24)
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


@VERSIONS
def test_a_trace_belongs_to_the_window_in_which_it_began(has_v3: bool, tmp_path: Path) -> None:
    before = tool_trace(0, HOUR.start_ns - 2500)  # its second span begins 2 microseconds later, and its third 3
    long_before = tool_trace(1, HOUR.start_ns - 2500, services=("travel", "travel"))
    inside = [tool_trace(2, HOUR.start_ns), tool_trace(3, HOUR.end_ns - 1000)]
    after = tool_trace(4, HOUR.end_ns)
    with product_server(JaegerApi([before, long_before, *inside, after], has_v3=has_v3)) as server:
        pull(jaeger(server), tmp_path)
    assert set(spans_by_trace(tmp_path)) == {trace.trace_id for trace in inside}


@VERSIONS
def test_a_trace_of_two_services_is_read_once_with_the_spans_of_both(has_v3: bool, tmp_path: Path) -> None:
    both = tool_trace(0, HOUR.start_ns, services=("shop", "travel"))
    alone = [tool_trace(1, HOUR.start_ns + SECOND, services=("shop",)), tool_trace(2, HOUR.start_ns + 2 * SECOND)]
    with product_server(JaegerApi([both, *alone], has_v3=has_v3)) as server:
        pull(jaeger(server), tmp_path)
    assert spans_by_trace(tmp_path) == {both.trace_id: 3, alone[0].trace_id: 2, alone[1].trace_id: 2}
    name = "query.service_name" if has_v3 else "service"
    assert [request.query[name] for request in server.received if request.path.endswith("/traces")] == [
        "shop",
        "travel",
    ]


@VERSIONS
def test_only_the_traces_of_the_service_of_the_url_are_read(has_v3: bool, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns, services=(name,)) for number, name in enumerate(("shop", "travel"))]
    with product_server(JaegerApi(traces, has_v3=has_v3)) as server:
        pull(f"{jaeger(server)}?service=travel", tmp_path)
    assert spans_by_trace(tmp_path) == {traces[1].trace_id: 2}


@VERSIONS
def test_a_jaeger_without_traces_is_empty(has_v3: bool, tmp_path: Path) -> None:
    with product_server(JaegerApi([], has_v3=has_v3)) as server:
        assert pull(jaeger(server), tmp_path / "all") == []
        assert pull(f"{jaeger(server)}?service=travel", tmp_path / "one") == []
    assert not spans_by_trace(tmp_path / "all")
    assert not spans_by_trace(tmp_path / "one")


def test_the_limit_has_the_names_of_all_versions(tmp_path: Path) -> None:
    with product_server(JaegerApi([tool_trace(0, HOUR.start_ns)])) as server:
        pull(jaeger(server), tmp_path, page_size=7)
    query = server.received[-1].query
    assert (query["query.num_traces"], query["query.search_depth"], query["query.raw_traces"]) == ("7", "7", "true")


def test_the_token_is_sent_with_every_request(tmp_path: Path) -> None:
    with product_server(JaegerApi([tool_trace(0, HOUR.start_ns)])) as server:
        pull(jaeger(server), tmp_path, environment={"JAEGER_TOKEN": "t0ken"})
        pull(jaeger(server), tmp_path / "without")
    headers = [request.headers.get("authorization") for request in server.received]
    assert headers == ["Bearer t0ken", "Bearer t0ken", None, None]


def test_the_address_is_that_of_the_url_or_of_the_variable_or_the_default() -> None:
    environment = {"JAEGER_URL": "https://jaeger.test/base"}
    assert create_source("jaeger://", {}).base_url == "http://localhost:16686"
    assert create_source("jaeger://", environment).base_url == "https://jaeger.test/base"
    assert create_source("jaeger://other.test:1", environment).base_url == "https://other.test:1"


def test_a_rejected_token_is_an_error_that_does_not_contain_it(tmp_path: Path) -> None:
    def answer(request: Request) -> Whole:
        return failed(403, f"rejected {request.headers['authorization']}")

    with product_server(answer) as server, pytest.raises(ConfigurationError, match="JAEGER_TOKEN") as error:
        pull(jaeger(server), tmp_path, environment={"JAEGER_TOKEN": "s3cret-token"})
    assert "s3cret-token" not in str(error.value)


SPAN: dict[str, Any] = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "x"}


@pytest.mark.parametrize(
    "traces",
    [
        HTML,
        accepted([]),
        accepted({"result": [3]}),
        accepted({"result": {"resourceSpans": {"a": 1}}}),
        accepted({"result": {"resourceSpans": [3]}}),
        accepted({"result": {"resourceSpans": [{"resource": [1]}]}}),
        accepted({"result": {"resourceSpans": [{"resource": {"attributes": [1]}}]}}),
        accepted({"result": {"resourceSpans": [{"scopeSpans": ["x"]}]}}),
        accepted({"result": {"resourceSpans": [{"scopeSpans": [{"spans": [3]}]}]}}),
        accepted({"result": {"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "2"}]}]}]}}),
        accepted({"result": {"resourceSpans": [{"scopeSpans": [{"spans": [{**SPAN, "startTimeUnixNano": "x"}]}]}]}}),
        failed(400, "malformed parameter"),
        failed(500),
    ],
)
def test_traces_that_are_not_those_of_version_3_are_an_error(traces: Whole, tmp_path: Path) -> None:
    def answer(request: Request) -> Whole:
        return accepted({"services": ["travel"]}) if request.path == "/api/v3/services" else traces

    with product_server(answer) as server, pytest.raises(GoldspanError, match="jaeger"):
        pull(jaeger(server), tmp_path)


@pytest.mark.parametrize(
    ("services", "traces"),
    [
        (HTML, None),
        (accepted([]), None),
        (accepted({"data": "travel"}), None),
        (raw(b"404 page not found", 404), None),
        (accepted({"data": ["travel"]}), HTML),
        (accepted({"data": ["travel"]}), accepted({"data": [3]})),
        (accepted({"data": ["travel"]}), accepted({"data": [{"spans": []}]})),
        (accepted({"data": ["travel"]}), accepted({"data": [{"traceID": "1", "spans": [3]}]})),
        (accepted({"data": ["travel"]}), accepted({"data": [{"traceID": "1"}]})),
    ],
)
def test_replies_that_are_not_those_of_an_earlier_version_are_an_error(
    services: Whole, traces: Whole | None, tmp_path: Path
) -> None:
    def answer(request: Request) -> Whole:
        if request.path == "/api/v3/services":
            return raw(b"404 page not found", 404)
        if request.path == "/api/services":
            return services
        assert traces is not None
        return traces

    with product_server(answer) as server, pytest.raises(GoldspanError, match="jaeger"):
        pull(jaeger(server), tmp_path)


def test_services_that_are_no_list_are_an_error(tmp_path: Path) -> None:
    reply = accepted({"services": "travel"})
    with product_server(lambda _: reply) as server, pytest.raises(GoldspanError, match="does not answer as the API"):
        pull(jaeger(server), tmp_path)


def test_services_that_jaeger_refuses_are_an_error(tmp_path: Path) -> None:
    with product_server(lambda _: failed(500)) as server, pytest.raises(TraceFileError, match="500"):
        pull(jaeger(server), tmp_path)


def interrupted(api: Callable[[Request], Whole], after: int) -> Callable[[Request], Whole]:
    """Answer some requests, and then fail."""
    left = iter(range(after))
    return lambda request: api(request) if next(left, None) is not None else failed(500)


@VERSIONS
@pytest.mark.parametrize("after", [1, 2, 5, 9, 14])
def test_an_interrupted_pull_continues_where_it_ended(has_v3: bool, after: int, tmp_path: Path) -> None:
    traces = [
        tool_trace(number, HOUR.start_ns + number * 200 * SECOND, services=("shop", "travel")[: number % 2 + 1])
        for number in range(16)
    ]
    api = JaegerApi(traces, has_v3=has_v3)
    with product_server(interrupted(api, after)) as server:
        url = jaeger(server)
        with pytest.raises(TraceFileError, match="500"):
            pull(url, tmp_path / "parts", page_size=4)
        server.answer = api
        pull(url, tmp_path / "parts", page_size=4)
        pull(url, tmp_path / "whole", page_size=4)
    assert set(spans_by_trace(tmp_path / "parts")) == {trace.trace_id for trace in traces}
    # A trace that is on two pages can be read again, which does not change its run.
    assert runs_of(tmp_path / "parts") == runs_of(tmp_path / "whole")
