"""Spans that no convention knows, read by common attribute names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goldspan
from goldspan import conventions
from goldspan.conventions import fallback
from goldspan.conventions.span_facts import SpanFacts
from goldspan.extraction import extract, role_of
from goldspan.extraction.reconciliation import run_checks
from goldspan.model import Run, SpanRecord
from support.span_builders import inside, model, span, tool, user

FAMILIES = Path(__file__).parent.parent / "fixtures" / "families"
TEXT = json.dumps


def acme(kind: str, name: str = "work", **attributes: Any) -> SpanRecord:
    return span(name, acme__span__kind=kind, **attributes)


def read_by_fallback(given: SpanRecord) -> SpanFacts | None:
    reader = fallback.reader_for(given.attribute_names())
    return None if reader is None else fallback.read_by_attribute_names(given, reader)


def only(*spans: SpanRecord) -> Run:
    (run,) = extract(spans)
    return run


# The role of a span.


@pytest.mark.parametrize(
    ("attribute", "kind", "role"),
    [
        ("acme.span.kind", "TOOL", "tool"),
        ("acme.span.type", "tool_call", "tool"),
        ("acme.observation.type", "agent", "agent"),
        ("acme.operation.name", "acme.toolCall", "tool"),
        ("acme.operationId", "execute_tool", "tool"),
        ("acme_span_type", "llm", "model"),
        ("acme.run_type", "chain", "entry"),
        ("acme.kind", "workflow", "entry"),
        ("acme.core.type", "retriever", "tool"),
        ("span.kind", "generation", "model"),
        # Words with another meaning if the attribute may not be the span kind.
        ("acme.kind", "generation", None),
        ("acme.type", "conversation", None),
        ("acme.type", "function", None),
        ("acme.tool_type", "tool", None),
        ("acme.messages.0.type", "tool", None),
        ("error.type", "ToolError", None),
        ("acme.span.kind", "embedding", None),
    ],
)
def test_an_attribute_with_a_common_name_determines_the_role_of_a_span(
    attribute: str, kind: str, role: str | None
) -> None:
    read = read_by_fallback(SpanRecord("1" * 32, "2" * 16, "3" * 16, "x", {attribute: kind, "acme.input": "Go"}))
    assert (read.role if read else None) == role
    assert (read.guessed_from if read else attribute) == attribute


def test_a_span_without_input_and_output_is_not_read() -> None:
    assert read_by_fallback(acme("tool", "search")) is None
    assert role_of(acme("tool", "search")) is None
    assert role_of(acme("tool", "search", acme__input="Go")) == "tool"


def test_a_root_span_without_a_kind_is_a_request() -> None:
    root = acme("span", "trip", acme__input="Go", acme__output="Done.", end_ns=10**15)
    inner = acme("span", "step", acme__input="x", **inside(root))
    run = only(root, inner, acme("tool", "search", acme__input='{"q": 1}', **inside(inner)))
    assert (run.input, run.output, run.tools_used) == ("Go", "Done.", ("search",))


# The content of a span.


def request(**facts: Any) -> list[SpanRecord]:
    """A request as an unknown instrumentation would export it."""
    root = acme("agent", "planner", acme__input="Go", acme__output="Done.", acme__session__id="s1", end_ns=10**15)
    return [root, acme("tool", "search", **inside(root), **facts)]


def test_a_request_has_input_output_session_and_agent() -> None:
    run = only(*request(acme__input='{"q": 1}', acme__output='"found"'))
    assert (run.agent, run.input, run.output, run.session_id) == ("planner", "Go", "Done.", "s1")
    (call,) = run.tool_calls
    assert (call.name, call.arguments, call.result, call.kind) == ("search", {"q": 1}, "found", "tool")
    assert run.conventions == ("fallback",)
    assert (run.health.fallback, run.health.is_clean) == (("acme.span.kind",), False)


@pytest.mark.parametrize(
    ("facts", "arguments", "result"),
    [
        ({"acme__tool__arguments": '{"q": 1}', "acme__tool__result": "3"}, {"q": 1}, 3),
        ({"input__value": "{'q': 1}", "output__value": "three"}, {"q": 1}, "three"),
        ({"acme__input": '{"type": "json", "value": {"q": 1}}', "acme__output": "3"}, {"q": 1}, 3),
        ({"acme__input": '{"args": [], "kwargs": {"q": 1}}', "acme__response": "3"}, {"q": 1}, 3),
        # Attributes of the instrumentation precede attributes that others added.
        ({"other__input": "no", "acme__input": '{"q": 1}', "acme__output": "3"}, {"q": 1}, 3),
    ],
)
def test_arguments_and_results_are_unwrapped_from_their_envelopes(facts: Any, arguments: Any, result: Any) -> None:
    (call,) = only(*request(**facts)).tool_calls
    assert (call.arguments, call.result) == (arguments, result)


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("search", {}, "search"),
        ("execute_tool search", {}, "search"),
        ("search.tool", {}, "search"),
        ("tool: search", {}, "search"),
        ("ai.toolCall", {"acme__toolCall__name": "search"}, "search"),
        ("run", {"tool_name": "search"}, "search"),
    ],
)
def test_a_tool_name_is_an_attribute_or_else_the_span_name(name: str, facts: Any, expected: str) -> None:
    run = only(acme("tool", name, acme__input="{}", **facts))
    assert run.tools_used == (expected,)


def test_call_id_error_and_kind_are_read() -> None:
    found = only(*request(acme__input="{}", acme__tool__call__id="c1", acme__error="boom")).tool_calls
    assert [(call.call_id, call.error) for call in found] == [("c1", "boom")]
    root, _ = request(acme__input="{}")
    others = [acme(kind, kind, acme__input="{}", **inside(root)) for kind in ("retriever", "handoff")]
    assert [call.kind for call in only(root, *others).tool_calls] == ["retrieval", "handoff"]


@pytest.mark.parametrize(
    "spoken",
    [
        {
            "acme__input": TEXT([{"role": "user", "content": "Go"}]),
            "acme__output": TEXT([{"role": "assistant", "tool_calls": [{"function": {"name": "x"}}]}]),
        },
        {
            "acme__input": TEXT({"type": "chat_messages", "value": [{"role": "user", "content": "Go"}]}),
            "acme__output": TEXT(
                {"type": "json", "value": [{"role": "assistant", "tool_calls": [{"name": "x", "args": {}}]}]}
            ),
        },
        {
            "acme__input__messages__0__message__role": "user",
            "acme__input__messages__0__message__content": "Go",
            "acme__output__messages__0__message__role": "assistant",
            "acme__output__messages__0__message__tool_calls__0__tool_call__function__name": "x",
            "acme__output__messages__0__message__tool_calls__0__tool_call__function__arguments": "{}",
        },
        {
            "acme__prompt__0__role": "user",
            "acme__prompt__0__content": "Go",
            "acme__completion__0__role": "assistant",
            "acme__completion__0__tool_calls__0__name": "x",
            "acme__completion__0__tool_calls__0__arguments": "{}",
        },
    ],
    ids=["text", "envelope", "flat", "flat prompt"],
)
def test_model_messages_give_the_requested_calls(spoken: Any) -> None:
    run = only(acme("llm", "chat", **spoken))
    assert (run.input, run.tools_used) == ("Go", ("x",))
    assert run.tool_calls[0].evidence == "requested"


# Spans that the fallback ignores.


def test_the_fallback_ignores_spans_of_a_scope_that_a_convention_knows() -> None:
    known = span("x", openinference__span__kind="TOOL", input__value="{}", scope="known")
    other = acme("tool", "y", acme__input="{}", scope="known", **inside(known))
    run = only(known, other)
    assert (run.tools_used, run.health.fallback) == (("x",), ())
    run = only(known, acme("tool", "y", acme__input="{}", scope="unknown"))
    assert (run.tools_used, run.health.fallback) == (("x", "y"), ("acme.span.kind",))


def test_genai_spans_in_the_same_trace_do_not_disable_the_fallback() -> None:
    root = acme("conversation", "talk", acme__input="Go", end_ns=10**15)
    run = only(root, tool("x", {}, **inside(root)), model(asked=[user("Go")], **inside(root)))
    assert (run.span_name, run.tools_used, run.health.fallback) == ("talk", ("x",), ("acme.span.kind",))


def test_the_content_of_a_model_span_with_only_a_model_name_is_read_by_the_fallback() -> None:
    spoken = {"acme__input": TEXT([{"role": "user", "content": "Go"}]), "gen_ai__request__model": "m"}
    asked = TEXT([{"role": "assistant", "tool_calls": [{"name": "x", "args": {}}]}])
    run = only(acme("llm", "chat", acme__output=asked, **spoken))
    assert (run.input, run.tools_used, run.health.fallback) == ("Go", ("x",), ("acme.span.kind",))


def test_a_span_unrelated_to_an_agent_is_ignored() -> None:
    assert extract([span("GET /", http__request__method="GET", network__type="ipv4", http__request__body="tool")]) == []


def test_calls_of_an_unknown_instrumentation_may_be_invisible() -> None:
    root = acme("agent", "planner", acme__input="Go", acme__output="Done.")
    said = TEXT([{"role": "assistant", "content": "Done."}])
    run = only(root, acme("llm", "chat", acme__output=said, **inside(root)))
    assert run.health.calls_invisible


@given(
    st.dictionaries(
        st.sampled_from(
            ["acme.span.kind", "acme.input", "acme.output", "acme.messages.0.role", "acme.tool.name", "x.type"]
        ),
        st.one_of(st.none(), st.text(), st.integers(), st.lists(st.text()), st.sampled_from(["tool", "llm", "agent"])),
    )
)
def test_any_attribute_value_is_read_without_an_error(attributes: dict[str, Any]) -> None:
    for run in extract([SpanRecord("1" * 32, "2" * 16, None, "x", attributes, start_ns=1, end_ns=2)]):
        assert run.health.fallback


# Recorded exports read without their convention.


@pytest.fixture
def without() -> Iterator[Any]:
    """Take a convention away."""
    every = conventions.BUILT_IN

    def take(*names: str) -> None:
        conventions.BUILT_IN = tuple(one for one in every if one.name not in names)
        conventions.installed_conventions.cache_clear()
        run_checks._scopes_with_span_per_call.cache_clear()

    yield take
    take()


@pytest.mark.parametrize(
    ("convention", "recorded"),
    [
        ("openinference", "openinference-langgraph-js-retry"),
        ("openinference", "openinference-llama-index-retry"),
        ("langfuse", "langfuse-sub-agent"),
        ("spring_ai", "spring_ai-retry"),
        ("vercel", "vercel-6-retry"),
        ("genai", "semantic_kernel-retry"),
    ],
)
def test_a_recorded_export_yields_its_calls_without_its_convention(
    without: Any, convention: str, recorded: str
) -> None:
    paths = [path for path in sorted(FAMILIES.iterdir()) if path.name.partition(".")[0] == recorded]
    payload = [path for path in paths if not path.name.endswith(".runs.json")]
    known = [(run.tools_used, [call.error is None for call in run.tool_calls]) for run in goldspan.load_runs(*payload)]
    without(convention)
    runs = list(goldspan.load_runs(*payload))
    assert [(run.tools_used, [call.error is None for call in run.tool_calls]) for run in runs] == known
    assert all(run.health.fallback or convention == "genai" for run in runs)
