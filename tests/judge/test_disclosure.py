"""Which parts of a run reach an endpoint, as its received bytes show."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from goldspan import Run, ToolCall, ToolDefinition, evaluate
from goldspan.sinks import ArgumentFilter
from support.judge_clients import data, judging, score
from support.model_endpoint import opinion, serving

CALL = ToolCall(
    "search",
    raw_name="mark-raw-name",
    server="mark-server",
    arguments={"mark-key": "mark-argument", "city": "mark-city"},
    result={"found": "mark-result"},
    error_guess="mark-guess",
    agent="mark-agent",
    call_id="mark-call-id",
    span_id="mark-call-span",
)
RUN = Run(
    "mark-run-id",
    trace_ids=("mark-trace",),
    span_id="mark-span",
    input="mark-request",
    output="mark-answer",
    session_id="mark-session",
    agent="mark-run-agent",
    service="mark-service",
    tool_calls=(
        CALL,
        ToolCall("read", raw_arguments="mark-unread"),
        ToolCall("fail", arguments="mark-text", error="mark-error", result="mark-late"),
    ),
    available_tools=(ToolDefinition("search", "mark-description", {"mark-parameter": {"type": "string"}}),),
    metadata={"mark-metadata": "mark-metadata"},
    environment="mark-environment",
    span_name="mark-span-name",
    attributes={"mark-attribute": "mark-attribute"},
    expected_tools=("mark-expected",),
)
EVALUATION = evaluate(RUN, [{"name": "search", "arguments": {"city": "mark-golden"}}])
ALWAYS = {"request", "answer", "description", "parameter", "agent"}
ARGUMENTS = {"key", "argument", "city", "unread", "text"}
RESULTS = {"result", "error"}


def received_markers(**options):
    """The markers that the received request contains anywhere."""
    with serving([opinion(0.5)]) as model, judging(model, **options) as judge:
        found = score(judge, EVALUATION)
    assert len(model.requests) <= 1
    text = "".join(json.dumps([request.path, request.headers, request.body]) for request in model.requests)
    return {word.split('"')[0].split("\\")[0] for word in text.split("mark-")[1:]}, found


@pytest.mark.parametrize(
    ("show", "seen"),
    [("names", ALWAYS), ("arguments", ALWAYS | ARGUMENTS), ("all", ALWAYS | ARGUMENTS | RESULTS)],
)
def test_only_the_selected_call_details_are_sent(show, seen):
    assert received_markers(show=show)[0] == seen


def test_an_argument_filter_removes_values_before_the_request_is_sent():
    assert received_markers(redact=ArgumentFilter())[0] == ALWAYS | {"key"}
    assert received_markers(redact=ArgumentFilter({"search": ["city"]}))[0] == ALWAYS | {"key", "city"}
    assert received_markers(redact=ArgumentFilter(results=True))[0] == ALWAYS | {"key"} | RESULTS


def test_a_run_with_a_redacted_request_is_not_judged():
    seen, found = received_markers(redact=ArgumentFilter(texts=False))
    assert seen == set()
    assert (found.value, found.reason) == (None, "the request was not captured")


def nothing(_):
    return None


def raising(evaluation):
    raise ValueError(evaluation.run.input)


def something_else(evaluation):
    return evaluation.run


@pytest.mark.parametrize("redact", [nothing, raising, something_else])
def test_a_run_that_a_redaction_withholds_is_not_judged(redact, caplog):
    seen, found = received_markers(redact=redact)
    assert seen == set()
    assert (found.value, found.error) == (None, None)
    assert found.reason == "redaction withholds the run from the judge"
    assert "mark-" not in caplog.text


def test_the_prompt_contains_the_tools_and_texts_that_a_redaction_returns():
    def redact(evaluation):
        run = replace(evaluation.run, input="asked", output=None, available_tools=(ToolDefinition("other"),))
        return replace(evaluation, run=run)

    with serving([opinion(0.5, "T1")]) as model, judging(model, redact=redact, show="names") as judge:
        found = score(judge, EVALUATION)
    assert data(model.requests[0]) | {"calls": []} == {
        "request": "asked",
        "answer": None,
        "tools": [{"id": "T1", "name": "other"}],
        "calls": [],
    }
    assert found.judgement.better_tool == "other"


def test_outcomes_and_kinds_of_calls_are_always_sent_and_error_texts_only_with_results():
    calls = (
        ToolCall("a", outcome="denied", arguments={"x": 1}),
        ToolCall("b", outcome="deferred"),
        ToolCall("c", error="It broke.", result="unseen"),
        ToolCall("d", kind="handoff", agent="writer"),
    )
    run = replace(RUN, tool_calls=calls)
    seen = {}
    for show in ("names", "arguments", "all"):
        with serving([opinion(0.5)]) as model, judging(model, show=show) as judge:
            assert score(judge, evaluate(run, ["a"])).value == 0.5
        seen[show] = data(model.requests[0])["calls"]
    names = [
        {"tool": "a", "outcome": "denied"},
        {"tool": "b", "outcome": "deferred"},
        {"tool": "c", "outcome": "failed"},
        {"tool": "d", "kind": "handoff", "agent": "writer"},
    ]
    assert seen["names"] == names
    names[0]["arguments"] = {"x": 1}
    assert seen["arguments"] == names
    names[2]["error"] = "It broke."
    assert seen["all"] == names
