"""Tests of reading traces out of Grafana Tempo."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError
from goldspan.sources.source_catalog import create_source
from goldspan.sources.tempo_source import TempoSource
from goldspan.sources.time_window import TimeWindow
from support.model_endpoint import Whole, raw
from support.product_server import ProductServer, Request, accepted, failed, product_server
from support.pulls import HOUR, pull, runs_of, spans_by_trace
from support.trace_servers import FIXTURES, HTML, TempoApi, tool_trace, traces_of, window_of

SECOND = 10**9
FILES = sorted((FIXTURES / "captures").glob("*.pb.gz"))


def tempo(server: ProductServer) -> str:
    return f"tempo+{server.url}"


@pytest.mark.parametrize("has_v2", [True, False])
def test_the_runs_read_from_tempo_are_those_of_the_files(has_v2: bool, tmp_path: Path) -> None:
    traces = traces_of(*FILES)
    with product_server(TempoApi(traces, has_v2=has_v2)) as server:
        assert pull(tempo(server), tmp_path, window_of(traces), page_size=4) == []
    assert runs_of(tmp_path) == runs_of(*FILES)


def test_an_earlier_tempo_is_asked_for_the_new_api_once(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(5)]
    with product_server(TempoApi(traces, has_v2=False)) as server:
        pull(tempo(server), tmp_path)
    assert sum(request.path.startswith("/api/v2/") for request in server.received) == 1


def test_a_window_with_more_traces_than_the_limit_is_divided(tmp_path: Path) -> None:
    # Half of the traces are in the last minute, so slices have different lengths.
    starts = [HOUR.start_ns + number * 120 * SECOND for number in range(20)]
    starts += [HOUR.end_ns - 60 * SECOND + number * 2 * SECOND for number in range(20)]
    traces = [tool_trace(number, start) for number, start in enumerate(starts)]
    with product_server(TempoApi(traces)) as server:
        assert pull(tempo(server), tmp_path, page_size=4) == []
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}
    slices = [request.query for request in server.received if request.path == "/api/search"]
    assert {query["q"] for query in slices} == {"{}"}
    assert all(int(query["start"]) < int(query["end"]) for query in slices)


def test_many_traces_in_one_second_are_read_with_a_higher_limit(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number) for number in range(30)]
    with product_server(TempoApi(traces)) as server:
        assert pull(tempo(server), tmp_path, page_size=4) == []
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


def test_a_notice_says_that_one_second_has_more_traces_than_tempo_returns(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number) for number in range(30)]
    with product_server(TempoApi(traces, max_limit=4)) as server:
        notices = pull(tempo(server), tmp_path, page_size=4)
    assert set(notices) == {"Tempo has 4 traces or more in one second, and returned no more of them"}
    assert len(spans_by_trace(tmp_path)) == 4


def test_a_limit_above_the_maximum_of_tempo_is_an_error(tmp_path: Path) -> None:
    with (
        product_server(TempoApi([], max_limit=3)) as server,
        pytest.raises(TraceFileError, match="exceeds max limit 3"),
    ):
        pull(tempo(server), tmp_path, page_size=4)


def test_a_window_that_is_longer_than_tempo_allows_is_divided(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * 600 * SECOND) for number in range(6)]
    with product_server(TempoApi(traces, max_duration=700)) as server:
        assert pull(tempo(server), tmp_path) == []
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


def test_a_second_that_is_longer_than_tempo_allows_is_an_error(tmp_path: Path) -> None:
    second = TimeWindow(HOUR.start_ns, HOUR.start_ns + SECOND)
    with product_server(TempoApi([], max_duration=0)) as server, pytest.raises(TraceFileError, match="exceeds 0s"):
        pull(tempo(server), tmp_path, second)


def test_a_trace_belongs_to_the_window_in_which_it_began(tmp_path: Path) -> None:
    window = TimeWindow(HOUR.start_ns + 500_000_000, HOUR.end_ns - 500_000_000)
    minute = 60 * SECOND
    before = tool_trace(0, window.start_ns - 1, length_ns=10 * minute)
    inside = [tool_trace(1, window.start_ns), tool_trace(2, window.end_ns - 1, length_ns=minute)]
    after = tool_trace(3, window.end_ns)
    with product_server(TempoApi([before, *inside, after])) as server:
        pull(tempo(server), tmp_path, window, page_size=2)
    assert set(spans_by_trace(tmp_path)) == {trace.trace_id for trace in inside}
    assert sum(request.path.endswith(before.trace_id) for request in server.received) == 1


def test_a_trace_in_two_slices_is_read_once(tmp_path: Path) -> None:
    long = tool_trace(0, HOUR.start_ns, length_ns=3000 * SECOND)
    short = [tool_trace(number, HOUR.start_ns + number * 300 * SECOND) for number in range(1, 11)]
    with product_server(TempoApi([long, *short])) as server:
        pull(tempo(server), tmp_path, page_size=4)
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in (long, *short)}


@pytest.mark.parametrize("has_v2", [True, False])
def test_a_trace_that_was_deleted_is_left_out(has_v2: bool, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(3)]
    api = TempoApi(traces, has_v2=has_v2)
    api.deleted.add(traces[1].trace_id)
    with product_server(api) as server:
        assert pull(tempo(server), tmp_path) == []
    assert set(spans_by_trace(tmp_path)) == {traces[0].trace_id, traces[2].trace_id}


def test_a_notice_counts_the_traces_of_which_tempo_returned_a_part(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(3)]
    api = TempoApi(traces)
    api.partial.update(trace.trace_id for trace in traces[:2])
    with product_server(api) as server:
        notices = pull(tempo(server), tmp_path)
    assert notices == ["Tempo returned only a part of 2 traces, which exceed its `max_bytes_per_trace`"]
    assert len(spans_by_trace(tmp_path)) == 3


@pytest.mark.parametrize(
    ("environment", "headers"),
    [
        ({}, {"authorization": None, "x-scope-orgid": None}),
        ({"TEMPO_TOKEN": "t0ken"}, {"authorization": "Bearer t0ken"}),
        (
            {"TEMPO_TOKEN": "t0ken", "TEMPO_USERNAME": "4711"},
            {"authorization": f"Basic {base64.b64encode(b'4711:t0ken').decode()}"},
        ),
        ({"TEMPO_TENANT": "shop", "TEMPO_USERNAME": "4711"}, {"authorization": None, "x-scope-orgid": "shop"}),
    ],
)
def test_the_variables_configure_the_credentials(
    environment: dict[str, str], headers: dict[str, str | None], tmp_path: Path
) -> None:
    with product_server(TempoApi([tool_trace(0, HOUR.start_ns)])) as server:
        pull(tempo(server), tmp_path, environment=environment)
    assert len(server.received) == 2
    for request in server.received:
        assert {name: request.headers.get(name) for name in headers} == headers


def test_the_address_is_that_of_the_url_or_of_the_variable_or_the_default() -> None:
    environment = {"TEMPO_URL": "https://tempo.test/tempo"}
    assert create_source("tempo://", {}).base_url == "http://localhost:3200"
    assert create_source("tempo://", environment).base_url == "https://tempo.test/tempo"
    assert create_source("tempo://other.test:1", environment).base_url == "https://other.test:1"
    assert isinstance(create_source("tempo://", {}), TempoSource)


def test_the_query_of_the_url_is_sent(tmp_path: Path) -> None:
    with product_server(lambda _: accepted({"traces": []})) as server:
        pull(f'{tempo(server)}?query={{ resource.service.name = "shop" }}', tmp_path)
    assert server.received[0].query["q"] == '{ resource.service.name = "shop" }'


def test_an_invalid_query_is_reported_with_the_message_of_tempo(tmp_path: Path) -> None:
    with product_server(TempoApi([])) as server, pytest.raises(TraceFileError, match="invalid TraceQL query"):
        pull(f"{tempo(server)}?query={{", tmp_path)


def test_a_rejected_token_is_an_error_that_does_not_contain_it(tmp_path: Path) -> None:
    def answer(request: Request) -> Whole:
        return failed(401, f"rejected {request.headers['authorization']}")

    environment = {"TEMPO_TOKEN": "s3cret-token", "TEMPO_USERNAME": "4711"}
    encoded = base64.b64encode(b"4711:s3cret-token").decode()
    with product_server(answer) as server, pytest.raises(ConfigurationError, match="TEMPO_TOKEN") as error:
        pull(tempo(server), tmp_path, environment=environment)
    assert "s3cret-token" not in str(error.value)
    assert encoded not in str(error.value)


FOUND = {"traces": [{"traceID": "1"}]}


@pytest.mark.parametrize(
    ("search", "trace"),
    [
        (accepted([]), None),
        (HTML, None),
        (accepted({"traces": {"1": {}}}), None),
        (accepted({"traces": ["1"]}), None),
        (accepted({"traces": [{"id": "1"}]}), None),
        (accepted({"traces": [{"traceID": 1}]}), None),
        (accepted(FOUND), HTML),
        (accepted(FOUND), accepted([])),
        (accepted(FOUND), accepted({"trace": ["1"]})),
        (accepted(FOUND), accepted({"trace": {"resourceSpans": [3]}})),
        (accepted(FOUND), accepted({"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [3]}]}]}})),
        (
            accepted(FOUND),
            accepted({"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "x"}]}]}]}}),
        ),
        (raw(b"404 page not found", 404), None),
        (failed(500), None),
        (accepted(FOUND), failed(500)),
    ],
)
def test_a_reply_that_is_not_that_of_tempo_is_an_error(search: Whole, trace: Whole | None, tmp_path: Path) -> None:
    def answer(request: Request) -> Whole:
        if request.path == "/api/search":
            return search
        assert trace is not None
        return trace

    with product_server(answer) as server, pytest.raises(GoldspanError, match="tempo"):
        pull(tempo(server), tmp_path)


def interrupted(api: Callable[[Request], Whole], after: int) -> Callable[[Request], Whole]:
    """Answer some requests, and then fail."""
    left = iter(range(after))
    return lambda request: api(request) if next(left, None) is not None else failed(500)


@pytest.mark.parametrize("after", range(3, 23, 3))
def test_an_interrupted_pull_continues_where_it_ended(after: int, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * 250 * SECOND) for number in range(14)]
    api = TempoApi(traces)
    with product_server(interrupted(api, after)) as server:
        url = tempo(server)
        with pytest.raises(TraceFileError, match="500"):
            pull(url, tmp_path, page_size=4)
        state: dict[str, Any] = json.loads((tmp_path / "pull-state").read_text())
        assert not state["is_complete"]
        server.answer = api
        pull(url, tmp_path, page_size=4)
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}
