"""The filters of a list of runs: what stands in the URL, in the form, and in a query to the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.store import RunFilter
from goldspan.store.parameters import CURSOR, FILTER, filter_of, read_query
from goldspan.web.texts import list_address, meant

Pairs = Iterable[tuple[str, str]]

_KNOWN = (*FILTER, CURSOR)
_TOLD: Mapping[str, str] = {
    "verdict": "verdict",
    "text": "text",
    "golden": "golden",
    "covered": "has a golden",
    "agent": "agent",
    "tool": "tool",
    "tool_role": "the tool was",
    "metric": "metric",
    "below": "below",
    "service": "service",
    "environment": "environment",
    "unit": "unit",
    "session_id": "session",
    "trace_id": "trace",
    "since": "since",
    "until": "until",
}
"""What each filter is called, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What somebody looks for."""

    said: Mapping[str, str]
    """By the names of the parameters, as they were written; nothing that was left empty."""
    meant: RunFilter
    cursor: str | None
    """Where the list goes on; `None`: it begins with the newest."""

    def get(self, name: str) -> str:
        """What was written for a filter, for the form."""
        return self.said.get(name, "")

    @property
    def active(self) -> list[tuple[str, str, str]]:
        """Each filter that is set: its name, what was written, and the address of the list without it."""
        return [(_TOLD[name], self.said[name], self._without(name)) for name in _TOLD if name in self.said]

    @property
    def more(self) -> bool:
        """Whether any of those is set that a form shows only when asked to."""
        return any(name in self.said for name in _SELDOM)

    def address(self, **more: Any) -> str:
        """The list with these filters, and with what is said beside them."""
        return list_address(**{**self.said, **more})

    def _without(self, name: str) -> str:
        gone = {name, *_NEEDS.get(name, ())}
        return list_address(**{each: text for each, text in self.said.items() if each not in gone})


_SELDOM = ("metric", "below", "service", "environment", "unit", "session_id", "trace_id", "until")

_NEEDS: Mapping[str, tuple[str, ...]] = {"metric": ("below",), "tool": ("tool_role",)}
"""Filters that mean nothing without another."""


def as_written(pairs: Pairs) -> Filters:
    """What was written, for the form, where it means nothing."""
    return Filters({name: text for name, text in pairs if name in _TOLD and text}, RunFilter(), None)


def read_filters(pairs: Pairs) -> Filters:
    """The filters of a URL. What is left empty in a form is not said, and half a filter without its other half neither.

    Raises `ConfigurationError` for what nobody knows, is said twice or means nothing.
    """
    written = [(name, meant(text.strip())) for name, text in pairs if text.strip()]
    named = dict(written)
    for needed, dependent in _NEEDS.items():
        if needed not in named:
            written = [(name, text) for name, text in written if name not in dependent]
    said = read_query(written, _KNOWN)
    shown = {name: text for name, text in written if name != CURSOR.name}
    return Filters(shown, filter_of(said), said.get(CURSOR.name))
