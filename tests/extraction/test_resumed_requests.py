"""Requests with which a runtime goes on by itself, in another trace."""

from __future__ import annotations

from typing import Any

from goldspan.extraction import extract
from goldspan.model import Run, SpanRecord
from support.span_builders import agent, asks_for, in_trace, inside, messages, model, says, tool, user

GO = user("Wait for the shell.")


def served(number: int, *words: Any, of: str | None = "r1", does: str | None = None, **more: Any) -> list[SpanRecord]:
    """What a runtime does in one trace for a request, which it knows by an id: it answers some words, or none."""
    more = {"scope": "github.copilot", **more}
    asked = messages(*words) if words else None
    said = {"gen_ai__output__messages": messages(says(f"Answer {number}."))}
    root = agent("a", **in_trace(number), **said, **({"gen_ai__input__messages": asked} if asked else {}), **more)
    known = {**inside(root), **more, **({"github__copilot__interaction_id": of} if of else {})}
    step = model(asked=list(words), answered=[says("...")], **known)
    return [root, step, *([tool(does, {"n": number}, **inside(root), **more)] if does else [])]


def told(spans: list[SpanRecord]) -> list[tuple[str | None, str | None, tuple[str, ...]]]:
    return [(run.input, run.output, run.tools_used) for run in runs_in_any_order(spans)]


def runs_in_any_order(spans: list[SpanRecord]) -> list[Run]:
    runs = extract(spans)
    assert extract(reversed(spans)) == runs
    return runs


def test_what_is_done_later_without_a_word_of_the_user_belongs_to_the_request_it_serves() -> None:
    spans = [*served(1, GO, does="bash"), *served(2, does="read"), *served(3, does="tidy")]
    (run,) = runs_in_any_order(spans)
    assert (run.input, run.output, run.tools_used) == (GO["content"], "Answer 3.", ("bash", "read", "tidy"))
    assert (run.span_id, run.health.stitched) == (spans[0].span_id, 2)


def test_a_request_that_comes_between_keeps_its_own() -> None:
    other = user("And the rooms?")
    assert told([*served(1, GO), *served(2, other, of="r2", does="find"), *served(3, does="read")]) == [
        (GO["content"], "Answer 3.", ("read",)),
        ("And the rooms?", "Answer 2.", ("find",)),
    ]


def test_new_words_of_the_user_are_a_request_of_their_own_and_what_follows_serves_them() -> None:
    more = user("Go on.")
    assert told([*served(1, GO), *served(2, more), *served(3, does="read")]) == [
        (GO["content"], "Answer 1.", ()),
        ("Go on.", "Answer 3.", ("read",)),
    ]


def test_a_session_alone_does_not_tell_which_request_is_served() -> None:
    session = {"gen_ai__conversation__id": "s1"}
    assert len(extract([*served(1, GO, of=None, **session), *served(2, of=None, **session)])) == 2


def test_two_services_count_their_requests_apart() -> None:
    spans = [*served(1, GO, resource={"service.name": "a"}), *served(2, resource={"service.name": "b"})]
    assert len(extract(spans)) == 2


def test_what_serves_a_request_that_never_came_is_a_run_and_goes_on_itself() -> None:
    assert told([*served(1, does="read"), *served(2, does="tidy")]) == [(None, "Answer 2.", ("read", "tidy"))]


def test_a_turn_whose_own_span_is_lost_belongs_to_the_request_all_the_same() -> None:
    asked = served(1, GO)
    _, *rest = served(2, does="read")
    assert told([*asked, *rest]) == [(GO["content"], "...", ("read",))]


def test_what_a_sub_agent_is_asked_is_no_word_of_the_user() -> None:
    asked, (root, *rest) = served(1, GO), served(2)
    call = tool("explore", {"q": "?"}, **inside(root))
    inner = agent("explorer", asked="Look.", **inside(call))
    work = model(asked=[user("Look.")], answered=[asks_for("view", {}, "c1")], **inside(inner))
    assert told([*asked, root, *rest, call, inner, work]) == [(GO["content"], "Answer 2.", ("view",))]
