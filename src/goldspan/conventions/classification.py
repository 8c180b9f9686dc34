"""Recognising spans: which conventions a span is read by, found by its attributes in one look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from goldspan import semconv
from goldspan.conventions import fallback
from goldspan.conventions.convention import Convention, SpanReader
from goldspan.conventions.span_facts import SpanFacts, has_content
from goldspan.model import ComponentSelector, SpanRecord

GOLDEN_ID_VARIABLE = "GOLDSPAN_GOLDEN_ID_ATTRIBUTE"
DEFAULT_GOLDEN_ID_ATTRIBUTES = (semconv.GOLDEN_ID, semconv.TEST_CASE_NAME)


def golden_id_attributes(
    given: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The attributes to try, in this order: those given, else those of the variable (comma separated), else ours."""
    if given is not None:
        return tuple(given)
    names = (name.strip() for name in environment.get(GOLDEN_ID_VARIABLE, "").split(","))
    return tuple(filter(None, names)) or DEFAULT_GOLDEN_ID_ATTRIBUTES


_MAX_SPAN_NAMES = 4096
"""Names of spans that are remembered."""


class DeclaredComponents:
    """Some declared components, ready to be looked for: most spans cost one look at a table of names."""

    __slots__ = ("_candidates", "_components")

    def __init__(self, components: Iterable[ComponentSelector]) -> None:
        """Take components; where several mean one span, the first counts."""
        self._components = tuple(components)
        self._candidates: dict[str, tuple[ComponentSelector, ...]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._components)

    def match(self, span: SpanRecord) -> str | None:
        """The component that a span is, or `None`."""
        name = span.name
        candidates = self._candidates.get(name)
        if candidates is None:
            candidates = self._named(name)
        for component in candidates:
            if component.matches(name, span.attributes):
                return component.name
        return None

    def _named(self, name: str) -> tuple[ComponentSelector, ...]:
        """The components that spans of a name may be, if their attributes are right."""
        any_attributes = (ComponentSelector(component.name, component.span) for component in self._components)
        known = zip(self._components, any_attributes, strict=True)
        found = tuple([component for component, by_name in known if by_name.matches(name, {})])
        if len(self._candidates) >= _MAX_SPAN_NAMES:
            self._candidates.clear()
        self._candidates[name] = found
        return found


@lru_cache(maxsize=64)
def declared_components(components: tuple[ComponentSelector, ...]) -> DeclaredComponents:
    """The selection of some components, made once."""
    return DeclaredComponents(components)


_MAX_SHAPES = 4096
"""Kinds of spans that are remembered: a kind is the attributes of a span that tables name. Seen in one trace: a few."""


UNKNOWN_FACTS = SpanFacts()
"""The reading of all spans that no convention knows. Never changed."""

EVALUATION_FACTS = SpanFacts()
"""The reading of spans that goldspan made of evaluations: they tell of a run and are no part of one. Never changed."""


