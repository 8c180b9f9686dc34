"""Rows in the formats of other evaluation tools are evaluated without a trace."""

from __future__ import annotations

import csv
import io
import threading
import time
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.cases.case_evaluation import evaluate_cases, map_in_order
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens import Goldens
from goldspan.model import AnyOf, Comparison, ExpectedTool, Golden, Run, Tool, ToolCall, ToolDefinition, Vocabulary
from goldspan.scoring import evaluate


def evaluated(row: Any, goldens: Goldens | None = None, **how: Any) -> Any:
    (result,) = evaluate_cases([row], goldens, **how)
    return result


def read(row: Any) -> Run:
    run: Run = evaluated(row).run
    return run


# --- key names of other tools -----------------------------------------------------------------------------------------

CITY = {"city": "Rome"}
SEARCH = ToolCall("search", arguments=CITY)
WANTED = ExpectedTool("search", CITY)


@dataclass
class ToolCallOfDeepeval:
    """The attributes of deepeval's ToolCall."""

    name: str
    input_parameters: dict[str, Any] | None = None
    output: Any = None
    description: str | None = None
    reasoning: str | None = None
    type: str = "FUNCTION"


class CaseOfDeepeval:
    """The attributes of deepeval's LLMTestCase, including the deprecated one."""

    def __init__(self, **fields: Any) -> None:
        self.input = fields.pop("input", "Find a hotel.")
        self.actual_output = self.metadata = self.tools_called = self.expected_tools = self.name = None
        vars(self).update(fields)

    @property
    def additional_metadata(self) -> Any:
        warnings.warn("use metadata", DeprecationWarning, stacklevel=2)
        return self.metadata


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"tools_called": [{"name": "search", "arguments": CITY}],
                      "expected_tools": [{"name": "search", "arguments": CITY}]}, id="goldspan"),
        pytest.param({"tools_called": [SEARCH], "expected_tools": [WANTED]}, id="values"),
        pytest.param({"tools_called": [{"name": "search", "type": "FUNCTION", "input_parameters": CITY}],
                      "expected_tools": [{"name": "search", "input_parameters": CITY, "output": None,
                                          "description": "finds", "reasoning": "r"}]}, id="deepeval"),
        pytest.param({"toolsCalled": [{"name": "search", "inputParameters": CITY}],
                      "expectedTools": [{"name": "search", "inputParameters": CITY}]}, id="deepeval by its aliases"),
        pytest.param({"tools_called": [{"id": "call_1", "name": "search", "args": CITY, "tags": ["RAG"]}],
                      "expected_tools": [{"id": "call_2", "name": "search", "args": CITY, "tags": []}]}, id="axion"),
        pytest.param({"tools_used": [{"name": "search", "args": CITY}],
                      "expected_tools": [{"name": "search", "args": CITY}]}, id="galtea"),
        pytest.param({"actual_tools": [{"tool_name": "search", "tool_input": CITY}],
                      "reference_tools": [{"tool_name": "search", "tool_input": CITY}]}, id="vertex"),
        pytest.param({"tool_calls": [{"id": "1", "type": "function",
                                      "function": {"name": "search", "arguments": '{"city": "Rome"}'}}],
                      "expected_tool_calls": [{"type": "function",
                                               "function": {"name": "search", "arguments": '{"city": "Rome"}'}}]},
                     id="the API of a model"),
        pytest.param({"Tools Called": '[{"name": "search", "args": {"city": "Rome"}}]',
                      "Expected Tools": "[{'name': 'search', 'args': {'city': 'Rome'}}]"}, id="cells of a table"),
        pytest.param({"tools_called": '{"name": "search", "args": {"city": "Rome"}}',
                      "expected_tools": {"name": "search", "args": CITY}}, id="one call without a list"),
        pytest.param(CaseOfDeepeval(tools_called=[ToolCallOfDeepeval("search", CITY)],
                                    expected_tools=[ToolCallOfDeepeval("search", CITY)]), id="deepeval's objects"),
        pytest.param(SimpleNamespace(id="7", query="Find.",
                                     tools_called=[SimpleNamespace(id="1", name="search", args=CITY)],
                                     expected_tools=[SimpleNamespace(id="2", name="search", args=CITY)]),
                     id="axion's objects"),
    ],
)  # fmt: skip
def test_calls_and_expectations_are_read_with_the_key_names_of_any_tool(row: Any) -> None:
    (pair,) = evaluated(row).comparison.rows
    assert (pair.verdict, pair.called.name, pair.called.arguments) == ("paired", "search", CITY)
    assert (pair.expected.name, pair.expected.arguments, pair.agreement.share) == ("search", CITY, 1.0)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["search", "book"], id="a list, as eval-ai-library and Galtea have it"),
        pytest.param(("search", "book"), id="a tuple"),
        pytest.param("search;book", id="semicolons"),
        pytest.param(" search | book ", id="bars"),
        pytest.param("search, book", id="commas"),
        pytest.param('["search", "book"]', id="JSON"),
        pytest.param("['search', 'book']", id="as Python and pandas write a list"),
        pytest.param(iter(["search", "book"]), id="anything one can go through"),
    ],
)
def test_tools_can_be_given_as_names_only(names: Any) -> None:
    result = evaluated({"tools_called": names, "expected_tools": "search;book"})
    assert result.run.tools_used == ("search", "book")
    assert result.reason == "All 2 expected tools were called, in order."


