"""Requests that a runtime resumes in another trace."""

from __future__ import annotations

from typing import Any

from goldspan.extraction import extract
from goldspan.model import Run, SpanRecord
from support.span_builders import agent, asks_for, in_trace, inside, messages, model, says, tool, user

GO = user("Wait for the shell.")


def runtime_trace(
    number: int, *words: Any, of: str | None = "r1", does: str | None = None, **more: Any
) -> list[SpanRecord]:
    """The spans of a runtime in one trace for a request with an id, with or without a user message."""
    more = {"scope": "github.copilot", **more}
    asked = messages(*words) if words else None
    said = {"gen_ai__output__messages": messages(says(f"Answer {number}."))}
    root = agent("a", **in_trace(number), **said, **({"gen_ai__input__messages": asked} if asked else {}), **more)
    known = {**inside(root), **more, **({"github__copilot__interaction_id": of} if of else {})}
    step = model(asked=list(words), answered=[says("...")], **known)
    return [root, step, *([tool(does, {"n": number}, **inside(root), **more)] if does else [])]


def summary(spans: list[SpanRecord]) -> list[tuple[str | None, str | None, tuple[str, ...]]]:
    return [(run.input, run.output, run.tools_used) for run in runs_in_any_order(spans)]


def runs_in_any_order(spans: list[SpanRecord]) -> list[Run]:
    runs = extract(spans)
    assert extract(reversed(spans)) == runs
    return runs


def test_a_later_trace_without_a_user_message_belongs_to_the_request_with_its_id() -> None:
    spans = [*runtime_trace(1, GO, does="bash"), *runtime_trace(2, does="read"), *runtime_trace(3, does="tidy")]
    (run,) = runs_in_any_order(spans)
    assert (run.input, run.output, run.tools_used) == (GO["content"], "Answer 3.", ("bash", "read", "tidy"))
    assert (run.span_id, run.health.stitched) == (spans[0].span_id, 2)


def test_a_request_between_two_traces_of_another_keeps_its_own_calls() -> None:
    other = user("And the rooms?")
    assert summary(
        [*runtime_trace(1, GO), *runtime_trace(2, other, of="r2", does="find"), *runtime_trace(3, does="read")]
    ) == [
        (GO["content"], "Answer 3.", ("read",)),
        ("And the rooms?", "Answer 2.", ("find",)),
    ]


def test_a_new_user_message_starts_a_request_and_later_traces_belong_to_it() -> None:
    more = user("Go on.")
    assert summary([*runtime_trace(1, GO), *runtime_trace(2, more), *runtime_trace(3, does="read")]) == [
        (GO["content"], "Answer 1.", ()),
        ("Go on.", "Answer 3.", ("read",)),
    ]


def test_the_session_alone_does_not_identify_the_resumed_request() -> None:
    session = {"gen_ai__conversation__id": "s1"}
    assert len(extract([*runtime_trace(1, GO, of=None, **session), *runtime_trace(2, of=None, **session)])) == 2


def test_request_ids_of_two_services_are_separate() -> None:
    spans = [*runtime_trace(1, GO, resource={"service.name": "a"}), *runtime_trace(2, resource={"service.name": "b"})]
    assert len(extract(spans)) == 2


def test_traces_of_a_lost_request_are_one_run() -> None:
    assert summary([*runtime_trace(1, does="read"), *runtime_trace(2, does="tidy")]) == [
        (None, "Answer 2.", ("read", "tidy"))
    ]


def test_a_turn_whose_own_span_is_lost_belongs_to_the_resumed_request() -> None:
    asked = runtime_trace(1, GO)
    _, *rest = runtime_trace(2, does="read")
    assert summary([*asked, *rest]) == [(GO["content"], "...", ("read",))]


def test_the_input_of_a_sub_agent_is_not_a_user_message() -> None:
    asked, (root, *rest) = runtime_trace(1, GO), runtime_trace(2)
    call = tool("explore", {"q": "?"}, **inside(root))
    inner = agent("explorer", asked="Look.", **inside(call))
    work = model(asked=[user("Look.")], answered=[asks_for("view", {}, "c1")], **inside(inner))
    assert summary([*asked, root, *rest, call, inner, work]) == [(GO["content"], "Answer 2.", ("view",))]
