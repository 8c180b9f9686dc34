"""`ScoredRun`: what an integration sends about a run, in the terms that the products share."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from goldspan import semconv
from goldspan.model import Evaluation, Score
from goldspan.sinks.otel_sinks import error_type, score_explanation

NAME_PREFIX = "goldspan."
"""The prefix of all names that goldspan gives to scores in a product."""
VERDICT_NAME = semconv.PASSED
"""The name of the score that says whether the run passed."""
_KEY_NAMESPACE = uuid.UUID("2f0c1c43-4c0a-5d3f-9a52-0a1c5a4f7b11")
_LABELS: Mapping[bool | None, str] = {True: "pass", False: "fail", None: "not_evaluated"}


@dataclass(frozen=True, slots=True)
class RunScore:
    """One score of a run, or its verdict."""

    name: str
    """The metric with the prefix `goldspan.`, or `goldspan.passed` for the verdict."""
    value: float | None
    """The score; of the verdict 1 for passed and 0 for failed. `None`: it could not be evaluated."""
    label: str | None
    """`pass`, `fail`, `not_evaluated`; `None` for a score without a threshold."""
    comment: str | None
    """The reason, or the type of the error."""
    key: str
    """A UUID that depends only on the run and the name: a later revision has the same key and replaces the score."""

    @property
    def is_verdict(self) -> bool:
        """Whether this is the verdict on the run and not the score of a metric."""
        return self.name == VERDICT_NAME


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """The scores of one revision of a run, and the span that they belong to."""

    run_id: str
    trace_id: str
    """32 hexadecimal digits, as OTLP has it."""
    span_id: str | None
    """16 hexadecimal digits. `None`: the run has no span of its own, and its scores belong to the trace."""
    start_ns: int | None
    end_ns: int | None
    revision: int
    expected_tools: tuple[str, ...] | None
    """The names of the golden's tools; `None` without a golden."""
    scores: tuple[RunScore, ...]
    """The verdict, then the scores of the metrics."""
    metadata: Mapping[str, Any]
    """What identifies the evaluation: run, revision, golden, scoring version. It contains no values of arguments."""


def scored_run(evaluation: Evaluation) -> ScoredRun | None:
    """Return what is sent about an evaluation; `None` for a run without a trace, which no product can show.

    Raises no exception for values that JSON cannot represent: a score that is not a finite number was not evaluated.
    """
    run = evaluation.run
    if not run.trace_ids:
        return None
    match, golden = evaluation.match, evaluation.golden
    metadata = {
        semconv.RUN_ID: run.run_id,
        semconv.UNIT_LABEL: run.unit,
        semconv.REVISION: evaluation.revision,
        semconv.SCORING_VERSION: evaluation.scoring_version,
        semconv.GOLDEN_ID: match.golden.id if match else None,
        semconv.GOLDEN_MATCH: match.how if match else None,
    }
    return ScoredRun(
        run_id=run.run_id,
        trace_id=run.trace_ids[0],
        span_id=run.span_id,
        start_ns=run.start_ns,
        end_ns=run.end_ns,
        revision=evaluation.revision,
        expected_tools=None if golden is None else tuple([tool.name for tool in golden.tools]),
        scores=(
            _verdict(run.run_id, evaluation.passed, evaluation.reason),
            *(_score(evaluation, score) for score in evaluation.scores),
        ),
        metadata={name: value for name, value in metadata.items() if value is not None},
    )


def stored_scored_run(document: Mapping[str, Any]) -> ScoredRun | None:
    """Return what is sent about the document of a stored evaluation, as `scored_run` does for the evaluation."""
    if not document["trace_ids"]:
        return None
    run_id, match, is_covered = document["run_id"], document["golden_match"], document["expected_tools"] is not None
    metadata = {
        semconv.RUN_ID: run_id,
        semconv.UNIT_LABEL: document["unit"],
        semconv.REVISION: document["revision"],
        semconv.SCORING_VERSION: document["scoring_version"],
        semconv.GOLDEN_ID: document["golden_id"],
        semconv.GOLDEN_MATCH: match["how"] if match else None,
    }

    def score_of(score: Mapping[str, Any]) -> RunScore:
        # A number that JSON cannot represent was stored as text.
        value = score["value"] if isinstance(score["value"], (int, float)) else None
        is_explained = is_covered and (value != 1 or not document["faults"])
        explanation = score["reason"] or (document["reason"] or None if is_explained else None)
        return _run_score(run_id, score["metric"], value, score["label"], score["error"], explanation)

    return ScoredRun(
        run_id=run_id,
        trace_id=document["trace_ids"][0],
        span_id=document["span_id"],
        start_ns=document["start_ns"],
        end_ns=document["end_ns"],
        revision=document["revision"],
        expected_tools=tuple(document["expected_tools"]) if is_covered else None,
        scores=(
            _verdict(run_id, document["passed"], document["reason"]),
            *(score_of(score) for score in document["scores"]),
        ),
        metadata={name: value for name, value in metadata.items() if value is not None},
    )


def latest_revisions(runs: Iterable[ScoredRun]) -> list[ScoredRun]:
    """Return the latest revision of each run, in the order in which the runs were first seen."""
    latest: dict[str, ScoredRun] = {}
    for run in runs:
        known = latest.get(run.run_id)
        if known is None or known.revision <= run.revision:
            latest[run.run_id] = run
    return list(latest.values())


def _verdict(run_id: str, passed: bool | None, reason: str) -> RunScore:
    return RunScore(
        name=VERDICT_NAME,
        value=None if passed is None else float(passed),
        label=_LABELS[passed],
        comment=reason or None,
        key=_key(run_id, VERDICT_NAME),
    )


def _score(evaluation: Evaluation, score: Score) -> RunScore:
    explanation = None if score.error is not None else score_explanation(evaluation, score)
    return _run_score(evaluation.run.run_id, score.metric, score.value, score.label, score.error, explanation)


def _run_score(
    run_id: str, metric: str, value: float | None, label: str | None, error: str | None, explanation: str | None
) -> RunScore:
    name = NAME_PREFIX + metric
    value = None if value is None or not math.isfinite(value) else float(value)
    return RunScore(
        name=name,
        value=value,
        label=_LABELS[None] if value is None else label,
        comment=explanation if error is None else error_type(error),
        key=_key(run_id, name),
    )


def _key(run_id: str, name: str) -> str:
    # A metric of the application may have an unpaired surrogate in its name.
    return str(uuid.uuid5(_KEY_NAMESPACE, f"{run_id}\n{name}".encode("utf-8", "backslashreplace").decode()))