@pytest.mark.parametrize(
    ("row", "asked", "answered"),
    [
        pytest.param({"input": "Hi", "output": "Ho"}, "Hi", "Ho", id="goldspan and eval-ai-library"),
        pytest.param({"input": "Hi", "actual_output": "Ho"}, "Hi", "Ho", id="deepeval"),
        pytest.param({"query": "Hi", "actual_output": "Ho"}, "Hi", "Ho", id="axion"),
        pytest.param({"input": {"user_message": "Hi", "priority": 1}, "actualOutput": {"assistant_message": "Ho"}},
                     "Hi", "Ho", id="galtea"),
        pytest.param({"user_input": "Hi", "response": "Ho"}, "Hi", "Ho", id="ragas"),
        pytest.param({"input": "Hi", "query": "Other", "question": "Third"}, "Hi", None, id="several: the first word"),
        pytest.param({"input": None, "query": "Hi", "output": " "}, "Hi", None, id="of several one that is there"),
        pytest.param({"input": "", "query": "Hi"}, "Hi", None, id="of several one that is filled"),
        pytest.param({"input": ["a", 1], "output": 5}, "['a', 1]", "5", id="no text"),
    ],
)  # fmt: skip
def test_the_input_and_the_output_are_read_from_the_keys_of_any_tool(
    row: dict[str, Any], asked: str | None, answered: str | None
) -> None:
    run = read({"tools_called": [], **row})
    assert (run.input, run.output) == (asked, answered)


@pytest.mark.parametrize(
    ("row", "run_id"),
    [
        pytest.param({"id": "refund-7"}, "refund-7", id="an id"),
        pytest.param({"id": 7}, "7", id="a number"),
        pytest.param({"test_case_id": "t1", "name": "Refund"}, "t1", id="an id rather than a name"),
        pytest.param({"name": "Refund"}, "Refund", id="a name"),
        pytest.param({"id": "", "name": None}, "row 1", id="none"),
    ],
)
def test_the_id_of_a_row_becomes_the_run_id(row: dict[str, Any], run_id: str) -> None:
    assert read({"tools_called": [], **row}).run_id == run_id


