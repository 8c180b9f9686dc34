"""Recognising spans: which conventions a span is read by, found by its attributes in one look."""

from __future__ import annotations

from collections.abc import Iterable

from goldspan.extraction.convention import Convention, Reader
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_MOST_SHAPES = 4096
"""Kinds of spans that are remembered: a kind is the attributes of a span that tables name. Seen in one trace: a few."""


NOTHING = Reading()
"""The reading of all spans that no convention knows. Never changed."""


class Conventions:
    """Some conventions, ready to read spans."""

    def __init__(self, members: Iterable[Convention], *, noted: Iterable[str] = ()) -> None:
        """Put conventions together, the most trusted first.

        A span that has one of the `noted` attributes is not `NOTHING`, even where no convention knows it.
        """
        self.members = tuple(members)
        self._noted = frozenset(noted)
        self._keys = self._noted.union(*(convention.all_keys for convention in self.members))
        self._shapes: dict[frozenset[str], tuple[Reader, ...]] = {}

    def read(self, span: SpanRecord) -> Reading:
        """Everything the conventions understand of one span, joined; `NOTHING` for a span that none of them knows.

        Most spans of an application are of the latter kind and cost one look.
        """
        present = self._keys.intersection(span.attributes)
        readers = self._shapes.get(present)
        if readers is None:
            readers = self._readers(present)
        joined: Reading | None = None
        for reader in readers:
            reading = reader.read(span)
            if reading is None:
                continue
            if joined is None:
                joined = reading
            else:
                joined.complete_with(reading)
        if joined is not None:
            return joined
        return NOTHING if self._noted.isdisjoint(present) else Reading()

    def _readers(self, present: frozenset[str]) -> tuple[Reader, ...]:
        readers = tuple(
            Reader(convention, present)
            for convention in self.members
            if not present.isdisjoint(convention.signs_among(present))
        )
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[present] = readers
        return readers
