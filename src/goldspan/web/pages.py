"""Renders the views of the page from a store, as HTML or JSON, independent of HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from goldspan._version import __version__
from goldspan.errors import ConfigurationError, StoreError
from goldspan.extraction.capture_diagnostics import Hint, merge_hints
from goldspan.goldens import Goldens
from goldspan.model import RunUnit
from goldspan.online.pass_rate_statistics import wilson_interval
from goldspan.store import Store, VerdictCounts
from goldspan.store.store_protocol import GroupBy, ToolRole, Verdict
from goldspan.web.golden_status import golden_status, golden_table, parse_table_view
from goldspan.web.page_templates import render
from goldspan.web.run_details import run_details
from goldspan.web.run_list import QueryPairs, RunEntry, RunFilters, parse_filters, run_entry, unparsed_filters
from goldspan.web.unmatched_requests import draft_stored_run, unmatched_requests

RUNS_PER_PAGE = 50
_MAX_SUGGESTIONS = 200
_HTML_TYPE = "text/html"
_JSON_TYPE = "application/json"


class PageResponse(NamedTuple):
    """The response to a request."""

    status: int
    body: str
    media_type: str = _HTML_TYPE


@dataclass(frozen=True, slots=True)
class RunListPage:
    """One page of the run list, newest first, with the counts of all runs that match its filters."""

    filters: RunFilters
    entries: Sequence[RunEntry]
    counts: VerdictCounts
    next_cursor: str | None
    health: Sequence[tuple[Hint, int]]
    """The capture problems of the listed runs, each with the number of runs."""
    sequence_number: int
    """Everything that the store held at this sequence number is in the list."""

    @property
    def rate(self) -> float | None:
        """The share of passed runs among the evaluated runs, or `None` without an evaluated run."""
        evaluated = self.counts.passed + self.counts.failed
        return self.counts.passed / evaluated if evaluated else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of `rate`."""
        return wilson_interval(self.counts.passed, self.counts.passed + self.counts.failed)


