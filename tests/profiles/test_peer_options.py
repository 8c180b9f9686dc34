"""The options of a profile, and the error messages for invalid ones."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

import goldspan
from goldspan import ConfigurationError, GoldspanError, profiles
from goldspan.model import ExpectedTool, ToolCall


class Params(Enum):
    """The enumeration of deepeval."""

    INPUT_PARAMETERS = "input_parameters"


class MatchType(Enum):
    """The enumeration of google-adk."""

    ANY_ORDER = 2


def test_profiles_is_a_public_name_of_the_package() -> None:
    assert goldspan.profiles.score("deepeval", ["a"], ["a"]).passed is True


@pytest.mark.parametrize(
    ("peer", "options", "message"),
    [
        pytest.param("deepevall", {}, "unknown peer 'deepevall'. Did you mean 'deepeval'? There are", id="peer"),
        pytest.param("pydantic-eval", {}, "Did you mean 'pydantic-evals'?", id="the package of a peer"),
        pytest.param(7, {}, "unknown peer 7. There are deepeval,", id="no text"),
        pytest.param(
            "deepeval",
            {"treshold": 0.5},
            "unknown option 'treshold' of deepeval. Did you mean 'threshold'? There are evaluation_params,",
            id="option",
        ),
        pytest.param(
            "pydantic_evals",
            {"order": "exact"},
            "unknown option 'order' of pydantic_evals ToolCorrectness. There are evaluator, allow_extra,",
            id="an option of another metric",
        ),
        pytest.param(
            "axion",
            {"scoring": "recal"},
            "axion: scoring must be 'recall', 'precision' or 'f1', not 'recal'. Did you mean 'recall'?",
            id="word",
        ),
        pytest.param(
            "ragas",
            {"metric": "ToolCallF2"},
            "ragas: metric must be 'ToolCallAccuracy' or 'ToolCallF1', not 'ToolCallF2'. Did you mean 'ToolCallF1'?",
            id="metric",
        ),
        pytest.param("ragas", {"metric": ["ToolCallF1"]}, "ragas: metric must be", id="a list for a metric"),
        pytest.param(
            "deepeval",
            {"evaluation_params": ["inputs_parameters"]},
            "evaluation_params must be a list of 'input_parameters' and 'output', not 'inputs_parameters'. Did you",
            id="one of several words",
        ),
        pytest.param("deepeval", {"evaluation_params": "output"}, "must be a list of", id="no list of words"),
        pytest.param("deepeval", {"strict_mode": 1}, "strict_mode must be true or false, not 1.", id="no switch"),
        pytest.param("deepeval", {"threshold": 1.5}, "threshold must be a number from 0 to 1, not 1.5.", id="number"),
        pytest.param("deepeval", {"threshold": True}, "threshold must be a number", id="a switch for a number"),
        pytest.param("deepeval", {"threshold": float("nan")}, "threshold must be a number", id="no number at all"),
        pytest.param("deepeval", {"sane": "yes"}, "deepeval: sane must be true or false, not 'yes'.", id="sane"),
        pytest.param(
            "promptfoo",
            {"assertion": "trajectory:tool-used", "min": 1.5},
            "promptfoo: min must be a whole number from 0, not 1.5.",
            id="no whole number",
        ),
        pytest.param(
            "promptfoo",
            {"assertion": "trajectory:tool-args-match", "defaults": ["page"]},
            "promptfoo: defaults must be a dictionary of arguments and values, not ['page'].",
            id="no dictionary",
        ),
        pytest.param(
            "promptfoo",
            {"assertion": "trajectory:tool-args-match", "ignore": [1]},
            "promptfoo: ignore must be a list of texts, not [1].",
            id="no texts",
        ),
        pytest.param("strands", {"scorer": "ToolCalled", "tool": 1}, "tool must be the name of a tool", id="no name"),
        pytest.param(
            "pydantic_evals",
            {"evaluator": "ArgumentCorrectness", "occurrence": -1},
            "occurrence must be 'first', 'last' or a number from 0, not -1.",
            id="a number that is no place",
        ),
        pytest.param(
            "agentevals",
            {"tool_args_match_overrides": {"a": "exakt"}},
            "tool_args_match_overrides must be a dictionary from tools to 'exact', 'ignore', 'subset' and 'superset', "
            "a list of keys or a function, not 'exakt'. Did you mean 'exact'?",
            id="a rule for one tool",
        ),
        pytest.param("agentevals", {"tool_args_match_overrides": ["a"]}, "must be a dictionary", id="rules in a list"),
    ],
)
def test_an_invalid_peer_or_option_is_refused_with_the_nearest_valid_word(
    peer: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        profiles.score(peer, ["a"], ["a"], **options)
    assert message in str(error.value)
    with pytest.raises(ConfigurationError):
        profiles.metric(peer, **options)


@pytest.mark.parametrize(
    ("called", "expected", "message"),
    [
        pytest.param(None, [], "called must be a list, not None.", id="nothing"),
        pytest.param([], "a", "expected must be a list, not 'a'.", id="a name alone"),
        pytest.param({"name": "a"}, [], "called must be a list, not {'name': 'a'}.", id="a call alone"),
        pytest.param(["a", 1], [], "called[1]: must be the name of a tool or a dictionary", id="a number"),
        pytest.param([], [{"args": {}}], "expected[0]: has no name: {'args': {}}.", id="no name"),
        pytest.param([{"name": 1}], [], "called[0]: has no name: {'name': 1}.", id="no text for a name"),
        pytest.param([ToolCall(1)], [], "called: the name of a tool must be text.", id="a value of the model"),
    ],
)
def test_an_invalid_list_of_tools_is_refused_with_the_place_of_the_error(
    called: Any, expected: Any, message: str
) -> None:
    with pytest.raises(GoldspanError) as error:
        profiles.score("deepeval", called, expected)
    assert message in str(error.value)


def test_the_case_argument_is_accepted_only_by_peers_that_use_it() -> None:
    with pytest.raises(ConfigurationError, match="uses only the two lists"):
        profiles.score("deepeval", [], [], case={})
    with pytest.raises(GoldspanError, match="case: 1 possible_answers for 2 expected tools"):
        profiles.score("bfcl", ["a", "b"], ["a", "b"], case={"possible_answers": [{"a": {}}]})


def test_the_package_name_of_a_peer_selects_its_profile() -> None:
    assert profiles.prepare("pydantic-evals").peer is profiles.prepare("pydantic_evals").peer


def test_enumeration_members_of_a_peer_are_accepted_as_option_values() -> None:
    called, expected = [{"name": "a", "args": {"x": 1}}], [{"name": "a", "args": {"x": 2}}]
    params = [Params.INPUT_PARAMETERS]
    assert profiles.score("deepeval", called, expected, evaluation_params=params).value == 0.0
    assert profiles.score("google_adk", ["b", "a"], ["a", "b"], match_type=MatchType.ANY_ORDER).value == 1.0


def test_none_is_accepted_for_the_rules_by_tool() -> None:
    assert profiles.score("openevals", ["a"], ["a"], tool_args_match_overrides=None).value == 1.0


def test_a_prepared_profile_is_cached() -> None:
    assert profiles.prepare("deepeval", threshold=0.7) is profiles.prepare("deepeval", threshold=0.7)
    listed = profiles.prepare("deepeval", evaluation_params=["output"])
    assert listed is profiles.prepare("deepeval", evaluation_params=("output",))


def test_unhashable_option_values_are_accepted() -> None:
    options = {"assertion": "trajectory:tool-args-match", "mode": "exact"}
    made = [{"name": "a", "args": {"q": 1, "page": 1}}]
    wanted = [{"name": "a", "args": {"q": 1}}]
    assert profiles.score("promptfoo", made, wanted, **options, defaults={"page": 1}).value == 1.0
    assert profiles.score("promptfoo", made, wanted, **options, defaults={"page": True}).value == 0.0


@pytest.mark.parametrize(
    ("peer", "options", "reason"),
    [
        pytest.param("mlflow", {"should_exact_match": False}, "mlflow asks a language model", id="mlflow"),
        pytest.param("deepeval", {"available_tools": ["a"]}, "deepeval asks a language model", id="deepeval"),
    ],
)
def test_a_metric_for_which_the_peer_uses_a_model_is_not_evaluated(
    peer: str, options: dict[str, Any], reason: str
) -> None:
    score = profiles.score(peer, ["a"], ["a"], **options)
    assert (score.value, score.passed, score.label) == (None, None, "not_evaluated")
    assert (score.reason or "").startswith(reason)


@pytest.mark.parametrize(
    ("peer", "options", "error"),
    [
        pytest.param("strands", {}, "strands raises ZeroDivisionError where nothing is expected.", id="strands"),
        pytest.param("mlflow", {}, "mlflow raises MlflowException where nothing is expected: ", id="mlflow"),
        pytest.param("azure", {}, "azure raises EvaluationException where nothing is expected.", id="azure"),
        pytest.param("langchain_benchmarks", {}, "langchain_benchmarks raises ZeroDivisionError where", id="langchain"),
        pytest.param("promptfoo", {}, "promptfoo raises Error where nothing is expected.", id="promptfoo"),
    ],
)
def test_a_case_in_which_the_peer_raises_is_not_evaluated_and_the_reason_names_the_error(
    peer: str, options: dict[str, Any], error: str
) -> None:
    score = profiles.score(peer, ["a"], [], **options)
    assert (score.value, score.passed, score.label) == (None, None, "not_evaluated")
    assert (score.reason or "").startswith(error)


def test_values_that_the_peer_cannot_compare_are_not_evaluated() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"k": deep}
    call = [{"name": "a", "args": deep}]
    score = profiles.score("ragas", call, call, metric="ToolCallF1")
    assert score.value is None
    assert "ragas cannot compare these values: RecursionError" in (score.reason or "")
    missing = profiles.score("deepeval", ["a"], [{"name": "a", "args": {}}], evaluation_params=["input_parameters"])
    assert missing.value is None
    assert "AttributeError" in (missing.reason or "")
    while deep:  # unlink the chain step by step: its recursive deallocation can overflow the stack
        deep = deep.pop("k")


@pytest.mark.parametrize("options", [{}, {"should_consider_ordering": True}], ids=["any order", "in order"])
@pytest.mark.parametrize("arguments", [None, "no JSON"], ids=["none", "text"])
def test_one_incomparable_pair_makes_the_whole_case_not_evaluated(arguments: Any, options: dict[str, Any]) -> None:
    calls = [{"name": "a", "args": {"k": 1}}, {"name": "a", "args": arguments}]
    score = profiles.score("deepeval", calls, calls, evaluation_params=["input_parameters"], **options)
    assert score.value is None
    assert "AttributeError" in (score.reason or "")


def test_texts_too_long_for_a_character_comparison_are_not_evaluated() -> None:
    call = [{"name": "a", "args": {"k": "x" * 3000}}]
    other = [{"name": "a", "args": {"k": "y" * 3000}}]
    options = {"check_parameters": True, "parameter_matching_strategy": "fuzzy"}
    assert profiles.score("axion", call, call, **options).value == 1.0
    score = profiles.score("axion", call, other, **options)
    assert score.value is None
    assert "too long for a character comparison" in (score.reason or "")


# --- forms of calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        pytest.param({"name": "a", "args": {"k": 1}}, id="args"),
        pytest.param({"name": "a", "arguments": {"k": 1}}, id="arguments"),
        pytest.param({"name": "a", "input_parameters": {"k": 1}}, id="input_parameters"),
        pytest.param({"name": "a", "arguments": '{"k": 1}'}, id="as models write them"),
        pytest.param(ToolCall("a", arguments={"k": 1}), id="a call"),
        pytest.param(ToolCall("bare", "a", arguments={"k": 1}), id="the name as it was written"),
        pytest.param(ExpectedTool("a", {"k": 1}), id="an expectation"),
    ],
)
def test_arguments_are_read_from_every_form_of_a_call(call: Any) -> None:
    same, other = [{"name": "a", "args": {"k": 1}}], [{"name": "a", "args": {"k": 2}}]
    assert profiles.score("google_adk", [call], same).value == 1.0
    assert profiles.score("google_adk", same, [call]).value == 1.0
    assert profiles.score("google_adk", [call], other).value == 0.0


@pytest.mark.parametrize(
    "call",
    [
        pytest.param({"name": "a", "output": "x"}, id="output"),
        pytest.param({"name": "a", "result": "x"}, id="result"),
        pytest.param(ToolCall("a", result="x"), id="a call"),
        pytest.param(ExpectedTool("a", result="x"), id="an expectation"),
    ],
)
def test_outputs_are_read_from_every_form_of_a_call(call: Any) -> None:
    options = {"evaluation_params": ["output"]}
    assert profiles.score("deepeval", [call], [{"name": "a", "output": "x"}], **options).value == 1.0
    assert profiles.score("deepeval", [call], [{"name": "a"}], **options).value == 0.0
    assert profiles.score("deepeval", ["a"], [ExpectedTool("a")], **options).value == 1.0


def test_names_and_dictionaries_can_be_mixed_in_any_iterable() -> None:
    for dictionary in "ab":
        called = ({"name": name} if name == dictionary else name for name in "ab")
        assert profiles.score("google_adk", called, ("a", ToolCall("b"))).value == 1.0


def test_arguments_that_are_not_a_json_object_are_compared_as_text() -> None:
    called, same, other = ([{"name": "a", "arguments": text}] for text in ("[1]", "[1]", "{1"))
    assert profiles.score("google_adk", called, same).value == 1.0
    assert profiles.score("google_adk", called, other).value == 0.0


# --- descriptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", profiles.NAMES)
def test_every_peer_is_described_with_its_options_and_quirks(peer: str) -> None:
    description = profiles.describe(peer)
    assert description.peer == peer
    assert description.title
    assert description.version
    assert "sane" in description.options
    assert description.quirks
    page = str(description)
    assert all(option in page for option in description.options)
    assert all(quirk.text in page and quirk.sane in page for quirk in description.quirks)


def test_a_description_lists_title_options_and_quirks_as_text() -> None:
    assert str(profiles.describe("pydantic_evals")).splitlines()[:12] == [
        "pydantic_evals: ToolCorrectness, TrajectoryMatch, ArgumentCorrectness, MaxToolCalls (2.62.0)",
        "Options",
        (
            "  evaluator: 'ToolCorrectness', 'TrajectoryMatch', 'ArgumentCorrectness' or 'MaxToolCalls' "
            "(default 'ToolCorrectness')"
        ),
        "  allow_extra: for ToolCorrectness true or false (default False)",
        "  include_failed: for ToolCorrectness, TrajectoryMatch and ArgumentCorrectness true or false (default False)",
        "  order: for TrajectoryMatch 'exact', 'in_order' or 'any_order' (default 'in_order')",
        "  tool_name: for ArgumentCorrectness the name of a tool; None means the first expected tool",
        "  match_mode: for ArgumentCorrectness 'subset' or 'exact' (default 'subset')",
        "  occurrence: for ArgumentCorrectness 'first', 'last' or a number from 0 (default 'first')",
        "  max_calls: for MaxToolCalls a whole number from 0",
        "  sane: true or false: the score without the quirks below (default False)",
        "Quirks",
    ]


def test_describing_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'ragas'"):
        profiles.describe("raga")


@pytest.mark.parametrize(
    ("peer", "options", "called", "expected", "reason"),
    [
        pytest.param("deepeval", {}, "ab", "abc", "2 of 3 expected calls found.", id="recall"),
        pytest.param("deepeval", {}, "", "", "Nothing was expected, and nothing was called.", id="nothing"),
        pytest.param("deepeval", {}, "a", "", "Nothing was expected, but 1 call was made.", id="nothing expected"),
        pytest.param("deepeval", {}, "", "ab", "2 calls were expected, but none was made.", id="nothing called"),
        pytest.param(
            "deepeval",
            {"strict_mode": True},
            "a",
            "ab",
            "1 of 2 expected calls found; a partial match scores 0.",
            id="strict",
        ),
        pytest.param(
            "deepeval",
            {"should_consider_ordering": True},
            "ba",
            "ab",
            "1 of 2 expected calls found, in order.",
            id="lcs",
        ),
        pytest.param("axion", {"scoring": "precision"}, "ab", "a", "1 of 2 calls expected.", id="precision"),
        pytest.param("ragas", {"metric": "ToolCallF1"}, "ab", "a", "1 matched of 2 calls and 1 expected.", id="F1"),
        pytest.param("google_adk", {}, "ab", "a", "2 calls were made, but 1 was expected.", id="another number"),
        pytest.param(
            "google_adk",
            {},
            "ab",
            "ac",
            "1 matched of 2 calls and 2 expected, each at the same position.",
            id="positions",
        ),
        pytest.param(
            "ragas", {}, "ba", "ab", "The called tools are not the expected ones in the same order.", id="names"
        ),
        pytest.param(
            "ragas", {"strict_order": False}, "aa", "ab", "The called tools are not the expected ones.", id="any"
        ),
        pytest.param(
            "promptfoo",
            {"assertion": "trajectory:tool-used", "value": "first_expected_count"},
            "aa",
            "a",
            "2 calls of the tool.",
            id="count",
        ),
        pytest.param("pydantic_evals", {"evaluator": "MaxToolCalls"}, "aa", "a", "2 calls were made.", id="calls"),
    ],
)
def test_the_reason_is_one_plain_sentence(
    peer: str, options: dict[str, Any], called: str, expected: str, reason: str
) -> None:
    assert profiles.score(peer, list(called), list(expected), **options).reason == reason
