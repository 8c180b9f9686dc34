"""JSON documents of evaluations and runs, as `--json`, files and APIs return them."""

from __future__ import annotations

import json
from dataclasses import replace

from goldspan import AnyOf, Comparison, ExpectedTool, Golden, Parallel, Run, Times, ToolCall, ToolDefinition, evaluate
from goldspan.sinks.serialization import evaluation_document, run_document, to_json

EMAIL, TEXT = (ExpectedTool("send_email"),), (ExpectedTool("send_sms"), ExpectedTool("log"))
GOLDEN = Golden(
    "refund",
    tools=(
        ExpectedTool("find_order", {"order": "secret-7"}),
        AnyOf((EMAIL, TEXT)),
        Parallel((ExpectedTool("log_event"), ExpectedTool("notify"))),
        ExpectedTool("close_ticket", times=Times(0, 1)),
    ),
)
RUN = Run("t:s", trace_ids=("t",), tool_calls=(ToolCall("find_order", arguments={"order": "secret-8"}),))


def test_an_evaluation_document_contains_names_and_numbers_but_no_argument_values() -> None:
    document = evaluation_document(evaluate(RUN, GOLDEN))
    assert document["expected_tools"] == [
        "find_order", "send_email or send_sms + log", "log_event & notify", "close_ticket"
    ]  # fmt: skip
    assert (document["tools_used"], document["golden_id"], document["status"]) == (["find_order"], "refund", "scored")
    assert document["golden_match"] == {"how": "given", "similarity": 1.0}
    assert "secret" not in to_json(document)


def test_with_arguments_the_document_also_contains_calls_input_and_output() -> None:
    run = replace(RUN, input="Where is my order?", output="Here.")
    document = evaluation_document(evaluate(run, GOLDEN), include_arguments=True)
    assert (document["input"], document["output"]) == ("Where is my order?", "Here.")
    assert document["tool_calls"] == run_document(run)["tool_calls"]
    plain = evaluation_document(evaluate(run, GOLDEN))
    assert document.keys() - plain.keys() == {"input", "output", "tool_calls"}


def test_only_the_type_of_a_metric_error_is_written_unless_arguments_are_included() -> None:
    def fails(seen: Comparison) -> float:
        raise KeyError(seen.calls[0].arguments["order"])

    failed = evaluate(RUN, GOLDEN, metrics=[("mine", fails)])
    assert failed.scores[0].error == "KeyError: 'secret-8'"
    assert evaluation_document(failed)["scores"][0]["error"] == "KeyError"
    assert evaluation_document(failed, include_arguments=True)["scores"][0]["error"] == "KeyError: 'secret-8'"


def test_the_steps_of_scores_are_written_only_for_verbose_evaluations() -> None:
    keys = {"metric", "value", "passed", "threshold", "label", "reason", "error"}
    plain = json.loads(to_json(evaluation_document(evaluate(RUN, GOLDEN))))
    assert {frozenset(score) for score in plain["scores"]} == {frozenset(keys)}
    verbose = json.loads(to_json(evaluation_document(evaluate(RUN, GOLDEN, verbose=True, metrics=["tool_recall"]))))
    assert verbose["scores"][0]["steps"][0] == "Expected and called: find_order."


def test_expected_tools_and_golden_are_null_for_a_run_without_a_golden() -> None:
    document = evaluation_document(evaluate(RUN, None))
    assert (document["expected_tools"], document["golden_id"], document["golden_match"]) == (None, None, None)
    assert (document["status"], document["passed"]) == ("not_evaluated", None)


def test_a_run_document_contains_its_calls_and_available_tools() -> None:
    run = replace(RUN, available_tools=(ToolDefinition("find_order"), ToolDefinition("refund")))
    document = run_document(run)
    assert document["available_tools"] == ["find_order", "refund"]
    assert document["tool_calls"][0]["arguments"] == {"order": "secret-8"}
    assert document["tools_used"] == ["find_order"]


def test_values_that_json_cannot_represent_are_written_as_text() -> None:
    odd = {"nan": float("nan"), "set": {1}, "bytes": b"a\xff", 3: object, "half": 0.5, "none": None}
    read = json.loads(to_json(odd))  # type: ignore[arg-type]
    assert read == {
        "nan": "nan", "set": [1], "bytes": "a\\xff", "3": "<class 'object'>", "half": 0.5, "none": None
    }  # fmt: skip
