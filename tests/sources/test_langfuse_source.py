"""Tests of reading traces out of Langfuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError
from goldspan.model.telemetry import SpanRecord
from goldspan.otlp.trace_files import read_records
from goldspan.sources.source_catalog import create_source
from goldspan.sources.time_window import TimeWindow
from support.model_endpoint import Whole, raw
from support.product_server import ProductServer, Request, accepted, failed, product_server
from support.pulls import HOUR, contents_of, pull, runs_of, spans_by_trace
from support.trace_servers import FIXTURES, HTML, LangfuseApi, tool_trace, traces_of, window_of

SECOND = 10**9
KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-public", "LANGFUSE_SECRET_KEY": "sk-lf-secret"}
CAPTURES = FIXTURES / "captures"
FAMILIES = FIXTURES / "families"
COMPLETE = [
    *(CAPTURES / f"{name}.pb.gz" for name in ("genai-conversation", "genai-mcp", "genai-retry")),
    *(CAPTURES / f"{name}.pb.gz" for name in ("openinference-client-retry", "openinference-client-repeated")),
    *(CAPTURES / f"{name}.pb.gz" for name in ("traceloop-decorators", "traceloop-flattened-messages")),
    *(
        FAMILIES / f"{name}.pb.gz"
        for name in ("langfuse-langchain-agents", "langfuse-sub-agent", "google_adk-latest-agents")
    ),
]
"""Traces of several conventions of which Langfuse keeps everything that the evaluation needs."""
VERSIONS = pytest.mark.parametrize("has_v2", [True, False])


def langfuse(server: ProductServer) -> str:
    return f"langfuse+{server.url}"


def span_of(observation: Mapping[str, Any], folder: Path) -> SpanRecord:
    """Read a trace with one observation, and return its span."""
    row = {"id": "2" * 16, "traceId": "1" * 32, "startTime": "2026-09-21T14:13:20.000Z", "type": "SPAN", **observation}
    with product_server(lambda _: accepted({"data": [row], "meta": {}})) as server:
        pull(langfuse(server), folder, environment=KEYS)
    (span,) = read_records(sorted(folder.glob("*.jsonl")))
    assert isinstance(span, SpanRecord)
    return span


@VERSIONS
def test_the_runs_read_from_langfuse_are_those_of_the_files(has_v2: bool, tmp_path: Path) -> None:
    traces = traces_of(*COMPLETE)
    with product_server(LangfuseApi(traces, has_v2=has_v2)) as server:
        assert pull(langfuse(server), tmp_path, window_of(traces), environment=KEYS, page_size=5) == []
    assert contents_of(runs_of(tmp_path)) == contents_of(runs_of(*COMPLETE))


@VERSIONS
def test_the_conventions_of_the_spans_are_known_again(has_v2: bool, tmp_path: Path) -> None:
    traces = traces_of(*COMPLETE)
    with product_server(LangfuseApi(traces, has_v2=has_v2)) as server:
        pull(langfuse(server), tmp_path, window_of(traces), environment=KEYS)
    read = {run_id: run.conventions for run_id, run in runs_of(tmp_path).items()}
    assert read == {run_id: run.conventions for run_id, run in runs_of(*COMPLETE).items()}


@VERSIONS
def test_every_page_is_read_and_no_trace_twice(has_v2: bool, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * 10 * SECOND) for number in range(40)]
    with product_server(LangfuseApi(traces, has_v2=has_v2)) as server:
        assert pull(langfuse(server), tmp_path, environment=KEYS, page_size=8) == []
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


@VERSIONS
def test_traces_of_one_millisecond_are_on_several_pages(has_v2: bool, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number) for number in range(40)]
    with product_server(LangfuseApi(traces, has_v2=has_v2)) as server:
        assert pull(langfuse(server), tmp_path, environment=KEYS, page_size=8) == []
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


def test_all_observations_of_a_large_trace_are_read(tmp_path: Path) -> None:
    large = tool_trace(0, HOUR.start_ns, services=("travel",) * 1200)
    with product_server(LangfuseApi([large])) as server:
        pull(langfuse(server), tmp_path, environment=KEYS)
    assert spans_by_trace(tmp_path) == {large.trace_id: 1201}


def test_a_trace_without_its_root_is_read(tmp_path: Path) -> None:
    trace = tool_trace(0, HOUR.start_ns)
    del trace.resource_spans[0]
    with product_server(LangfuseApi([trace])) as server:
        pull(langfuse(server), tmp_path, environment=KEYS)
    assert spans_by_trace(tmp_path) == {trace.trace_id: 1}


@VERSIONS
def test_a_trace_belongs_to_the_window_in_which_it_began(has_v2: bool, tmp_path: Path) -> None:
    window = TimeWindow(HOUR.start_ns + 300, HOUR.end_ns)
    before = tool_trace(0, HOUR.start_ns - 5_000_000)
    for part in before.resource_spans[1:]:  # its second span began in the window
        part["scopeSpans"][0]["spans"][0]["startTimeUnixNano"] = str(HOUR.start_ns + SECOND)
    inside = [tool_trace(1, window.start_ns), tool_trace(2, window.end_ns - 1_000_000)]
    after = tool_trace(3, window.end_ns)
    with product_server(LangfuseApi([before, *inside, after], has_v2=has_v2)) as server:
        pull(langfuse(server), tmp_path, window, environment=KEYS, page_size=1)
    assert set(spans_by_trace(tmp_path)) == {trace.trace_id for trace in inside}


def test_a_trace_that_began_before_the_window_is_asked_for_once(tmp_path: Path) -> None:
    before = tool_trace(0, HOUR.start_ns - SECOND, services=("travel",) * 8)
    for part in before.resource_spans[1:]:
        part["scopeSpans"][0]["spans"][0]["startTimeUnixNano"] = str(HOUR.start_ns + SECOND)
    with product_server(LangfuseApi([before])) as server:
        pull(langfuse(server), tmp_path, environment=KEYS, page_size=2)
    assert not spans_by_trace(tmp_path)
    assert sum("traceId" in request.query for request in server.received) == 1


def test_an_earlier_langfuse_is_asked_for_version_2_once(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(9)]
    with product_server(LangfuseApi(traces, has_v2=False)) as server:
        pull(langfuse(server), tmp_path, environment=KEYS, page_size=4)
    assert sum("v2" in request.path for request in server.received) == 1


def test_a_langfuse_that_did_not_enable_version_2_is_read_with_version_1(tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(3)]
    api = LangfuseApi(traces)

    def answer(request: Request) -> Whole:
        refusal = failed(501, "v2 APIs are currently in beta and only available on Langfuse Cloud")
        return refusal if "v2" in request.path else api(request)

    with product_server(answer) as server:
        pull(langfuse(server), tmp_path, environment=KEYS)
    assert spans_by_trace(tmp_path) == {trace.trace_id: 2 for trace in traces}


@VERSIONS
def test_a_langfuse_without_traces_is_empty(has_v2: bool, tmp_path: Path) -> None:
    with product_server(LangfuseApi([], has_v2=has_v2)) as server:
        assert pull(langfuse(server), tmp_path, environment=KEYS) == []
    assert not spans_by_trace(tmp_path)


def test_an_observation_without_a_trace_is_left_out(tmp_path: Path) -> None:
    rows = [{"id": "a", "traceId": None, "startTime": "2026-09-21T14:13:20.000Z"}]
    with product_server(lambda _: accepted({"data": rows, "meta": {}})) as server:
        pull(langfuse(server), tmp_path, environment=KEYS)
    assert len(server.received) == 1


def test_the_requests_have_the_parameters_of_the_api(tmp_path: Path) -> None:
    trace = tool_trace(0, HOUR.start_ns)
    with product_server(LangfuseApi([trace])) as server:
        pull(langfuse(server), tmp_path, environment=KEYS, page_size=7)
    search, observations = (request.query for request in server.received)
    assert search == {
        "fields": "core",
        "fromStartTime": "2026-09-21T14:13:20.000000Z",
        "toStartTime": "2026-09-21T15:13:20.000000Z",
        "limit": "7",
    }
    assert observations == {
        "traceId": trace.trace_id,
        "fields": "core,basic,io,metadata,model",
        "expandMetadata": "attributes,resourceAttributes,scope",
        "limit": "500",
    }


def test_metadata_can_be_an_object_or_text_or_one_key_for_each_value(tmp_path: Path) -> None:
    expected = {"gen_ai.tool.name": "search", "gen_ai.response.finish_reasons": ["stop"], "success": True}
    nested = {
        "attributes": {"gen_ai.tool.name": "search", "gen_ai.response.finish_reasons": '["stop"]', "success": "true"},
        "resourceAttributes": {"service.name": "travel"},
        "scope": {"name": "agents", "attributes": {}},
    }
    flat = {f"{part}.{name}": value for part, members in nested.items() for name, value in members.items()}
    flat |= {"attributes.gen_ai.response.finish_reasons": ["stop"], "attributes.success": True}
    texts = {name: json.dumps(value) for name, value in nested.items()}
    for number, metadata in enumerate((nested, flat, texts, json.dumps(nested))):
        span = span_of({"metadata": metadata}, tmp_path / str(number))
        attributes = {key: value for key, value in span.attributes.items() if key in expected}
        assert (attributes, span.resource, span.scope) == (expected, {"service.name": "travel"}, "agents")


@pytest.mark.parametrize(
    "metadata", [None, "no json", "[1]", [], {"attributes": 3, "scope": "x", "resourceAttributes": []}]
)
def test_an_observation_without_attributes_has_those_of_langfuse(metadata: Any, tmp_path: Path) -> None:
    observation = {
        "name": "search",
        "type": "TOOL",
        "input": {"city": "Porto"},
        "output": "3 hotels",
        "level": "WARNING",
        "statusMessage": "slow",
        "model": "gpt",
        "sessionId": "s-1",
        "userId": "u-1",
        "endTime": "2026-09-21T14:13:21.500Z",
        "metadata": metadata,
    }
    span = span_of(observation, tmp_path)
    assert dict(span.attributes) == {
        "langfuse.observation.type": "tool",
        "langfuse.observation.input": '{"city": "Porto"}',
        "langfuse.observation.output": "3 hotels",
        "langfuse.observation.level": "WARNING",
        "langfuse.observation.status_message": "slow",
        "langfuse.observation.model.name": "gpt",
        "session.id": "s-1",
        "user.id": "u-1",
    }
    assert (span.name, span.status, span.start_ns, span.end_ns) == (
        *("search", "unset"),
        *(HOUR.start_ns, HOUR.start_ns + 1_500_000_000),
    )


def test_an_observation_of_level_error_failed(tmp_path: Path) -> None:
    span = span_of({"level": "ERROR", "statusMessage": "no rooms", "parentObservationId": "3" * 16}, tmp_path)
    assert (span.status, span.status_message, span.parent_id) == ("error", "no rooms", "3" * 16)


def test_json_in_attributes_remains_text_and_identifiers_become_text_again(tmp_path: Path) -> None:
    metadata = {
        "attributes.tool_arguments": {"city": "Porto"},
        "attributes.tools": [{"name": "search"}],
        "attributes.texts": '[{"a": 1}]',
        "attributes.broken": "[1",
        "attributes.tokens": 12,
        "attributes.session.id": 4711,
        "attributes.langfuse.user.id": 12,
        "attributes.user.id": None,
    }
    span = span_of({"metadata": metadata, "sessionId": "9", "userId": "7"}, tmp_path)
    assert {key: value for key, value in span.attributes.items() if not key.startswith("langfuse.")} == {
        "tool_arguments": '{"city": "Porto"}',
        "tools": '[{"name": "search"}]',
        "texts": '[{"a": 1}]',
        "broken": "[1",
        "tokens": 12,
        "session.id": "4711",
    }
    assert span.attributes["langfuse.user.id"] == "12"


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        (
            ["gcp.vertex.agent.event_id", "gen_ai.tool.name"],
            "gcp.vertex.agent.tool_call_args gcp.vertex.agent.tool_response",
        ),
        (["gcp.vertex.agent.event_id"], "gcp.vertex.agent.llm_request gcp.vertex.agent.llm_response"),
        (["traceloop.span.kind"], "traceloop.entity.input traceloop.entity.output"),
        (["mlflow.spanType", "gen_ai.tool.name"], "mlflow.spanInputs mlflow.spanOutputs"),
        (["openinference.span.kind", "gen_ai.operation.name"], "input.value output.value"),
        (["langsmith.span.kind", "gen_ai.tool.name"], "gen_ai.prompt gen_ai.completion.0"),
        (["gen_ai.tool.name", "gen_ai.operation.name"], "gen_ai.tool.call.arguments gen_ai.tool.call.result"),
        (["gen_ai.operation.name", "gen_ai.system"], "gen_ai.input.messages gen_ai.output.messages"),
        (["other"], "langfuse.observation.input langfuse.observation.output"),
    ],
)
def test_input_and_output_go_back_to_the_attributes_of_the_convention(
    attributes: list[str], names: str, tmp_path: Path
) -> None:
    metadata = {"attributes": dict.fromkeys(attributes, "x")}
    span = span_of({"metadata": metadata, "input": '{"a": 1}', "output": ["b"], "type": "TOOL"}, tmp_path)
    input_name, output_name = names.split()
    output = "b" if output_name.endswith(".0") else '["b"]'
    assert (span.attributes[input_name], span.attributes[output_name]) == ('{"a": 1}', output)
    assert ("langfuse.observation.type" in span.attributes) == (attributes == ["other"])


def test_messages_of_an_early_convention_get_an_attribute_for_each_part_again(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "tool_calls": [{"name": "search"}]}]
    span = span_of({"metadata": {"attributes": {"gen_ai.system": "openai"}}, "input": messages}, tmp_path)
    assert dict(span.attributes) == {
        "gen_ai.system": "openai",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hello",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.name": "search",
    }


def test_the_keys_are_sent_as_basic_authentication(tmp_path: Path) -> None:
    with product_server(LangfuseApi([tool_trace(0, HOUR.start_ns)])) as server:
        pull(langfuse(server), tmp_path, environment=KEYS)
    headers = {request.headers["authorization"] for request in server.received}
    assert headers == {"Basic cGstbGYtcHVibGljOnNrLWxmLXNlY3JldA=="}


def test_the_address_is_that_of_the_url_or_of_the_variable_or_the_cloud() -> None:
    environment = {**KEYS, "LANGFUSE_HOST": "https://langfuse.test"}
    assert create_source("langfuse://", KEYS).base_url == "https://cloud.langfuse.com"
    assert create_source("langfuse://", environment).base_url == "https://langfuse.test"
    assert create_source("langfuse://localhost:3000", environment).base_url == "http://localhost:3000"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match="LANGFUSE_SECRET_KEY"):
        create_source("langfuse://", {"LANGFUSE_PUBLIC_KEY": "pk"})


def test_a_rejected_key_is_an_error_that_does_not_contain_it(tmp_path: Path) -> None:
    def answer(request: Request) -> Whole:
        return failed(401, f"Invalid credentials {request.headers['authorization']}")

    with product_server(answer) as server, pytest.raises(ConfigurationError, match="LANGFUSE_SECRET_KEY") as error:
        pull(langfuse(server), tmp_path, environment=KEYS)
    assert "cGstbGYtcHVibGljOnNrLWxmLXNlY3JldA" not in str(error.value)
    assert "sk-lf-secret" not in str(error.value)


ROW = {"id": "2" * 16, "traceId": "1" * 32, "startTime": "2026-09-21T14:13:20.000Z"}


@pytest.mark.parametrize(
    "reply",
    [
        HTML,
        accepted([]),
        accepted({"data": {"a": 1}}),
        accepted({"data": [3]}),
        accepted({"data": [], "meta": [3]}),
        accepted({"data": [{**ROW, "traceId": 7}]}),
        accepted({"data": [{**ROW, "startTime": "yesterday"}]}),
        accepted({"data": [{**ROW, "startTime": 7}]}),
        failed(400, "limit: too big"),
        failed(500),
    ],
)
def test_observations_that_are_not_those_of_version_2_are_an_error(reply: Whole, tmp_path: Path) -> None:
    with product_server(lambda _: reply) as server, pytest.raises(GoldspanError, match="langfuse"):
        pull(langfuse(server), tmp_path, environment=KEYS)


@pytest.mark.parametrize(
    ("traces", "trace"),
    [
        (HTML, None),
        (accepted([]), None),
        (accepted({"data": [3]}), None),
        (accepted({"data": [{"name": "x"}]}), None),
        (accepted({"data": [{"id": "1"}]}), HTML),
        (accepted({"data": [{"id": "1"}]}), accepted({"observations": {"a": 1}})),
        (accepted({"data": [{"id": "1"}]}), accepted({"observations": [3]})),
        (accepted({"data": [{"id": "1"}]}), failed(500)),
        (raw(b"no such page", 404), None),
    ],
)
def test_traces_that_are_not_those_of_version_1_are_an_error(
    traces: Whole, trace: Whole | None, tmp_path: Path
) -> None:
    def answer(request: Request) -> Whole:
        if "v2" in request.path:
            return failed(404, "no v2")
        if request.path == "/api/public/traces":
            return traces
        assert trace is not None
        return trace

    with product_server(answer) as server, pytest.raises(GoldspanError, match="langfuse"):
        pull(langfuse(server), tmp_path, environment=KEYS)


@VERSIONS
def test_a_trace_that_was_deleted_after_the_search_is_left_out(has_v2: bool, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(3)]
    api, less = LangfuseApi(traces, has_v2=has_v2), LangfuseApi(traces[1:], has_v2=has_v2)

    def answer(request: Request) -> Whole:
        is_search = "fromStartTime" in request.query or request.path == "/api/public/traces"
        return api(request) if is_search else less(request)

    with product_server(answer) as server:
        pull(langfuse(server), tmp_path, environment=KEYS)
    assert set(spans_by_trace(tmp_path)) == {trace.trace_id for trace in traces[1:]}


def interrupted(api: Callable[[Request], Whole], after: int) -> Callable[[Request], Whole]:
    """Answer some requests, and then fail."""
    left = iter(range(after))
    return lambda request: api(request) if next(left, None) is not None else failed(500)


@VERSIONS
@pytest.mark.parametrize("after", [1, 6, 9, 13])
def test_an_interrupted_pull_continues_where_it_ended(has_v2: bool, after: int, tmp_path: Path) -> None:
    traces = [tool_trace(number, HOUR.start_ns + number * SECOND) for number in range(14)]
    api = LangfuseApi(traces, has_v2=has_v2)
    with product_server(interrupted(api, after)) as server:
        url = langfuse(server)
        with pytest.raises(TraceFileError, match="500"):
            pull(url, tmp_path / "parts", environment=KEYS, page_size=6)
        server.answer = api
        pull(url, tmp_path / "parts", environment=KEYS, page_size=6)
        pull(url, tmp_path / "whole", environment=KEYS, page_size=6)
    assert set(spans_by_trace(tmp_path / "parts")) == {trace.trace_id for trace in traces}
    # A trace that is on two pages can be read again, which does not change its run.
    assert runs_of(tmp_path / "parts") == runs_of(tmp_path / "whole")
