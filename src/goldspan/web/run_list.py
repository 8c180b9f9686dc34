"""Stored runs as list entries: verdict, request, and the rows of the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any

from goldspan.extraction.capture_diagnostics import Hint, capture_hints
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model.rendering import (
    OUTCOME_SYMBOLS,
    RenderedRow,
    Symbol,
    ValueDifference,
    row_notes,
    shorten_request,
    symbol_for,
    truncate,
)
from goldspan.store import RunFilter, StoredRun
from goldspan.store.query_parameters import CURSOR, FILTER_PARAMETERS, filter_from_query, parse_query
from goldspan.store.run_records import run_from_document
from goldspan.web.display_text import list_address, unescape_invisible

QueryPairs = Iterable[tuple[str, str]]

_PARAMETERS = (*FILTER_PARAMETERS, CURSOR)
_FILTER_LABELS: Mapping[str, str] = {
    "verdict": "verdict",
    "text": "text",
    "golden": "golden",
    "covered": "has a golden",
    "agent": "agent",
    "tool": "tool",
    "tool_role": "role of the tool",
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
class RunFilters:
    """What somebody looks for."""

    said: Mapping[str, str]
    """By the names of the parameters, as they were written; nothing that was left empty."""
    run_filter: RunFilter
    cursor: str | None
    """Where the list goes on; `None`: it begins with the newest."""

    def get(self, name: str) -> str:
        """What was written for a filter, for the form."""
        return self.said.get(name, "")

    @property
    def active(self) -> list[tuple[str, str, str]]:
        """Each filter that is set: its name, what was written, and the address of the list without it."""
        return [
            (_FILTER_LABELS[name], self.said[name], self._address_without(name))
            for name in _FILTER_LABELS
            if name in self.said
        ]

    @property
    def more(self) -> bool:
        """Whether any of those is set that a form shows only when asked to."""
        return any(name in self.said for name in _ADVANCED_FILTERS)

    def address(self, **more: Any) -> str:
        """The list with these filters, and with what is said beside them."""
        return list_address(**{**self.said, **more})

    def _address_without(self, name: str) -> str:
        gone = {name, *_DEPENDENT_FILTERS.get(name, ())}
        return list_address(**{each: text for each, text in self.said.items() if each not in gone})


_ADVANCED_FILTERS = ("metric", "below", "service", "environment", "unit", "session_id", "trace_id", "until")

_DEPENDENT_FILTERS: Mapping[str, tuple[str, ...]] = {"metric": ("below",), "tool": ("tool_role",)}
"""Filters that mean nothing without another."""


def unparsed_filters(pairs: QueryPairs) -> RunFilters:
    """What was written, for the form, where it means nothing."""
    return RunFilters({name: text for name, text in pairs if name in _FILTER_LABELS and text}, RunFilter(), None)


def parse_filters(pairs: QueryPairs) -> RunFilters:
    """The filters of a URL. What is left empty in a form is not said, and half a filter without its other half neither.

    Raises `ConfigurationError` for what nobody knows, is said twice or means nothing.
    """
    written = [(name, unescape_invisible(text.strip())) for name, text in pairs if text.strip()]
    named = dict(written)
    for needed, dependent in _DEPENDENT_FILTERS.items():
        if needed not in named:
            written = [(name, text) for name, text in written if name not in dependent]
    said = parse_query(written, _PARAMETERS)
    shown = {name: text for name, text in written if name != CURSOR.name}
    return RunFilters(shown, filter_from_query(said), said.get(CURSOR.name))


_MATCH_DESCRIPTIONS: Mapping[str, str] = {
    "given": "what the run itself expects",
    "id": "its id",
    "when": "a rule",
    "input": "the same text",
    "near": "near text",
    "policy": "a policy for everything else",
}
"""How a golden is found, in words."""


_MAX_REASON_LENGTH = 400
"""Characters of a reason in a list."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run in a list."""

    run_id: str
    anchor: str
    """By which a page, and who changes it in place, knows the run."""
    time_ns: int
    mark: Symbol
    """How it came out."""
    name: str
    """The golden, or what the run is."""
    asked: str
    """The beginning of what was asked."""
    lines: tuple[RenderedRow, ...]
    reason: str
    agent: str | None
    service: str | None
    component: str | None
    revision: int
    hints: tuple[Hint, ...]
    """What is amiss with its capture."""
    golden_id: str | None
    how: str | None
    """How the golden was found."""

    @property
    def chips(self) -> list[tuple[RenderedRow, int]]:
        """The rows, each with how often it stands there in a row."""
        return [(line, len(list(alike))) for line, alike in groupby(self.lines)]


def run_entry(run: StoredRun) -> RunEntry:
    """What a list shows of a run."""
    document = run.current.document
    return RunEntry(
        run_id=run.run_id,
        anchor=f"run-{sha256(run.run_id.encode('utf-8', 'replace')).hexdigest()[:12]}",
        time_ns=run.time_ns,
        mark=OUTCOME_SYMBOLS[document["passed"]],
        name=run_name(document),
        asked=shorten_request(document["input"]),
        lines=tuple(comparison_lines(document)),
        reason=truncate(document["reason"], _MAX_REASON_LENGTH),
        agent=short_name(document["agent"]),
        service=short_name(document["service"]),
        component=short_name(document["component"]),
        revision=run.current.revision,
        hints=tuple(stored_capture_hints(document)),
        golden_id=golden_id_of(document),
        how=match_description(document),
    )


def short_name(text: str | None) -> str | None:
    """The beginning of a name that nobody would read to its end; `None`: there is none."""
    return None if text is None else truncate(text)


def run_name(document: Mapping[str, Any]) -> str:
    """By what people know a run: its golden, or what it says of itself."""
    told = (golden_id_of(document), document["component"], document["agent"], document["service"], document["run_id"])
    return truncate(next(filter(None, told), "run"))


def golden_id_of(document: Mapping[str, Any]) -> str | None:
    """The golden by which a run was judged, if it has a name."""
    golden = document["golden_id"]
    return None if golden == ANONYMOUS_GOLDEN_ID else golden


def match_description(document: Mapping[str, Any]) -> str | None:
    """How the golden of a run was found; `None`: it has none."""
    match = document["golden_match"]
    if match is None:
        return None
    way = _MATCH_DESCRIPTIONS[match["how"]]
    return f"{way} ({match['similarity']:.2f})" if match["how"] == "near" else way


def stored_capture_hints(document: Mapping[str, Any]) -> list[Hint]:
    """What is amiss with the capture of a run, and what to do about it."""
    return capture_hints(run_from_document(document))


def comparison_lines(document: Mapping[str, Any]) -> Iterator[RenderedRow]:
    """The rows of the comparison."""
    for row in document["rows"]:
        called = None if row["called_at"] is None else document["tool_calls"][row["called_at"]]
        differing = row.get("differing", [])
        mark = symbol_for(row["verdict"], differs=bool(differing), in_order=row.get("in_order"))
        failed = called is not None and called.get("error") is not None
        notes = list(row_notes(mark, in_order=row.get("in_order"), failed=failed, note=row.get("note")))
        differences = row.get("differences", [])
        notes += [each for each in differences if isinstance(each, str)]  # as the first stores have them
        yield RenderedRow(
            expected=None if row["expected"] is None else truncate(row["expected"]),
            called=None if called is None else truncate(called["name"]),
            mark=mark,
            differing=tuple(differing),
            notes=tuple(notes),
            differences=tuple(ValueDifference(**each) for each in differences if not isinstance(each, str)),
        )
