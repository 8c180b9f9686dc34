"""Recognising spans: which conventions a span is read by, found by its attributes in one look."""

from __future__ import annotations

from collections.abc import Iterable

from goldspan import semconv
from goldspan.extraction import fallback
from goldspan.extraction.convention import Convention, Reader
from goldspan.extraction.reading import Reading, says_something
from goldspan.model import SpanRecord

_MOST_SHAPES = 4096
"""Kinds of spans that are remembered: a kind is the attributes of a span that tables name. Seen in one trace: a few."""


NOTHING = Reading()
"""The reading of all spans that no convention knows. Never changed."""

EVALUATION = Reading()
"""The reading of spans that goldspan made of evaluations: they tell of a run and are no part of one. Never changed."""


class Conventions:
    """Some conventions, ready to read spans."""

    def __init__(self, members: Iterable[Convention], *, noted: Iterable[str] = ()) -> None:
        """Put conventions together, the most trusted first.

        A span that has one of the `noted` attributes is not `NOTHING`, even where no convention knows it.
        """
        self.members = tuple(members)
        self._shared = frozenset(convention.name for convention in self.members if convention.shared)
        self._tells_role = frozenset(key for convention in self.members for key in convention.roles)
        self._noted = frozenset(noted)
        self._keys = self._noted.union(
            (semconv.EVALUATION_MARK,), *(convention.all_keys for convention in self.members)
        )
        self._shapes: dict[frozenset[str], _Shape] = {}
        self._latest: tuple[SpanRecord, Reading] | None = None

    def read(self, span: SpanRecord) -> Reading:
        """Everything the conventions understand of one span, joined; `NOTHING` for a span that none of them knows.

        Most spans of an application are of the latter kind and cost one look. An evaluation's span is `EVALUATION`.
        """
        present = span.keys_among(self._keys)
        shape = self._shapes.get(present)
        if shape is None:
            shape = self._shape(present)
        return shape.read(span) if shape.fixed is None else shape.fixed

    def read_all(self, spans: Iterable[SpanRecord]) -> list[tuple[SpanRecord, Reading]]:
        """What is understood of each span of a trace: where no convention knows its family, by the fallback.

        Where a family's own convention knows what one span of a scope is, it knows why others of it are nothing.
        """
        read = [(span, self.read(span)) for span in spans]
        known = {span.scope for span, reading in read if reading.role is not None and self._tells_family(reading)}
        return [
            (span, reading if span.scope in known or reading is EVALUATION else self._guessed(span, reading))
            for span, reading in read
        ]

    def _tells_family(self, reading: Reading) -> bool:
        return not self._shared.issuperset(reading.by)

    def _guessed(self, span: SpanRecord, reading: Reading) -> Reading:
        """A reading with what names of attributes tell beyond it: of what the span is, or of what it says."""
        if reading.role is not None and (says_something(reading) or reading.role == "aside"):
            return reading
        guess = fallback.read(span)
        if guess is None:
            return reading
        if reading.role is None:
            guess.complete_with(reading)
            return guess
        if guess.role == reading.role and guess.guessed_by not in self._tells_role:
            reading.complete_with(guess)
            reading.guessed_by = guess.guessed_by
        return reading

    def tells_kind(self, span: SpanRecord) -> bool:
        """Whether a span has an attribute that tells, in some convention, what it is: maybe in a word not known."""
        return not self._tells_role.isdisjoint(span.attributes)

    def read_again(self, span: SpanRecord, *, guessing: bool = False) -> Reading:
        """The same for whoever asks several things about one span: what was read last is remembered. Do not change it.

        Only for spans of a living process: of a file, the one that is remembered would hold on to all of them. With
        `guessing`, what no convention knows is read by the fallback.
        """
        latest = self._latest
        if latest is None or latest[0] is not span:
            latest = self._latest = (span, self.read(span))
        reading = latest[1]
        if guessing and reading.role is None and reading is not EVALUATION:
            return fallback.read(span) or reading
        return reading

    def _shape(self, present: frozenset[str]) -> _Shape:
        if semconv.EVALUATION_MARK in present:
            return _EVALUATION
        known = (convention for convention in self.members if not present.isdisjoint(convention.signs_among(present)))
        shape = _Shape([Reader(convention, present) for convention in known], noted=not present.isdisjoint(self._noted))
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[present] = shape
        return shape


class _Shape:
    """What there is to read off all spans that have the same attributes."""

    __slots__ = ("_keys", "_noted", "_readers", "fixed")

    def __init__(self, readers: Iterable[Reader], *, noted: bool = False, fixed: Reading | None = None) -> None:
        self._readers = tuple(readers)
        self._noted = noted
        self.fixed = NOTHING if fixed is None and not self._readers and not noted else fixed
        self._keys = tuple(dict.fromkeys(key for reader in self._readers for key in sorted(reader.keys)))

    def read(self, span: SpanRecord) -> Reading:
        known = span.values_of(self._keys)
        joined: Reading | None = None
        for reader in self._readers:
            reading = reader.read(span, known)
            if reading is None:
                continue
            if joined is None:
                joined = reading
            else:
                joined.complete_with(reading)
        if joined is None:
            joined = Reading() if self._noted else NOTHING
        if self._noted:
            joined.noted = True
        return joined


_EVALUATION = _Shape((), fixed=EVALUATION)
