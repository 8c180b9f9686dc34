"""Classifies spans for extraction: joins the facts of all conventions that recognise a span."""

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
    explicit: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the attributes that may hold a golden's id, in order of preference.

    Uses the explicit attributes if there are any, else `GOLDSPAN_GOLDEN_ID_ATTRIBUTE` (comma separated), else the
    defaults.
    """
    if explicit is not None:
        return tuple(explicit)
    names = (name.strip() for name in environment.get(GOLDEN_ID_VARIABLE, "").split(","))
    return tuple(filter(None, names)) or DEFAULT_GOLDEN_ID_ATTRIBUTES


_MAX_SPAN_NAMES = 4096
"""Span names whose candidate components are cached."""


class DeclaredComponents:
    """Finds the declared component that a span is. Candidates are cached by span name."""

    __slots__ = ("_candidates", "_components")

    def __init__(self, components: Iterable[ComponentSelector]) -> None:
        """Store the components. If several match a span, the first one is used."""
        self._components = tuple(components)
        self._candidates: dict[str, tuple[ComponentSelector, ...]] = {}

    def __bool__(self) -> bool:
        """Whether any component is declared."""
        return bool(self._components)

    def match(self, span: SpanRecord) -> str | None:
        """Return the name of the component that a span is, or `None`."""
        name = span.name
        candidates = self._candidates.get(name)
        if candidates is None:
            candidates = self._find_candidates(name)
        for component in candidates:
            if component.matches(name, span.attributes):
                return component.name
        return None

    def _find_candidates(self, name: str) -> tuple[ComponentSelector, ...]:
        """Return the components that a span of this name is if its attributes match, too."""
        by_name_only = (ComponentSelector(component.name, component.span) for component in self._components)
        pairs = zip(self._components, by_name_only, strict=True)
        found = tuple([component for component, by_name in pairs if by_name.matches(name, {})])
        if len(self._candidates) >= _MAX_SPAN_NAMES:
            self._candidates.clear()
        self._candidates[name] = found
        return found


@lru_cache(maxsize=64)
def declared_components(components: tuple[ComponentSelector, ...]) -> DeclaredComponents:
    """Return the `DeclaredComponents` of these components, cached."""
    return DeclaredComponents(components)


_MAX_SHAPES = 4096
"""Attribute shapes that are cached: a shape is the set of a span's attributes that tables name. A trace has a few."""

UNKNOWN_FACTS = SpanFacts()
"""The facts of every span that no convention recognises. Do not modify."""

EVALUATION_FACTS = SpanFacts()
"""The facts of every span that goldspan writes for an evaluation, which is not part of a run. Do not modify."""