def test_the_other_fields_of_a_row_are_kept() -> None:
    row = {
        "tools_called": [],
        "session_id": "s",
        "agent": "desk",
        "available_tools": [
            "search",
            {"name": "book", "description": "books", "parameters": {"type": "object"}},
            {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}},
            ToolDefinition("cancel"),
        ],
        "metadata": {"split": "test"},
        "expected_output": "Done.",
        "difficulty": 3,
    }
    run = read(row)
    assert (run.session_id, run.agent) == ("s", "desk")
    assert run.available_tools == (
        ToolDefinition("search"),
        ToolDefinition("book", "books", {"type": "object"}),
        ToolDefinition("pay", None, {"type": "object"}),
        ToolDefinition("cancel"),
    )
    assert run.metadata == {"expected_output": "Done.", "difficulty": 3, "split": "test"}
    assert read({"tools_called": [], "dataset_metadata": "v1"}).metadata == {"metadata": "v1"}


def test_a_metric_can_read_the_metadata_of_the_run() -> None:
    def difficulty(seen: Comparison) -> float:
        return float(seen.run.metadata["difficulty"])

    assert (
        evaluated({"tools_called": [], "expected_tools": [], "difficulty": 3}, metrics=[difficulty]).scores[0].value
        == 3
    )


def test_the_error_and_the_result_of_a_call_are_read() -> None:
    calls = [{"name": "pay", "error": "no funds"}, {"name": "pay", "is_error": True}, {"name": "pay", "is_error": False,
             "output": {"id": 1}}, ToolCallOfDeepeval("pay", output="ok")]  # fmt: skip
    run = read({"tools_called": calls})
    assert [call.error for call in run.tool_calls] == ["no funds", "failed", None, None]
    assert [call.result for call in run.tool_calls] == [None, None, {"id": 1}, "ok"]


def test_an_expected_output_is_an_expected_result() -> None:
    row = {"tools_called": [{"name": "add", "output": 5}], "expected_tools": [ToolCallOfDeepeval("add", output=4)]}
    assert evaluated(row).reason == "Expected add was called; add differs in its result."
    assert evaluated({**row, "expected_tools": [ToolCallOfDeepeval("add")]}).passed is True
    assert evaluated({**row, "expected_tools": [{"name": "add", "result": None}]}).passed is False


def test_expected_tools_of_a_row_can_use_the_golden_language() -> None:
    expected = [
        {"any_of": [{"tool_name": "mail", "input_parameters": {"to": {"regex": "a.*"}}}, ["call", "wait"]]},
        {"parallel": ["log", "notify"]},
        {"name": "close", "optional": True},
    ]
    called = [{"name": "mail", "args": {"to": "ann"}}, "notify", "log"]
    result = evaluated({"tools_called": called, "expected_tools": expected})
    assert (result.passed, result.reason) == (True, "All 3 expected tools were called, in order.")
    assert isinstance(result.golden.tools[0], AnyOf)


# --- the golden of a row ----------------------------------------------------------------------------------------------

GOLDENS = Goldens(
    [Golden("book", "Book it.", (ExpectedTool("book"),)), Golden("pay", tools=(ExpectedTool("pay"),))],
    vocabulary=Vocabulary((Tool("book", aliases=("reserve",)),)),
)


@pytest.mark.parametrize(
    ("row", "golden_id", "how"),
    [
        pytest.param({"expected_tools": ["x"]}, "row 1", "given", id="its own expected tools"),
        pytest.param({"id": "c", "expected_tools": ["x"], "input": "Book it."}, "c", "given", id="though its input is"
                     " a golden's"),
        pytest.param({"golden_id": "pay", "expected_tools": ["x"]}, "pay", "id", id="the golden that it names"),
        pytest.param({"golden_id": "pay"}, "pay", "id", id="a golden id alone"),
        pytest.param({"input": "book  IT."}, "book", "input", id="the golden of its input"),
    ],
)  # fmt: skip
def test_a_row_uses_the_golden_it_names_then_its_expected_tools_then_the_golden_of_its_input(
    row: dict[str, Any], golden_id: str, how: str
) -> None:
    match = evaluated({"tools_called": [], **row}, GOLDENS).match
    assert (match.golden.id, match.how) == (golden_id, how)


