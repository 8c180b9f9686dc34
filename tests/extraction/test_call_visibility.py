"""Runs without a tool call: no call was made, or no call would be visible."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from goldspan import semconv
from goldspan.conventions import BUILT_IN
from goldspan.extraction import extract, role_of
from goldspan.model import ComponentSelector, Health, Run, SpanRecord, TelemetryRecord
from goldspan.otlp.trace_files import read_records
from support.span_builders import agent, in_trace, inside, messages, model, says, span, system, tool, user

FIXTURES = Path(__file__).parent.parent / "fixtures"
OWN = {"scope": semconv.INSTRUMENTATION_SCOPE}
LONG = {"end_ns": 10**15}


def silent_model(**more: Any) -> SpanRecord:
    return span("chat", gen_ai__operation__name="chat", **more)


def run_of(*spans: SpanRecord, **options: Any) -> Run:
    (run,) = extract(spans, **options)
    return run


def is_invisible(*spans: SpanRecord) -> bool:
    run = run_of(*spans)
    assert run.tool_calls == ()
    return run.health.calls_invisible


# --- model messages ---------------------------------------------------------------------------------------------------


def test_a_model_answer_shows_that_the_model_called_no_tool() -> None:
    root = agent(asked="Hi", **LONG)
    assert not is_invisible(root, model(asked=[user("Hi")], answered=[says("Hello")], **inside(root)))


def test_a_later_turn_shows_that_an_unrecorded_answer_called_no_tool() -> None:
    root = agent(asked="Hi", **LONG)
    first = silent_model(**inside(root))
    asked = [system("Be kind"), user("Hi"), says("One moment"), says("Go on")]
    assert not is_invisible(root, first, model(asked=asked, **inside(root)))


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([system("Be kind")], id="system"),
        pytest.param([system("Be kind"), user("Hi")], id="prompt"),
        pytest.param([user("Hi"), says("Hello"), user("And?")], id="earlier request"),
    ],
)
def test_model_input_alone_does_not_show_whether_a_tool_was_called(asked: list[Any]) -> None:
    root = agent(asked="Hi", **LONG)
    assert is_invisible(root, model(asked=asked, **inside(root)))


@pytest.mark.parametrize("answer", [{"role": "assistant"}, says(""), says("  "), {"role": "assistant", "parts": []}])
def test_an_answer_without_content_does_not_show_whether_a_tool_was_called(answer: dict[str, Any]) -> None:
    root = agent(asked="Hi", **LONG)
    assert is_invisible(root, model(asked=[user("Hi")], answered=[answer], **inside(root)))


def test_the_output_of_an_agent_or_an_application_does_not_show_whether_a_tool_was_called() -> None:
    answered = messages(says("Hello"))
    assert is_invisible(agent(asked="Hi", gen_ai__output__messages=answered))
    framed = span("chain", openinference__span__kind="CHAIN", input__value="Hi", output__value="Hello", **LONG)
    assert is_invisible(framed, span("llm", openinference__span__kind="LLM", **inside(framed)))


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("gen_ai.response.finish_reasons", ["tool_calls"]),
        ("gen_ai.response.finish_reasons", '["TOOL_CALLS"]'),
        ("gen_ai.response.finish_reasons", ["stop", "tool-calls"]),
        ("gen_ai.response.finish_reasons", ["function_call"]),
        ("anthropic.message.stop_reason", "tool_use"),
        ("gen_ai.completion.0.finish_reason", "tool_calls"),
    ],
)
def test_a_tool_calls_finish_reason_outweighs_the_answer_of_another_model(attribute: str, reason: Any) -> None:
    root = agent(asked="Hi", **LONG)
    known = {"llm.request.type": "chat", attribute: reason}
    stopped = silent_model(**{key.replace(".", "__"): value for key, value in known.items()}, **inside(root))
    assert is_invisible(root, stopped, model(answered=[says("Done")], **inside(root)))


@pytest.mark.parametrize("reasons", [["stop"], ["end_turn"], ["length"], []])
def test_other_finish_reasons_alone_do_not_show_whether_a_tool_was_called(reasons: list[str]) -> None:
    root = agent(asked="Hi", **LONG)
    assert is_invisible(root, silent_model(gen_ai__response__finish_reasons=reasons, **inside(root)))


# --- spans of tools ---------------------------------------------------------------------------------------------------


def test_the_calls_of_a_run_with_a_call_are_never_invisible() -> None:
    root = agent(asked="Hi", **LONG)
    assert not run_of(root, tool("search", **inside(root))).health.calls_invisible
    assert not Run("of a case").health.calls_invisible


def test_a_component_that_is_a_tool_span_shows_that_its_calls_are_visible() -> None:
    root = agent(asked="Hi", **LONG)
    part = tool("search", {"q": 1}, **inside(root))
    run = run_of(root, part, unit="component", components=[ComponentSelector("finder", span="*search")])
    assert (run.tool_calls, run.health.calls_invisible) == ((), False)


# --- instrumentations that write a span for every call ----------------------------------------------------------------


def test_each_call_of_decorated_functions_has_a_span() -> None:
    root = agent(asked="Hi", **OWN, **LONG)
    assert not is_invisible(root)
    assert not is_invisible(root, agent("inner", **OWN, **inside(root)))


def test_an_unknown_span_may_be_a_tool_call() -> None:
    root = agent(asked="Hi", **OWN, **LONG)
    outer = span("GET /orders", **inside(root))
    inner = span("connect", **inside(outer))
    run = run_of(root, outer, inner)
    assert (run.health.calls_invisible, run.health.unknown_spans) == (True, 2)


def test_a_nested_agent_of_another_instrumentation_has_invisible_calls() -> None:
    root = agent(asked="Hi", **OWN, **LONG)
    assert is_invisible(root, agent("inner", scope="a.framework", **inside(root)))
    framework = agent(asked="Hi", scope="a.framework", **LONG)
    assert is_invisible(framework, span("part", goldspan__component__name="p", **OWN, **inside(framework)))


def test_only_the_scope_of_goldspan_records_a_span_for_each_call() -> None:
    assert {scope for one in BUILT_IN for scope in one.scopes_with_span_per_call} == {"goldspan"}


# --- unknown spans ----------------------------------------------------------------------------------------------------


def test_unknown_spans_inside_the_request_are_counted_and_are_not_a_problem() -> None:
    server = span("POST /chat", **LONG)
    root = agent(asked="Hi", **inside(server), **LONG)
    called = tool("search", **inside(root))
    query = span("SELECT", **inside(called))
    health = run_of(server, span("auth", **inside(server)), root, called, query, span("GET", **inside(query))).health
    assert health.unknown_spans == 2
    assert "unknown_spans" not in Health(unknown_spans=3).problems
    assert Health(unknown_spans=3).is_clean
    assert not Health(calls_invisible=True).is_clean


def test_a_cycle_of_unknown_spans_belongs_to_no_request() -> None:
    root = agent(asked="Hi", **LONG)
    one = span("a", span_id="a" * 16, parent_id="b" * 16)
    other = span("b", span_id="b" * 16, parent_id="a" * 16)
    assert run_of(root, one, other, span("c", **inside(one))).health.unknown_spans == 0


# --- merged runs ------------------------------------------------------------------------------------------------------


def test_calls_of_a_conversation_are_invisible_if_those_of_one_request_are() -> None:
    one = agent(asked="Hi", gen_ai__conversation__id="s", **in_trace(1), end_ns=10**15)
    heard = model(answered=[says("Hello")], parent_id=one.span_id, **in_trace(1))
    other = agent(asked="And?", gen_ai__conversation__id="s", start_ns=10**15 + 1, end_ns=10**15 + 9, **in_trace(2))
    (whole,) = extract([one, heard, other], unit="conversation")
    assert whole.health.calls_invisible
    (seen,) = extract([one, heard], unit="conversation")
    assert not seen.health.calls_invisible


def test_one_of_two_instrumentations_of_a_request_may_make_its_calls_visible() -> None:
    one = agent(asked="Hi", scope="one", start_ns=0, end_ns=10**9, **in_trace(1))
    other = agent(asked="Hi", scope="other", start_ns=1, end_ns=10**9, **in_trace(2))
    heard = model(answered=[says("Hello")], start_ns=2, end_ns=9, parent_id=other.span_id, **in_trace(2))
    (run,) = extract([one, other, heard])
    assert len(run.trace_ids) == 2
    assert not run.health.calls_invisible
    (blind,) = extract([one, other])
    assert blind.health.calls_invisible


# --- recorded exports -------------------------------------------------------------------------------------------------

_PAYLOADS = sorted(
    path for folder in ("captures", "families") for path in (FIXTURES / folder).iterdir() if ".runs." not in path.name
)
RECORDED = {
    name: list(paths)
    for name, paths in groupby(_PAYLOADS, key=lambda path: path.parent.name + "/" + path.name.partition(".")[0])
}
_SAID = re.compile(
    r"message|prompt|completion|input|output|content|response|result|request|observation|arguments|tool|invocation"
    r"|events|traceloop\.entity|^lk\.",
    re.IGNORECASE,
)
_TOLD = re.compile(r"tokens|usage|finish|\.kind$|\.type$|[._]type$|operation|component\.name", re.IGNORECASE)
"""The attributes of a span that remain without content."""


def without_calls(records: list[TelemetryRecord]) -> list[SpanRecord]:
    """The spans without tool spans and without messages."""
    return [
        replace(
            record,
            attributes={
                key: each for key, each in record.attributes.items() if not _SAID.search(key) or _TOLD.search(key)
            },
            events=(),
        )
        for record in records
        if isinstance(record, SpanRecord) and role_of(record) != "tool"
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_export_without_its_calls_has_invisible_calls(name: str) -> None:
    records = list(read_records(RECORDED[name]))
    assert not [run for run in extract(records) if run.tool_calls and run.health.calls_invisible]
    blind = [run for run in extract(without_calls(records)) if not run.tool_calls]
    assert [run.run_id for run in blind if not run.health.calls_invisible] == []
