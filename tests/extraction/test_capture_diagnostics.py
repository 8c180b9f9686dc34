"""Hints for users about the capture of their traces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.conventions import BUILT_IN
from goldspan.extraction import extract
from goldspan.extraction.capture_diagnostics import Hint, capture_hints, content_switches, merge_hints
from goldspan.model import Health, Run, ToolCall
from support.span_builders import agent, asks_for, messages, model, span, tool

COUNTS = st.integers(0, 3)
HEALTHS = st.builds(
    Health,
    orphan_spans=COUNTS,
    missing_root=st.booleans(),
    stitched=COUNTS,
    split=st.booleans(),
    dropped_attributes=COUNTS,
    arguments_absent=COUNTS,
    arguments_unreadable=COUNTS,
    content_off=st.booleans(),
    lookalikes=st.lists(st.text(), max_size=2, unique=True).map(tuple),
    merged=COUNTS,
    unended=COUNTS,
    began_late=COUNTS,
    calls_invisible=st.booleans(),
    unknown_spans=COUNTS,
    fallback=st.lists(st.text(), max_size=2, unique=True).map(tuple),
    calls_elsewhere=COUNTS,
    calls_nested=COUNTS,
    calls_unpaired=COUNTS,
    calls_unanswered=COUNTS,
    results_unknown=COUNTS,
    merged_beside=COUNTS,
    root_shared=COUNTS,
    without_content=st.lists(st.text(), max_size=2, unique=True).map(tuple),
    unknown_families=st.lists(st.text(), max_size=2, unique=True).map(tuple),
    idle_agents=st.lists(st.text(), max_size=2, unique=True).map(tuple),
)


def hint_summaries(run: Run) -> list[str]:
    return [hint.summary for hint in capture_hints(run)]


@given(HEALTHS)
def test_a_run_has_hints_if_and_only_if_its_health_is_not_clean(health: Health) -> None:
    assert bool(capture_hints(Run("r", health=health))) is not health.is_clean


@pytest.mark.parametrize(
    ("health", "told", "advice"),
    [
        pytest.param(Health(missing_root=True, orphan_spans=2), "the request's own span is missing", "sampling"),
        pytest.param(Health(calls_invisible=True, content_off=True), "no tool calls could have been seen", "enabled"),
        pytest.param(Health(orphan_spans=1), "1 span whose parent is missing", "sampling"),
        pytest.param(Health(content_off=True, arguments_absent=4), "no content recorded", "enabled"),
        pytest.param(Health(arguments_absent=4), "4 calls without arguments", "@goldspan.trace"),
        pytest.param(Health(dropped_attributes=3), "3 attributes dropped", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
        pytest.param(
            Health(arguments_unreadable=1), "1 call with unreadable arguments", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"
        ),
        pytest.param(Health(lookalikes=("tool call a",)), "1 unknown span that may be tools: tool call a", "@goldspan"),
        pytest.param(Health(stitched=2), "joined from 3 traces", "around each request"),
        pytest.param(Health(split=True), "split from a trace with several requests", "around each request"),
        pytest.param(Health(unended=1), "1 span that had not ended", "end last"),
        pytest.param(Health(fallback=("x.kind",)), "spans of an unknown family: x.kind", "add a convention"),
        pytest.param(Health(calls_elsewhere=1), "1 call shared with another run", "around each request"),
        pytest.param(Health(root_shared=2), "2 further runs in one request's span", "around each request"),
        pytest.param(Health(calls_unpaired=1), "1 call that may be counted twice", "disable one"),
        pytest.param(Health(calls_nested=1), "1 tool that executed other tools", "agents"),
        pytest.param(Health(calls_unanswered=1), "1 requested call without a result", "`extra: ignore`"),
        pytest.param(Health(results_unknown=3), "3 results of unknown calls", "missing"),
        pytest.param(Health(merged_beside=1), "1 span merged as a repetition", "different calls"),
        pytest.param(Health(idle_agents=("a",)), "1 agent without a turn: a", "not captured"),
        pytest.param(
            Health(began_late=2), "2 spans started after the run ended", "contextvars.Context().run(worker.start)"
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_problem_gives_one_hint_with_an_advice(health: Health, told: str, advice: str) -> None:
    (hint,) = capture_hints(Run("r", health=health))
    assert (hint.summary, advice in hint.advice) == (told, True)


@pytest.mark.parametrize("convention", [one for one in BUILT_IN if one.capture_setting], ids=lambda one: one.name)
def test_a_hint_names_the_capture_setting_of_the_convention(convention: object) -> None:
    run = Run("r", conventions=(convention.name,), health=Health(content_off=True))  # type: ignore[attr-defined]
    (hint,) = capture_hints(run)
    assert f"To record content: {convention.capture_setting} ({convention.title})." in hint.advice  # type: ignore[attr-defined]


def test_a_hint_names_only_the_capture_setting_of_the_specific_convention() -> None:
    def advice(*conventions: str) -> str:
        health = Health(arguments_absent=1, without_content=conventions)
        return capture_hints(Run("r", conventions=conventions, health=health))[0].advice

    assert "OTEL_INSTRUMENTATION_GENAI" not in advice("genai", "mcp", "pydantic_ai")
    assert "include_content=True" in advice("genai", "mcp", "pydantic_ai")
    assert "Frameworks that write these spans themselves" in advice("genai")


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("opentelemetry.instrumentation.openai_v2", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
        ("io.opentelemetry.openai-java-1.1", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"),
        ("goldspan", "To record content: GOLDSPAN_CAPTURE_ARGUMENTS=on (goldspan)."),
        ("agent_framework", "To record content: ENABLE_SENSITIVE_DATA=true (agent_framework)."),
        ("acme.agents", "Content capture may have to be enabled in acme.agents; goldspan knows no setting for it."),
    ],
)
def test_a_hint_names_the_capture_setting_of_the_instrumentation_scope(scope: str, told: str) -> None:
    root = agent(end_ns=10**15, scope=scope)
    (run,) = extract([root, tool("search", parent_id=root.span_id, scope=scope)])
    assert run.health.without_content == (scope,)
    (hint,) = capture_hints(run)
    assert told in hint.advice
    assert hint.advice.count("be enabled") + hint.advice.count("To record content") == 1


def test_a_hint_does_not_name_a_capture_setting_that_is_enabled() -> None:
    root = agent(end_ns=10**15, asked="Where is it?", scope="opentelemetry.instrumentation.x")
    (run,) = extract([root, tool("search", parent_id=root.span_id, scope="opentelemetry.instrumentation.x")])
    (hint,) = capture_hints(run)
    assert (hint.summary, "CAPTURE" in hint.advice) == ("1 call without arguments", False)
    assert "add @goldspan.trace to the tool functions" in hint.advice


def test_capture_settings_are_named_if_arguments_are_recorded_and_results_are_not() -> None:
    def told(*calls: ToolCall) -> bool:
        return bool(content_switches(Run("r", tool_calls=calls, conventions=("logfire",))))

    assert told(ToolCall("a", arguments={"n": 1}), ToolCall("b"))
    assert not told(ToolCall("a", arguments={"n": 1}), ToolCall("b", result=1))


def test_messages_without_text_are_not_content() -> None:
    said = messages({"role": "user", "parts": [{"type": "text"}]})
    root = agent(end_ns=10**15, gen_ai__input__messages=said, scope="pydantic-ai", pydantic_ai__all_messages=said)
    (run,) = extract([root, tool("search", parent_id=root.span_id, scope="pydantic-ai")])
    assert "include_content=True" in capture_hints(run)[0].advice


def test_no_recorded_content_is_detected_from_the_spans() -> None:
    root = agent(end_ns=10**15)
    (run,) = extract([root, tool("search", parent_id=root.span_id)])
    (hint,) = capture_hints(run)
    assert hint.summary == "no content recorded"
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT" in hint.advice


def test_the_hint_about_invisible_calls_is_first() -> None:
    root = agent(dropped_attributes=3, end_ns=10**15)
    plain = [span("GET", parent_id=root.span_id, http__method="GET"), span("SELECT", parent_id=root.span_id)]
    (run,) = extract([root, *plain, span("step", parent_id=root.span_id, acme__step=1, acme__words="x")])
    invisible, unknown, *others = capture_hints(run)
    assert invisible.summary == "no tool calls could have been seen"
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT" in invisible.advice
    assert unknown.summary == "3 spans that no convention knows"
    assert unknown.advice.startswith("Their attributes are `acme.*`.\n")
    assert "@goldspan.trace" in unknown.advice
    assert "docs/conventions.md" in unknown.advice
    assert [hint.summary for hint in others] == ["3 attributes dropped", "1 agent without a turn: helper"]


def test_an_unknown_span_with_the_name_of_an_offered_tool_gives_a_hint() -> None:
    root = agent(asked="Where is it?", end_ns=10**15, gen_ai__tool__definitions=messages({"name": "find_order"}))
    asked = model(answered=[asks_for("find_order", {"id": 1})], parent_id=root.span_id)
    (run,) = extract([root, asked, span("find_order", parent_id=root.span_id)])
    assert hint_summaries(run) == ["1 unknown span that may be tools: find_order", "1 requested call without a result"]


def test_tools_of_two_servers_with_the_same_name_give_a_hint() -> None:
    calls = (ToolCall("add", server="orders"), ToolCall("Add", server="stock"), ToolCall("add", server="Orders"))
    assert hint_summaries(Run("r", tool_calls=calls)) == ["1 tool name of several servers: add (Orders, stock)"]
    assert hint_summaries(Run("r", tool_calls=(calls[0], calls[2], ToolCall("add")))) == []


def test_hints_of_several_runs_are_merged_and_ordered_by_frequency() -> None:
    runs = [
        Run("1", health=Health(lookalikes=("a tool call",), arguments_absent=2)),
        Run("2", health=Health(arguments_absent=1)),
        Run("3", health=Health(lookalikes=("b tool call", "a tool call"), arguments_absent=1)),
    ]
    told = merge_hints(hint for run in runs for hint in capture_hints(run))
    assert [(hint.summary, count) for hint, count in told] == [
        ("4 calls without arguments", 3),
        ("2 unknown spans that may be tools: a tool call, b tool call", 2),
    ]


def test_a_hint_lists_only_the_first_names() -> None:
    hint = Hint("{n} span{s}", "", 7, tuple("abcdefg"))
    assert hint.summary == "7 spans: a, b, c, d, e and 2 more"
