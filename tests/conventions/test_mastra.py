"""Mastra beyond the recorded exports, as implemented in `gen-ai-semantics.ts` of @mastra/otel-exporter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import span

read = installed_conventions().classify


def mastra(kind: str, operation: str | None = None, **attributes: Any) -> SpanRecord:
    return span(kind, **{"mastra.span.type": kind, "gen_ai.operation.name": operation or kind, **attributes})


@pytest.mark.parametrize(
    ("made", "role", "kind"),
    [
        (mastra("agent_run", "invoke_agent"), "agent", None),
        (mastra("workflow_run", "invoke_workflow"), "entry", None),
        (mastra("model_step", "agent_step"), "model", None),
        (mastra("model_chunk"), None, None),
        (mastra("workflow_step"), None, None),
        (mastra("tool_call", "execute_tool"), "tool", None),
        (mastra("provider_tool_call", "execute_tool"), "tool", "hosted"),
        (mastra("mcp_tool_call", "execute_tool"), "tool", None),
    ],
    ids=lambda value: value.name if isinstance(value, SpanRecord) else "",
)
def test_the_span_type_determines_role_and_kind(made: SpanRecord, role: str | None, kind: str | None) -> None:
    reading = read(made)
    assert (reading.role, reading.kind) == (role, kind)


def test_the_server_of_an_mcp_tool_is_its_address() -> None:
    reading = read(mastra("mcp_tool_call", "execute_tool", **{"gen_ai.tool.name": "add", "server.address": "orders"}))
    assert (reading.name, reading.server) == ("add", "orders")


def test_a_model_step_contains_its_requested_calls() -> None:
    root = mastra("agent_run", "invoke_agent", **{"mastra.agent_run.input": '[{"role": "user", "content": "Add"}]'})
    output = {"text": "", "toolCalls": [{"toolCallId": "c1", "toolName": "add", "args": {"a": 1}}]}
    answered = {"mastra.model_step.output": json.dumps(output)}
    step = mastra("model_step", "agent_step", parent_id=root.span_id, **answered)
    inner = mastra("model_inference", "chat", parent_id=step.span_id, **{"gen_ai.output.messages": "[]"})
    [run] = extract([root, step, inner])
    assert run.input == "Add"
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [("add", {"a": 1}, "c1")]


@pytest.mark.parametrize(
    ("attributes", "session"),
    [
        ({"gen_ai.conversation.id": "t-1", "mastra.metadata.sessionId": "s-1"}, "t-1"),
        ({"mastra.metadata.threadId": "t-1", "mastra.metadata.sessionId": "s-1"}, "t-1"),
        ({"mastra.metadata.sessionId": "s-1"}, "s-1"),
    ],
)
def test_the_session_is_the_thread_id(attributes: dict[str, str], session: str) -> None:
    assert read(mastra("agent_run", "invoke_agent", **attributes)).session_id == session
