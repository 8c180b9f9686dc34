"""Which spans of a foreign instrumentation are a component, as golden files declare it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True)
class ComponentSpans:
    """The spans that are the component of that name: everything that is said must hold."""

    name: str
    span: str | None = None
    """A glob pattern of the span's name, compared without regard to case; `None`: any name."""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Attributes that the span must have, with these values."""

    def matches(self, span_name: str, attributes: Mapping[str, Any]) -> bool:
        """Whether a span of that name, with those attributes, is one of them."""
        if self.span is not None and not fnmatchcase(span_name.casefold(), self.span.casefold()):
            return False
        return all(key in attributes and same_value(attributes[key], value) for key, value in self.attributes.items())


def same_value(one: Any, other: Any) -> bool:
    """Whether two values of an attribute are the same: 1 is 1.0 and no truth value, and a tuple is a list."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
