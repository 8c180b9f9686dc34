"""AG2, after `autogen/opentelemetry` of ag2; see also the recorded export of 0.13."""

from __future__ import annotations

import pytest

from goldspan.extraction import extract, role_of
from support.span_builders import agent, ask_for, inside, messages, model, span, tool, user


@pytest.mark.parametrize(
    ("kind", "operation", "role"),
    [
        ("conversation", "conversation", "entry"),
        ("multi_conversation", "initiate_chats", "entry"),
        ("speaker_selection", "speaker_selection", "aside"),
        ("agent", "invoke_agent", "agent"),
        ("tool", "execute_tool", "tool"),
        ("llm", "chat", "model"),
        ("code_execution", "execute_code", None),
        ("human_input", "await_human_input", None),
    ],
)
def test_the_operation_determines_the_role_of_a_span(kind: str, operation: str, role: str | None) -> None:
    assert role_of(span(ag2__span__type=kind, gen_ai__operation__name=operation)) == role


def test_a_conversation_of_two_agents_is_one_request() -> None:
    chat = span(
        "conversation proxy",
        ag2__span__type="conversation",
        gen_ai__operation__name="conversation",
        gen_ai__agent__name="proxy",
        gen_ai__conversation__id="s1",
        gen_ai__input__messages=messages(user("Go")),
        end_ns=10**15,
    )
    asking, acting = agent("asking", **inside(chat)), agent("proxy", **inside(chat))
    turn = model(asked=[user("Go")], answered=[ask_for(("x", {"n": 1}))], **inside(asking))
    (run,) = extract([chat, asking, turn, acting, tool("x", {"n": 1}, **inside(acting))])
    assert (run.agent, run.input, run.session_id, run.tools_used) == ("asking", "Go", "s1", ("x",))