@pytest.mark.parametrize(
    ("row", "goldens", "reason"),
    [
        pytest.param({}, None, "none was given", id="nothing was expected"),
        pytest.param({"expected_tools": None}, None, "none was given", id="None is not known"),
        pytest.param({"expected_tools": " "}, None, "none was given", id="an empty cell"),
        pytest.param({"expected_tools": float("nan")}, None, "none was given", id="an empty cell of pandas"),
        pytest.param({"input": "Other."}, GOLDENS, "no golden for this input", id="no golden for the input"),
        pytest.param({"golden_id": "boook"}, GOLDENS, "golden id 'boook' is not in the file", id="an unknown golden"),
        pytest.param({"golden_id": "boook", "expected_tools": ["x"]}, GOLDENS, "golden id 'boook' is not in the file",
                     id="an unknown golden is no reason to take another"),
        pytest.param({"golden_id": "book"}, None, "none was given", id="a golden id without goldens"),
    ],
)  # fmt: skip
def test_a_row_without_an_expectation_is_not_evaluated(
    row: dict[str, Any], goldens: Goldens | None, reason: str
) -> None:
    result = evaluated({"tools_called": ["x"], **row}, goldens)
    assert (result.status, result.passed) == ("not_evaluated", None)
    assert result.reason == f"No golden applies to this run: {reason}."


def test_a_golden_id_is_ignored_when_no_goldens_are_given() -> None:
    assert evaluated({"tools_called": ["x"], "expected_tools": ["x"], "golden_id": "g"}).passed is True


def test_an_empty_list_of_expected_tools_is_distinct_from_no_expectation() -> None:
    assert evaluated({"tools_called": [], "expected_tools": []}).passed is True
    assert evaluated({"tools_called": ["a"], "expected_tools": []}).passed is False
    assert evaluated({"tools_called": "[]", "expected_tools": "[]"}).passed is True
    assert evaluated({"tools_called": [], "expected_tools": None}).passed is None


def test_rows_with_their_own_expected_tools_use_the_vocabulary_of_the_goldens() -> None:
    row = {"tools_called": ["reserve"], "expected_tools": ["book"]}
    assert (evaluated(row).passed, evaluated(row, GOLDENS).passed) == (False, True)


def test_evaluate_cases_accepts_the_options_of_evaluate() -> None:
    row = {"tools_called": ["b", "a", "c"], "expected_tools": ["a", "b"]}
    result = evaluated(row, metrics=["tool_correctness"], thresholds={"tool_correctness": 0.9}, mode="f1", verbose=True)
    (score,) = result.scores
    assert (round(score.value, 3), score.passed, bool(score.steps)) == (0.8, False, True)
    assert evaluated(row, order="in_order").score("tool_correctness").value == 0.5
    assert evaluated(row, mode="f1", strict=True).score("tool_correctness").value == 0
    assert evaluated(row, reasons=False).reason == ""


def test_the_metrics_of_a_golden_apply_unless_the_caller_names_metrics() -> None:
    goldens = Goldens([Golden("g", tools=(ExpectedTool("a"),), metrics=("tool_recall",))])
    row = {"tools_called": [], "golden_id": "g"}
    assert [score.metric for score in evaluated(row, goldens).scores] == ["tool_recall"]
    assert [score.metric for score in evaluated(row, goldens, metrics=["tool_f1"]).scores] == ["tool_f1"]


names = st.sampled_from(["search", "Search", "book", "pay"])
arguments = st.none() | st.dictionaries(st.sampled_from("xy"), st.integers(0, 1) | st.text(max_size=2), max_size=2)
calls = st.lists(st.builds(lambda name, given, error: ToolCall(name, arguments=given, error=error), names, arguments,
                           st.none() | st.just("no")), max_size=4)  # fmt: skip
tools = st.lists(st.builds(lambda name, given: ExpectedTool(name, given), names, arguments), max_size=4)


