"""Langfuse: scores of observations and traces.

Langfuse keeps the ids of OTLP: a trace has its trace id, and an observation has the id of its span. A score with the
same id and timestamp replaces the earlier one (`POST /api/public/scores` with a list, checked against the client
`langfuse` 5.0.4). The id depends on the run and the name only. The timestamp is the start of the run: with the time of
the request, a revision on another day would add a score.

Langfuse answers 207 if it refuses a part of the list, and does not say which part. A server of an earlier version
refuses every list, and accepts the same scores one by one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from goldspan import semconv
from goldspan._http import to_one_line
from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import Product, ProductReply, ProductRequest, Send
from goldspan.integrations.scored_runs import RunScore, ScoredRun

DEFAULT_URL = "https://cloud.langfuse.com"
_MAX_MESSAGE_LENGTH = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Langfuse(Product):
    """Writes scores that are numeric, the verdict as a boolean, and `not_evaluated` as a category.

    Args:
        base_url: The address of Langfuse.
        public_key: The public key of the project.
        secret_key: The secret key of the project.
    """

    name = "langfuse"
    max_runs = 20
    """Langfuse accepts 1 MB in one request."""
    preview_note = "a Langfuse that does not accept lists gets one request for each score"

    def __init__(self, base_url: str = DEFAULT_URL, *, public_key: str, secret_key: str) -> None:
        self.base_url = base_url
        self._accepts_lists: bool | None = None
        self._public_key = public_key
        self._credentials = base64.b64encode(f"{public_key}:{secret_key}".encode()).decode()

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> Langfuse:
        """Return the product as Langfuse's own variables describe it; an explicit address has precedence."""
        keys = {}
        for argument, variable in (("public_key", "LANGFUSE_PUBLIC_KEY"), ("secret_key", "LANGFUSE_SECRET_KEY")):
            if not environment.get(variable):
                raise ConfigurationError(f"langfuse needs the variable {variable}")
            keys[argument] = environment[variable]
        url = base_url or environment.get("LANGFUSE_BASE_URL") or environment.get("LANGFUSE_HOST") or DEFAULT_URL
        return cls(url, **keys)

    @property
    def headers(self) -> Mapping[str, str]:
        """The keys as basic authentication."""
        return {"authorization": f"Basic {self._credentials}"}

    @property
    def destination(self) -> str:
        """The address, and the public key, which identifies the project."""
        return f"{self.base_url} {self._public_key}"

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return one request with all scores."""
        yield ProductRequest("POST", "/api/public/scores", [_score(run, score) for run in runs for score in run.scores])

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Write the scores. If Langfuse refuses some, all count as refused, so that the delivery divides the runs."""
        if self._accepts_lists is not False:
            try:
                replies = [send(request) for request in self.requests(runs)]
            except DeliveryError as error:
                if error.kind != "refused" or self._accepts_lists or len(runs) > 1:
                    raise
            else:
                self._accepts_lists = True
                for reply in replies:
                    _raise_refused(reply)
                return {}
        for request in self.requests(runs):
            for score in request.body:
                send(ProductRequest(request.method, request.path, score))
        self._accepts_lists = False
        return {}


def _raise_refused(reply: ProductReply) -> None:
    if reply.status == 207 and isinstance(reply.body, Mapping) and reply.body.get("rejected"):
        raise DeliveryError("refused", f"langfuse refused scores: {_messages(reply.body.get('errors'))}")


def _score(run: ScoredRun, score: RunScore) -> dict[str, Any]:
    data_type = "CATEGORICAL" if score.value is None else "BOOLEAN" if score.is_verdict else "NUMERIC"
    # A boolean repeats the label of the verdict.
    label = score.label if data_type == "NUMERIC" else None
    optional = {
        "observationId": run.span_id,
        "comment": score.comment,
        "timestamp": _timestamp(run.start_ns if run.start_ns is not None else run.end_ns),
    }
    return {
        "id": score.key,
        "traceId": run.trace_id,
        "name": score.name,
        "dataType": data_type,
        "value": score.label if score.value is None else score.value,
        "metadata": {**run.metadata, **({semconv.EVALUATION_LABEL: label} if label else {})},
        **{name: value for name, value in optional.items() if value is not None},
    }


def _timestamp(time_ns: int | None) -> str | None:
    """Return a time in ISO 8601, with milliseconds as Langfuse stores it."""
    if time_ns is None:
        return None
    time = _EPOCH + timedelta(milliseconds=time_ns // 1_000_000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _messages(errors: Any) -> str:
    """Return the first messages of a reply, in one line."""
    messages = [
        to_one_line(message, _MAX_MESSAGE_LENGTH)
        for error in (errors[:5] if isinstance(errors, list) else ())
        if isinstance(error, Mapping) and isinstance(message := error.get("message"), str)
    ]
    return "; ".join(filter(None, messages)) or "it gives no reason"
