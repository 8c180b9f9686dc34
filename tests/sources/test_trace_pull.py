"""Tests of reading all pages of a time window, with failures and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from goldspan.errors import ConfigurationError, TraceFileError
from goldspan.sources import trace_pull
from goldspan.sources.pull_folder import PullFolder
from goldspan.sources.source_catalog import create_source
from goldspan.sources.time_window import TimeWindow
from goldspan.sources.trace_pull import PullProgress, TracePull
from support.model_endpoint import Reply, raw
from support.product_server import ProductServer, Request, accepted, failed, product_server
from support.pulls import HOUR, captured_runs, runs_of, spans_by_trace
from support.recorded_products import MLflowApi, PhoenixApi, whole_window

Answer = Callable[[Request], Reply]
TRACES = len(PhoenixApi().traces)


class FailsOnce:
    """Answers as an API, except for one request, which fails in the given ways first."""

    def __init__(self, api: Answer, number: int, *failures: Reply) -> None:
        self._api = api
        self._until = number
        self._failures = list(failures)

    def __call__(self, request: Request) -> Reply:
        self._until -= 1
        if self._until < 0 and self._failures:
            return self._failures.pop(0)
        return self._api(request)


def phoenix_pull(
    server: ProductServer,
    folder: Path,
    *,
    page_size: int = 3,
    max_traces: int = 1000,
    give_up_after: float = 60,
    pauses: list[float] | None = None,
) -> TracePull:
    url = f"phoenix+{server.url}"
    source = create_source(url, {})
    source.page_size = page_size
    waited = [] if pauses is None else pauses
    return TracePull(
        source,
        url,
        PullFolder(folder),
        max_traces=max_traces,
        give_up_after=give_up_after,
        pause=waited.append,
    )


def run(pull: TracePull, window: TimeWindow | None = None) -> list[PullProgress]:
    return list(pull.run(pull.resume(window or whole_window())))


def test_the_progress_counts_traces(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server:
        counts = [progress.traces for progress in run(phoenix_pull(server, tmp_path))]
    assert counts == [*range(3, TRACES, 3), TRACES]


@pytest.mark.parametrize(
    ("failure", "pause"),
    [
        (failed(503), 0.002),
        (failed(500), 0.002),
        (failed(429, retry_after="7"), 7),
        (failed(503, retry_after="2"), 2),
    ],
)
@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_request_is_repeated_while_the_tool_is_unavailable(
    failure: Reply, pause: float, number: int, tmp_path: Path
) -> None:
    pauses: list[float] = []
    with product_server(FailsOnce(PhoenixApi(), number, failure, failure)) as server:
        run(phoenix_pull(server, tmp_path, pauses=pauses))
    assert pauses == ([pause, pause] if pause > 1 else [pause, pause * 2])
    assert runs_of(tmp_path).keys() == captured_runs().keys()


def test_the_pauses_grow_up_to_a_maximum(tmp_path: Path) -> None:
    pauses: list[float] = []
    with product_server(lambda request: failed(503)) as server, pytest.raises(TraceFileError, match="503"):
        run(phoenix_pull(server, tmp_path, give_up_after=0.1, pauses=pauses))
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.02, 0.02, 0.02]


def test_a_tool_that_asks_for_a_long_pause_is_given_up_at_once(tmp_path: Path) -> None:
    pauses: list[float] = []
    with (
        product_server(lambda request: failed(429, retry_after="3600")) as server,
        pytest.raises(TraceFileError, match="429"),
    ):
        run(phoenix_pull(server, tmp_path, pauses=pauses))
    assert pauses == []


def test_a_tool_that_is_down_is_an_error(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server:
        pull = phoenix_pull(server, tmp_path, give_up_after=0)
    with pytest.raises(TraceFileError, match=r"^phoenix: .*refused"):
        run(pull)


@pytest.mark.parametrize("number", range(2, 8))
def test_an_interrupted_pull_continues(number: int, tmp_path: Path) -> None:
    with product_server(FailsOnce(PhoenixApi(), number, failed(503))) as server:
        with pytest.raises(TraceFileError):
            run(phoenix_pull(server, tmp_path, give_up_after=0))
        before = len(server.received)
        run(phoenix_pull(server, tmp_path), HOUR)  # the window of the first pull is continued
        again = len(server.received) - before
    assert again <= 2 * -(-TRACES // 3) - (number // 2) * 2
    assert spans_by_trace(tmp_path).total() == len(PhoenixApi().spans)
    assert runs_of(tmp_path).keys() == captured_runs().keys()


def test_a_complete_folder_is_not_read_again(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server:
        run(phoenix_pull(server, tmp_path))
        with pytest.raises(ConfigurationError, match=r"has all traces of .* score this folder, or name another one"):
            run(phoenix_pull(server, tmp_path))


def test_the_folder_of_another_source_is_an_error(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server, product_server(PhoenixApi()) as other:
        run(phoenix_pull(server, tmp_path))
        with pytest.raises(ConfigurationError, match=f"has traces of phoenix.{server.url}; name another folder"):
            run(phoenix_pull(other, tmp_path))


@pytest.mark.parametrize(("max_traces", "read"), [(1, 1), (3, 3), (4, 4), (7, 7)])
def test_reading_ends_after_the_latest_traces(max_traces: int, read: int, tmp_path: Path) -> None:
    api = PhoenixApi()
    with product_server(api) as server:
        steps = run(phoenix_pull(server, tmp_path, max_traces=max_traces))
    assert steps[-1].notices == (f"only the latest {read} traces were read; --max-traces allows no more",)
    assert set(spans_by_trace(tmp_path)) == {trace["trace_id"] for trace in api.traces[:read]}


def test_no_notice_is_needed_if_all_traces_are_allowed(tmp_path: Path) -> None:
    with product_server(PhoenixApi()) as server:
        steps = run(phoenix_pull(server, tmp_path, max_traces=TRACES))
    assert [step.notices for step in steps] == [()] * len(steps)
    assert len(spans_by_trace(tmp_path)) == TRACES


def test_a_page_that_is_too_large_is_read_in_smaller_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = PhoenixApi()
    largest = max(len(api(_spans_request(trace["trace_id"])).body) for trace in api.traces)
    monkeypatch.setattr(trace_pull, "MAX_REPLY_BYTES", largest)
    with product_server(api) as server:
        run(phoenix_pull(server, tmp_path, page_size=100))
    assert runs_of(tmp_path).keys() == captured_runs().keys()


def test_a_trace_that_is_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_pull, "MAX_REPLY_BYTES", 100)
    with (
        product_server(PhoenixApi()) as server,
        pytest.raises(TraceFileError, match="a single trace is too large to be read"),
    ):
        run(phoenix_pull(server, tmp_path))


def test_a_window_without_traces_has_one_empty_page(tmp_path: Path) -> None:
    with product_server(MLflowApi()) as server:
        url = f"mlflow+{server.url}"
        pull = TracePull(create_source(url, {}), url, PullFolder(tmp_path))
        assert run(pull, TimeWindow(1, 2)) == [PullProgress(0)]
    assert [path.name for path in tmp_path.iterdir()] == ["pull-state"]


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_refused_request_is_not_repeated(status: int, tmp_path: Path) -> None:
    pauses: list[float] = []
    answer = raw(b"{}", status, {"location": "https://elsewhere.example/"})
    with product_server(lambda request: answer) as server, pytest.raises((TraceFileError, ConfigurationError)):
        run(phoenix_pull(server, tmp_path, pauses=pauses))
    assert pauses == []
    assert len(server.received) == 1


def test_a_reply_without_a_body_is_an_error(tmp_path: Path) -> None:
    with product_server(lambda request: raw(b"")) as server, pytest.raises(TraceFileError, match="does not answer as"):
        run(phoenix_pull(server, tmp_path))


def _spans_request(trace_id: str) -> Request:
    lists = {"trace_id": [trace_id], "limit": ["1000"]}
    query = {name: values[-1] for name, values in lists.items()}
    return Request("GET", "/v1/projects/default/spans/otlpv1", query, lists, {}, None)


def test_a_reply_is_an_object(tmp_path: Path) -> None:
    with product_server(lambda request: accepted([])) as server, pytest.raises(TraceFileError):
        run(phoenix_pull(server, tmp_path))