@given(calls, tools, st.sampled_from(["any", "in_order", "exact"]), st.booleans())
def test_a_case_and_the_same_run_have_equal_evaluations(
    called: list[ToolCall], expected: list[ExpectedTool], order: Any, as_values: bool
) -> None:
    run = Run("r", input="Hi", tool_calls=tuple(called))
    wanted = evaluate(run, Golden("r", "Hi", tuple(expected)), order=order)
    row = {
        "id": "r",
        "input": "Hi",
        "tools_called": called if as_values else [
            {"name": call.name, "input_parameters": call.arguments, "error": call.error} for call in called
        ],
        "expected_tools": expected if as_values else [
            {"name": tool.name, "input_parameters": tool.arguments} for tool in expected
        ],
    }  # fmt: skip
    found = evaluated(row, order=order)
    assert found == wanted
    assert found.digest == wanted.digest


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param({}, "tools_called is missing; write [] if no tool was called", id="no calls"),
        pytest.param({"tools_called": None}, "tools_called is missing", id="None is not known"),
        pytest.param({"tools_called": ""}, "tools_called is missing", id="an empty cell"),
        pytest.param({"tool_called": []}, "unknown key 'tool_called'. Did you mean 'tools_called'?", id="a slip"),
        pytest.param({"tools_called": [], "expected_tool": []}, "Did you mean 'expected_tools'?", id="misspelt tools"),
        pytest.param({"tools_called": 5}, "tools_called must be a list of tools, not 5", id="no list"),
        pytest.param({"tools_called": [5]}, "must be the name of a tool or a dictionary with its name, not 5",
                     id="no call"),
        pytest.param({"tools_called": [None]}, "called[0]", id="nothing for a call"),
        pytest.param({"tools_called": [{"args": {}}]}, "called[0]: has no name", id="a call without a name"),
        pytest.param({"tools_called": [{"name": "a", "argument": {}}]}, "unknown key 'argument'", id="a misspelt call"),
        pytest.param({"tools_called": "[a, b"}, "tools_called starts like a list, but is", id="a broken cell"),
        pytest.param({"tools_called": [], "expected_tools": [5]}, "expected[0]", id="no tool"),
        pytest.param({"tools_called": [], "expected_tools": [{"name": "a", "argument": {}}]},
                     "Did you mean 'arguments'?", id="a misspelt tool"),
        pytest.param({"tools_called": [], "available_tools": [5]}, "available_tools", id="no definition"),
        pytest.param({"tools_called": [], "id": ["x"]}, "id must be text or a number", id="no id"),
        pytest.param({"tools_called": [], "golden_id": True}, "golden_id must be text or a number", id="no golden id"),
        pytest.param({"tools_called": [], "id": 10**5000}, "cannot be converted to text", id="an endless number"),
        pytest.param("search", "a case must be a dictionary, not 'search'", id="no row"),
        pytest.param(None, "a case must be a dictionary", id="nothing for a row"),
        pytest.param(SimpleNamespace(input="x"), "tools_called is missing", id="an object without calls"),
    ],
)  # fmt: skip
def test_an_invalid_row_is_reported_before_any_row_is_evaluated(row: Any, message: str) -> None:
    evaluated_rows: list[int] = []
    with pytest.raises(GoldspanError) as raised:
        evaluate_cases([{"tools_called": []}, row], on_progress=lambda done, total: evaluated_rows.append(done))
    assert str(raised.value).startswith("row 2: ")
    assert message in str(raised.value)
    assert evaluated_rows == []


