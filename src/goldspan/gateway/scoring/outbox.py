"""What leaves because of scoring: results, and spans that were held for them. All of it goes through the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from goldspan._guard import guard
from goldspan.gateway.journal.writing import Entry, Item, Journal
from goldspan.gateway.scoring.enriching import enriched
from goldspan.gateway.scoring.results import Results
from goldspan.gateway.scoring.traces import Part
from goldspan.model import Evaluation


class Outbox:
    """Collects what scoring has for back ends, until it is written to the journal of the worker. For one thread."""

    def __init__(self, journal: Journal, results: Results | None) -> None:
        self._journal = journal
        self._results = results
        self._items: list[Item] = []
        self.size = 0
        """Bytes of spans that are not written yet."""

    def put(self, parts: Iterable[Part], evaluations: Iterable[Evaluation], *, without: Collection[str] = ()) -> None:
        """Take spans to be handed on, each a request in protobuf, what was scored by them, and the ids of spans in them
        that stay here.
        """
        written = request = b"".join(part for part in parts if isinstance(part, bytes))
        if request:
            with guard("write results into spans"):
                written = enriched(request, evaluations, without=without)
        if written:
            self._add(Item("traces", "protobuf", written, origin="enriched"))

    def put_as_it_is(self, entry: Entry) -> None:
        """Take an entry that is handed on unchanged, because something in it could not be written otherwise."""
        self._add(Item(entry.signal, entry.media, entry.body, origin="enriched"))

    def flush(self, *, final: bool = False) -> None:
        """Have everything on disk, at the `final` time with figures that are not due yet.

        Raises `GoldspanError` where that fails; nothing is lost then, and it may be called again.
        """
        if self._results is not None:
            self._items += self._results.take(final=final)
        if self._items:
            self._journal.append_all(self._items).result()
            self._items, self.size = [], 0

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self.size += len(item.body)
