"""One case for each surprising score of a peer, and the score with the sane setting."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from goldspan import profiles


def call(name: str, *, output: Any = None, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "output": output}


A, B, C = call("a"), call("b"), call("c")

# Each case: (peer, options, called, expected, score of the peer, sane score).
CASES = [
    pytest.param("deepeval", {}, [A, A], [A, A], 0.5, 1.0, id="deepeval: two identical calls count once"),
    pytest.param(
        "deepeval",
        {},
        [{"name": "a", "type": "function"}, {"name": "a", "type": "mcp"}],
        [{"name": "a", "type": "function"}, {"name": "a", "type": "mcp"}],
        0.5,
        1.0,
        id="deepeval: the content of a call does not know its type",
    ),
    pytest.param(
        "deepeval",
        {"evaluation_params": ["input_parameters"]},
        [call("a", x=1, y=1), call("a", x=1, y=2)],
        [call("a", x=1), call("a", x=1, y=1)],
        0.5,
        0.75,
        id="deepeval: the best call for the first may be the only one for the second",
    ),
    pytest.param(
        "deepeval",
        {"evaluation_params": ["input_parameters"]},
        [{"name": "a"}],
        [{"name": "a", "args": {}}],
        None,
        1.0,
        id="deepeval: no parameters beside empty ones raise",
    ),
    pytest.param("eval_ai_library", {}, [A], [], 1.0, 0.0, id="eval-ai-library: anything will do for nothing"),
    pytest.param(
        "axion", {"scoring": "precision"}, [], [A], 1.0, 0.0, id="axion: an agent that does nothing is precise"
    ),
    pytest.param(
        "axion",
        {"check_parameters": True, "parameter_matching_strategy": "subset"},
        [call("a", x=1, y=2), call("a", x=1)],
        [call("a", x=1), call("a", x=1, y=2)],
        0.5,
        1.0,
        id="axion: the first fit takes what another needs",
    ),
    pytest.param("ragas", {}, [A, B, C], [A, B], 0.0, 1.0, id="ragas: one extra call makes it 0"),
    pytest.param(
        "ragas",
        {"strict_order": False},
        [call("a", k="a"), call("a", k="z")],
        [call("a", k="b"), call("a", k="a")],
        0.5,
        0.5,
        id="ragas: sorted where nothing shifts",
    ),
    pytest.param(
        "ragas",
        {"strict_order": False},
        [call("a", k=1), call("a", k=2)],
        [call("a", k=2), call("a", k=3)],
        0.0,
        0.5,
        id="ragas: one different argument shifts all pairs",
    ),
    pytest.param("ragas", {"metric": "ToolCallF1"}, [A, A, B], [A, B], 1.0, 0.8, id="ragas: F1 hides repeated calls"),
    pytest.param("ragas", {"metric": "ToolCallF1"}, [], [], 0.0, 1.0, id="ragas: F1 of nothing is 0"),
    pytest.param(
        "agentevals",
        {"trajectory_match_mode": "subset", "tool_args_match_mode": "subset"},
        [call("a", x=1)],
        [call("a", x=1, y=2)],
        0.0,
        1.0,
        id="agentevals: sides handed over the wrong way round",
    ),
    pytest.param(
        "openevals",
        {"trajectory_match_mode": "superset", "tool_args_match_mode": "superset"},
        [call("a", x=1, y=2), call("a", x=1)],
        [call("a", x=1), call("a", x=1, y=2)],
        0.0,
        1.0,
        id="openevals: the first fit takes what another needs",
    ),
    pytest.param("google_adk", {}, [{"name": "a"}], [A], 0.0, 1.0, id="google-adk: none are not empty ones"),
    pytest.param("google_adk", {"match_type": "ANY_ORDER"}, [A], [], 1.0, 0.0, id="google-adk: anything for nothing"),
    pytest.param("vertex", {"metric": "trajectory_recall"}, [A], [A, A], 1.0, 0.5, id="vertex: one call found by two"),
    pytest.param(
        "agentcore",
        {"evaluator_id": "Builtin.TrajectoryAnyOrderMatch"},
        [A],
        [],
        1.0,
        0.0,
        id="agentcore: anything for nothing",
    ),
    pytest.param("strands", {}, [A, B, C], [A, B], 1.0, 0.0, id="strands: exact, whatever follows"),
    pytest.param("strands", {}, [], [], None, 1.0, id="strands: exact divides by zero"),
    pytest.param(
        "strands", {"scorer": "in_order_match_scorer"}, [B, C], [A, B, C], 0.0, 2 / 3, id="strands: the walk ends"
    ),
    pytest.param(
        "strands", {"scorer": "any_order_match_scorer"}, [A, A], [A, A], 0.5, 1.0, id="strands: a set above the line"
    ),
    pytest.param("galtea", {}, [A, A], [A], 1.0, 0.0, id="galtea: a loop passes"),
    pytest.param("mlflow", {}, [A, A, B], [A, B, B], 1.0, 0.0, id="mlflow: sets after their lengths"),
    pytest.param(
        "mlflow",
        {},
        [call("a", x=1), B],
        [call("a", x=2), {"name": "b"}],
        1.0,
        0.0,
        id="mlflow: one without arguments switches all off",
    ),
    pytest.param("mlflow", {}, [call("a", x=1)], [call("a", x=1.0)], 0.0, 1.0, id="mlflow: 1 is not 1.0"),
    pytest.param("mlflow", {}, [], [], None, 1.0, id="mlflow: nothing cannot be expected"),
    pytest.param(
        "azure",
        {"with_parameters": True},
        [call("a", x=1), call("a", x=2)],
        [call("a", x=1), call("a", x=2)],
        0.0,
        1.0,
        id="azure: one set of parameters for a name",
    ),
    pytest.param(
        "azure",
        {"with_parameters": True},
        [call("a", x="7")],
        [call("a", x=7)],
        1.0,
        0.0,
        id="azure: 7 is '7'",
    ),
    pytest.param("azure", {}, [A], [], None, 0.0, id="azure: nothing cannot be expected"),
    pytest.param("langchain_benchmarks", {}, [A], [], None, 0.0, id="langchain-benchmarks: divides by zero"),
    pytest.param("promptfoo", {}, [A, A, B], [A, B], 1.0, 0.8, id="promptfoo: F1 of sets"),
    pytest.param("promptfoo", {}, [], [], None, 1.0, id="promptfoo: nothing cannot be expected"),
    pytest.param(
        "bfcl",
        {"test_category": "parallel"},
        [call("a", k="x"), call("a", k="X")],
        [call("a", k="x"), call("a", k="x")],
        1.0,
        1.0,
        id="bfcl: text without case",
    ),
]


@pytest.mark.parametrize(("peer", "options", "called", "expected", "theirs", "sane"), CASES)
def test_a_quirk_has_the_score_of_the_peer_and_a_sane_score(
    peer: str,
    options: dict[str, Any],
    called: list[Any],
    expected: list[Any],
    theirs: float | None,
    sane: float,
) -> None:
    assert profiles.score(peer, called, expected, **options).value == pytest.approx(theirs)
    assert profiles.score(peer, called, expected, **options, sane=True).value == pytest.approx(sane)


def test_every_peer_with_a_correctable_quirk_has_a_case() -> None:
    """A quirk is correctable when a sane setting changes the formula."""
    settable = {
        name for name in profiles.NAMES if any(quirk.formula_changes for quirk in profiles.describe(name).quirks)
    }
    shown = {case.values[0] for case in CASES}
    assert settable == shown & settable


# --- quirks that no setting changes -----------------------------------------------------------------------------------


def test_axion_treats_a_threshold_of_0_as_one_half() -> None:
    score = profiles.score("axion", ["b"], ["a"], threshold=0)
    assert (score.value, score.passed, score.threshold) == (0.0, False, 0.5)


@pytest.mark.parametrize(
    ("expected", "called", "value"),
    [
        pytest.param("python tutorial", "Python tutorials", 1.0, id="nearly the same text"),
        pytest.param("what is ML", "what is machine learning", 0.0, id="another text"),
        pytest.param(100, 90, 1.0, id="a number near by"),
        pytest.param(0, 0, 1.0, id="twice 0"),
        pytest.param(0, 1, 0.0, id="one 0"),
        pytest.param(5, 5.0, 0.0, id="an integer is no float"),
        pytest.param(True, True, 1.0, id="equal booleans"),
        pytest.param(None, None, 0.0, id="nothing is like nothing else"),
        pytest.param([1, 2], [1, 2], 1.0, id="lists are compared whole"),
        pytest.param({}, {}, 1.0, id="empty dictionaries"),
        pytest.param({"a": 1}, {}, 0.0, id="no common key"),
        pytest.param({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, 1.0, id="the mean of keys and values"),
    ],
)
def test_axion_scores_single_values_by_similarity(expected: Any, called: Any, value: float) -> None:
    options = {"check_parameters": True, "parameter_matching_strategy": "fuzzy"}
    assert profiles.score("axion", [call("a", k=called)], [call("a", k=expected)], **options).value == value


def test_axion_accepts_any_arguments_where_none_are_expected() -> None:
    options = {"check_parameters": True, "parameter_matching_strategy": "fuzzy"}
    assert profiles.score("axion", [call("a", k=1)], [A], **options).value == 1.0


@pytest.mark.parametrize(
    ("expected", "called", "value"),
    [
        pytest.param(7, "7", 1.0, id="7 is its text"),
        pytest.param(None, "None", 1.0, id="None is its text"),
        pytest.param({"a": 1}, "{'a': 1}", 1.0, id="a dictionary is its text"),
        pytest.param(1, 1.0, 0.0, id="1 is not 1.0"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, 0.0, id="the order of nested keys matters"),
    ],
)
def test_ragas_compares_arguments_as_text(expected: Any, called: Any, value: float) -> None:
    assert profiles.score("ragas", [call("a", k=called)], [call("a", k=expected)]).value == value


@pytest.mark.parametrize(
    ("expected", "called", "value"),
    [
        pytest.param([1, {"a": [2]}], [1, {"a": [2]}], 1.0, id="lists and dictionaries at any depth"),
        pytest.param([1, 2], [2, 1], 0.0, id="another order"),
        pytest.param([1, "a"], (True, "a"), 1.0, id="a list is a tuple, and 1 is True"),
        pytest.param(Decimal(1), 1.0, 1.0, id="a value that is no JSON"),
    ],
)
def test_ragas_f1_compares_arguments_as_elements_of_a_set(expected: Any, called: Any, value: float) -> None:
    assert profiles.score("ragas", [call("a", k=called)], [call("a", k=expected)], metric="ToolCallF1").value == value


def test_ragas_requires_a_call_without_arguments_where_none_are_expected() -> None:
    assert profiles.score("ragas", [call("a", k=1)], [A]).value == 0.0
    assert profiles.score("ragas", [A], [A]).value == 1.0


def test_openevals_and_agentevals_differ_for_absent_keys() -> None:
    options = {"trajectory_match_mode": "superset", "tool_args_match_overrides": {"a": ["k.deep"]}}
    assert profiles.score("agentevals", [A], [A], **options).value == 1.0
    assert profiles.score("openevals", [A], [A], **options).value == 0.0


def test_a_rule_for_one_tool_can_be_a_function_of_call_and_expectation() -> None:
    def longer(made: dict[str, Any], wanted: dict[str, Any]) -> bool:
        return len(made["text"]) > len(wanted["text"])

    options = {"trajectory_match_mode": "superset", "tool_args_match_overrides": {"say": longer, "b": "ignore"}}
    assert profiles.score("openevals", [call("say", text="xx"), B], [call("say", text="x")], **options).value == 1.0
    assert profiles.score("openevals", [call("say", text="x"), B], [call("say", text="xx")], **options).value == 0.0


@pytest.mark.parametrize(("layout", "value"), [pytest.param("one_message", 1.0), pytest.param("message_per_call", 0.0)])
def test_openevals_accepts_reordered_calls_only_within_one_message(layout: str, value: float) -> None:
    assert profiles.score("openevals", [A, B], [B, A], layout=layout).value == value


def test_pydantic_evals_keeps_a_rounding_error_below_the_threshold() -> None:
    called, expected = ["a", "b", "c"], ["a", "b", "c", "d", "e"]
    value = profiles.score("pydantic_evals", called, expected, evaluator="TrajectoryMatch").value
    assert value is not None
    assert value == pytest.approx(0.75)
    assert value < 0.75


def test_pydantic_evals_counts_failed_calls_only_with_include_failed() -> None:
    called = [{"name": "a", "error": "timeout"}, {"name": "a"}]
    assert profiles.score("pydantic_evals", called, ["a"]).passed is True
    assert profiles.score("pydantic_evals", called, ["a"], include_failed=True).passed is False


@pytest.mark.parametrize(("calls", "passed"), [(0, True), (2, True), (3, False)])
def test_pydantic_evals_limits_the_number_of_calls_with_max_calls(calls: int, passed: bool) -> None:
    score = profiles.score("pydantic_evals", ["a"] * calls, [], evaluator="MaxToolCalls", max_calls=2)
    assert score.passed is passed
    assert profiles.score("pydantic_evals", ["a"] * calls, [], evaluator="MaxToolCalls").passed is True


def test_pydantic_evals_compares_the_selected_occurrence_of_the_tool() -> None:
    called = [call("a", k=1), call("a", k=2), call("b", k=3)]
    options = {"evaluator": "ArgumentCorrectness", "tool_name": "a"}
    expected = [call("b", k=3), call("a", k=2)]
    assert profiles.score("pydantic_evals", called, expected, **options, occurrence="first").value == 0.0
    assert profiles.score("pydantic_evals", called, expected, **options, occurrence="last").value == 1.0
    assert profiles.score("pydantic_evals", called, expected, **options, occurrence=1).value == 1.0
    assert profiles.score("pydantic_evals", called, expected, **options, occurrence=2).value == 0.0


def test_a_single_tool_metric_can_name_a_tool_that_is_not_expected() -> None:
    assert profiles.score("strands", ["a"], [], scorer="ToolCalled", tool="a").value == 1.0
    assert profiles.score("strands", ["a"], ["a"], scorer="ToolCalled", tool="b").value == 0.0
    assert profiles.score("vertex", ["a"], ["b"], metric="trajectory_single_tool_use", tool_name="a").value == 1.0


def test_vertex_computes_precision_over_the_calls() -> None:
    assert profiles.score("vertex", ["a", "a", "b"], ["a"], metric="trajectory_precision").value == pytest.approx(2 / 3)


def test_promptfoo_matches_patterns_and_span_names_without_regard_to_case() -> None:
    options = {"assertion": "trajectory:tool-used"}
    assert profiles.score("promptfoo", ["Search_Web"], ["search_*"], **options).value == 1.0
    assert profiles.score("promptfoo", ["search"], ["execute_tool s?arch"], **options).value == 1.0
    assert profiles.score("promptfoo", ["s[e]arch"], ["s[e]arch"], **options).value == 1.0
    assert profiles.score("promptfoo", ["search"], ["s[e]arch"], **options).value == 0.0


@pytest.mark.parametrize(("calls", "value"), [(0, 0.0), (1, 1.0), (3, 1.0), (4, 0.0)])
def test_promptfoo_counts_the_calls_of_one_tool(calls: int, value: float) -> None:
    options = {"assertion": "trajectory:tool-used", "value": "first_expected_count", "max": 3}
    assert profiles.score("promptfoo", ["a"] * calls + ["b"], ["a"], **options).value == value


def test_promptfoo_removes_defaults_from_the_calls_only() -> None:
    options = {"assertion": "trajectory:tool-args-match", "mode": "exact", "defaults": {"page": 1}}
    assert profiles.score("promptfoo", [call("a", q="x", page=1)], [call("a", q="x")], **options).value == 1.0
    assert profiles.score("promptfoo", [call("a", q="x", page=1)], [call("a", q="x", page=1)], **options).value == 0.0
    assert profiles.score("promptfoo", [call("a", q="x", page=True)], [call("a", q="x")], **options).value == 0.0


def test_galtea_ignores_the_same_name_prefixes_as_goldspan() -> None:
    assert profiles.score("galtea", ["mcp__orders__Find-Order"], ["functions.find_order"]).value == 1.0


# --- BFCL -------------------------------------------------------------------------------------------------------------

WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "float"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "filter": {"type": "dict"},
            "stops": {"type": "array", "items": {"type": "dict"}},
        },
        "required": ["city"],
    },
}


@pytest.mark.parametrize(
    ("allowed", "arguments", "value"),
    [
        pytest.param({"city": ["New York"]}, {"city": "new-york"}, 1.0, id="text without case and punctuation"),
        pytest.param({"city": ["New York"]}, {"city": "Boston"}, 0.0, id="another text"),
        pytest.param({"city": ["New York"]}, {}, 0.0, id="required and missing"),
        pytest.param({"city": ["x"], "days": ["", 3.0]}, {"city": "x"}, 1.0, id="may be left out"),
        pytest.param({"city": ["x"], "days": [3.0]}, {"city": "x"}, 0.0, id="may not be left out"),
        pytest.param({"city": ["x"], "days": [3.0]}, {"city": "x", "days": 3}, 1.0, id="an integer for a float"),
        pytest.param({"city": ["x"], "days": [3.0]}, {"city": "x", "days": True}, 0.0, id="a boolean is no number"),
        pytest.param({"city": ["x"], "days": ["n"]}, {"city": "x", "days": "n"}, 1.0, id="a variable for a number"),
        pytest.param({"city": ["x"], "days": ["n"]}, {"city": "x", "days": 3.0}, 0.0, id="no variable where one is"),
        pytest.param({"city": ["x"]}, {"city": "x", "days": 3.0}, 0.0, id="an argument without an answer"),
        pytest.param({"city": ["x"], "when": [1]}, {"city": "x", "when": 1}, 0.0, id="an argument that is undeclared"),
        pytest.param({"city": ["x"], "tags": [["A b"]]}, {"city": "x", "tags": ["ab"]}, 1.0, id="lists of texts"),
        pytest.param({"city": ["x"], "tags": [["a"]]}, {"city": "x", "tags": [1]}, 0.0, id="items of another type"),
        pytest.param({"city": ["x"], "tags": [["a"]]}, {"city": "x", "tags": "a"}, 0.0, id="no list"),
        pytest.param({"city": ["x"], "tags": ["", ["a"]]}, {"city": "x", "tags": []}, 1.0, id="the mark is a list"),
        pytest.param(
            {"city": ["x"], "filter": [{"a": ["B", 1], "c": ["", 2]}]},
            {"city": "x", "filter": {"a": "b"}},
            1.0,
            id="dictionaries, key by key",
        ),
        pytest.param(
            {"city": ["x"], "filter": ["", {"a": [1]}]}, {"city": "x", "filter": {"a": 2}}, 0.0, id="another entry"
        ),
        pytest.param({"city": ["x"], "filter": [{"a": [1]}]}, {"city": "x", "filter": {}}, 0.0, id="an entry missing"),
        pytest.param(
            {"city": ["x"], "stops": [[{"a": [1]}, {"a": [2]}]]},
            {"city": "x", "stops": [{"a": 1}, {"a": 2}]},
            1.0,
            id="lists of dictionaries",
        ),
        pytest.param(
            {"city": ["x"], "stops": [[{"a": [1]}]]}, {"city": "x", "stops": [{"a": 1}, {"a": 1}]}, 0.0, id="too many"
        ),
    ],
)
def test_bfcl_checks_values_and_types_against_the_possible_answers(
    allowed: dict[str, Any], arguments: dict[str, Any], value: float
) -> None:
    case = {"func_descriptions": [WEATHER], "possible_answers": [{"weather": allowed}]}
    called = [{"name": "weather", "args": arguments}]
    assert profiles.score("bfcl", called, ["weather"], case=case).value == value


@pytest.mark.parametrize(
    ("expected", "called", "value"),
    [
        pytest.param({"city": "Paris", "at": {"x": 1}}, {"city": "paris", "at": {"x": 1}}, 1.0, id="the same"),
        pytest.param({"city": "Paris"}, {"city": "Paris", "days": 1}, 0.0, id="one more"),
        pytest.param({"city": "Paris"}, {}, 0.0, id="one missing"),
        pytest.param({"days": 1}, {"days": "1"}, 0.0, id="another type"),
    ],
)
def test_bfcl_without_a_case_allows_only_the_expected_values(
    expected: dict[str, Any], called: dict[str, Any], value: float
) -> None:
    assert profiles.score("bfcl", [{"name": "a", "args": called}], [{"name": "a", "args": expected}]).value == value
