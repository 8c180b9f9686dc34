"""`ScoredRun` has the verdict, the scores and their reasons, and no values of arguments."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import Evaluation, Goldens, Run, ToolCall, evaluate
from goldspan.integrations.scored_runs import latest_revisions, scored_run, stored_scored_run
from goldspan.store.run_records import record_of
from support.evaluation_builders import evaluation
from support.random_evaluations import evaluations


def by_name(one):
    run = scored_run(one)
    return {score.name: score for score in run.scores}


def test_the_verdict_comes_first_and_has_the_reason_of_the_run():
    one = evaluation(1, "book")
    verdict, *others = scored_run(one).scores
    assert verdict.is_verdict
    assert (verdict.name, verdict.value, verdict.label, verdict.comment) == ("goldspan.passed", 0.0, "fail", one.reason)
    assert [score.name for score in others] == [f"goldspan.{score.metric}" for score in one.scores]
    assert not any(score.is_verdict for score in others)


def test_what_was_not_evaluated_has_a_label_and_no_number():
    scores = by_name(evaluate(Run("a:b", trace_ids=("a",), span_id="b"), Goldens()))
    assert {(score.value, score.label) for score in scores.values()} == {(None, "not_evaluated")}
    assert scores["goldspan.passed"].comment


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_was_not_evaluated(value):
    one = evaluation(1)
    broken = replace(one.scores[0], value=value)
    score = by_name(replace(one, scores=(broken, *one.scores[1:])))[f"goldspan.{broken.metric}"]
    assert (score.value, score.label) == (None, "not_evaluated")


def test_a_score_with_an_error_has_only_its_type():
    one = evaluation(1)
    failed = replace(one.scores[0], value=None, reason=None, error="KeyError: 'the secret of a customer'")
    score = by_name(replace(one, scores=(failed,)))[f"goldspan.{failed.metric}"]
    assert score.comment == "KeyError"


def test_a_full_score_of_a_run_with_faults_has_no_reason_of_the_run():
    run = Run("a:b", trace_ids=("a",), span_id="b", tool_calls=(ToolCall("search"), ToolCall("delete")))
    scores = by_name(evaluate(run, ["search"], forbid=["delete"]))
    assert scores["goldspan.tool_recall"].value == 1
    assert scores["goldspan.tool_recall"].comment is None
    assert "delete" in scores["goldspan.passed"].comment


def test_no_value_of_an_argument_a_result_or_a_text_is_sent():
    secret = "4111-1111"
    call = ToolCall("pay", arguments={"card": secret}, result=secret)
    run = Run("a:b", trace_ids=("a",), span_id="b", input=secret, output=secret, tool_calls=(call,))
    sent = scored_run(evaluate(run, [{"name": "pay", "arguments": {"card": "other"}}]))
    assert secret not in json.dumps(asdict(sent))


def test_the_key_of_a_score_depends_only_on_run_and_name():
    keys = [
        [score.key for score in scored_run(one).scores] for one in (evaluation(1), evaluation(1, "x"), evaluation(2))
    ]
    assert keys[0] == keys[1]
    assert len({*keys[0], *keys[2]}) == 2 * len(keys[0])


def test_a_run_without_a_trace_cannot_be_shown():
    assert scored_run(evaluate(Run("case"), ["search"])) is None


def test_the_latest_revision_of_each_run_is_sent():
    runs = [
        scored_run(replace(evaluation(number), revision=revision))
        for number, revision in ((1, 2), (2, 1), (1, 1), (1, 3))
    ]
    assert [(run.trace_id[-1], run.revision) for run in latest_revisions(runs)] == [("1", 3), ("2", 1)]


@given(evaluations(), st.booleans())
def test_a_stored_evaluation_is_sent_as_the_evaluation_itself(one: Evaluation, keep_arguments: bool) -> None:
    document = json.loads(record_of(one, now_ns=time.time_ns(), keep_arguments=keep_arguments).document)
    assert stored_scored_run(document) == scored_run(one)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.5, 1.0])
@pytest.mark.parametrize("error", [None, "KeyError: 'the secret of a customer'"])
@pytest.mark.parametrize("keep_arguments", [False, True])
def test_a_stored_score_is_sent_as_the_score_itself(value: float, error: str | None, keep_arguments: bool) -> None:
    one = evaluation(1, "search", "book")
    one = replace(one, scores=(replace(one.scores[0], value=value, reason=None, error=error),))
    document = json.loads(record_of(one, now_ns=time.time_ns(), keep_arguments=keep_arguments).document)
    assert stored_scored_run(document) == scored_run(one)
