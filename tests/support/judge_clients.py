"""Judges that ask a test model over HTTP, and the check that their counters agree with their usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import goldspan
from goldspan import Evaluation, Run, Score, ToolCall, ToolDefinition, semconv
from goldspan.judge import Judge, ModelEndpoint, Usage, judge_evaluations
from support.metric_readers import Meter
from support.model_endpoint import Model, Received

KEY = "sk-test-5e3c1f90"


def evaluation(**fields: Any) -> Evaluation:
    """Build the evaluation of a run that called the expected tool `search`. `fields` replace fields of the run."""
    defaults: dict[str, Any] = {
        "input": "What if these shoes don't fit?",
        "output": "We offer a 30-day full refund at no extra cost.",
        "tool_calls": (ToolCall("search"),),
        "available_tools": (ToolDefinition("search"), ToolDefinition("faq", "Answers to what is asked often.")),
    }
    return goldspan.evaluate(Run("r", **defaults | fields), ["search"])


def endpoint(model: Model, **options: Any) -> ModelEndpoint:
    """Build the client of a test model."""
    return ModelEndpoint("tiny", **{"base_url": model.url, "api_key": KEY} | options)


@contextmanager
def judging(ask: Any, **options: Any) -> Iterator[Judge]:
    """Open a judge that asks a model or a function. At the end of the block its counters must agree with its usage."""
    meter = Meter()
    judge = Judge(endpoint(ask) if isinstance(ask, Model) else ask, meter_provider=meter.provider, **options)
    try:
        yield judge
    finally:
        judge.close()
    assert counted(meter, priced=judge.prices is not None) == judge.usage


def counted(meter: Meter, *, priced: bool = False) -> Usage:
    """Return the usage that the counters report."""
    requests = meter.counts(semconv.JUDGE_REQUESTS_COUNTER)
    tokens = meter.counts(semconv.JUDGE_TOKENS_COUNTER, semconv.TOKEN_TYPE_LABEL)
    runs = meter.counts(semconv.JUDGE_RUNS_COUNTER, semconv.OUTCOME_LABEL)
    outcomes = {outcome: number for (outcome,), number in runs.items()}
    lost = {name: _sum(meter, getattr(semconv, f"JUDGE_{name.upper()}_COUNTER")) for name in _LOSSES}
    assert (lost["failed"], lost["over_budget"]) == (outcomes.get("failed", 0), outcomes.get("over_budget", 0))
    cost = meter.counts(semconv.JUDGE_COST_COUNTER).get((), 0.0)
    return Usage(
        requests=_sum(meter, semconv.JUDGE_REQUESTS_COUNTER) if requests else 0,
        input_tokens=tokens.get(("input",), 0),
        output_tokens=tokens.get(("output",), 0),
        cost=pytest.approx(cost) if priced else None,
        judged=outcomes.get("judged", 0) + outcomes.get("cached", 0),
        cached=outcomes.get("cached", 0),
        not_asked=outcomes.get("not_asked", 0),
        **lost,
    )


_LOSSES = ("failed", "over_budget", "dropped", "outdated")


def _sum(meter: Meter, name: str) -> int:
    metric = meter.metrics().get(name)
    return sum(point.value for point in metric.data.data_points) if metric else 0


def verdict(judge: Judge, of: Evaluation | None = None) -> Evaluation:
    """Judge one evaluation."""
    (left,) = judge_evaluations([of or evaluation()], judge)
    return left


def score(judge: Judge, of: Evaluation | None = None) -> Score:
    """Judge one evaluation, and return the score."""
    found = verdict(judge, of).score("tool_selection")
    assert found is not None
    return found


def asked(received: Received) -> str:
    """Return the text of the user's message, which contains the data."""
    content = received.body["messages"][1]["content"]
    assert isinstance(content, str)
    return content


def data(received: Received) -> Any:
    """Return the data of the run that the model receives."""
    return json.loads(asked(received).split("<run>\n")[1].split("\n</run>")[0])
