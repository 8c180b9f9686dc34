"""LangSmith: feedback on runs.

LangSmith's id of a run that arrived over OTLP is the span id, with zeros before it
(`langsmith_run_id_from_otel_span_id` of the client `langsmith` 0.15.1). A trace has the id of its root's run, which
the OTLP trace id does not give, so a run without a span is refused. LangSmith wants the id of the project too, which
is searched by its name.

A score becomes a feedback (`POST /feedback`) whose id depends on the run and the name. A revision updates it (`PATCH
/feedback/{id}`), or creates it if LangSmith does not know it. The label, also `not_evaluated`, is the feedback's
value. A feedback does not extend the retention of its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import Product, ProductRequest, Send
from goldspan.integrations.scored_runs import RunScore, ScoredRun

DEFAULT_URL = "https://api.smith.langchain.com"
DEFAULT_PROJECT = "default"
_MAX_KEY_LENGTH = 180
_DECIMALS = 4
"""LangSmith stores a score with 4 decimals, and refuses more."""


class LangSmith(Product):
    """Writes scores as feedback, one request for each score.

    Args:
        base_url: The address of LangSmith's API.
        api_key: The API key.
        project: The name of the project that has the traces.
        workspace_id: The workspace, for an API key that belongs to several.
    """

    name = "langsmith"
    max_runs = 10
    """A failure repeats all requests of a call."""
    preview_note = (
        "the id of the project is read first (GET /sessions) and sent as session_id; feedback that LangSmith has is "
        "updated (PATCH /feedback/{id})"
    )

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str,
        project: str = DEFAULT_PROJECT,
        workspace_id: str | None = None,
    ) -> None:
        self.base_url = base_url
        self._api_key = api_key
        self._project = project
        self._workspace_id = workspace_id
        self._project_id: str | None = None

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> LangSmith:
        """Return the product as LangSmith's own variables describe it; an explicit address has precedence."""

        def variable(*names: str) -> str | None:
            found = (environment.get(f"{prefix}_{name}") for name in names for prefix in ("LANGSMITH", "LANGCHAIN"))
            return next((value for value in found if value), None)

        api_key = variable("API_KEY")
        if api_key is None:
            raise ConfigurationError("langsmith needs the variable LANGSMITH_API_KEY")
        return cls(
            base_url or variable("ENDPOINT") or DEFAULT_URL,
            api_key=api_key,
            project=variable("PROJECT", "SESSION") or DEFAULT_PROJECT,
            workspace_id=variable("WORKSPACE_ID"),
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """The API key and the workspace, if there is one."""
        return {"x-api-key": self._api_key} | ({"x-tenant-id": self._workspace_id} if self._workspace_id else {})

    @property
    def destination(self) -> str:
        """The address, the workspace and the project."""
        return f"{self.base_url} {self._workspace_id or ''} {self._project}"

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return one request for each score, without the project's id: it depends on a reply."""
        for run, span_id in _with_spans(runs):
            for score in run.scores:
                yield ProductRequest("POST", "/feedback", self._feedback(run, span_id, score))

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Create or update the feedback, and return a text for each run without a span."""
        unknown = []
        for run, span_id in _with_spans(runs):
            if self._project_id is None:
                self._project_id = self._find_project(send)
            try:
                for score in run.scores:
                    self._put(run, span_id, score, send)
            except DeliveryError as error:
                if error.kind != "not_found":
                    raise
                unknown.append(run)
        without_span = [run for run in runs if run.span_id is None]
        if unknown:
            text = f"{self.name} does not know the span {unknown[0].span_id}"
            # With the ids, all other runs count as written.
            unknown_run_ids = () if without_span else {run.run_id for run in unknown}
            raise DeliveryError("not_found", text, unknown_run_ids=unknown_run_ids)
        return {
            run.run_id: f"{self.name} has feedback on spans only, and run {run.run_id} has no span"
            for run in without_span
        }

    def _find_project(self, send: Send) -> str:
        query = {"name": self._project, "limit": "1", "include_stats": "false"}
        projects = send(ProductRequest("GET", "/sessions", query=query)).body
        first = projects[0] if isinstance(projects, list) and projects else None
        if not isinstance(first, Mapping) or not isinstance(first.get("id"), str):
            raise DeliveryError("not_found", f"{self.name} has no project {self._project}")
        return str(first["id"])

    def _put(self, run: ScoredRun, span_id: str, score: RunScore, send: Send) -> None:
        """Create or update a feedback."""
        if run.revision > 1 and self._update(score, send):
            return
        try:
            send(ProductRequest("POST", "/feedback", self._feedback(run, span_id, score)))
        except DeliveryError as error:
            # The documents do not say whether an id that exists is refused, as after a reply that was lost.
            if error.kind != "refused" or not self._update(score, send):
                raise

    def _update(self, score: RunScore, send: Send) -> bool:
        """Update a feedback. Returns whether LangSmith knows it."""
        update = {"score": _rounded(score), "value": score.label, "comment": score.comment}
        request = ProductRequest("PATCH", f"/feedback/{score.key}", update, absent_is_success=True)
        return send(request).status != 404

    def _feedback(self, run: ScoredRun, span_id: str, score: RunScore) -> dict[str, Any]:
        optional = {
            "score": _rounded(score),
            "value": score.label,
            "comment": score.comment,
            "session_id": self._project_id,
        }
        return {
            "id": score.key,
            "run_id": str(UUID(int=int(span_id, 16))),
            "key": score.name[:_MAX_KEY_LENGTH],
            "feedback_source": {"type": "api", "metadata": dict(run.metadata)},
            # Else a feedback moves its trace to the longer retention, which costs more.
            "extend_trace_retention": False,
            **{name: value for name, value in optional.items() if value is not None},
        }


def _with_spans(runs: Sequence[ScoredRun]) -> Iterable[tuple[ScoredRun, str]]:
    return ((run, run.span_id) for run in runs if run.span_id is not None)


def _rounded(score: RunScore) -> float | None:
    return None if score.value is None else round(score.value, _DECIMALS)