def test_the_error_of_an_invalid_row_names_its_id() -> None:
    with pytest.raises(GoldspanError, match=r"^row 1 \('refund-7'\): tools_called is missing"):
        evaluate_cases([{"id": "refund-7"}])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        pytest.param({"concurrency": 0}, "concurrency must be 1 or more, not 0", id="no worker"),
        pytest.param({"metrics": ["tool_recal"]}, "Did you mean 'tool_recall'?", id="no such metric"),
        pytest.param({"thresholds": {"tool_recal": 1}}, "tool_recal", id="no such threshold"),
    ],
)
def test_invalid_options_are_refused_even_without_rows(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        evaluate_cases([], **how)
    assert message in str(raised.value)


def test_the_path_of_a_golden_file_is_refused_as_goldens() -> None:
    with pytest.raises(ConfigurationError, match=r"what load_goldens\(\) returns, not 'goldens.yaml'"):
        evaluate_cases([], "goldens.yaml")  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", ["rows", {"tools_called": []}, 5])
def test_rows_of_another_type_than_a_list_are_refused(rows: Any) -> None:
    with pytest.raises(GoldspanError, match="rows must be a list of cases"):
        evaluate_cases(rows)


def test_rows_can_come_from_csv_dictreader() -> None:
    table = io.StringIO("id,tools_called,expected_tools\n1,a;b,a\n2,[],a\n3,a,\n")
    assert [result.passed for result in evaluate_cases(csv.DictReader(table))] == [True, False, None]


def test_expected_tools_nested_too_deeply_are_refused() -> None:
    deep: Any = "a"
    for _ in range(50_000):
        deep = {"any_of": [deep]}
    with pytest.raises(GoldspanError):
        evaluated({"tools_called": [], "expected_tools": [deep]})


# --- concurrency ------------------------------------------------------------------------------------------------------


def slow(seen: Comparison) -> float:
    time.sleep(0.002 * (len(seen.rows) % 3))
    return len(seen.rows) / 10


def test_concurrent_evaluation_gives_the_same_results_in_the_same_order() -> None:
    rows = [{"tools_called": ["a"] * (number % 5), "expected_tools": ["a"]} for number in range(40)]
    seen: list[tuple[int, int]] = []
    found = evaluate_cases(rows, metrics=[slow], concurrency=8, on_progress=lambda *at: seen.append(at))
    assert found == evaluate_cases(rows, metrics=[slow])
    assert seen == [(done, 40) for done in range(1, 41)]


def test_slow_metrics_run_concurrently() -> None:
    together = threading.Barrier(4, timeout=10)

    def meeting(seen: Comparison) -> float:
        together.wait()
        return 1.0

    found = evaluate_cases([{"tools_called": [], "expected_tools": []}] * 4, metrics=[meeting], concurrency=4)
    assert [result.scores[0].error for result in found] == [None] * 4


@pytest.mark.parametrize("concurrency", [1, 3])
def test_map_in_order_consumes_its_input_only_slightly_ahead_of_the_results(concurrency: int) -> None:
    taken: list[int] = []

    def items() -> Any:
        for number in range(1000):
            taken.append(number)
            yield number

    results = map_in_order(lambda number: number * 2, items(), concurrency=concurrency)
    assert [next(results) for _ in range(5)] == [0, 2, 4, 6, 8]
    assert len(taken) <= 20
    results.close()


@pytest.mark.parametrize("concurrency", [1, 3])
def test_map_in_order_raises_an_error_at_the_position_of_its_item(concurrency: int) -> None:
    def work(number: int) -> int:
        if number == 3:
            raise KeyboardInterrupt
        return number

    results = map_in_order(work, range(10), concurrency=concurrency)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(results)


def test_an_exception_from_on_progress_ends_the_evaluation() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_cases([{"tools_called": []}] * 100, concurrency=2, on_progress=stop)


def test_closing_map_in_order_does_not_wait_for_running_work() -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    def work(number: int) -> int:
        if number:
            begun.release()
            release.wait(30)
        return number

    results = map_in_order(work, range(100), concurrency=2)
    assert next(results) == 0
    assert begun.acquire(timeout=10)
    results.close()
    release.set()  # lets the two started items end; the others must not start
    assert sum(iter(lambda: begun.acquire(timeout=0.2), False)) <= 2
