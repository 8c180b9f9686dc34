"""Validates requests with the models of the products' official clients, in an environment that has the clients.

Reads lines of JSON, each with the name of a product and the bodies of requests. Answers each line with a JSON string:
empty, or the first error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any


def langfuse(path: str, body: Any) -> None:
    """What the client sends for the scores equals the body."""
    from langfuse.api.core.jsonable_encoder import jsonable_encoder
    from langfuse.api.core.serialization import convert_and_respect_annotation_metadata
    from langfuse.api.scores.types.create_score_request import CreateScoreRequest
    from langfuse.api.scores.types.create_scores_request import CreateScoresRequest

    assert path == "/api/public/scores"
    read = convert_and_respect_annotation_metadata(object_=body, annotation=CreateScoresRequest, direction="read")
    scores = [CreateScoreRequest.model_validate(score) for score in read]
    for score in scores:
        assert not score.model_extra, score.model_extra
    sent = convert_and_respect_annotation_metadata(object_=scores, annotation=CreateScoresRequest, direction="write")
    for model, score in zip(jsonable_encoder(sent), body, strict=True):
        assert_equal(with_time(model), with_time(score))


def with_time(score: dict[str, Any]) -> dict[str, Any]:
    """Replace a timestamp by the time that it means: there are several notations."""
    return {**score, "timestamp": datetime.fromisoformat(score["timestamp"])} if "timestamp" in score else score


def opik(path: str, body: Any) -> None:
    """The model of the client, as it is sent again, equals the body."""
    from opik.rest_api.types.delete_feedback_score import DeleteFeedbackScore
    from opik.rest_api.types.feedback_score_batch import FeedbackScoreBatch

    if body is None:
        return  # a search
    read = FeedbackScoreBatch if path.endswith("s/feedback-scores") else DeleteFeedbackScore
    model = read.model_validate(body)
    for part in (model, *getattr(model, "scores", ())):
        assert not part.model_extra, part.model_extra
    assert_equal(model.model_dump(exclude_none=True), body)


def datadog(path: str, body: Any) -> None:
    """What the client builds of the same values equals the body, except for the version that it adds."""
    from ddtrace.llmobs._constants import EVAL_ENDPOINT
    from ddtrace.llmobs._eval_metric import _build_evaluation_metric_event, _SubmissionTelemetryContext
    from ddtrace.llmobs._writer import LLMObsEvalMetricWriter

    assert path == EVAL_ENDPOINT
    built = []
    for metric in body["data"]["attributes"]["metrics"]:
        kind = metric["metric_type"]
        event: Any = _build_evaluation_metric_event(
            value=metric[f"{kind}_value"],
            span=metric["join_on"]["span"],
            span_with_tag_value=None,
            tags=None,
            assessment=metric.get("assessment"),
            reasoning=metric.get("reasoning"),
            metric_type=kind,
            agent_service=None,
            otel_trace_enabled=True,
            resolve_agent_service=lambda _, ml_app: ml_app,
            submission_error_cls=ValueError,
            telemetry_context=_SubmissionTelemetryContext(metric_type=kind),
            **{name: metric[name] for name in ("label", "ml_app", "timestamp_ms", "metadata", "eval_scope")},
        )
        event["tags"] = [tag for tag in event["tags"] if not tag.startswith("ddtrace.version:")]
        assert_equal(event, metric)
        built.append(event)
    assert_equal(LLMObsEvalMetricWriter._data(None, built), body)


def langsmith(path: str, body: Any) -> None:
    """The client's model has the values of the body, and its id of the run."""
    from uuid import UUID

    from langsmith.integrations.otel import langsmith_run_id_from_otel_span_id
    from langsmith.schemas import FeedbackCreate

    if body is None:
        return  # a search
    if path != "/feedback":
        assert set(body) == {"score", "value", "comment"}, body
        UUID(path.removeprefix("/feedback/"))
        return
    assert set(body) <= set(FeedbackCreate.model_fields), set(body) - set(FeedbackCreate.model_fields)
    model = FeedbackCreate(**{"trace_id": None, **body})
    sent = json.loads(model.model_dump_json(include=set(body), exclude_none=True))
    sent["feedback_source"] = {name: sent["feedback_source"][name] for name in ("type", "metadata")}
    assert_equal(sent, body)
    run_id = UUID(body["run_id"])
    assert langsmith_run_id_from_otel_span_id(run_id.bytes[8:]) == run_id


def braintrust(path: str, body: Any) -> None:
    """The client accepts the values of a feedback, and knows all its members."""
    import inspect

    from braintrust.logger import (
        VALID_SOURCES,
        _log_feedback_impl,
        _validate_and_sanitize_experiment_log_partial_args,
    )

    if not path.endswith("/feedback"):
        return  # a search
    for item in body["feedback"]:
        members = set(inspect.signature(_log_feedback_impl).parameters)
        assert set(item) <= members, set(item) - members
        assert item["source"] in VALID_SOURCES
        event = {name: item[name] for name in ("scores", "metadata")}
        assert_equal(_validate_and_sanitize_experiment_log_partial_args(dict(event)), event)


CHECKS: dict[str, Callable[[str, Any], None]] = {
    "braintrust": braintrust,
    "datadog": datadog,
    "langfuse": langfuse,
    "langsmith": langsmith,
    "opik": opik,
}


def assert_equal(sent: Any, expected: Any) -> None:
    """Name the first member that differs."""
    if isinstance(sent, dict) and isinstance(expected, dict):
        for name in {*sent, *expected}:
            assert sent.get(name) == expected.get(name), f"{name}: {sent.get(name)!r} != {expected.get(name)!r}"
    assert sent == expected, f"{sent!r} != {expected!r}"


def main() -> None:
    """Answer each line of the standard input."""
    for line in sys.stdin:
        product, requests = json.loads(line)
        error = ""
        try:
            for path, body in requests:
                CHECKS[product](path, body)
        except Exception as raised:  # noqa: BLE001 - the test shows every error of a model
            error = f"{type(raised).__name__}: {raised}"
        print(json.dumps(error), flush=True)


if __name__ == "__main__":
    main()
