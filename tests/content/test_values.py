"""Arguments and results in the notations and envelopes of tracers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content import envelopes, literals, values
from goldspan.model import ABSENT


def _nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _pairs(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [{}, value]
    return value


CITY = {"city": "Cairo", "nested": {"x": [1, 2.5, None, True]}}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(json.dumps(CITY), id="JSON"),
        pytest.param(json.dumps(json.dumps(CITY)), id="JSON in JSON"),
        pytest.param(repr(CITY), id="Python repr"),
        pytest.param(CITY, id="structured attribute"),
        pytest.param(json.dumps(CITY).encode(), id="bytes"),
        pytest.param(json.dumps({"args": [], "kwargs": CITY}), id="decorator's envelope"),
        pytest.param(json.dumps({"kwargs": CITY}), id="named arguments alone"),
        pytest.param(json.dumps({"args": [], "sanitize_inputs_outputs": True, "kwargs": CITY}), id="smolagents"),
        pytest.param(json.dumps({"args": [CITY], "kwargs": {}}), id="one dictionary as the only positional argument"),
        pytest.param({"name": "f", "args": CITY, "id": "c1", "type": "tool_call"}, id="LangChain's tool call"),
    ],
)
def test_arguments_are_read_in_every_notation(written: object) -> None:
    assert values.decode_arguments(written) == (CITY, None)


@pytest.mark.parametrize(
    ("written", "read", "raw"),
    [
        pytest.param(ABSENT, None, None, id="not captured"),
        pytest.param("", {}, None, id="empty text means no arguments"),
        pytest.param('{"city": "Par', None, '{"city": "Par', id="cut off"),
        pytest.param('{"city": oops}', None, '{"city": oops}', id="no known notation"),
        pytest.param("Kyoto", None, "Kyoto", id="a bare text"),
        pytest.param("[1, 2]", [1, 2], None, id="positional"),
        pytest.param("42", 42, None, id="a single number"),
        pytest.param('{"args": [1, 2], "kwargs": {}}', [1, 2], None, id="positional in an envelope"),
        pytest.param('{"args": [1], "kwargs": {"b": 2}}', {"b": 2, "args": [1]}, None, id="mixed"),
        pytest.param('{"kwargs": 1, "city": "x"}', {"kwargs": 1, "city": "x"}, None, id="a tool's own key kwargs"),
        pytest.param('{"kwargs": "x"}', {"kwargs": "x"}, None, id="a key kwargs that holds no arguments"),
        pytest.param('{"args": ["-l"]}', {"args": ["-l"]}, None, id="a tool's own key args"),
        pytest.param('{"inputs": {"a": 1}}', {"inputs": {"a": 1}}, None, id="a tool's own key inputs"),
        pytest.param('{"id": 12345678901234567890123}', {"id": 12345678901234567890123}, None, id="a big integer"),
        pytest.param("[" * 150 + "]" * 150, _nested(150), None, id="a value nested deeply"),
        pytest.param("[{}, " * 150 + "1" + "]" * 150, _pairs(150), None, id="many brackets, not so deep"),
        pytest.param("[" * 900 + "]" * 900, None, "[" * 900 + "]" * 900, id="a value nested too deeply to handle"),
        pytest.param("{'f': print(1)}", None, "{'f': print(1)}", id="a call is no literal"),
    ],
)
def test_unusual_arguments_are_read_or_kept_as_raw_arguments(written: object, read: object, raw: str | None) -> None:
    assert values.decode_arguments(written) == (read, raw)


CALLBACK = {
    "input_str": "{'city': 'Porto'}",
    "tags": ["seq:step:1"],
    "metadata": {"thread_id": "t"},
    "inputs": {"city": "Porto"},
    "kwargs": {"color": "green", "name": None, "tool_call_id": "c1"},
}


@pytest.mark.parametrize(
    ("written", "envelope", "request_"),
    [
        (CALLBACK, envelopes.langchain_callback, envelopes.CallArguments({"city": "Porto"}, "c1")),
        ({**CALLBACK, "inputs": None}, envelopes.langchain_callback, envelopes.CallArguments({"city": "Porto"}, "c1")),
        (
            {"args": ['{"order_id":"991"}']},
            envelopes.positional_arguments,
            envelopes.CallArguments({"order_id": "991"}),
        ),
        ({"args": ["a", 2]}, envelopes.positional_arguments, envelopes.CallArguments(["a", 2])),
        (
            {"tool_name": "find", "arguments": {"q": 1}},
            envelopes.mcp_request,
            envelopes.CallArguments({"q": 1}, name="find"),
        ),
        (
            {"method": "tools/call", "params": {"name": "find", "arguments": {"q": 1}}, "jsonrpc": "2.0"},
            envelopes.mcp_request,
            envelopes.CallArguments({"q": 1}, name="find"),
        ),
        ({"input_args": {"q": 1}}, envelopes.keyed_arguments("input_args"), envelopes.CallArguments({"q": 1})),
        (
            {"name": "find", "args": {"q": 1}, "id": "c1", "type": "tool_call"},
            envelopes.langchain_tool_call,
            envelopes.CallArguments({"q": 1}, "c1", "find"),
        ),
    ],
)
def test_the_argument_envelope_of_a_framework_is_unwrapped_if_its_convention_requests_it(
    written: dict[str, Any], envelope: envelopes.ArgumentOpener, request_: envelopes.CallArguments
) -> None:
    assert envelopes.unwrap_arguments(json.dumps(written), envelope) == request_
    assert values.decode_arguments(written, envelope) == (request_.arguments, None)


@pytest.mark.parametrize(
    ("own", "envelope"),
    [
        ({"inputs": {"a": 1}, "tags": ["x"], "city": "Porto"}, envelopes.langchain_callback),
        ({"inputs": {"a": 1}}, envelopes.langchain_callback),
        ({"args": "-l"}, envelopes.positional_arguments),
        ({"tool_name": "find", "arguments": {}, "depth": 2}, envelopes.mcp_request),
        ({"input_args": 1, "more": 2}, envelopes.keyed_arguments("input_args")),
    ],
)
def test_arguments_that_match_an_envelope_only_in_part_belong_to_the_tool(
    own: dict[str, Any], envelope: envelopes.ArgumentOpener
) -> None:
    assert values.decode_arguments(json.dumps(own), envelope) == (own, None)


def test_an_argument_is_kept_if_the_schema_has_a_parameter_with_the_name_of_the_envelope() -> None:
    schema = {"type": "object", "properties": {"args": {"type": "array"}, "kwargs": {"type": "object"}}}
    own = {"args": [1], "kwargs": {"a": 2}}
    assert values.decode_arguments(json.dumps(own), parameters=schema) == (own, None)


def schema_of(**types: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}


@pytest.mark.parametrize(
    ("written", "parameters", "read"),
    [
        pytest.param("Kyoto", schema_of(city="string"), {"city": "Kyoto"}, id="a bare text"),
        pytest.param('"Kyoto"', schema_of(city="string"), {"city": "Kyoto"}, id="a quoted text"),
        pytest.param('"5"', schema_of(code="string"), {"code": "5"}, id="a quoted number is a text"),
        pytest.param("12345", schema_of(order_id="string"), {"order_id": "12345"}, id="digits that are a text"),
        pytest.param("007", schema_of(order_id="string"), {"order_id": "007"}, id="digits that are no number"),
        pytest.param("12345", schema_of(count="integer"), {"count": 12345}, id="a number"),
        pytest.param("[a] b", schema_of(note="string"), {"note": "[a] b"}, id="a text that begins like a list"),
        pytest.param("[1, 2]", schema_of(ids="array"), {"ids": [1, 2]}, id="a list"),
        pytest.param("True", schema_of(all="boolean"), {"all": True}, id="Python's constant"),
        pytest.param("7", {"properties": {"n": {}}}, {"n": 7}, id="a parameter without a type"),
        pytest.param("Rome", {"properties": {"c": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"c": "Rome"}),
        pytest.param("null", {"properties": {"c": {"type": ["string", "null"]}}}, None, id="nothing at all"),
        pytest.param("c", {"properties": {"unit": {"enum": ["c", "f"]}}}, {"unit": "c"}, id="one of some texts"),
        pytest.param("Rome", {"city": {"type": "string"}}, {"city": "Rome"}, id="a bare dictionary of properties"),
        pytest.param(
            "Rome",
            {**schema_of(city="string", days="integer"), "required": ["city"]},
            {"city": "Rome"},
            id="the only one that is required",
        ),
        pytest.param(
            '{"args": ["Rome", 2], "kwargs": {}}', schema_of(city="string", days="integer"), {"city": "Rome", "days": 2}
        ),
        pytest.param(
            '{"args": [[1, 2]], "kwargs": {}}', schema_of(ids="array"), {"ids": [1, 2]}, id="a list by position"
        ),
        pytest.param('{"town": "Rome"}', schema_of(city="string"), {"town": "Rome"}, id="a wrong name stays wrong"),
        pytest.param("", schema_of(city="string"), {}, id="no arguments"),
        pytest.param('["Rome", 2, 3]', schema_of(city="string"), ["Rome", 2, 3], id="too many by position"),
    ],
)
def test_unnamed_arguments_get_their_names_from_the_tool_schema(
    written: str, parameters: dict[str, Any], read: object
) -> None:
    assert values.decode_arguments(written, parameters=parameters) == (read, None)


@pytest.mark.parametrize(
    ("written", "parameters"),
    [
        pytest.param('{"city": "Par', schema_of(city="string"), id="cut off"),
        pytest.param("Rome", schema_of(city="string", days="string"), id="two candidates"),
        pytest.param("Rome", schema_of(days="integer"), id="of another type"),
        pytest.param("Rome", {}, id="no schema"),
        pytest.param("Rome", {"type": "object"}, id="a schema that says nothing"),
    ],
)
def test_a_bare_value_without_an_unambiguous_name_stays_raw(written: str, parameters: dict[str, Any]) -> None:
    assert values.decode_arguments(written, parameters=parameters) == (None, written)


def constructor(class_name: str, /, **fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", class_name], "kwargs": fields}


FOUND = {"order_id": "991"}
TOOL_MESSAGE = {"content": json.dumps(FOUND), "tool_call_id": "c1", "name": "find", "status": "success"}
COMPLETE = envelopes.CallResult(FOUND, "c1", "find")


@pytest.mark.parametrize(
    ("written", "result"),
    [
        pytest.param(FOUND, envelopes.CallResult(FOUND), id="no envelope"),
        pytest.param({"output": "tools"}, envelopes.CallResult({"output": "tools"}), id="a tool's own key output"),
        pytest.param({"content": "x"}, envelopes.CallResult({"content": "x"}), id="a tool's own key content"),
        pytest.param({"content": []}, envelopes.CallResult({"content": []}), id="a tool's own empty list"),
        pytest.param({"result": 1}, envelopes.CallResult({"result": 1}), id="a tool's own key result"),
        pytest.param({"type": "tool", "data": TOOL_MESSAGE}, COMPLETE, id="LangChain message"),
        pytest.param(constructor("ToolMessage", **TOOL_MESSAGE), COMPLETE, id="LangChain constructor"),
        pytest.param({"output": constructor("ToolMessage", **TOOL_MESSAGE)}, COMPLETE, id="inside output"),
        pytest.param({"output": {**TOOL_MESSAGE, "type": "tool"}}, COMPLETE, id="LangSmith"),
        pytest.param(
            {"graph": None, "update": {"messages": [TOOL_MESSAGE]}, "goto": []}, COMPLETE, id="LangGraph command"
        ),
        pytest.param(
            constructor("ToolMessage", content="no such order", tool_call_id="c1", status="error"),
            envelopes.CallResult("no such order", "c1", is_error=True),
            id="LangChain error",
        ),
        pytest.param(
            {"blocks": [{"text": repr(FOUND)}], "tool_name": "find", "raw_output": FOUND, "is_error": False},
            envelopes.CallResult(FOUND, name="find"),
            id="LlamaIndex",
        ),
        pytest.param(
            {"name": "find", "content": repr(FOUND), "call_id": "c1", "is_error": True},
            envelopes.CallResult(FOUND, "c1", "find", is_error=True),
            id="autogen",
        ),
        pytest.param([{"type": "text", "text": json.dumps(FOUND)}], envelopes.CallResult(FOUND), id="content blocks"),
        pytest.param(
            {"content": [{"type": "text", "text": "no"}], "isError": True},
            envelopes.CallResult("no", is_error=True),
            id="MCP",
        ),
        pytest.param(
            {"content": [{"type": "text", "text": "5"}], "structuredContent": {"result": 5}, "isError": False},
            envelopes.CallResult(5),
            id="structured MCP",
        ),
        pytest.param(
            {"toolUseId": "c1", "status": "error", "content": [{"json": FOUND}]},
            envelopes.CallResult(FOUND, "c1", is_error=True),
            id="Bedrock and Strands",
        ),
        pytest.param(
            {"response_type": "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN", "error_details": "too few nights"},
            envelopes.CallResult("too few nights", is_error=True),
            id="ADK reflection",
        ),
    ],
)
def test_results_are_unwrapped_from_unambiguous_envelopes(written: Any, result: envelopes.CallResult) -> None:
    assert envelopes.unwrap_result(json.dumps(written)) == result
    assert envelopes.unwrap_result(written) == result


@pytest.mark.parametrize(
    ("written", "result"),
    [
        (f"content='{json.dumps(FOUND)}' name='find' tool_call_id='c1'", COMPLETE),
        (f"ToolMessage(content='{json.dumps(FOUND)}', name='find', tool_call_id='c1')", COMPLETE),
        (
            f"ToolOutput(blocks=[], tool_name='find', raw_output={FOUND!r}, is_error=False)",
            envelopes.CallResult(FOUND, name="find"),
        ),
        ("content=plain words", envelopes.CallResult("content=plain words")),
        ("order 991: shipped", envelopes.CallResult("order 991: shipped")),
    ],
)
def test_results_serialized_as_objects_are_read(written: str, result: envelopes.CallResult) -> None:
    assert envelopes.unwrap_result(written) == result


@pytest.mark.parametrize(
    ("written", "envelope", "result"),
    [
        ({"result": [1]}, envelopes.keyed_result("result"), envelopes.CallResult([1])),
        (
            {"result": "x", "more": 1},
            envelopes.keyed_result("result"),
            envelopes.CallResult({"result": "x", "more": 1}),
        ),
        (
            {"result": "backend timeout", "is_error": True},
            envelopes.flagged_result,
            envelopes.CallResult("backend timeout", is_error=True),
        ),
        ({"result": '{"a": 1}'}, envelopes.flagged_result, envelopes.CallResult({"a": 1})),
    ],
)
def test_the_result_envelope_of_a_framework_is_unwrapped_if_its_convention_requests_it(
    written: Any, envelope: envelopes.ResultOpener, result: envelopes.CallResult
) -> None:
    assert envelopes.unwrap_result(json.dumps(written), envelope) == result


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (envelopes.CallResult("no", is_error=True), "no"),
        (envelopes.CallResult({"why": "no"}, is_error=True), '{"why": "no"}'),
        (envelopes.CallResult({(1, 2): "no"}, is_error=True), "{(1, 2): 'no'}"),
        (envelopes.CallResult("", is_error=True), ""),
        (envelopes.CallResult("no"), None),
    ],
)
def test_an_error_reported_by_the_envelope_is_the_error_of_the_result(
    result: envelopes.CallResult, error: str | None
) -> None:
    assert result.error == error


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ("Error: nights must be >= 1", "Error: nights must be >= 1"),
        ("failed to connect", "failed to connect"),
        ({"error": "no such order"}, "no such order"),
        ("Errors are rare here", None),
        ({"error": None, "order": 1}, None),
        ({"a": 1, "b": 2, "c": 3, "error": "x"}, None),
        ({"status": "ok"}, None),
        (None, None),
        (5, None),
    ],
)
def test_guess_error_returns_the_text_of_a_result_that_resembles_an_error(
    result: object, complaint: str | None
) -> None:
    assert values.guess_error(result) == complaint


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = ["args", "kwargs", "content", "type", "text", "output", "result", "lc", "id", "tool_call_id", "is_error", "data"]
near_envelopes = st.recursive(
    st.none() | st.booleans() | st.sampled_from(["text", "tool", "tool_call", "constructor", "{", "[1]", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain_values, max_size=4))
def test_any_dictionary_of_arguments_survives_json_and_repr(arguments: dict[str, object]) -> None:
    assert literals.plain_value(json.dumps(arguments)) == arguments
    assert literals.plain_value(repr(arguments)) == arguments


@given(
    st.text() | st.binary() | plain_values | near_envelopes,
    st.none() | st.dictionaries(st.sampled_from(["properties", "required", "type", "city"]), near_envelopes),
)
def test_any_attribute_value_is_read_without_an_error(value: object, parameters: dict[str, object] | None) -> None:
    values.decode_arguments(
        value,
        envelopes.langchain_callback,
        envelopes.positional_arguments,
        envelopes.mcp_request,
        parameters=parameters,
    )
    values.decode_arguments(repr(value), parameters=parameters)
    result = envelopes.unwrap_result(value, envelopes.flagged_result, envelopes.keyed_result("result"))
    values.guess_error(result.value)
    assert (result.error is not None) is result.is_error
