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
from goldspan.store import SqliteStore, VerdictCounts
from goldspan.store.store_protocol import GroupBy, ToolRole, Verdict
from goldspan.web.golden_status import golden_status, golden_table, parse_table_view
from goldspan.web.page_templates import render
from goldspan.web.run_details import run_details
from goldspan.web.run_list import QueryPairs, RunEntry, RunFilters, parse_filters, run_entry, unparsed_filters
from goldspan.web.unmatched_requests import draft_stored_run, unmatched_requests

RUNS_PER_PAGE = 50
"""Runs in one list."""
_MAX_SUGGESTIONS = 200
_HTML_TYPE = "text/html"
_JSON_TYPE = "application/json"


class PageResponse(NamedTuple):
    """What is answered to a request."""

    status: int
    body: str
    media_type: str = _HTML_TYPE


@dataclass(frozen=True, slots=True)
class RunListPage:
    """Some runs, newest first, and what there is to say of all that are meant."""

    filters: RunFilters
    entries: Sequence[RunEntry]
    counts: VerdictCounts
    next_cursor: str | None
    health: Sequence[tuple[Hint, int]]
    """What is amiss with the capture of those that are listed, and with how many."""
    arrived: int
    """The place up to which everything that was stored is in here."""

    @property
    def rate(self) -> float | None:
        """The share that passed, of those that were judged."""
        judged = self.counts.passed + self.counts.failed
        return self.counts.passed / judged if judged else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of that share."""
        return wilson_interval(self.counts.passed, self.counts.passed + self.counts.failed)


class Pages:
    """Makes the views. Any thread may use it, several at once.

    `goldens` tells those that runs are judged by now; it answers `None` where they are not known. `is_live`: whether
    traces are sent to where the page is. `keeps_values` tells how arguments and results can be kept, for who misses
    them. `can_leave`: whether somebody came in with a token, and may leave.
    """

    def __init__(
        self,
        store: SqliteStore,
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
        """The requests as they are scored."""
        try:
            listing = self._listing(parse_filters(query))
            return self._render_page("live.html", view="live", listing=listing, problem=None, words=_FILTER_CHOICES)
        except ConfigurationError as error:
            nothing = RunListPage(
                unparsed_filters(query), (), VerdictCounts(), None, (), self._store.last_sequence_number()
            )
            page = self._render_page(
                "live.html", view="live", listing=nothing, problem=str(error), words=_FILTER_CHOICES
            )
            return page._replace(status=400)

    def _listing(self, filters: RunFilters) -> RunListPage:
        arrived = (
            self._store.last_sequence_number()
        )  # before the list: what comes meanwhile comes once more, and is not lost
        page, counts = self._store.page_with_counts(filters.run_filter, limit=RUNS_PER_PAGE, cursor=filters.cursor)
        entries = tuple(map(run_entry, page.items))
        return RunListPage(
            filters=filters,
            entries=entries,
            counts=counts,
            next_cursor=page.next_cursor,
            health=merge_hints(hint for entry in entries for hint in entry.hints),
            arrived=arrived,
        )

    def run(self, run_id: str, query: QueryPairs) -> PageResponse:
        """One run."""
        run = self._store.run(run_id)
        if run is None:
            return self.not_found("No run is stored under this id. It may have been deleted, or not be scored yet.")
        details = run_details(run, self._store.evaluations(run_id), _parse_revision(query))
        if details is None:
            return self.not_found("The run has no such revision.")
        return self._render_page("run.html", view="live", details=details, draft=draft_stored_run(details.document))

    def goldens(self, query: QueryPairs) -> PageResponse:
        """How the goldens stand, and the tools in them."""
        look, rest = parse_table_view(query)
        filters = parse_filters(rest)
        board = golden_table(self._store, self._goldens(), filters.run_filter, look)
        return self._render_page("goldens.html", view="goldens", board=board, filters=filters)

    def golden(self, golden_id: str, query: QueryPairs) -> PageResponse:
        """How one golden stands."""
        standing = golden_status(self._store, self._goldens(), golden_id)
        if standing is None:
            return self.not_found("No run was judged by a golden of this id, and none of the goldens in use has it.")
        return self._render_page("golden.html", view="goldens", standing=standing)

    def uncovered(self, query: QueryPairs) -> PageResponse:
        """Requests that no golden covers."""
        return self._render_page("uncovered.html", view="uncovered", groups=unmatched_requests(self._store))

    # --- what views ask for once they are shown -----------------------------------------------------------------------

    def trend(self, query: QueryPairs) -> PageResponse:
        """How many passed, failed and were not evaluated, over time, as columns for a chart."""
        buckets = self._store.trend(parse_filters(query).run_filter)
        columns = {
            "time": [bucket.start_ns // 10**6 / 1000 for bucket in buckets],
            "passed": [bucket.counts.passed for bucket in buckets],
            "failed": [bucket.counts.failed for bucket in buckets],
            "not_evaluated": [bucket.counts.not_evaluated for bucket in buckets],
        }
        return PageResponse(200, json.dumps(columns), _JSON_TYPE)

    def suggestions(self, field: str) -> PageResponse:
        """What may be written for a filter, as the options of a list."""
        names: Sequence[str | None]
        if field == "metric":
            names = self._store.metrics()
        elif field == "tool":
            names = sorted(tally.name for tally in self._store.tool_counts())
        elif field in _SUGGESTION_GROUPS:
            names = [tally.name for tally in self._store.count_by(_SUGGESTION_GROUPS[field])]
        else:
            return self.not_found("There are no suggestions for this.")
        return PageResponse(
            200, render("_options.html", names=[name for name in names if name is not None][:_MAX_SUGGESTIONS])
        )

    def last_sequence_number(self) -> int:
        """The place up to which everything is stored; see `Store.arrivals`."""
        return self._store.last_sequence_number()

    # --- what is answered instead -------------------------------------------------------------------------------------

    def respond(self, view: Callable[[], PageResponse]) -> PageResponse:
        """What a view answers, or a page that says why there is none."""
        try:
            return view()
        except ConfigurationError as error:
            return self._error_page(400, "This address is not valid", str(error))
        except StoreError as error:
            return self._error_page(503, "The store is not available", str(error))

    def not_found(self, why: str = "This page does not exist.") -> PageResponse:
        """There is nothing at this address."""
        return self._error_page(404, "Page not found", why)

    def _error_page(self, status: int, title: str, why: str) -> PageResponse:
        return PageResponse(status, self._render_page("fault.html", view="", title=title, why=why).body)

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
    """The revision that is asked for; `None`: the current one."""
    said = dict(query).get("revision")
    if said is None:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) < 10):
        raise ConfigurationError(f"revision must be a number, not {said[:40]!r}.")
    return int(said)
