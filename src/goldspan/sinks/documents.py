"""Runs and evaluations as plain dictionaries that any JSON writer takes: what files, the command line and APIs show."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from goldspan.model import Evaluation, Fault, Health, Judgement, Run, Score, Statement, ToolCall
from goldspan.sinks.events import error_type


def run_document(run: Run) -> dict[str, Any]:
    """A run with its calls, arguments and results included: it is the reader's own data."""
    return {
        "unit": run.unit,
        "run_id": run.run_id,
        "trace_ids": list(run.trace_ids),
        "span_id": run.span_id,
        "golden_id": run.golden_id,
        "component": run.component,
        "agent": run.agent,
        "service": run.service,
        "session_id": run.session_id,
        "input": run.input,
        "output": run.output,
        "tools_used": list(run.tools_used),
        "tool_calls": [_call_document(call) for call in run.tool_calls],
        "available_tools": [tool.name for tool in run.available_tools],
        "conventions": list(run.conventions),
        "start_ns": run.start_ns,
        "end_ns": run.end_ns,
        "health": _fields_of(run.health),
    }


def evaluation_document(evaluation: Evaluation, *, arguments: bool = False) -> dict[str, Any]:
    """An evaluation with names and numbers, and no value of any argument.

    With `arguments` also what was asked and answered, the calls with all that is known of them, and of errors in
    metrics the text beside the type: of a redacted evaluation, what is left of it.
    """
    run, match, golden = evaluation.run, evaluation.match, evaluation.golden
    document: dict[str, Any] = {
        "unit": run.unit,
        "run_id": run.run_id,
        "trace_ids": list(run.trace_ids),
        "span_id": run.span_id,
        "golden_id": match.golden.id if match else None,
        "golden_match": {"how": match.how, "similarity": match.similarity} if match else None,
        "status": evaluation.status,
        "passed": evaluation.passed,
        "reason": evaluation.reason,
        "tools_used": list(run.tools_used),
        "expected_tools": [item.name for item in golden.tools] if golden else None,
        "scores": [_score_document(score, texts=arguments) for score in evaluation.scores],
        "faults": [_fields_of(fault) for fault in evaluation.faults],
        "broken": [_fields_of(statement) for statement in evaluation.broken],
        "unjudged": [_fields_of(statement) for statement in evaluation.unjudged],
        "revision": evaluation.revision,
        "digest": evaluation.digest,
        "scoring_version": evaluation.scoring_version,
        "health": _fields_of(run.health),
    }
    if arguments:
        calls = [_call_document(call) for call in run.tool_calls]
        document |= {"input": run.input, "output": run.output, "tool_calls": calls}
    return document


def written(document: Callable[[bool], dict[str, Any]], *, values: bool) -> str:
    """A document as JSON; `document` makes it, with the values or without.

    Values that cannot be written (arguments that hold themselves, numbers of thousands of digits, objects whose `repr`
    raises) cost the values and nothing else.
    """
    try:
        return to_json(document(values))
    except Exception:  # noqa: BLE001 - it is not our code that runs there
        return to_json(document(False))


def to_json(document: dict[str, Any]) -> str:
    """One line of strict JSON: no NaN, no lone surrogate, nothing that a reader elsewhere would refuse."""
    try:
        return json.dumps(document, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_strict(document), ensure_ascii=True, allow_nan=False)


def _score_document(score: Score, *, texts: bool) -> dict[str, Any]:
    """A score; the steps that led to it only where they were asked for.

    Without `texts` of an error the type alone, and of a model's judgement all but its words.
    """
    document = _fields_of(score)
    if score.error is not None and not texts:
        document["error"] = error_type(score.error)
    if not score.steps:
        del document["steps"]
    if score.judgement is None:
        del document["judgement"]
    else:
        document["judgement"] = _fields_of(score.judgement)
        if not texts:
            del document["judgement"]["words"]
    return document


def _call_document(call: ToolCall) -> dict[str, Any]:
    return _fields_of(call) | {"concurrent_with": list(call.concurrent_with)}


def _fields_of(value: ToolCall | Score | Fault | Health | Judgement | Statement) -> dict[str, Any]:
    """The fields of a value that holds no other such value: `dataclasses.asdict` would copy everything, and slowly."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _strict(value: Any) -> Any:
    """A value as JSON can say it: what it has no notation for becomes the text Python shows for it."""
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, (str, int, float, bool)) else repr(value)
