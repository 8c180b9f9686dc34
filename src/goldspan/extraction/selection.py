"""Components that golden files declare: spans of any instrumentation, told by their names and attributes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from goldspan.model import ComponentSpans, SpanRecord

_MOST_NAMES = 4096
"""Names of spans that are remembered."""


class Selection:
    """Some declared components, ready to be looked for: most spans cost one look at a table of names."""

    __slots__ = ("_candidates", "_components")

    def __init__(self, components: Iterable[ComponentSpans]) -> None:
        """Take components; where several mean one span, the first counts."""
        self._components = tuple(components)
        self._candidates: dict[str, tuple[ComponentSpans, ...]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._components)

    def name_of(self, span: SpanRecord) -> str | None:
        """The component that a span is, or `None`."""
        name = span.name
        candidates = self._candidates.get(name)
        if candidates is None:
            candidates = self._named(name)
        for component in candidates:
            if component.matches(name, span.attributes):
                return component.name
        return None

    def _named(self, name: str) -> tuple[ComponentSpans, ...]:
        """The components that spans of a name may be, if their attributes are right."""
        any_attributes = (ComponentSpans(component.name, component.span) for component in self._components)
        known = zip(self._components, any_attributes, strict=True)
        found = tuple([component for component, by_name in known if by_name.matches(name, {})])
        if len(self._candidates) >= _MOST_NAMES:
            self._candidates.clear()
        self._candidates[name] = found
        return found


@lru_cache(maxsize=64)
def selection_of(components: tuple[ComponentSpans, ...]) -> Selection:
    """The selection of some components, made once."""
    return Selection(components)
