"""MLflow: scores as feedback, and the golden's tools as an expectation, on a trace.

MLflow derives the id of a trace from OTLP: `tr-` and the 32 hexadecimal digits. It keeps the span ids. It gives every
assessment an id of its own, so the assessments of a trace are read first, and those of the same run and name are
updated (checked against MLflow 3.17).

MLflow knows numbers and errors, and no label beside a number. A verdict that is not known is an error with the reason.
A metric without a value has no feedback, because MLflow shows an error as the failure of a scorer, and most metrics of
a run without a golden have no value. Feedback that an earlier revision wrote is deleted then.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from goldspan import semconv
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import Product, ProductRequest, Send
from goldspan.integrations.scored_runs import NAME_PREFIX, RunScore, ScoredRun

DEFAULT_URL = "http://localhost:5000"
EXPECTATION_NAME = f"{NAME_PREFIX}expected_tools"
_SOURCE = {"source_type": "CODE", "source_id": "goldspan"}
_TRACES_PATH = "/api/3.0/mlflow/traces"
_UPDATED_FIELDS = ("feedback", "expectation", "rationale", "metadata")


class MLflow(Product):
    """Writes assessments with the source `CODE` and `goldspan`.

    Args:
        base_url: The address of the tracking server.
        token: The token, if the server requires one.
        username: The user name, if the server requires one; needs a password.
        password: The password.
    """

    name = "mlflow"
    max_runs = 50
    preview_note = (
        "the assessments of the traces are read first (POST /api/3.0/mlflow/traces/batchGetInfos); those that exist "
        "are updated (PATCH) or deleted (DELETE), and not created again"
    )

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        self.base_url = base_url
        self._authorization: str | None = None
        if username and password:  # as in MLflow, they have precedence
            encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._authorization = f"Basic {encoded}"
        elif token:
            self._authorization = f"Bearer {token}"

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> MLflow:
        """Return the product as MLflow's own variables describe it; an explicit address has precedence."""
        return cls(
            base_url or environment.get("MLFLOW_TRACKING_URI") or DEFAULT_URL,
            token=environment.get("MLFLOW_TRACKING_TOKEN"),
            username=environment.get("MLFLOW_TRACKING_USERNAME"),
            password=environment.get("MLFLOW_TRACKING_PASSWORD"),
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """The token or the password, if there is one."""
        return {"authorization": self._authorization} if self._authorization else {}

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return the requests that create the assessments of traces without any."""
        for run in runs:
            yield from _changes(run, ())

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Read the assessments of the traces, and send what differs."""
        known = _read_assessments(runs, send)
        unknown = [run for run in runs if _trace_id(run) not in known]
        for run in runs:
            for change in _changes(run, known.get(_trace_id(run), ())) if run not in unknown else ():
                send(change)
        if unknown:
            text = f"{self.name} does not know the trace {_trace_id(unknown[0])}"
            raise DeliveryError("not_found", text, unknown_run_ids={run.run_id for run in unknown})
        return {}


def _trace_id(run: ScoredRun) -> str:
    return f"tr-{run.trace_id}"


def _read_assessments(runs: Iterable[ScoredRun], send: Send) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the assessments of each trace that MLflow knows."""
    trace_ids = list(dict.fromkeys(map(_trace_id, runs)))
    try:
        reply = send(ProductRequest("POST", f"{_TRACES_PATH}/batchGetInfos", {"trace_ids": trace_ids}))
    except DeliveryError as error:
        if error.kind == "not_found":  # it answers 200 for unknown traces, so this is not the API of MLflow
            raise DeliveryError("misconfigured", str(error)) from None
        raise
    if not isinstance(reply.body, Mapping):
        raise DeliveryError("misconfigured", "mlflow: the reply is not JSON; is this the address of a tracking server?")
    return {info["trace_id"]: info.get("assessments", ()) for info in reply.body.get("trace_infos", ())}


def _changes(run: ScoredRun, existing: Iterable[Mapping[str, Any]]) -> Iterator[ProductRequest]:
    """Return the requests that turn the existing assessments of a trace into those of the run."""
    path = f"{_TRACES_PATH}/{_trace_id(run)}/assessments"
    wanted = {assessment["assessment_name"]: assessment for assessment in _assessments(run)}
    for old in existing:
        if old.get("source") != _SOURCE or old.get("metadata", {}).get(semconv.RUN_ID) != run.run_id:
            continue
        new = wanted.pop(old["assessment_name"], None)
        if new is None:
            yield ProductRequest("DELETE", f"{path}/{old['assessment_id']}", absent_is_success=True)
            continue
        # MLflow keeps the metadata that an update does not mention.
        removed = dict.fromkeys(old["metadata"].keys() - new["metadata"].keys(), "")
        new["metadata"] = removed | new["metadata"]
        changed = [name for name in _UPDATED_FIELDS if name in new and new[name] != old.get(name, "")]
        if changed:
            body = {"assessment": new, "update_mask": ",".join(changed)}
            yield ProductRequest("PATCH", f"{path}/{old['assessment_id']}", body)
    for assessment in wanted.values():
        yield ProductRequest("POST", path, {"assessment": assessment})


def _assessments(run: ScoredRun) -> Iterator[dict[str, Any]]:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    common: dict[str, Any] = {
        "trace_id": _trace_id(run),
        "source": _SOURCE,
        "metadata": {name: str(value) for name, value in run.metadata.items()},
        "create_time": now,
        "last_update_time": now,
        "valid": True,
    }
    if run.span_id is not None:
        common["span_id"] = run.span_id
    for score in run.scores:
        if (feedback := _feedback(score)) is not None:
            yield common | {
                "assessment_name": score.name,
                "feedback": feedback,
                "rationale": score.comment or "",
            }
    if run.expected_tools is not None:
        value = {"serialization_format": "JSON_FORMAT", "value": json.dumps(run.expected_tools)}
        yield common | {"assessment_name": EXPECTATION_NAME, "expectation": {"serialized_value": value}}


def _feedback(score: RunScore) -> dict[str, Any] | None:
    if score.value is not None:
        return {"value": bool(score.value) if score.is_verdict else score.value}
    if not score.is_verdict:
        return None
    return {"error": {"error_code": "NOT_EVALUATED", "error_message": score.comment or "not evaluated"}}