class ConventionSet:
    """Classifies spans with several conventions."""

    def __init__(self, members: Iterable[Convention], *, extra_attributes: Iterable[str] = ()) -> None:
        """Store the conventions in the order in which they apply.

        A span that has one of the `extra_attributes` is never `UNKNOWN_FACTS`, even if no convention recognises it.
        """
        self.members = tuple(members)
        self._shared = frozenset(convention.name for convention in self.members if convention.is_shared)
        self._role_attributes = frozenset(key for convention in self.members for key in convention.roles)
        self._conventions_by_scope = {
            scope: convention for convention in self.members for scope in convention.bare_span_scopes
        }
        self._extra_attributes = frozenset(extra_attributes)
        self._keys = self._extra_attributes.union(
            (semconv.IS_EVALUATION,), *(convention.all_attributes for convention in self.members)
        )
        self._shapes: dict[frozenset[str], _AttributeShape] = {}
        self._profiles_by_names: dict[frozenset[str], _NameProfile] = {}
        self._latest: tuple[SpanRecord, SpanFacts] | None = None

    def classify(self, span: SpanRecord) -> SpanFacts:
        """Return the joined facts that the conventions read from one span.

        Returns `UNKNOWN_FACTS` if no convention recognises the span, as for most spans of an application, and
        `EVALUATION_FACTS` for a span of an evaluation.
        """
        shape = self._profile(span).shape
        facts = shape.read(span) if shape.fixed is None else shape.fixed
        return self._read_without_attributes(span) if facts is UNKNOWN_FACTS else facts

    def classify_trace(self, spans: Sequence[SpanRecord]) -> list[SpanFacts]:
        """Return the facts of each span of a trace. The fallback reads spans whose family no convention knows.

        The fallback skips a scope of which a family's convention recognised at least one span, because that convention
        knows the roles of all spans of the scope.
        """
        all_facts: list[SpanFacts] = []
        guessed: list[tuple[int, SpanReader]] = []
        profiles = self._profiles_by_names
        for span in spans:
            profile = profiles.get(span.attribute_names()) or self._profile(span)
            facts = profile.fixed_facts
            if facts is None:
                shape = profile.shape
                facts = shape.read(span) if shape.fixed is None else shape.fixed
                if facts is UNKNOWN_FACTS:
                    facts = self._read_without_attributes(span)
                if profile.guess is not None and (facts.role is None or profile.has_other_kind_attribute):
                    guessed.append((len(all_facts), profile.guess))
            all_facts.append(facts)
        if guessed:
            read = zip(spans, all_facts, strict=True)
            known = {span.scope for span, facts in read if self._identifies_family(facts)}
            for at, guess in guessed:
                if spans[at].scope not in known:
                    all_facts[at] = self._complete_by_names(spans[at], guess, all_facts[at])
        return all_facts

    def _read_without_attributes(self, span: SpanRecord) -> SpanFacts:
        """Return the facts of a span without attributes, if its scope identifies its family and its name its role."""
        convention = self._conventions_by_scope.get(span.scope)
        facts = None if convention is None or span.attributes else convention.read_span_name(span)
        return UNKNOWN_FACTS if facts is None or facts.role is None else facts

    def _profile(self, span: SpanRecord) -> _NameProfile:
        names = span.attribute_names()
        profile = self._profiles_by_names.get(names)
        if profile is None:
            if len(self._profiles_by_names) >= _MAX_SHAPES:
                self._profiles_by_names.clear()
            present = names & self._keys
            shape, kinds = self._shapes.get(present) or self._shape(present), fallback.kind_attributes(names)
            has_other_kind_attribute = not self._role_attributes.issuperset(kinds)
            guess = None if shape.fixed is EVALUATION_FACTS else fallback.reader_for(names)
            fixed_facts = shape.fixed if names and guess is None else None
            profile = self._profiles_by_names[names] = _NameProfile(shape, fixed_facts, guess, has_other_kind_attribute)
        return profile

    def _identifies_family(self, facts: SpanFacts) -> bool:
        return facts.role is not None and not self._shared.issuperset(facts.conventions)

    def _complete_by_names(self, span: SpanRecord, reader: SpanReader, facts: SpanFacts) -> SpanFacts:
        """Return the facts, completed with the role or the content that the attribute names suggest."""
        if facts.role is None and facts.is_retracted:
            return facts
        if facts.role is not None and (has_content(facts) or facts.role == "aside"):
            return facts
        guess = fallback.read_by_attribute_names(span, reader)
        if guess is None:
            return facts
        if facts.role is None:
            guess.fill_missing_from(facts)
            guess.is_annotated = facts.is_annotated
            return guess
        if guess.role == facts.role:
            facts.fill_missing_from(guess)
            facts.guessed_from = guess.guessed_from
        return facts

    def has_role_attribute(self, span: SpanRecord) -> bool:
        """Whether a span has a role attribute of any convention, even if its value is unknown."""
        return not self._role_attributes.isdisjoint(span.attributes)

    def classify_cached(self, span: SpanRecord, *, guessing: bool = False) -> SpanFacts:
        """Return the facts of one span and cache those of the last span. Do not modify them.

        Use this only for spans of a live process: a cached span of a file keeps the whole file in memory. With
        `guessing`, the fallback reads a span that no convention recognises.
        """
        latest = self._latest
        if latest is None or latest[0] is not span:
            latest = self._latest = (span, self.classify(span))
        facts = latest[1]
        if (
            not guessing
            or facts.role is not None
            or facts is EVALUATION_FACTS
            or not self._shared.issuperset(facts.conventions)
        ):
            return facts  # the convention of the family knows more than attribute names show
        profile = self._profile(span)
        return (
            fallback.read_by_attribute_names(span, profile.guess)
            if profile.guess is not None and profile.has_other_kind_attribute
            else None
        ) or facts

    def _shape(self, present: frozenset[str]) -> _AttributeShape:
        if semconv.IS_EVALUATION in present:
            return _EVALUATION_SHAPE
        known = (convention for convention in self.members if not present.isdisjoint(convention.markers_among(present)))
        shape = _AttributeShape(
            [SpanReader(convention, present) for convention in known],
            is_annotated=not present.isdisjoint(self._extra_attributes),
        )
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[present] = shape
        return shape


@dataclass(frozen=True, slots=True)
class _NameProfile:
    """How to read all spans whose attributes have the same names."""

    shape: _AttributeShape
    fixed_facts: SpanFacts | None
    """The facts that all of these spans have, if they do not depend on attribute values."""
    guess: SpanReader | None
    """Reads the spans by attribute name if no convention recognises them."""
    has_other_kind_attribute: bool
    """Whether an attribute that no convention uses for roles may give the kind of the span."""


class _AttributeShape:
    """How to read all spans that have the same subset of the attributes in the tables."""

    __slots__ = ("_is_annotated", "_keys", "_readers", "fixed")

    def __init__(
        self, readers: Iterable[SpanReader], *, is_annotated: bool = False, fixed: SpanFacts | None = None
    ) -> None:
        self._readers = tuple(readers)
        self._is_annotated = is_annotated
        self.fixed = UNKNOWN_FACTS if fixed is None and not self._readers and not is_annotated else fixed
        self._keys = tuple(dict.fromkeys(key for reader in self._readers for key in sorted(reader.attribute_names)))

    def read(self, span: SpanRecord) -> SpanFacts:
        known = span.decode_attributes(self._keys)
        joined: SpanFacts | None = None
        for reader in self._readers:
            facts = reader.read(span, known)
            if facts is None:
                continue
            if joined is None:
                joined = facts
            else:
                joined.fill_missing_from(facts)
        if joined is None:
            joined = SpanFacts() if self._is_annotated else UNKNOWN_FACTS
        if self._is_annotated:
            joined.is_annotated = True
        return joined


_EVALUATION_SHAPE = _AttributeShape((), fixed=EVALUATION_FACTS)
