"""Redaction: the hook, and the filter that hides values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import (
    AnyOf,
    Comparison,
    ConfigurationError,
    Evaluation,
    ExpectedTool,
    Golden,
    Goldens,
    Match,
    Parallel,
    Run,
    Times,
    Tool,
    ToolCall,
    ToolDefinition,
    Vocabulary,
    When,
    _guard,
    evaluate,
)
from goldspan.model.value_matchers import Equal, OneOf
from goldspan.sinks import ArgumentFilter, apply_redaction, result_attributes
from goldspan.sinks.otel_sinks import score_attributes
from goldspan.sinks.serialization import evaluation_document, to_json

SECRET = "secret-7"
SHOWN = "Oslo"
HIDDEN = "[redacted]"

RUN = Run(
    "t:s",
    trace_ids=("t",),
    input=f"Book for {SECRET}",
    output=f"Booked for {SECRET}",
    golden_id="trip",
    agent="concierge",
    tool_calls=(
        ToolCall("book", arguments={"city": SHOWN, "guest": {"name": SECRET, "age": SECRET}}, result={"id": SECRET}),
        ToolCall("Pay", arguments=[SECRET], error=f"declined: {SECRET}", error_guess=SECRET, raw_arguments=SECRET),
        ToolCall("call", arguments=SECRET, result=[SECRET]),
        ToolCall("ping"),
    ),
    available_tools=(ToolDefinition("book"),),
    metadata={"user": SECRET},
    attributes={"gen_ai.input.messages": SECRET},
    expected_tools=("book", {"name": "pay", "arguments": {"card": SECRET}}, {"any_of": [SECRET]}, [SECRET]),
)
GOLDEN = Golden(
    "trip",
    input=f"Book for {SECRET}",
    tools=(
        ExpectedTool("book", {"city": SHOWN, "guest": {"name": f"{SECRET}!"}}, result={"id": Equal(f"{SECRET}!")}),
        Parallel((ExpectedTool("call", {"number": SECRET}), AnyOf(((ExpectedTool("text", {"to": SECRET}),),)))),
        AnyOf(((ExpectedTool("mail", {"to": OneOf((SECRET,))}), ExpectedTool("log")), (ExpectedTool("fax"),))),
        ExpectedTool("wait", defaults={"for": SECRET}, times=Times(0, 1)),
    ),
    metadata={"owner": SECRET},
    when=When(input=SECRET, attributes={"user.id": SECRET}),
    vocabulary=Vocabulary((Tool("book", defaults={"guest": SECRET}, metadata={"doc": SECRET}),)),
)


def fails(seen: Comparison) -> float:
    raise KeyError(seen.calls[0].arguments["guest"]["name"])


@pytest.fixture
def evaluation() -> Evaluation:
    return evaluate(RUN, GOLDEN, metrics=["tool_correctness", "argument_correctness", ("mine", fails)], verbose=True)


def texts(value: Any) -> Iterator[str]:
    """All strings in a value, at any depth."""
    if is_dataclass(value):
        for field in fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (*texts(key), *texts(item))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


# --- the filter -------------------------------------------------------------------------------------------------------


def test_hidden_values_occur_nowhere_in_the_filtered_evaluation(evaluation: Evaluation) -> None:
    assert any(SECRET in text for text in texts(evaluation))
    copy = ArgumentFilter(texts=False)(evaluation)
    assert [text for text in texts(copy) if SECRET in text or SHOWN in text] == []
    shown = (copy.to_html(values=True), copy.to_markdown(values=True), repr(copy))
    assert not any(SECRET in text for text in (*shown, to_json(evaluation_document(copy, include_arguments=True))))


def test_names_scores_and_rows_are_unchanged_by_the_filter(evaluation: Evaluation) -> None:
    copy = ArgumentFilter(texts=False)(evaluation)
    assert copy.run.tool_calls[0].arguments == {"city": HIDDEN, "guest": HIDDEN}
    assert copy.run.tool_calls[3].arguments is None
    assert copy.run.tools_used == evaluation.run.tools_used
    assert [(score.metric, score.value, score.passed, score.reason, score.steps) for score in copy.scores] == [
        (score.metric, score.value, score.passed, score.reason, score.steps) for score in evaluation.scores
    ]
    assert copy.scores[-1].error == "KeyError"
    assert (copy.passed, copy.reason, copy.revision) == (evaluation.passed, evaluation.reason, evaluation.revision)
    rows, before = copy.comparison.rows, evaluation.comparison.rows
    assert [(row.verdict, row.called_at, row.expected_at, row.in_order) for row in rows] == [
        (row.verdict, row.called_at, row.expected_at, row.in_order) for row in before
    ]
    assert [row.called for row in rows if row.called_at == 0] == [copy.run.tool_calls[0]]
    assert copy.run.expected_tools == (
        "book", {"name": "pay", "arguments": HIDDEN}, {"any_of": HIDDEN}, HIDDEN
    )  # fmt: skip
    assert copy.golden is not None
    assert [item.name for item in copy.golden.tools] == [item.name for item in GOLDEN.tools]


def test_faults_are_unchanged_by_the_filter(evaluation: Evaluation) -> None:
    other = ExpectedTool("pay", {"amount": SECRET}, agent="billing")
    calls = (ToolCall("pay", arguments={"amount": SECRET}, agent="support"), ToolCall("log", agent="support"))
    run = Run("r", agent="support", tool_calls=calls)
    by_another = evaluate(run, Golden("g", order="exact", tools=(other, ExpectedTool("audit"))))
    assert [fault.kind for fault in by_another.faults] == ["wrong_agent", "wrong_tool"]
    for one in (by_another, evaluation):
        copy = ArgumentFilter(texts=False)(one)
        assert copy.faults == one.faults
        assert not any(SECRET in text for text in texts(copy))


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        (["city"], r'allow must map tools to argument names, {"book": \["city"\]}, .*, not \[\'city\'\]'),
        ("city", "not 'city'"),
        ({"book": 7}, r"allow\['book'\] must be a list of argument names, not 7"),
        ({"book": ["city", None]}, r"allow\['book'\] must be a list"),
        ({None: ["city"]}, r"allow\[None\] must be"),
    ],
)
def test_an_invalid_allow_argument_is_rejected(allow: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ArgumentFilter(allow)


def test_allowed_arguments_can_be_given_as_any_iterable(evaluation: Evaluation) -> None:
    copy = ArgumentFilter({"book": iter(["city"])})(evaluation)
    assert copy.run.tool_calls[0].arguments == {"city": SHOWN, "guest": HIDDEN}


def test_values_allowed_by_tool_and_path_are_kept(evaluation: Evaluation) -> None:
    copy = ArgumentFilter({"Book": ["city", "guest.age"], "call": "nothing"})(evaluation)
    booked = copy.run.tool_calls[0]
    assert booked.arguments == {"city": SHOWN, "guest": {"name": HIDDEN, "age": SECRET}}
    assert copy.comparison.rows[0].called is booked
    agreement = copy.comparison.rows[0].agreement
    assert agreement is not None
    assert {difference.key: difference.called for difference in agreement.differences} == {
        "guest.name": HIDDEN, "guest.age": SECRET
    }  # fmt: skip
    assert copy.golden is not None
    (booking, *_) = copy.golden.expected_calls
    assert booking.arguments == {"city": SHOWN, "guest": {"name": HIDDEN}}
    assert copy.run.tool_calls[2].arguments == HIDDEN
    assert copy.run.input == RUN.input  # texts are kept by default
    assert copy.golden.input == GOLDEN.input


@pytest.mark.parametrize(
    ("allow", "left"),
    [
        pytest.param({"book": ["*"]}, [SHOWN, HIDDEN], id="all arguments of a tool"),
        pytest.param({"*": ["city"]}, [SHOWN, SHOWN], id="an argument of all tools"),
        pytest.param({"*": ["*"]}, [SHOWN, SHOWN], id="everything"),
        pytest.param({"*": ["city"], "BOOK": ["guest"], "book": ["x"]}, [SHOWN, SHOWN], id="both, and two spellings"),
        pytest.param({"bo": ["city"], "book": ["cit", "city.name", "c"]}, [HIDDEN, HIDDEN], id="nothing that is near"),
    ],
)
def test_a_star_matches_all_tools_or_all_arguments(allow: dict[str, list[str]], left: list[str]) -> None:
    calls = tuple(ToolCall(name, arguments={"city": SHOWN, "x": 1}) for name in ("book", "search"))
    copy = ArgumentFilter(allow)(evaluate(Run("r", tool_calls=calls), None))
    assert [call.arguments["city"] for call in copy.run.tool_calls] == left


def test_a_difference_below_an_allowed_path_is_kept_at_any_depth() -> None:
    called, expected = ({"guest": {"address": {"city": city}}, "note": SECRET} for city in ("Oslo", "Rome"))
    run = Run("r", tool_calls=(ToolCall("book", arguments=called),))
    one = evaluate(run, Golden("g", tools=(ExpectedTool("book", expected | {"note": f"{SECRET}!"}),)), verbose=True)
    for path in ("guest", "guest.address", "guest.address.city"):
        (row,) = ArgumentFilter({"book": [path]})(one).comparison.rows
        assert {each.key: (each.expected, each.called) for each in row.agreement.differences} == {
            "guest.address.city": ("Rome", "Oslo"),
            "note": (HIDDEN, HIDDEN),
        }


def test_a_row_keeps_its_filtered_call_if_a_hook_removed_the_calls_of_the_run(evaluation: Evaluation) -> None:
    run, seen = replace(evaluation.run, tool_calls=()), evaluation.comparison
    without = Comparison(seen.golden, seen.rows, run)
    copy = ArgumentFilter()(replace(evaluation, run=run, comparison=without))
    called = [(row.called.name, row.called.arguments) for row in copy.comparison.rows if row.called is not None]
    assert ("book", {"city": HIDDEN, "guest": HIDDEN}) in called
    assert len(called) == len(RUN.tool_calls)


def test_the_run_of_the_comparison_is_filtered_if_a_hook_removed_calls_of_the_run_only(evaluation: Evaluation) -> None:
    shortened = replace(evaluation, run=replace(evaluation.run, tool_calls=evaluation.run.tool_calls[:1]))
    copy = ArgumentFilter(texts=False)(shortened)
    assert [call.name for call in copy.run.tool_calls] == ["book"]
    assert [call.name for call in copy.comparison.run.tool_calls] == [call.name for call in RUN.tool_calls]
    called = {row.called_at: row.called for row in copy.comparison.rows if row.called is not None}
    assert all(called[at] is call for at, call in enumerate(copy.comparison.run.tool_calls))
    assert [text for text in texts(copy) if SECRET in text or SHOWN in text] == []


def test_list_items_are_addressed_by_the_path_of_their_list() -> None:
    call = ToolCall("book", arguments={"rooms": [{"beds": 2, "guest": SECRET}, 3], "a.b": SECRET})
    copy = ArgumentFilter({"book": ["rooms.beds", "a"]})(evaluate(Run("r", tool_calls=(call,)), None))
    assert copy.run.tool_calls[0].arguments == {"rooms": [{"beds": 2, "guest": HIDDEN}, HIDDEN], "a.b": HIDDEN}


def test_results_and_errors_are_kept_if_results_is_enabled(evaluation: Evaluation) -> None:
    booked, paid, *_ = ArgumentFilter(results=True)(evaluation).run.tool_calls
    assert (booked.result, paid.error, paid.error_guess) == ({"id": SECRET}, f"declined: {SECRET}", SECRET)
    assert (booked.arguments["city"], paid.arguments, paid.raw_arguments) == (HIDDEN, HIDDEN, HIDDEN)
    agreement = ArgumentFilter(results=True)(evaluation).comparison.rows[0].result_agreement
    assert agreement is not None
    assert [difference.called for difference in agreement.differences] == [SECRET]


def test_the_golden_of_the_match_is_filtered_like_the_golden_of_the_comparison(evaluation: Evaluation) -> None:
    found = replace(evaluation, match=Match(GOLDEN, "near", 0.9))
    copy = ArgumentFilter(texts=False)(found)
    assert copy.match is not None
    assert (copy.match.how, copy.match.similarity, copy.match.golden) == ("near", 0.9, copy.golden)
    assert copy.golden is copy.comparison.golden


def test_an_evaluation_without_a_golden_is_filtered() -> None:
    copy = ArgumentFilter(texts=False)(evaluate(replace(RUN, golden_id=None), Goldens()))
    assert (copy.golden, copy.match, copy.passed) == (None, None, None)
    assert not any(SECRET in text for text in texts(copy))


def test_digests_of_filtered_evaluations_depend_on_the_verdict_and_not_on_hidden_values() -> None:
    hide = ArgumentFilter()
    golden = Golden("g", tools=(ExpectedTool("pay", {"amount": 7}),))

    def paying(amount: int, call_id: str = "1") -> Evaluation:
        return evaluate(Run(call_id, tool_calls=(ToolCall("pay", arguments={"amount": amount}),)), golden)

    digests = [hide(paying(amount)).digest for amount in (7, 8, 9)]
    assert digests[0] != digests[1] == digests[2]
    assert digests[0] == hide(paying(7, "2")).digest != paying(7).digest
    assert hide(hide(paying(8))).run == hide(paying(8)).run


SEEN = {
    Run: {"input", "output", "tool_calls", "metadata", "expected_tools", "attributes"},
    ToolCall: {"arguments", "raw_arguments", "result", "error", "error_guess"},
    ExpectedTool: {"arguments", "result", "defaults"},
    Golden: {"input", "tools", "metadata", "when", "vocabulary"},
}
HARMLESS = {
    Run: {
        "run_id", "unit", "trace_ids", "span_id", "session_id", "agent", "service", "available_tools", "golden_id",
        "component", "conventions", "health", "start_ns", "end_ns", "metrics", "environment", "span_name",
    },
    ToolCall: {
        "name", "raw_name", "server", "outcome", "call_id", "kind", "evidence", "agent", "span_id", "start_ns",
        "end_ns", "concurrent_with",
    },
    ExpectedTool: {"name", "server", "times", "match", "ignore", "agent"},
    Golden: {
        "id", "order", "forbid", "max_calls", "depth", "attempts", "duplicates", "extra", "mode", "threshold",
        "thresholds", "metrics", "unknown", "write_tools", "component", "policy", "source",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SEEN, ids=lambda kind: kind.__name__)
def test_every_field_is_classified_as_filtered_or_harmless(kind: type) -> None:
    """Add a new field to one of the two sets; the filter must hide fields in `SEEN`."""
    assert {field.name for field in fields(kind)} == SEEN[kind] | HARMLESS[kind]


plain = st.recursive(
    st.just(SECRET) | st.integers() | st.none() | st.text(max_size=3).map(lambda text: SECRET + text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=12,
)


@given(plain, plain, plain, st.sets(st.sampled_from(["a", "a.b", "b.c", "c.a.b"])))
def test_only_values_at_allowed_paths_are_kept(called: Any, expected: Any, result: Any, allow: set[str]) -> None:
    calls = (ToolCall("t", arguments=called, result=result), ToolCall("other", arguments=called))
    wanted = expected if isinstance(expected, dict) else {"a": expected}
    one = evaluate(Run("r", tool_calls=calls), Golden("g", tools=(ExpectedTool("t", wanted, result=result),)))
    copy = ArgumentFilter({"t": allow})(one)
    assert len(copy.comparison.rows) == len(one.comparison.rows)
    if not allow:
        assert not any(SECRET in text for text in texts(copy))
    hidden = copy.run.tool_calls[1].arguments
    assert hidden is None or hidden == HIDDEN or set(hidden.values()) <= {HIDDEN}
    left = copy.run.tool_calls[0].arguments
    if isinstance(called, dict):
        assert left.keys() == called.keys()
        for key in called:
            assert left[key] == called[key] if key in allow else key in "abc" or left[key] == HIDDEN


# --- the hook ---------------------------------------------------------------------------------------------------------


def test_without_a_hook_an_evaluation_is_unchanged_and_a_hook_can_withhold_it(evaluation: Evaluation) -> None:
    assert apply_redaction(evaluation, None) is evaluation
    assert apply_redaction(evaluation, lambda one: None) is None
    assert apply_redaction(evaluation, ArgumentFilter()) == ArgumentFilter()(evaluation)


def _raise(evaluation: Evaluation) -> Evaluation:
    raise LookupError(evaluation.run.input)


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        pytest.param(_raise, "RuntimeError: the redaction raised LookupError", id="raises"),
        pytest.param(lambda one: True, "TypeError: the redaction returned bool instead of an Evaluation", id="answers"),
    ],
)
def test_a_failing_hook_withholds_the_evaluation_and_its_error_text_is_not_logged(
    hook: Callable[[Evaluation], Any], message: str, evaluation: Evaluation, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "goldspan"):
        assert apply_redaction(evaluation, hook) is None
    assert _guard.failure_counts == {"redact an evaluation, which is dropped": 1}
    assert message in caplog.text
    assert SECRET not in caplog.text


# --- emitted without a filter -----------------------------------------------------------------------------------------


@given(plain, plain)
def test_attributes_and_documents_of_any_evaluation_contain_no_values(called: Any, expected: Any) -> None:
    calls = (
        ToolCall("t", arguments=called, result=called, raw_arguments=SECRET),
        ToolCall("t", arguments=called, error=SECRET, error_guess=SECRET),
        ToolCall("unwanted", arguments=expected, outcome="denied"),
    )
    tools = (ExpectedTool("t", expected if isinstance(expected, dict) else None, result=expected), ExpectedTool("u"))
    run = Run("r", input=SECRET, output=SECRET, tool_calls=calls, available_tools=(ToolDefinition("uu"),))
    golden = Golden("g", input=SECRET, tools=tools, order="exact", max_calls=1, forbid=("unw*",), depth="own")
    for goldens in (golden, Goldens([golden]), Goldens([golden, replace(golden, id="h", order="any")]), Goldens()):
        one = evaluate(run, goldens, verbose=True)
        emitted = [result_attributes(one), *(score_attributes(one, score) for score in one.scores)]
        assert SECRET not in str(emitted)
        assert SECRET not in to_json(evaluation_document(one))
