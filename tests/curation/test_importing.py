"""Datasets of other tools become goldens, and what a golden cannot state is counted."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from goldspan import Golden, evaluate, load_goldens
from goldspan.curation.importing.golden_import import ImportSource, import_goldens
from goldspan.curation.importing.imported_goldens import ImportResult
from goldspan.errors import ConfigurationError
from goldspan.goldens.golden_files.golden_writer import goldens_to_yaml
from goldspan.model import ExpectedTool, Times


class Importer:
    """Writes a dataset, imports it, and checks that its goldens load as they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, content: Any, name: str = "dataset.json", source: ImportSource = "auto") -> ImportResult:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        result = import_goldens(path, source)
        if result.goldens:
            (goldens := self.folder / "goldens.yaml").write_text(
                "goldens:\n" + goldens_to_yaml(*result.goldens), encoding="utf-8"
            )
            assert [golden.digest for golden in load_goldens(goldens)] == [golden.digest for golden in result.goldens]
        return result


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return Importer(tmp_path)


def losses(result: ImportResult) -> dict[str, tuple[int, str]]:
    return {loss.kind: (loss.count, loss.first) for loss in result.losses}


def csv_of(*rows: dict[str, str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


# --- deepeval ---------------------------------------------------------------------------------------------------------

DEEPEVAL_GOLDENS = [
    {
        "input": "Refund order 7",
        "expected_output": "Done.",
        "name": "refund",
        "tools_called": None,
        "expected_tools": [
            {"name": "find_order"},
            {
                "name": "refund",
                "description": "d",
                "inputParameters": {"order": 7, "how": {"regex": "x"}},
                "output": "ok",
            },
        ],
        "additional_metadata": {"a": 1},
    },
    {"input": "Hi", "expected_tools": [], "context": ["c"]},
    {"input": "No expectation", "expected_tools": None},
    {"scenario": "A customer complains", "turns": []},
]


def test_deepeval_goldens_expect_their_tools_in_any_order(importer: Importer) -> None:
    result = importer(DEEPEVAL_GOLDENS)
    assert result.source == "deepeval"
    refund, greeting = result.goldens
    assert (refund.id, refund.input, refund.order) == ("refund", "Refund order 7", "any")
    right = [{"name": "refund", "args": {"order": 7, "how": {"regex": "x"}}}, "find_order"]
    assert evaluate(right, refund).passed is True
    assert evaluate([{"name": "refund", "args": {"order": 7, "how": "x"}}, "find_order"], refund).passed is False
    assert (greeting.id, greeting.tools) == ("hi", ())
    assert losses(result) == {
        "output (deepeval compares it only on request)": (1, "golden 1"),
        "description": (1, "golden 1"),
        "expected_output (an answer)": (1, "golden 1"),
        "additional_metadata": (1, "golden 1"),
        "context (an answer)": (1, "golden 2"),
        "goldens without expected_tools": (1, "golden 3"),
        "conversational goldens (a golden has one request)": (1, "golden 4"),
    }


def test_deepeval_tables_hold_json_or_names(importer: Importer) -> None:
    rows = csv_of(
        {
            "input": "a",
            "retrieval_context": "",
            "expected_tools": json.dumps([{"name": "x", "inputParameters": {"k": 1}}]),
        },
        {"input": "b", "retrieval_context": "", "expected_tools": "x; y"},
        {"input": "c", "retrieval_context": "", "expected_tools": ""},
        {"input": "d", "retrieval_context": "", "expected_tools": "[broken"},
        {"input": "e", "retrieval_context": "", "expected_tools": '[{"nam": "x"}]'},
    )
    result = importer(rows, "dataset.csv")
    assert [golden.tools for golden in result.goldens] == [
        (ExpectedTool("x", {"k": 1}),),
        (ExpectedTool("x"), ExpectedTool("y")),
    ]
    assert losses(result)["goldens without expected_tools"] == (2, "golden 3")
    assert any("is not a tool call" in kind for kind in losses(result))


def test_deepeval_lines_and_nested_goldens(importer: Importer) -> None:
    lines = "\n".join(json.dumps(row) for row in (*DEEPEVAL_GOLDENS[:1], 7))
    assert losses(importer(lines, "dataset.jsonl"))["rows that are not goldens"] == (1, "golden 2")
    assert len(importer({"goldens": DEEPEVAL_GOLDENS}, source="deepeval").goldens) == 2


# --- Google ADK -------------------------------------------------------------------------------------------------------


def adk_turn(text: str, calls: Any, **others: Any) -> dict[str, Any]:
    content = {"role": "user", "parts": [{"text": text}]}
    return {"invocation_id": "i", "user_content": content, "intermediate_data": calls, **others}


ADK_EVAL_SET = {
    "eval_set_id": "shop",
    "eval_cases": [
        {
            "eval_id": "order",
            "conversation": [
                adk_turn("Hi", {"tool_uses": []}, final_response={"parts": [{"text": "Hello"}]}),
                adk_turn(
                    "Refund 7", {"tool_uses": [{"name": "find", "args": {"id": 7}}, {"name": "refund", "args": {}}]}
                ),
                adk_turn("Thanks", None),
            ],
            "session_input": {"app_name": "a", "user_id": "u", "state": {}},
        },
        {
            "evalId": "events",
            "conversation": [
                {
                    "userContent": {"parts": [{"text": "Go"}]},
                    "intermediateData": {
                        "invocationEvents": [
                            {"author": "a", "content": {"parts": [{"functionCall": {"name": "go", "args": {"x": 1}}}]}},
                            {"author": "a", "content": {"parts": [{"text": "done"}]}},
                        ]
                    },
                }
            ],
        },
        {"eval_id": "played", "conversation_scenario": {"starting_prompt": "x"}},
        {
            "eval_id": "broken",
            "conversation": [adk_turn("x", {"tool_uses": [{"args": {}}]}), adk_turn("", {"tool_uses": []})],
        },
    ],
}


def test_adk_turns_expect_their_calls_in_the_exact_order(importer: Importer) -> None:
    result = importer(ADK_EVAL_SET, "shop.evalset.json")
    assert result.source == "adk"
    first, second, events = result.goldens
    assert [(golden.id, golden.input, golden.order) for golden in result.goldens] == [
        ("order-1", "Hi", "any"),
        ("order-2", "Refund 7", "exact"),
        ("events", "Go", "exact"),
    ]
    assert first.tools == ()
    assert second.tools == (ExpectedTool("find", {"id": 7}), ExpectedTool("refund", {}))
    assert events.tools == (ExpectedTool("go", {"x": 1}),)
    found = losses(result)
    assert found["final_response (an answer)"] == (1, "case 1 (order), turn 1")
    assert found["turns without intermediate_data"] == (1, "case 1 (order), turn 3")
    assert found["session_input"] == (1, "case 1 (order)")
    assert found["conversation scenarios (a model plays the user)"] == (1, "case 3 (played)")
    assert found["turns without a text of the user"] == (1, "case 4 (broken), turn 2")
    assert len(found) == 6


def test_old_adk_test_files_are_lists_of_queries(importer: Importer) -> None:
    query = {
        "query": "Turn it on",
        "expected_tool_use": [{"tool_name": "switch", "tool_input": {"on": True}}],
        "expected_intermediate_agent_responses": [],
        "reference": "It is on.",
    }
    (golden,) = (result := importer([query, {"query": "x", "reference": "y"}])).goldens
    assert (golden.id, golden.tools) == ("turn-it-on", (ExpectedTool("switch", {"on": True}),))
    assert losses(result) == {
        "reference (an answer)": (1, "query 1"),
        "queries without expected_tool_use": (1, "query 2"),
    }
    assert importer([{"name": "n", "data": [query]}], source="adk").goldens == (golden,)


# --- promptfoo --------------------------------------------------------------------------------------------------------


def promptfoo_golden(importer: Importer, *assertions: Any, **others: Any) -> Golden:
    config = {"prompts": ["{{query}}"], "tests": [{"vars": {"query": "Q"}, "assert": list(assertions)}], **others}
    (golden,) = importer(config).goldens
    assert golden.input == "Q" or golden.policy
    return golden


@pytest.mark.parametrize(
    ("assertions", "expected"),
    [
        ([{"type": "trajectory:tool-used", "value": "a"}], Golden("q", tools=(ExpectedTool("a"),))),
        (
            [{"type": "trajectory:tool-used", "value": ["a", "b"]}],
            Golden("q", tools=(ExpectedTool("a"), ExpectedTool("b"))),
        ),
        (
            [{"type": "trajectory:tool-used", "value": {"name": "a", "min": 2, "max": 3}}],
            Golden("q", tools=(ExpectedTool("a", times=Times(2, 3)),)),
        ),
        (
            [
                {"type": "trajectory:tool-used", "value": "a"},
                {"type": "not-trajectory:tool-used", "value": ["b*", "c"]},
            ],
            Golden("q", tools=(ExpectedTool("a"),), forbid=("b*", "c")),
        ),
        (
            [
                {"type": "trajectory:tool-used", "value": {"pattern": "b*", "max": 0}},
                {"type": "trajectory:tool-used", "value": "a"},
            ],
            Golden("q", tools=(ExpectedTool("a"),), forbid=("b*",)),
        ),
        (
            [{"type": "trajectory:tool-sequence", "value": {"mode": "exact", "steps": ["a", {"name": "b"}]}}],
            Golden("q", tools=(ExpectedTool("a"), ExpectedTool("b")), order="exact"),
        ),
        (
            [
                {"type": "trajectory:tool-args-match", "value": {"name": "b", "args": {"x": 1}, "defaults": {"y": 2}}},
                {"type": "trajectory:tool-sequence", "value": ["a", "b"]},
                {"type": "trajectory:step-count", "value": {"type": "tool", "max": 4}},
            ],
            Golden(
                "q",
                tools=(ExpectedTool("a"), ExpectedTool("b", {"x": 1}, match="subset", defaults={"y": 2})),
                order="in_order",
                max_calls=4,
            ),
        ),
        (
            [
                {
                    "type": "trajectory:tool-args-match",
                    "value": {"name": "b", "args": {"x": 1}, "mode": "exact", "ignore": "t"},
                }
            ],
            Golden("q", tools=(ExpectedTool("b", {"x": 1}, ignore=("t",)),)),
        ),
        (
            [{"type": "tool-call-f1", "value": "a, b"}],
            Golden("q", tools=(ExpectedTool("a"), ExpectedTool("b")), mode="set", duplicates="ignore"),
        ),
        (
            [{"type": "assert-set", "assert": [{"type": "trajectory:tool-used", "value": "a"}]}],
            Golden("q", tools=(ExpectedTool("a"),)),
        ),
        ([{"type": "not-trajectory:tool-used", "value": "a"}], Golden("q", forbid=("a",), policy=True)),
    ],
)
def test_promptfoo_assertions_about_tools_become_rules(importer: Importer, assertions: Any, expected: Golden) -> None:
    assert promptfoo_golden(importer, *assertions).digest == expected.digest


@pytest.mark.parametrize(
    ("assertion", "kind"),
    [
        ({"type": "contains", "value": "x"}, "the assertion contains"),
        ({"type": "is-valid-openai-tools-call"}, "the assertion is-valid-openai-tools-call"),
        ({"type": "trajectory:goal-success", "value": "x"}, "the assertion trajectory:goal-success"),
        ({"type": "not-trajectory:tool-sequence", "value": ["a"]}, "the assertion not-trajectory:tool-sequence"),
        (
            {"type": "trajectory:tool-used", "value": {"pattern": "a*"}},
            "a golden expects tools by name, not by pattern",
        ),
        ({"type": "trajectory:tool-used", "value": 7}, "it names no tool"),
        ({"type": "not-trajectory:tool-used", "value": {"name": "a", "max": 3}}, "a forbidden number of calls"),
        ({"type": "trajectory:tool-sequence", "value": {}}, "it has no steps"),
        ({"type": "trajectory:tool-args-match", "value": "a"}, "it names no tool"),
        (
            {"type": "trajectory:tool-args-match", "value": {"name": "a", "args": 7}},
            "the arguments 7 are not a mapping",
        ),
        (
            {"type": "trajectory:tool-args-match", "value": {"name": "a", "args": {}, "ignore": ["*id"]}},
            "not by pattern",
        ),
        ({"type": "trajectory:step-count", "value": {"type": "command", "max": 1}}, "other steps than tool calls"),
        ({"type": "trajectory:step-count", "value": {"type": "tool", "min": 1}}, "the greatest number of calls only"),
        ({"type": "tool-call-f1", "value": ["a"], "threshold": 0.5}, "a threshold below 1"),
        ({"type": "tool-call-f1", "value": 7}, "it names no tool"),
        ({"type": "assert-set", "threshold": 0.5, "assert": []}, "the assertion assert-set"),
        ("file://asserts.yaml", "assertions in other files"),
    ],
)
def test_other_promptfoo_assertions_are_counted(importer: Importer, assertion: Any, kind: str) -> None:
    test = {"vars": {"query": "Q"}, "assert": [assertion, {"type": "trajectory:tool-used", "value": "known"}]}
    result = importer({"prompts": ["p"], "tests": [test]})
    assert [golden.tools for golden in result.goldens] == [(ExpectedTool("known"),)]
    assert [(kind in loss.kind, loss.first) for loss in result.losses] == [(True, "test 1")]


def test_the_request_of_a_promptfoo_test_is_its_text_or_the_prompt_with_its_variables(importer: Importer) -> None:
    used = [{"type": "trajectory:tool-used", "value": "a"}]
    config = """\
description: shop
prompts: ["Find {{ item }} for {{ price }}"]
providers: [openai:gpt-4o]
defaultTest:
  vars: {unit: EUR}
  assert: [{type: "not-trajectory:tool-used", value: drop}]
tests:
  - {description: one, vars: {item: lamp, price: 7}, assert: [{type: "trajectory:tool-used", value: a}]}
  - {vars: {item: lamp}, assert: [{type: "trajectory:tool-used", value: a}]}
  - file://more.yaml
"""
    result = importer(config, "promptfooconfig.yaml")
    assert [(golden.id, golden.input, golden.forbid) for golden in result.goldens] == [
        ("one", "Find lamp for 7", ("drop",))
    ]
    assert losses(result) == {
        "tests whose request is not known from the variables and the prompt": (1, "test 2"),
        "tests in other files": (1, "test 3"),
    }
    tests = [{"vars": {"language": "en", "question": "Why?"}, "assert": used}, {"vars": {"q": "x"}, "assert": []}]
    result = importer(tests)
    assert [golden.input for golden in result.goldens] == ["Why?"]
    assert losses(result) == {"tests without an assertion about tools": (1, "test 2")}
    assert importer({"prompts": "file://p.txt", "tests": [{"vars": {"a": 1}, "assert": used}]}).goldens == ()
    assert importer({"prompts": "p", "tests": [{"vars": {"a": "file://x"}, "assert": used}]}).goldens == ()


# --- LangSmith and Phoenix --------------------------------------------------------------------------------------------


def test_langsmith_examples_expect_the_tools_of_their_outputs(importer: Importer) -> None:
    calls = [{"name": "a", "args": {"x": 1}, "id": "c", "type": "tool_call"}]
    examples = [
        {"id": "e1", "inputs": {"question": "Q1"}, "outputs": {"trajectory": ["a", "b"], "response": "R"}},
        {
            "id": "e2",
            "inputs": {"messages": [{"role": "user", "content": "Q2"}]},
            "outputs": {"messages": [{"type": "ai", "tool_calls": calls}]},
        },
        {
            "id": "e3",
            "inputs": {"input": {"question": "Q3"}},
            "outputs": {},
            "metadata": {"expected_tools": ["a"], "split": "test"},
        },
        {"id": "e4", "inputs": {"a": "x", "b": "y"}, "outputs": {"tools": []}},
        {"id": "e5", "inputs": {"question": "Q5"}, "outputs": {"answer": "A"}},
        {"id": "e6", "inputs": {"question": "Q6"}, "outputs": {"tools": [7]}},
        9,
    ]
    for result in (
        importer(examples),
        importer("\n".join(map(json.dumps, examples)), "d.jsonl"),
        importer({"examples": examples}),
    ):
        assert result.source == "langsmith"
        assert [(golden.id, golden.input, golden.order, golden.tools) for golden in result.goldens] == [
            ("e1", "Q1", "in_order", (ExpectedTool("a"), ExpectedTool("b"))),
            ("e2", "Q2", "any", (ExpectedTool("a", {"x": 1}),)),
            ("e3", "Q3", "any", (ExpectedTool("a"),)),
        ]
        assert losses(result) == {
            "outputs.response (an answer)": (1, "example 1"),
            "metadata.split": (1, "example 3"),
            "examples whose inputs have no single text": (1, "example 4"),
            "examples without expected tools": (1, "example 5"),
            "examples whose tools cannot be read (7 is not a tool call)": (1, "example 6"),
            "rows that are not examples": (1, "example 7"),
        }


def test_a_langsmith_table_has_columns_of_inputs_and_outputs(importer: Importer) -> None:
    rows = csv_of({"inputs": '{"question": "Q"}', "outputs": '{"tool_calls": [{"name": "a"}]}', "metadata": "{}"})
    assert importer(rows, "d.csv").goldens[0].tools == (ExpectedTool("a"),)
    rows = csv_of({"id": "1", "question": "Q", "expected_tools": '["a"]'})
    assert importer(rows, "d.csv", "langsmith").goldens == (Golden("1", input="Q", tools=(ExpectedTool("a"),)),)


def test_phoenix_exports_are_tables_examples_and_messages(importer: Importer) -> None:
    table = csv_of(
        {"example_id": "RGF=", "input_query": "Q", "output_expected_tools": "['a']", "metadata_level": "easy"}
    )
    result = importer(table, "d.csv")
    assert (result.source, result.goldens) == ("phoenix", ())
    table = table.replace("['a']", '"[""a""]"')
    result = importer(table, "d.csv")
    assert (result.goldens[0].id, result.goldens[0].input, result.goldens[0].tools) == (
        "RGF=",
        "Q",
        (ExpectedTool("a"),),
    )
    assert losses(result) == {"metadata.level": (1, "example 1")}
    examples = {"data": {"examples": [{"id": "x", "input": {"query": "Q"}, "output": {"tools": [{"name": "a"}]}}]}}
    assert importer(examples).goldens[0].tools == (ExpectedTool("a"),)
    function = {"name": "a", "arguments": '{"x": 1}'}
    content = [{"type": "text", "text": "Q"}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "tool_calls": [{"function": function}]}]
    (golden,) = importer(json.dumps({"messages": messages}), "d.jsonl").goldens
    assert (golden.input, golden.tools) == ("Q", (ExpectedTool("a", {"x": 1}),))
    anthropic = [{"role": "assistant", "content": [{"type": "tool_use", "name": "b", "input": {"y": 2}}]}]
    result = importer([{"example_id": "1", "input": "Q", "output": {"messages": anthropic}}])
    assert result.goldens[0].tools == (ExpectedTool("b", {"y": 2}),)


# --- pydantic-evals ---------------------------------------------------------------------------------------------------

PYDANTIC_EVALS = """\
# yaml-language-server: $schema=shop_schema.json
name: shop
cases:
  - name: refund
    inputs: {user_message: Refund order 7}
    expected_output: Done.
    metadata: {level: easy}
    evaluators:
      - ToolCorrectness: [find, refund]
      - ArgumentCorrectness: {tool_name: refund, expected_arguments: {order: 7}}
      - Contains: Done
      - IsInstance
  - name: ordered
    inputs: Cancel it
    evaluators:
      - TrajectoryMatch: {expected_trajectory: [find, cancel], order: exact, include_failed: true}
  - name: partial
    inputs: Cancel that
    evaluators:
      - TrajectoryMatch: {expected_trajectory: [find, cancel], order: any_order}
      - ArgumentCorrectness: {tool_name: find, expected_arguments: {x: 1}, match_mode: exact, occurrence: last}
  - name: spans
    inputs: Look
    evaluators:
      - HasMatchingSpan: {query: {has_attributes: {gen_ai.tool.name: look}}}
      - HasMatchingSpan: {name_equals: "execute_tool see"}
      - HasMatchingSpan: {query: {not_: {name_equals: "running tool: drop"}}}
      - HasMatchingSpan: {query: {name_contains: x}}
  - name: limited
    inputs: Wait
    evaluators: [{name: MaxToolCalls, arguments: [3]}, {MaxToolCalls: {max_calls: 3}}]
  - name: loose
    inputs: Try
    evaluators: [{ToolCorrectness: {expected_tools: [a], allow_extra: true}}]
  - {inputs: {a: x, b: y}, evaluators: [{ToolCorrectness: [a]}]}
  - {name: none, inputs: Hi}
  - 7
evaluators: [{LLMJudge: {rubric: r}}]
"""


def test_pydantic_evals_evaluators_of_tool_calls_become_rules(importer: Importer) -> None:
    result = importer(PYDANTIC_EVALS, "shop.yaml")
    assert result.source == "pydantic-evals"
    goldens = {golden.id: golden for golden in result.goldens}
    assert set(goldens) == {"refund", "ordered", "partial", "spans", "limited", "loose"}
    refund = goldens["refund"]
    assert refund.input == "Refund order 7"
    assert refund.tools == (ExpectedTool("find"), ExpectedTool("refund", {"order": 7}, match="subset"))
    assert (refund.extra, refund.attempts) == ("penalize", "succeeded")
    assert (goldens["ordered"].order, goldens["ordered"].attempts) == ("exact", "effective")
    assert goldens["partial"].tools[0] == ExpectedTool("find", {"x": 1})
    assert ([tool.name for tool in goldens["spans"].expected_calls], goldens["spans"].forbid) == (
        ["look", "see"],
        ("drop",),
    )
    assert (goldens["limited"].policy, goldens["limited"].max_calls) == (True, 3)
    assert goldens["loose"].extra is None
    found = losses(result)
    assert found["the evaluator LLMJudge"][0] == 8
    assert found["the evaluator Contains"] == (1, "case 1 (refund)")
    assert found["the evaluator IsInstance"] == (1, "case 1 (refund)")
    assert found["expected_output (an answer)"] == (1, "case 1 (refund)")
    assert found["the partial score of TrajectoryMatch"] == (1, "case 3 (partial)")
    assert found["occurrence of ArgumentCorrectness (any call may match)"] == (1, "case 3 (partial)")
    assert found["the evaluator HasMatchingSpan (the query is not about the name of a tool)"] == (1, "case 4 (spans)")
    assert found["the evaluator MaxToolCalls (max_calls is no number)"] == (1, "case 5 (limited)")
    assert found["cases whose inputs have no single text"] == (1, "case 7")
    assert found["cases without an evaluator of tool calls"] == (1, "case 8 (none)")
    assert found["entries that are not cases"] == (1, "case 9")


@pytest.mark.parametrize(
    "evaluator",
    [
        {"ToolCorrectness": {"allow_extra": True}},
        {"TrajectoryMatch": {"expected_trajectory": ["a"], "order": "sorted"}},
        {"ArgumentCorrectness": "a"},
        {"ArgumentCorrectness": {"expected_arguments": {}}},
        {"HasMatchingSpan": "a"},
        {"HasMatchingSpan": {"query": {"name_equals": "chat"}}},
    ],
)
def test_an_incomplete_pydantic_evals_evaluator_is_counted(importer: Importer, evaluator: Any) -> None:
    result = importer({"cases": [{"inputs": "x", "evaluators": [evaluator]}]})
    assert any(loss.kind.startswith(f"the evaluator {next(iter(evaluator))} (") for loss in result.losses)


# --- files ------------------------------------------------------------------------------------------------------------


def test_equal_names_get_numbers(importer: Importer) -> None:
    rows = [{"input": "x", "expected_tools": ["a"]}, {"input": "x", "expected_tools": ["a"]}]
    assert [golden.id for golden in importer(rows).goldens] == ["x", "x-2"]


def test_equal_inputs_with_different_expectations_are_dropped(importer: Importer) -> None:
    rows = [{"input": text, "expected_tools": [tool]} for text, tool in (("Yes", "a"), ("yes ", "b"), ("No", "c"))]
    result = importer(rows)
    assert [(golden.id, golden.input) for golden in result.goldens] == [("yes", None), ("yes-2", None), ("no", "No")]
    assert losses(result) == {"inputs of several goldens that differ (these goldens are found by id only)": (2, "yes")}


def test_a_golden_that_no_file_can_state_is_counted(importer: Importer) -> None:
    rows = [{"input": "x", "expected_tools": [{"name": "a", "args": {"k" * 2000: 1}}]}]
    result = importer(rows)
    assert result.goldens == ()
    assert losses(result) == {"goldens that no golden file can state (a key is too long)": (1, "x")}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "not JSON"),
        ("a.yaml", "a: [", "not YAML"),
        ("a.yaml", "", "the file is empty"),
        (
            "a.json",
            "{}",
            "the format is not recognised; --from names it: deepeval, adk, promptfoo, langsmith, phoenix or",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused(importer: Importer, name: str, content: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        importer(content, name)


def test_a_missing_file_and_a_wrong_format_are_refused(importer: Importer, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        import_goldens(tmp_path / "missing.json")
    with pytest.raises(ConfigurationError, match="not a file of deepeval"):
        importer("7", source="deepeval")