class Pages:
    """Renders the views. It is thread-safe.

    Args:
        store: The runs.
        goldens: Returns the goldens in use, or `None` if the page does not know them.
        is_live: Whether traces are sent to the server of the page.
        keeps_values: A sentence that says how to store arguments and results; shown where they are missing.
        can_leave: Whether the user has logged in with a token and can log out.
    """

    def __init__(
        self,
        store: Store,
        *,
        goldens: Callable[[], Goldens | None],
        is_live: bool,
        keeps_values: str = "",
        can_leave: bool = False,
    ) -> None:
        self._store = store
        self._goldens = goldens
        self._shared: Mapping[str, Any] = {
            "version": __version__,
            "is_live": is_live,
            "keeps_values": keeps_values,
            "can_leave": can_leave,
        }

    # --- views --------------------------------------------------------------------------------------------------------

    def live(self, query: QueryPairs) -> PageResponse:
        """Render the run list. Filters that are not valid are shown with the reason."""
        try:
            listing = self._run_list_page(parse_filters(query))
            return self._render_page("live.html", view="live", listing=listing, problem=None, choices=_FILTER_CHOICES)
        except ConfigurationError as error:
            empty = RunListPage(
                unparsed_filters(query), (), VerdictCounts(), None, (), self._store.last_sequence_number()
            )
            page = self._render_page(
                "live.html", view="live", listing=empty, problem=str(error), choices=_FILTER_CHOICES
            )
            return page._replace(status=400)

    def _run_list_page(self, filters: RunFilters) -> RunListPage:
        # Read before the list: a run that is stored in between is announced again, and none is missed.
        sequence_number = self._store.last_sequence_number()
        page, counts = self._store.page_with_counts(filters.run_filter, limit=RUNS_PER_PAGE, cursor=filters.cursor)
        entries = tuple(map(run_entry, page.items))
        return RunListPage(
            filters=filters,
            entries=entries,
            counts=counts,
            next_cursor=page.next_cursor,
            health=merge_hints(hint for entry in entries for hint in entry.hints),
            sequence_number=sequence_number,
        )

    def run(self, run_id: str, query: QueryPairs) -> PageResponse:
        """Render one run."""
        run = self._store.run(run_id)
        if run is None:
            return self.not_found("No run is stored under this id. It may have been deleted, or not be scored yet.")
        details = run_details(run, self._store.evaluations(run_id), _parse_revision(query))
        if details is None:
            return self.not_found("The run has no such revision.")
        return self._render_page("run.html", view="live", details=details, draft=draft_stored_run(details.document))

    def goldens(self, query: QueryPairs) -> PageResponse:
        """Render the table of goldens and the tools in their runs."""
        table_view, filter_pairs = parse_table_view(query)
        filters = parse_filters(filter_pairs)
        table = golden_table(self._store, self._goldens(), filters.run_filter, table_view)
        return self._render_page("goldens.html", view="goldens", table=table, filters=filters)

    def golden(self, golden_id: str, query: QueryPairs) -> PageResponse:
        """Render one golden."""
        status = golden_status(self._store, self._goldens(), golden_id)
        if status is None:
            return self.not_found("No stored run has a golden with this id, and no golden in use has it.")
        return self._render_page("golden.html", view="goldens", status=status)

    def uncovered(self, query: QueryPairs) -> PageResponse:
        """Render the requests without a golden."""
        return self._render_page("uncovered.html", view="uncovered", groups=unmatched_requests(self._store))

    # --- data that a displayed view loads -----------------------------------------------------------------------------

    def trend(self, query: QueryPairs) -> PageResponse:
        """Return the counts of passed, failed and not evaluated runs over time, as columns for a chart."""
        buckets = self._store.trend(parse_filters(query).run_filter)
        columns = {
            "time": [bucket.start_ns // 10**6 / 1000 for bucket in buckets],
            "passed": [bucket.counts.passed for bucket in buckets],
            "failed": [bucket.counts.failed for bucket in buckets],
            "not_evaluated": [bucket.counts.not_evaluated for bucket in buckets],
        }
        return PageResponse(200, json.dumps(columns), _JSON_TYPE)

    def suggestions(self, field: str) -> PageResponse:
        """Return the values that a filter suggests, as the options of a datalist."""
        names: Sequence[str | None]
        if field == "metric":
            names = self._store.metrics()
        elif field == "tool":
            names = sorted(counts.name for counts in self._store.tool_counts())
        elif field in _SUGGESTION_GROUPS:
            names = [group.name for group in self._store.count_by(_SUGGESTION_GROUPS[field])]
        else:
            return self.not_found("There are no suggestions for this.")
        return PageResponse(
            200, render("_options.html", names=[name for name in names if name is not None][:_MAX_SUGGESTIONS])
        )

    def last_sequence_number(self) -> int:
        """Return the highest sequence number in the store; see `Store.arrivals`."""
        return self._store.last_sequence_number()

    # --- errors -------------------------------------------------------------------------------------------------------

    def respond(self, view: Callable[[], PageResponse]) -> PageResponse:
        """Return the response of a view, or an error page that gives the reason."""
        try:
            return view()
        except ConfigurationError as error:
            return self._error_page(400, "This address is not valid", str(error))
        except StoreError as error:
            return self._error_page(503, "The store is not available", str(error))

    def not_found(self, reason: str = "This page does not exist.") -> PageResponse:
        """Return an error page with the status 404."""
        return self._error_page(404, "Page not found", reason)

    def _error_page(self, status: int, title: str, reason: str) -> PageResponse:
        return PageResponse(status, self._render_page("fault.html", view="", title=title, why=reason).body)

    def _render_page(self, template: str, **context: Any) -> PageResponse:
        return PageResponse(200, render(template, **self._shared, **context))


_SUGGESTION_GROUPS: Mapping[str, GroupBy] = {
    "golden": "golden",
    "agent": "agent",
    "service": "service",
    "environment": "environment",
}
_FILTER_CHOICES = {"verdict": get_args(Verdict), "tool_role": get_args(ToolRole), "unit": get_args(RunUnit)}


def _parse_revision(query: QueryPairs) -> int | None:
    """Return the requested revision; `None` requests the current one."""
    text = dict(query).get("revision")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigurationError(f"revision must be a number, not {text[:40]!r}.")
    return int(text)
