"""The views of the page: each made from what a store holds, as HTML or JSON, and none knowing of HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from goldspan._version import __version__
from goldspan.errors import ConfigurationError, StoreError
from goldspan.extraction.hints import Hint, gathered
from goldspan.goldens import Goldens
from goldspan.model import Unit
from goldspan.online.intervals import wilson_interval
from goldspan.store import Counts, SqliteStore
from goldspan.store.protocol import TallyBy, ToolRole, Verdict
from goldspan.web.entries import Entry, entry_of
from goldspan.web.filters import Filters, Pairs, as_written, read_filters
from goldspan.web.goldens import golden_standing, read_look, standings
from goldspan.web.runs import details_of
from goldspan.web.templates import render
from goldspan.web.uncovered import draft_of, uncovered

AT_ONCE = 50
"""Runs in one list."""
_SUGGESTED = 200
_HTML = "text/html"
_JSON = "application/json"


class Answer(NamedTuple):
    """What is answered to a request."""

    status: int
    body: str
    media: str = _HTML


@dataclass(frozen=True, slots=True)
class Listing:
    """Some runs, newest first, and what there is to say of all that are meant."""

    filters: Filters
    entries: Sequence[Entry]
    counts: Counts
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


class Site:
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

    def live(self, query: Pairs) -> Answer:
        """The requests as they are scored."""
        try:
            listing = self._listing(read_filters(query))
            return self._page("live.html", view="live", listing=listing, problem=None, words=_WORDS)
        except ConfigurationError as error:
            nothing = Listing(as_written(query), (), Counts(), None, (), self._store.newest_arrival())
            page = self._page("live.html", view="live", listing=nothing, problem=str(error), words=_WORDS)
            return page._replace(status=400)

    def _listing(self, filters: Filters) -> Listing:
        arrived = self._store.newest_arrival()  # before the list: what comes meanwhile comes once more, and is not lost
        page, counts = self._store.counted_page(filters.meant, limit=AT_ONCE, cursor=filters.cursor)
        entries = tuple(map(entry_of, page.items))
        return Listing(
            filters=filters,
            entries=entries,
            counts=counts,
            next_cursor=page.next_cursor,
            health=gathered(hint for entry in entries for hint in entry.hints),
            arrived=arrived,
        )

    def run(self, run_id: str, query: Pairs) -> Answer:
        """One run."""
        run = self._store.run(run_id)
        if run is None:
            return self.missing("No run is stored under this id. It may have been deleted, or not be scored yet.")
        details = details_of(run, self._store.evaluations(run_id), _revision(query))
        if details is None:
            return self.missing("The run has no such revision.")
        return self._page("run.html", view="live", details=details, draft=draft_of(details.document))

    def goldens(self, query: Pairs) -> Answer:
        """How the goldens stand, and the tools in them."""
        look, rest = read_look(query)
        filters = read_filters(rest)
        board = standings(self._store, self._goldens(), filters.meant, look)
        return self._page("goldens.html", view="goldens", board=board, filters=filters)

    def golden(self, golden_id: str, query: Pairs) -> Answer:
        """How one golden stands."""
        standing = golden_standing(self._store, self._goldens(), golden_id)
        if standing is None:
            return self.missing("No run was judged by a golden of this id, and none of the goldens in use has it.")
        return self._page("golden.html", view="goldens", standing=standing)

    def uncovered(self, query: Pairs) -> Answer:
        """Requests that no golden covers."""
        return self._page("uncovered.html", view="uncovered", groups=uncovered(self._store))

    # --- what views ask for once they are shown -----------------------------------------------------------------------

    def trend(self, query: Pairs) -> Answer:
        """How many passed, failed and were not evaluated, over time, as columns for a chart."""
        buckets = self._store.trend(read_filters(query).meant)
        columns = {
            "time": [bucket.start_ns // 10**6 / 1000 for bucket in buckets],
            "passed": [bucket.counts.passed for bucket in buckets],
            "failed": [bucket.counts.failed for bucket in buckets],
            "not_evaluated": [bucket.counts.not_evaluated for bucket in buckets],
        }
        return Answer(200, json.dumps(columns), _JSON)

    def suggestions(self, field: str) -> Answer:
        """What may be written for a filter, as the options of a list."""
        names: Sequence[str | None]
        if field == "metric":
            names = self._store.metrics()
        elif field == "tool":
            names = sorted(tally.name for tally in self._store.tools())
        elif field in _TALLIED:
            names = [tally.name for tally in self._store.tallies(_TALLIED[field])]
        else:
            return self.missing("There are no suggestions for this.")
        return Answer(200, render("_options.html", names=[name for name in names if name is not None][:_SUGGESTED]))

    def newest_arrival(self) -> int:
        """The place up to which everything is stored; see `Store.arrivals`."""
        return self._store.newest_arrival()

    # --- what is answered instead -------------------------------------------------------------------------------------

    def answer(self, view: Callable[[], Answer]) -> Answer:
        """What a view answers, or a page that says why there is none."""
        try:
            return view()
        except ConfigurationError as error:
            return self._fault(400, "This address asks for something that cannot be meant", str(error))
        except StoreError as error:
            return self._fault(503, "The store cannot answer now", str(error))

    def missing(self, why: str = "There is no such page.") -> Answer:
        """There is nothing at this address."""
        return self._fault(404, "Not here", why)

    def _fault(self, status: int, title: str, why: str) -> Answer:
        return Answer(status, self._page("fault.html", view="", title=title, why=why).body)

    def _page(self, template: str, **context: Any) -> Answer:
        return Answer(200, render(template, **self._shared, **context))


_TALLIED: Mapping[str, TallyBy] = {
    "golden": "golden",
    "agent": "agent",
    "service": "service",
    "environment": "environment",
}
_WORDS = {"verdict": get_args(Verdict), "tool_role": get_args(ToolRole), "unit": get_args(Unit)}


def _revision(query: Pairs) -> int | None:
    """The revision that is asked for; `None`: the current one."""
    said = dict(query).get("revision")
    if said is None:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) < 10):
        raise ConfigurationError(f"revision must be a number, not {said[:40]!r}.")
    return int(said)
