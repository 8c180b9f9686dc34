"""Phoenix (Arize): scores as annotations of spans.

Phoenix keeps the span ids of OTLP. It has one annotation for each span, name and identifier, and a request with the
same three replaces it (`POST /v1/span_annotations`, checked against Phoenix 20.26). The identifier is the run's, so two
runs of one span have annotations of their own. A run without a span annotates its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import Product, ProductRequest, Send
from goldspan.integrations.scored_runs import RunScore, ScoredRun

DEFAULT_URL = "http://localhost:6006"


class Phoenix(Product):
    """Writes scores as annotations of the kind `CODE`. What was not evaluated has a label and no score.

    Args:
        base_url: The address of Phoenix, or of a space in Phoenix Cloud.
        api_key: The API key, if Phoenix requires one.
    """

    name = "phoenix"

    def __init__(self, base_url: str = DEFAULT_URL, *, api_key: str | None = None) -> None:
        self.base_url = base_url
        self._api_key = api_key

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> Phoenix:
        """Return the product as Phoenix's own variables describe it; an explicit address has precedence."""
        url = base_url or environment.get("PHOENIX_COLLECTOR_ENDPOINT") or DEFAULT_URL
        return cls(url.rstrip("/").removesuffix("/v1/traces"), api_key=environment.get("PHOENIX_API_KEY"))

    @property
    def headers(self) -> Mapping[str, str]:
        """The bearer token, if there is one."""
        return {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return one request for the runs with a span, and one for those without."""
        of_spans = [_annotation(run, score, "span_id") for run in runs if run.span_id for score in run.scores]
        of_traces = [_annotation(run, score, "trace_id") for run in runs if not run.span_id for score in run.scores]
        # Without `sync`, Phoenix accepts annotations of spans that it never received, and drops them later.
        if of_spans:
            yield ProductRequest("POST", "/v1/span_annotations", {"data": of_spans}, query={"sync": "true"})
        if of_traces:
            yield ProductRequest("POST", "/v1/trace_annotations", {"data": of_traces}, query={"sync": "true"})

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Write the scores of the runs whose spans Phoenix knows. Its reply to the others names their ids."""
        unknown: set[str] = set()
        reason: DeliveryError | None = None
        while known := [run for run in runs if run.run_id not in unknown]:
            try:
                super().write(known, send)
                break
            except DeliveryError as error:
                if error.kind != "not_found":
                    raise
                named = _named_runs(error, known)
                if not named:  # this is not the API of Phoenix
                    raise DeliveryError("misconfigured", str(error)) from None
                unknown |= named
                reason = error
        if reason is not None:
            raise DeliveryError("not_found", str(reason), unknown_run_ids=unknown)
        return {}


def _named_runs(error: DeliveryError, runs: Sequence[ScoredRun]) -> set[str]:
    """Return the ids of the runs whose span or trace a reply names as unknown."""
    # Phoenix 20.26 answers with plain text: "Spans with IDs ... do not exist."
    reply = error.reply.get("detail") if isinstance(error.reply, Mapping) else error.reply
    if not isinstance(reply, str):
        return set()
    return {run.run_id for run in runs if (run.span_id or run.trace_id) in reply}


def _annotation(run: ScoredRun, score: RunScore, target: str) -> dict[str, Any]:
    return {
        target: getattr(run, target),
        "name": score.name,
        "annotator_kind": "CODE",
        "result": {"score": score.value, "label": score.label, "explanation": score.comment},
        "metadata": dict(run.metadata),
        "identifier": f"goldspan:{run.run_id}",
    }
