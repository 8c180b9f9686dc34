"""The facts that conventions read from a span, for cases that the recorded captures do not cover."""

from __future__ import annotations

import json

import pytest

from goldspan.conventions import installed_conventions
from goldspan.conventions.span_facts import SpanFacts
from support.span_builders import span

read = installed_conventions().classify

SCHEMA = json.dumps({"type": "object", "properties": {"q": {"type": "string"}}})


def test_a_span_of_no_convention_yields_no_facts() -> None:
    assert read(span("GET /", http__route="/")) == SpanFacts()


def test_two_conventions_on_one_span_complete_each_other() -> None:
    both = span(
        "x",
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="x",
        openinference__span__kind="TOOL",
        tool__name="other",
        input__value='{"a": 1}',
        tool_call__id="c1",
        session__id="s",
    )
    reading = read(both)
    assert (reading.role, reading.name, reading.conventions[:2]) == ("tool", "x", ("genai", "openinference"))
    assert reading.arguments is not None
    assert reading.arguments.value == {"a": 1}
    assert (reading.call_id, reading.session_id) == ("c1", "s")


def test_a_later_convention_that_knows_the_role_adds_the_kind() -> None:
    reading = read(span("handoff to b", gen_ai__conversation__id="s", openinference__span__kind="TOOL"))
    assert (reading.role, reading.kind, reading.session_id) == ("tool", "handoff", "s")


@pytest.mark.parametrize(
    ("attributes", "arguments"),
    [
        ({"input__value": "{}", "tool__parameters": SCHEMA}, {}),
        ({"tool__parameters": SCHEMA}, None),
        ({"tool__parameters": '{"q": "x"}'}, {"q": "x"}),
        ({}, None),
    ],
)
def test_openinference_parameters_are_arguments_unless_they_are_a_schema(
    attributes: dict[str, str], arguments: object
) -> None:
    written = read(span("x", openinference__span__kind="TOOL", tool__name="x", **attributes)).arguments
    assert (None if written is None else written.value) == arguments


@pytest.mark.parametrize(
    ("attributes", "role", "kind"),
    [
        ({"openinference__span__kind": "AGENT", "tool__name": "ask_agent"}, "tool", None),
        ({"openinference__span__kind": "RETRIEVER"}, "tool", "retrieval"),
        ({"openinference__span__kind": "CHAIN"}, None, None),
        ({"gen_ai__operation__name": "execute_tool", "gen_ai__tool__type": "datastore"}, "tool", "retrieval"),
        ({"gen_ai__operation__name": "create_agent"}, "aside", None),
        ({"gen_ai__operation__name": "embeddings"}, None, None),
        ({"gen_ai__operation__name": "invoke_workflow"}, "entry", None),
        ({"traceloop__span__kind": "workflow"}, "entry", None),
        ({"traceloop__span__kind": "task"}, None, None),
    ],
)
def test_attributes_determine_role_and_kind(attributes: dict[str, str], role: str | None, kind: str | None) -> None:
    reading = read(span("x", **attributes))
    assert (reading.role, reading.kind) == (role, kind)


def test_a_tool_span_without_a_name_attribute_gets_its_name_from_the_span_name() -> None:
    assert read(span("execute_tool search", gen_ai__operation__name="execute_tool")).span_name == "search"


def test_structured_arguments_keep_their_structure() -> None:
    reading = read(span("x", gen_ai__operation__name="execute_tool", gen_ai__tool__call__arguments={"n": 1}))
    assert reading.arguments is not None
    assert reading.arguments.value == {"n": 1}
