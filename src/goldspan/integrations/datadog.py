"""Datadog LLM Observability: evaluations of spans.

Datadog keeps the ids of OTLP, but an evaluation names them as decimal numbers and has the tag `source:otel`, so that
Datadog waits until it has converted the span (documented at docs.datadoghq.com, OpenTelemetry Instrumentation; `POST
/api/intake/llm-obs/v2/eval-metric`, checked against the client `ddtrace` 4.16.0). An evaluation belongs to a span, so
a run without a span is refused.

A label of an evaluation has ASCII letters, digits and underscores only, and one type. The verdict is a category. A
score is a number, so a score that cannot be evaluated is not sent. Datadog has no ids and no deletion of evaluations:
a revision adds an evaluation with the same label and a later time, and a number that became unknown remains.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.integrations.product import Product, ProductRequest, Send
from goldspan.integrations.scored_runs import RunScore, ScoredRun

DEFAULT_SITE = "datadoghq.com"
_MAX_LABEL_LENGTH = 200
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_]")


class Datadog(Product):
    """Writes scores as evaluations of the kind `score`, and the verdict as a category with an assessment.

    Args:
        base_url: The address of the API of a Datadog site.
        api_key: The API key.
        ml_app: The name of the application in LLM Observability, which for spans of OTLP is that of the service.
        clock: Returns the Unix time of an evaluation, in seconds.
    """

    name = "datadog"
    max_runs = 50
    """Datadog accepts 5 MB in one request, and its client sends at most 1,000 evaluations."""

    def __init__(
        self,
        base_url: str = f"https://api.{DEFAULT_SITE}",
        *,
        api_key: str,
        ml_app: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = base_url
        self._api_key = api_key
        self._ml_app = ml_app
        self._clock = clock

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> Datadog:
        """Return the product as Datadog's own variables describe it; an explicit address has precedence."""
        api_key = environment.get("DD_API_KEY")
        # For spans of OTLP, Datadog takes the name of the service as the application.
        names = map(environment.get, ("DD_LLMOBS_ML_APP", "DD_SERVICE", "OTEL_SERVICE_NAME"))
        ml_app = next(filter(None, names), None)
        if not api_key:
            raise ConfigurationError("datadog needs the variable DD_API_KEY")
        if not ml_app:
            raise ConfigurationError("datadog needs the variable DD_LLMOBS_ML_APP, DD_SERVICE or OTEL_SERVICE_NAME")
        url = base_url or f"https://api.{environment.get('DD_SITE') or DEFAULT_SITE}"
        return cls(url, api_key=api_key, ml_app=ml_app)

    @property
    def headers(self) -> Mapping[str, str]:
        """The API key."""
        return {"dd-api-key": self._api_key}

    @property
    def destination(self) -> str:
        """The address and the application."""
        return f"{self.base_url} {self._ml_app}"

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return one request with the scores of the runs that have a span."""
        now_ms = int(self._clock() * 1000)
        metrics = [
            self._metric(run, run.span_id, score, now_ms)
            for run in runs
            if run.span_id is not None
            for score in run.scores
            if score.is_verdict or score.value is not None
        ]
        if metrics:
            body = {"data": {"type": "evaluation_metric", "attributes": {"metrics": metrics}}}
            yield ProductRequest("POST", "/api/intake/llm-obs/v2/eval-metric", body)

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Write the scores, and return a text for each run without a span."""
        super().write(runs, send)
        return {
            run.run_id: f"{self.name} has evaluations of spans only, and run {run.run_id} has no span"
            for run in runs
            if run.span_id is None
        }

    def _metric(self, run: ScoredRun, span_id: str, score: RunScore, now_ms: int) -> dict[str, Any]:
        metric = {
            "event_kind": "evaluation",
            "join_on": {"span": {"span_id": str(int(span_id, 16)), "trace_id": str(int(run.trace_id, 16))}},
            "eval_scope": "span",
            "ml_app": self._ml_app,
            "timestamp_ms": now_ms,
            "label": _NOT_IN_LABELS.sub("_", score.name)[:_MAX_LABEL_LENGTH],
            "tags": [f"ml_app:{self._ml_app}", "source:otel"],
            "metadata": dict(run.metadata),
        }
        if score.is_verdict:
            metric |= {"metric_type": "categorical", "categorical_value": score.label}
        else:
            metric |= {"metric_type": "score", "score_value": score.value}
        if score.label in ("pass", "fail"):
            metric["assessment"] = score.label
        if score.comment:
            metric["reasoning"] = score.comment
        return metric
