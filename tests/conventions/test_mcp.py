"""Spans of the Model Context Protocol beyond the recorded exports."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, span, tool


def call(name: str = "tools/call add", **attributes: Any) -> SpanRecord:
    return span(name, **{"mcp.method.name": "tools/call", **attributes})


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        pytest.param("x", {"gen_ai.tool.name": "add"}, "add", id="the standard's name"),
        pytest.param("x", {"mcp.tool.name": "add"}, "add", id="Sentry's name"),
        pytest.param("x", {"fastmcp.component.key": "tool:add@v2"}, "add", id="a versioned key of fastmcp"),
        pytest.param("x", {"fastmcp.component.key": "add"}, "add", id="a bare key of fastmcp"),
        pytest.param("tools/call add", {}, "add", id="the span's name"),
        pytest.param("MCP send tools/call add", {}, "add", id="the Python SDK's name"),
    ],
)
def test_a_call_gets_its_tool_name_from_span_name_or_attributes(
    name: str, attributes: dict[str, str], expected: str
) -> None:
    [run] = extract([call(name, **attributes)])
    assert [made.name for made in run.tool_calls] == [expected]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param({"gen_ai.tool.call.arguments": '{"a": 1}'}, {"a": 1}, id="opt-in attribute of the standard"),
        # sentry-python, integrations/mcp.py; sentry-javascript, mcp-server
        pytest.param({"mcp.request.argument.a": "1", "mcp.request.argument.b": '"x"'}, {"a": 1, "b": "x"}, id="Sentry"),
        pytest.param({"mcp.request.arguments": '{"name": "add", "arguments": {"a": 1}}'}, {"a": 1}, id="with its name"),
        pytest.param({}, None, id="not recorded"),
    ],
)
def test_arguments_are_read_from_each_attribute(attributes: dict[str, str], expected: Any) -> None:
    [run] = extract([call(**attributes)])
    assert [made.arguments for made in run.tool_calls] == [expected]


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"error.type": "tool_error"}, "tool_error"),
        ({"error.type": "-32602"}, "-32602"),
        ({"mcp.tool.result.is_error": True, "mcp.tool.result.content": "no such room"}, "no such room"),
        ({"mcp.tool.result.is_error": True}, "tool_error"),
        ({"mcp.tool.result.is_error": False, "mcp.tool.result.content": "fine"}, None),
        ({"gen_ai.tool.call.result": {"content": [{"type": "text", "text": "bad"}], "isError": True}}, "bad"),
    ],
)
def test_attributes_determine_the_error_of_a_call(attributes: dict[str, Any], error: str | None) -> None:
    [run] = extract([call(**attributes)])
    assert [made.error for made in run.tool_calls] == [error]


@pytest.mark.parametrize("method", ["initialize", "tools/list", "prompts/get", "resources/read", "server/discover"])
def test_discovery_is_not_a_request(method: str) -> None:
    assert extract([span(method, **{"mcp.method.name": method}), span("x", **{"rpc.method": method})]) == []


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        # fastmcp 2.13, server/telemetry.py
        ({"rpc.system": "mcp", "rpc.method": "tools/call", "fastmcp.component.key": "add"}, "tool"),
        ({"rpc.system": "grpc", "rpc.method": "tools/call"}, None),
    ],
)
def test_an_rpc_span_has_a_role_only_if_it_is_an_mcp_call(attributes: dict[str, str], role: str | None) -> None:
    assert installed_conventions().classify(span("x", **attributes)).role == role


def test_four_spans_of_one_call_are_one_call_with_its_server() -> None:
    root = agent()
    framework = tool("orders_add", {"a": 1}, parent_id=root.span_id, end_ns=None)
    client = call("tools/call add", parent_id=framework.span_id, **{"gen_ai.tool.name": "add"})
    sdk = call("MCP send tools/call add", parent_id=client.span_id)
    server = call("tools/call add", parent_id=sdk.span_id, **{"fastmcp.server.name": "orders"})
    [run] = extract([root, framework, client, sdk, server])
    assert [(made.name, made.server, made.arguments) for made in run.tool_calls] == [("orders_add", "orders", {"a": 1})]
    assert run.health.merged == 3


def test_a_span_of_a_call_whose_parent_is_lost_belongs_to_the_same_call() -> None:
    root = agent(start_ns=0, end_ns=100)
    framework = tool("orders_add", {"a": 1}, parent_id=root.span_id, start_ns=10, end_ns=50)
    sdk = call("MCP send tools/call add", parent_id="f" * 16, start_ns=20, end_ns=40)
    later = call("MCP send tools/call add", parent_id="e" * 16, start_ns=60, end_ns=70)
    [run] = extract([root, framework, sdk])
    assert run.tools_used == ("orders_add",)
    [run] = extract([root, framework, later])
    assert run.tools_used == ("orders_add", "add")


def test_the_mcp_session_is_not_the_session_of_the_run() -> None:
    [run] = extract([call(**{"mcp.session.id": "191c4850"})])
    assert run.session_id is None
