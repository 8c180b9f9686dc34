"""Tests of the integration with Langfuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from goldspan.errors import ConfigurationError
from goldspan.integrations.langfuse import Langfuse
from goldspan.integrations.scored_runs import ScoredRun
from integrations.product_checks import assert_errors_are_classified, run_lists, schema_of, sent_requests
from integrations.recording_server import Answer, Request, delivery_to, recording_server
from integrations.scored_run_strategies import SPAN_ID, TRACE_ID, a_run, a_score

SCHEMA = schema_of("langfuse")
KEYS = {"public_key": "pk-lf-public", "secret_key": "sk-lf-secret"}


def langfuse(url: str = "http://langfuse.test") -> Langfuse:
    return Langfuse(url, **KEYS)


def scores_of(runs: list[ScoredRun]) -> list[dict[str, Any]]:
    (request,) = sent_requests(langfuse(), runs)
    return list(request.body)


@given(run_lists)
def test_every_request_is_valid_and_holds_every_score_once(runs: list[ScoredRun]) -> None:
    (request,) = sent_requests(langfuse(), runs)
    assert (request.method, request.path) == ("POST", "/api/public/scores")
    SCHEMA.validate(request.body)
    assert [score["id"] for score in request.body] == [score.key for run in runs for score in run.scores]
    for sent, score in zip(request.body, [score for run in runs for score in run.scores], strict=True):
        assert (sent["dataType"] == "CATEGORICAL") == (score.value is None)
        assert sent["value"] == ("not_evaluated" if score.value is None else score.value)


def test_a_run_becomes_a_boolean_numbers_and_a_category() -> None:
    verdict, above, without, unknown = scores_of([a_run()])
    assert verdict == {
        "id": a_run().scores[0].key,
        "traceId": TRACE_ID,
        "observationId": SPAN_ID,
        "name": "goldspan.passed",
        "dataType": "BOOLEAN",
        "value": 0.0,
        "comment": "missing call: book_hotel",
        "metadata": {"goldspan.run.id": "run-1", "goldspan.revision": 1},
        "timestamp": "2025-10-09T08:53:20.123Z",
    }
    assert (above["dataType"], above["value"]) == ("NUMERIC", 0.666666666666)
    assert above["metadata"]["gen_ai.evaluation.score.label"] == "pass"
    assert "comment" not in without
    assert (unknown["dataType"], unknown["value"]) == ("CATEGORICAL", "not_evaluated")


def test_a_run_without_a_span_scores_its_trace() -> None:
    for score in scores_of([a_run(span_id=None)]):
        assert score["traceId"] == TRACE_ID
        assert "observationId" not in score


def test_a_revision_has_the_ids_and_the_timestamp_of_the_first() -> None:
    revision = a_run(revision=2, end_ns=1_770_000_000_000_000_000)
    revision_scores = [a_score("run-1", score.name, None, "not_evaluated") for score in revision.scores]
    first = scores_of([a_run()])
    second = scores_of([a_run(revision=2, end_ns=1_770_000_000_000_000_000, scores=tuple(revision_scores))])
    assert [(score["id"], score["timestamp"]) for score in first] == [
        (score["id"], score["timestamp"]) for score in second
    ]
    assert {score["value"] for score in second} == {"not_evaluated"}


def test_a_run_without_a_start_has_the_timestamp_of_its_end_or_none() -> None:
    assert scores_of([a_run(start_ns=None)])[0]["timestamp"] == "2025-10-09T08:53:21.000Z"
    assert "timestamp" not in scores_of([a_run(start_ns=None, end_ns=None)])[0]


def test_the_keys_are_sent_as_basic_authentication() -> None:
    with (
        recording_server(lambda _: Answer(202, {"message": "Accepted"})) as (url, requests),
        delivery_to(langfuse(url)) as delivery,
    ):
        result = delivery.deliver([a_run()])
    assert result.written_count == 1
    assert requests[0].headers["authorization"] == "Basic cGstbGYtcHVibGljOnNrLWxmLXNlY3JldA=="


def test_of_a_list_that_is_accepted_in_part_only_the_run_at_fault_is_refused() -> None:
    def answer(request: Request) -> Answer:
        bad = [score for score in request.body if score["metadata"]["goldspan.run.id"] == "run-3"]
        if not bad:
            return Answer(202, {"message": "Accepted"})
        errors = [{"message": "tone: value must be numeric"}]
        return Answer(207, {"accepted": len(request.body) - 1, "rejected": 1, "errors": errors})

    runs = [a_run(f"run-{number}", metadata={"goldspan.run.id": f"run-{number}"}) for number in range(8)]
    with recording_server(answer) as (url, _), delivery_to(langfuse(url)) as delivery:
        result = delivery.deliver(runs)
    assert (result.written_count, result.pending, result.not_found) == (7, [], [])
    assert result.refused == ["langfuse refused scores: tone: value must be numeric"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"accepted": 0, "rejected": 4}, "it gives no reason"),
        ({"accepted": 0, "rejected": 4, "errors": {"message": "x"}}, "it gives no reason"),
        ({"accepted": 0, "rejected": 4, "errors": ["x", {}, {"message": 3}, {"message": "y" * 500}]}, "y" * 99 + "…"),
        ({"accepted": 0, "rejected": 4, "errors": [{"message": "two\r\nlines\x1b"}, {"message": "z"}]}, "two lines; z"),
    ],
)
def test_a_refusal_names_its_reason_shortly(body: dict[str, Any], reason: str) -> None:
    with recording_server(lambda _: Answer(207, body)) as (url, _), delivery_to(langfuse(url)) as delivery:
        assert delivery.deliver([a_run()]).refused == [f"langfuse refused scores: {reason}"]


def test_an_earlier_version_receives_its_scores_one_by_one() -> None:
    def answer(request: Request) -> Answer:
        if isinstance(request.body, list):
            return Answer(400, {"message": "Invalid request data", "error": [{"message": "expected object"}]})
        SCHEMA.validate([request.body])
        return Answer(200, {"id": request.body["id"]})

    runs = [a_run(f"run-{number}") for number in range(5)]
    with recording_server(answer) as (url, requests), delivery_to(langfuse(url)) as delivery:
        result = delivery.deliver(runs)
        lists = sum(isinstance(request.body, list) for request in requests)
        delivery.deliver(runs)
    assert (result.written_count, result.refused) == (5, [])
    scores = [request.body for request in requests if not isinstance(request.body, list)]
    assert scores == 2 * scores_of(runs)
    assert len(requests) == lists + 2 * len(scores_of(runs))  # the second time, no list is tried


def test_a_run_that_is_refused_in_both_forms_is_refused_with_the_second_reason() -> None:
    def answer(request: Request) -> Answer:
        return Answer(400, {"message": "no list" if isinstance(request.body, list) else "no score"})

    with recording_server(answer) as (url, requests), delivery_to(langfuse(url)) as delivery:
        assert delivery.deliver([a_run()]).refused == ["langfuse answered 400 to POST /api/public/scores: no score"]
        assert delivery.deliver([a_run()]).refused
    assert [isinstance(request.body, list) for request in requests] == [True, False, True, False]


def test_a_server_that_accepted_a_list_receives_lists_only() -> None:
    answers = iter([Answer(202), Answer(400, {"message": "no"})])
    with recording_server(lambda _: next(answers)) as (url, requests), delivery_to(langfuse(url)) as delivery:
        assert delivery.deliver([a_run()]).written_count == 1
        assert len(delivery.deliver([a_run()]).refused) == 1
    assert all(isinstance(request.body, list) for request in requests)


@pytest.mark.parametrize("body", [None, [], {"accepted": 4, "rejected": 0, "errors": []}])
def test_a_207_without_a_refusal_is_a_success(body: Any) -> None:
    with recording_server(lambda _: Answer(207, body)) as (url, _), delivery_to(langfuse(url)) as delivery:
        assert delivery.deliver([a_run()]).written_count == 1


def test_errors_lead_to_the_outcomes_of_the_delivery() -> None:
    assert_errors_are_classified(langfuse, attempts=2)


def test_the_variables_of_langfuse_configure_it() -> None:
    keys = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk"}
    assert Langfuse.from_environment(None, keys).base_url == "https://cloud.langfuse.com"
    old = {**keys, "LANGFUSE_HOST": "https://old.test"}
    assert Langfuse.from_environment(None, old).base_url == "https://old.test"
    new = {**old, "LANGFUSE_BASE_URL": "https://new.test"}
    assert Langfuse.from_environment(None, new).base_url == "https://new.test"
    assert Langfuse.from_environment("https://given.test", new).base_url == "https://given.test"
    assert Langfuse.from_environment(None, keys).headers == {"authorization": "Basic cGs6c2s="}


@pytest.mark.parametrize("missing", ["LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"])
def test_a_missing_key_is_named(missing: str) -> None:
    environment = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", missing: ""}
    with pytest.raises(ConfigurationError, match=missing):
        Langfuse.from_environment(None, environment)