class ConventionSet:
    """Some conventions, ready to read spans."""

    def __init__(self, members: Iterable[Convention], *, noted: Iterable[str] = ()) -> None:
        """Put conventions together, the most trusted first.

        A span that has one of the `noted` attributes is not `NOTHING`, even where no convention knows it.
        """
        self.members = tuple(members)
        self._shared = frozenset(convention.name for convention in self.members if convention.is_shared)
        self._tells_role = frozenset(key for convention in self.members for key in convention.roles)
        self._of_scopes = {scope: convention for convention in self.members for scope in convention.bare_span_scopes}
        self._noted = frozenset(noted)
        self._keys = self._noted.union(
            (semconv.IS_EVALUATION,), *(convention.all_attributes for convention in self.members)
        )
        self._shapes: dict[frozenset[str], _AttributeShape] = {}
        self._of_names: dict[frozenset[str], _NameProfile] = {}
        self._latest: tuple[SpanRecord, SpanFacts] | None = None

    def classify(self, span: SpanRecord) -> SpanFacts:
        """Everything the conventions understand of one span, joined; `NOTHING` for a span that none of them knows.

        Most spans of an application are of the latter kind and cost one look. An evaluation's span is `EVALUATION`.
        """
        return self._read(span, self._named(span).shape)

    def classify_trace(self, spans: Sequence[SpanRecord]) -> list[SpanFacts]:
        """What is understood of each span of a trace: where no convention knows its family, by the fallback.

        Where a family's own convention knows what one span of a scope is, it knows why others of it are nothing.
        """
        readings: list[SpanFacts] = []
        guessed: list[tuple[int, SpanReader]] = []
        of_names = self._of_names
        for span in spans:
            named = of_names.get(span.attribute_names()) or self._named(span)
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

    def _read(self, span: SpanRecord, shape: _AttributeShape) -> SpanFacts:
        reading = shape.read(span) if shape.fixed is None else shape.fixed
        return self._bare(span) if reading is UNKNOWN_FACTS and span.scope in self._of_scopes else reading

    def _bare(self, span: SpanRecord) -> SpanFacts:
        """The reading of a span by its name, where it has no attribute and its scope tells of which family it is."""
        reading = None if span.attributes else self._of_scopes[span.scope].read_span_name(span)
        return UNKNOWN_FACTS if reading is None or reading.role is None else reading

    def _named(self, span: SpanRecord) -> _NameProfile:
        names = span.attribute_names()
        named = self._of_names.get(names)
        if named is None:
            if len(self._of_names) >= _MAX_SHAPES:
                self._of_names.clear()
            present = names & self._keys
            shape, kinds = self._shapes.get(present) or self._shape(present), fallback.kind_attributes(names)
            says_more = not self._tells_role.issuperset(kinds)
            guess = None if shape.fixed is EVALUATION_FACTS else fallback.reader_for(names)
            always = shape.fixed if names and guess is None else None
            named = self._of_names[names] = _NameProfile(shape, always, guess, says_more)
        return named

    def _tells_family(self, reading: SpanFacts) -> bool:
        return reading.role is not None and not self._shared.issuperset(reading.conventions)

    def _guessed(self, span: SpanRecord, reader: SpanReader, reading: SpanFacts) -> SpanFacts:
        """A reading with what names of attributes tell beyond it: of what the span is, or of what it says."""
        if reading.role is None and reading.is_retracted:
            return reading
        if reading.role is not None and (has_content(reading) or reading.role == "aside"):
            return reading
        guess = fallback.read_by_attribute_names(span, reader)
        if guess is None:
            return reading
        if reading.role is None:
            guess.fill_missing_from(reading)
            guess.is_annotated = reading.is_annotated
            return guess
        if guess.role == reading.role:
            reading.fill_missing_from(guess)
            reading.guessed_from = guess.guessed_from
        return reading

    def has_role_attribute(self, span: SpanRecord) -> bool:
        """Whether a span has an attribute that tells, in some convention, what it is: maybe in a word not known."""
        return not self._tells_role.isdisjoint(span.attributes)

    def classify_cached(self, span: SpanRecord, *, guessing: bool = False) -> SpanFacts:
        """The same for whoever asks several things about one span: what was read last is remembered. Do not change it.

        Only for spans of a living process: of a file, the one that is remembered would hold on to all of them. With
        `guessing`, what no convention knows is read by the fallback.
        """
        latest = self._latest
        if latest is None or latest[0] is not span:
            latest = self._latest = (span, self.classify(span))
        reading = latest[1]
        if (
            not guessing
            or reading.role is not None
            or reading is EVALUATION_FACTS
            or not self._shared.issuperset(reading.conventions)
        ):
            return reading  # what a family's own convention knows of a span is more than its names say
        named = self._named(span)
        return (
            fallback.read_by_attribute_names(span, named.guess) if named.guess is not None and named.says_more else None
        ) or reading

    def _shape(self, present: frozenset[str]) -> _AttributeShape:
        if semconv.IS_EVALUATION in present:
            return _EVALUATION_SHAPE
        known = (convention for convention in self.members if not present.isdisjoint(convention.markers_among(present)))
        shape = _AttributeShape(
            [SpanReader(convention, present) for convention in known], noted=not present.isdisjoint(self._noted)
        )
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[present] = shape
        return shape


@dataclass(frozen=True, slots=True)
class _NameProfile:
    """What there is to read off all spans whose attributes have the same names, of which tables name only some."""

    shape: _AttributeShape
    always: SpanFacts | None
    """The reading that all of them have, where that is certain without a look at any."""
    guess: SpanReader | None
    """Reads them by these names, where no convention knows them."""
    says_more: bool
    """Whether another name may tell what they are than those by which a convention would know."""


class _AttributeShape:
    """What there is to read off all spans that have the same attributes."""

    __slots__ = ("_keys", "_noted", "_readers", "fixed")

    def __init__(self, readers: Iterable[SpanReader], *, noted: bool = False, fixed: SpanFacts | None = None) -> None:
        self._readers = tuple(readers)
        self._noted = noted
        self.fixed = UNKNOWN_FACTS if fixed is None and not self._readers and not noted else fixed
        self._keys = tuple(dict.fromkeys(key for reader in self._readers for key in sorted(reader.attribute_names)))

    def read(self, span: SpanRecord) -> SpanFacts:
        known = span.decode_attributes(self._keys)
        joined: SpanFacts | None = None
        for reader in self._readers:
            reading = reader.read(span, known)
            if reading is None:
                continue
            if joined is None:
                joined = reading
            else:
                joined.fill_missing_from(reading)
        if joined is None:
            joined = SpanFacts() if self._noted else UNKNOWN_FACTS
        if self._noted:
            joined.is_annotated = True
        return joined


_EVALUATION_SHAPE = _AttributeShape((), fixed=EVALUATION_FACTS)
