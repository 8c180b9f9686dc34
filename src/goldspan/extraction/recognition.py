"""Recognising spans: which conventions a span is read by, found by its attributes in one look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
        self._of_scopes = {scope: convention for convention in self.members for scope in convention.scopes}
        self._noted = frozenset(noted)
        self._keys = self._noted.union(
            (semconv.EVALUATION_MARK,), *(convention.all_keys for convention in self.members)
        )
        self._shapes: dict[frozenset[str], _Shape] = {}
        self._of_names: dict[frozenset[str], _Named] = {}
        self._latest: tuple[SpanRecord, Reading] | None = None

    def read(self, span: SpanRecord) -> Reading:
        """Everything the conventions understand of one span, joined; `NOTHING` for a span that none of them knows.

        Most spans of an application are of the latter kind and cost one look. An evaluation's span is `EVALUATION`.
        """
        return self._read(span, self._named(span).shape)

    def read_all(self, spans: Sequence[SpanRecord]) -> list[Reading]:
        """What is understood of each span of a trace: where no convention knows its family, by the fallback.

        Where a family's own convention knows what one span of a scope is, it knows why others of it are nothing.
        """
        readings: list[Reading] = []
        guessed: list[tuple[int, Reader]] = []
        of_names = self._of_names
        for span in spans:
            named = of_names.get(span.keys()) or self._named(span)
            reading = named.always
            if reading is None:
                reading = self._read(span, named.shape)
                if named.guess is not None and (reading.role is None or named.says_more):
                    guessed.append((len(readings), named.guess))
            readings.append(reading)
        if guessed:
            read = zip(spans, readings, strict=True)
            known = {span.scope for span, reading in read if self._tells_family(reading)}
            for at, guess in guessed:
                if spans[at].scope not in known:
                    readings[at] = self._guessed(spans[at], guess, readings[at])
        return readings

    def _read(self, span: SpanRecord, shape: _Shape) -> Reading:
        reading = shape.read(span) if shape.fixed is None else shape.fixed
        return self._bare(span) if reading is NOTHING and span.scope in self._of_scopes else reading

    def _bare(self, span: SpanRecord) -> Reading:
        """The reading of a span by its name, where it has no attribute and its scope tells of which family it is."""
        reading = None if span.attributes else self._of_scopes[span.scope].read_bare(span)
        return NOTHING if reading is None or reading.role is None else reading

    def _named(self, span: SpanRecord) -> _Named:
        names = span.keys()
        named = self._of_names.get(names)
        if named is None:
            if len(self._of_names) >= _MOST_SHAPES:
                self._of_names.clear()
            present = names & self._keys
            shape, kinds = self._shapes.get(present) or self._shape(present), fallback.telling(names)
            says_more = not self._tells_role.issuperset(kinds)
            guess = None if shape.fixed is EVALUATION else fallback.reader(names)
            always = shape.fixed if names and guess is None else None
            named = self._of_names[names] = _Named(shape, always, guess, says_more)
        return named

    def _tells_family(self, reading: Reading) -> bool:
        return reading.role is not None and not self._shared.issuperset(reading.by)

    def _guessed(self, span: SpanRecord, reader: Reader, reading: Reading) -> Reading:
        """A reading with what names of attributes tell beyond it: of what the span is, or of what it says."""
        if reading.role is None and reading.taken_back:
            return reading
        if reading.role is not None and (says_something(reading) or reading.role == "aside"):
            return reading
        guess = fallback.read(span, reader)
        if guess is None:
            return reading
        if reading.role is None:
            guess.complete_with(reading)
            guess.noted = reading.noted
            return guess
        if guess.role == reading.role:
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
        if not guessing or reading.role is not None or reading is EVALUATION or not self._shared.issuperset(reading.by):
            return reading  # what a family's own convention knows of a span is more than its names say
        named = self._named(span)
        return (fallback.read(span, named.guess) if named.guess is not None and named.says_more else None) or reading

    def _shape(self, present: frozenset[str]) -> _Shape:
        if semconv.EVALUATION_MARK in present:
            return _EVALUATION
        known = (convention for convention in self.members if not present.isdisjoint(convention.signs_among(present)))
        shape = _Shape([Reader(convention, present) for convention in known], noted=not present.isdisjoint(self._noted))
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[present] = shape
        return shape


@dataclass(frozen=True, slots=True)
class _Named:
    """What there is to read off all spans whose attributes have the same names, of which tables name only some."""

    shape: _Shape
    always: Reading | None
    """The reading that all of them have, where that is certain without a look at any."""
    guess: Reader | None
    """Reads them by these names, where no convention knows them."""
    says_more: bool
    """Whether another name may tell what they are than those by which a convention would know."""


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
