"""LiveKit Agents, after `livekit-agents/livekit/agents/telemetry/trace_types.py`, before and since content is marked
with `pii`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import span

CONTEXT = {"items": [{"type": "message", "role": "user", "content": ["What is the weather?"]}]}
CONTENT = (
    *("user_input", "chat_ctx", "response__text", "response__function_calls"),
    *("function_tool__output", "function_tool__arguments"),
)
CALLS = [{"id": "item_1", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}]


def conversation(mark: str = "", **failure: Any) -> list[SpanRecord]:
    """A turn with a tool, the turn with its result, and a second question."""
    session = span("agent_session")

    def inside(parent: SpanRecord, name: str, **attributes: Any) -> SpanRecord:
        named = {f"lk__{mark if key in CONTENT else ''}{key}": value for key, value in attributes.items()}
        return span(name, parent_id=parent.span_id, **named)

    turn = inside(session, "agent_turn", user_input="What is the weather?", generation_id="g1")
    model = inside(
        turn, "llm_node", chat_ctx=json.dumps(CONTEXT), response__text="", response__function_calls=json.dumps(CALLS)
    )
    told = {"function_tool__output": "Rain.", "function_tool__is_error": False, **failure}
    call = inside(
        turn,
        "function_tool",
        function_tool__name="weather",
        function_tool__id="c1",
        function_tool__arguments='{"city": "Oslo"}',
        **told,
    )
    reply = inside(session, "agent_turn", generation_id="g2", parent_generation_id="g1")
    words = inside(reply, "llm_node", response__text="It rains.")
    again = inside(session, "agent_turn", user_input="Thanks.", generation_id="g3")
    return [session, turn, model, call, reply, words, again]


@pytest.mark.parametrize("mark", ["", "pii__"])
def test_a_request_starts_at_the_user_turn_and_includes_the_reply_after_the_tool(mark: str) -> None:
    first, second = extract(conversation(mark))
    assert (first.input, first.output, first.tools_used) == ("What is the weather?", "It rains.", ("weather",))
    assert (second.input, second.tools_used) == ("Thanks.", ())
    [call] = first.tool_calls
    assert (call.arguments, call.result, call.call_id, call.outcome) == ({"city": "Oslo"}, "Rain.", "c1", "ok")


@pytest.mark.parametrize(("output", "error"), [("no network", "no network"), ("", "error")])
def test_the_is_error_flag_of_a_tool_determines_its_error(output: str, error: str) -> None:
    first, _ = extract(conversation(function_tool__output=output, function_tool__is_error=True))
    assert [call.error for call in first.tool_calls] == [error]
