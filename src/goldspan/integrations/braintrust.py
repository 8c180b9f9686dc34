"""Braintrust: feedback on the rows of project logs.

A row that arrived over OTLP has the OTLP ids as `span_id` and `root_span_id`. Feedback needs the id of the row, which
other exporters than OTLP's choose themselves, and the id of the project. So rows are searched by the OTLP ids, in one
query for all runs (`POST /btql`), and the project by its name. A run without a span scores the root of its trace.

Feedback merges scores into the row by their names (`POST /v1/project_logs/{project_id}/feedback`, checked against the
client `braintrust` 0.48.1 and the OpenAPI document), also if they come from another run of the same span. A score that
became unknown is set to null, which removes it. Each feedback with a comment would add one to the row, so reasons and
labels are in the metadata of the feedback, in the row's history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.product import Product, ProductRequest, Send
from goldspan.integrations.scored_runs import ScoredRun

DEFAULT_URL = "https://api.braintrust.dev"
DEFAULT_PARENT = "project_name:default-otel-project"
"""The parent that Braintrust's own exporter has."""


class Braintrust(Product):
    """Writes scores as feedback.

    Args:
        base_url: The address of Braintrust's data plane.
        api_key: The API key.
        parent: The project, as `project_id:` or `project_name:` and its id or name.

    Raises:
        ConfigurationError: The parent is not a project.
    """

    name = "braintrust"
    max_runs = 50
    """Braintrust limits the number of queries in a minute, so one query searches many rows."""
    preview_note = "the id of the project and those of the rows are read first, and replace the <placeholders>"

    def __init__(self, base_url: str = DEFAULT_URL, *, api_key: str, parent: str = DEFAULT_PARENT) -> None:
        kind, _, value = parent.partition(":")
        if kind not in ("project_id", "project_name") or not value:
            raise ConfigurationError(
                "braintrust needs a project, as BRAINTRUST_PARENT=project_id:<id> or project_name:<name>"
            )
        self.base_url = base_url
        self._api_key = api_key
        self._project_name = value if kind == "project_name" else None
        self._project_id = value if kind == "project_id" else None

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> Braintrust:
        """Return the product as Braintrust's own variables describe it; an explicit address has precedence."""
        api_key = environment.get("BRAINTRUST_API_KEY")
        if not api_key:
            raise ConfigurationError("braintrust needs the variable BRAINTRUST_API_KEY")
        return cls(
            base_url or environment.get("BRAINTRUST_API_URL") or DEFAULT_URL,
            api_key=api_key,
            parent=environment.get("BRAINTRUST_PARENT") or DEFAULT_PARENT,
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """The bearer token."""
        return {"authorization": f"Bearer {self._api_key}"}

    @property
    def destination(self) -> str:
        """The address and the project."""
        return f"{self.base_url} {self._project_name or self._project_id}"

    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return the searches, then the feedback, with placeholders for the ids that depend on the replies."""
        if self._project_id is None:
            yield self._project_search()
        project_id = self._project_id or "<project>"
        yield _row_query(project_id, runs)
        rows = ((run, f"<row of {run.span_id or run.trace_id}>") for run in runs)
        yield from _feedback_requests(project_id, rows)

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Search the project and the rows, then write the feedback."""
        if self._project_id is None:
            self._project_id = self._found_project(send(self._project_search()).body)
        rows = _found_rows(send(_row_query(self._project_id, runs)).body)
        found = [(run, rows.get((run.trace_id, run.span_id))) for run in runs]
        known = [(run, row) for run, row in found if row is not None]
        for request in _feedback_requests(self._project_id, known):
            send(request)
        unknown = [run for run, row in found if row is None]
        if unknown:
            text = f"{self.name} has no row for the trace {unknown[0].trace_id}"
            raise DeliveryError("not_found", text, unknown_run_ids={run.run_id for run in unknown})
        return {}

    def _project_search(self) -> ProductRequest:
        return ProductRequest("GET", "/v1/project", query={"project_name": str(self._project_name), "limit": "1"})

    def _found_project(self, body: Any) -> str:
        objects = body.get("objects") if isinstance(body, Mapping) else None
        first = objects[0] if isinstance(objects, list) and objects else None
        if not isinstance(first, Mapping) or not isinstance(first.get("id"), str):
            raise DeliveryError("not_found", f"{self.name} has no project {self._project_name}")
        return str(first["id"])


def _row_query(project_id: str, runs: Sequence[ScoredRun]) -> ProductRequest:
    """Return a query for the rows of spans, and of the roots of traces for runs without a span."""
    conditions = dict.fromkeys(
        f"(root_span_id = '{run.trace_id}' AND " + (f"span_id = '{run.span_id}')" if run.span_id else "is_root = true)")
        for run in runs
    )
    source = f"project_logs('{_quoted(project_id)}', shape => 'spans')"
    query = f"SELECT id, span_id, root_span_id, is_root FROM {source} WHERE {' OR '.join(conditions)} LIMIT 1000"
    # Realtime: rows are found before they are indexed.
    return ProductRequest("POST", "/btql", {"query": query, "fmt": "json", "brainstore_realtime": True})


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _found_rows(body: Any) -> dict[tuple[Any, Any], str]:
    """Return the ids of rows by their trace and span; the root's also without a span.

    An event of a span is a row too. The row of the span comes first if its id is the span's.
    """
    found: dict[tuple[Any, Any], str] = {}
    data = body.get("data") if isinstance(body, Mapping) else None
    candidates = data if isinstance(data, list) else ()
    rows = [row for row in candidates if isinstance(row, Mapping) and isinstance(row.get("id"), str)]
    for row in sorted(rows, key=lambda row: row["id"] != row.get("span_id")):
        found.setdefault((row.get("root_span_id"), row.get("span_id")), row["id"])
        if row.get("is_root"):
            found.setdefault((row.get("root_span_id"), None), row["id"])
    return found


def _feedback_requests(project_id: str, rows: Iterable[tuple[ScoredRun, str]]) -> Iterable[ProductRequest]:
    """Return one request with the feedback of the runs; none if there is nothing to write."""
    feedback = [item for run, row in rows if (item := _feedback(run, row)) is not None]
    if feedback:
        yield ProductRequest("POST", f"/v1/project_logs/{project_id}/feedback", {"feedback": feedback})


def _feedback(run: ScoredRun, row: str) -> dict[str, Any] | None:
    """Return the feedback with the scores of a run; `None` if there are none to write."""
    scores = {score.name: score.value for score in run.scores if score.value is not None or run.revision > 1}
    if not scores:
        return None
    explanations = {
        score.name: {
            name: value for name, value in (("label", score.label), ("reason", score.comment)) if value is not None
        }
        for score in run.scores
    }
    return {"id": row, "scores": scores, "metadata": {**run.metadata, "scores": explanations}, "source": "external"}
