"""Parses the filters of the run list, and turns stored runs into its entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any

from goldspan.extraction.capture_diagnostics import Hint, capture_hints
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model.markup import shorten_request, truncate
from goldspan.model.rendering import OUTCOME_SYMBOLS, RenderedRow, Symbol, ValueDifference, row_notes, symbol_for
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
"""The label of each filter, in display order."""


@dataclass(frozen=True, slots=True)
class RunFilters:
    """The filters of a run list."""

    values: Mapping[str, str]
    """The text of each filter by the name of its parameter; empty ones are left out."""
    run_filter: RunFilter
    cursor: str | None
    """The position where the list continues; `None`: at the newest run."""

    def get(self, name: str) -> str:
        """Return the text of a filter for the form."""
        return self.values.get(name, "")

    @property
    def active(self) -> list[tuple[str, str, str]]:
        """The label and text of each filter that is set, and the address of the list without it."""
        return [
            (_FILTER_LABELS[name], self.values[name], self._address_without(name))
            for name in _FILTER_LABELS
            if name in self.values
        ]

    @property
    def has_advanced(self) -> bool:
        """Whether a filter is set that the form hides in its details."""
        return any(name in self.values for name in _ADVANCED_FILTERS)

    def address(self, **more: Any) -> str:
        """Return the address of the list with these filters and further parameters."""
        return list_address(**{**self.values, **more})

    def _address_without(self, name: str) -> str:
        removed = {name, *_DEPENDENT_FILTERS.get(name, ())}
        return list_address(**{other: text for other, text in self.values.items() if other not in removed})


_ADVANCED_FILTERS = ("metric", "below", "service", "environment", "unit", "session_id", "trace_id", "until")

_DEPENDENT_FILTERS: Mapping[str, tuple[str, ...]] = {"metric": ("below",), "tool": ("tool_role",)}
"""Filters that have no meaning without another one."""


def unparsed_filters(pairs: QueryPairs) -> RunFilters:
    """Return filters that are not valid, so that the form can show their text."""
    return RunFilters({name: text for name, text in pairs if name in _FILTER_LABELS and text}, RunFilter(), None)


def parse_filters(pairs: QueryPairs) -> RunFilters:
    """Return the filters of a URL, without empty ones and without dependent ones whose main filter is missing.

    Raises `ConfigurationError` for a filter that is unknown, repeated or not valid.
    """
    filled = [(name, unescape_invisible(text.strip())) for name, text in pairs if text.strip()]
    names = dict(filled)
    for main, dependent in _DEPENDENT_FILTERS.items():
        if main not in names:
            filled = [(name, text) for name, text in filled if name not in dependent]
    query = parse_query(filled, _PARAMETERS)
    values = {name: text for name, text in filled if name != CURSOR.name}
    return RunFilters(values, filter_from_query(query), query.get(CURSOR.name))


_MATCH_DESCRIPTIONS: Mapping[str, str] = {
    "given": "the expectations of the run itself",
    "id": "its id",
    "when": "a rule",
    "input": "the same text",
    "near": "near text",
    "policy": "a policy for all other requests",
}
"""How a golden was found; completes the sentence "found by ..."."""


_MAX_REASON_LENGTH = 400
"""Characters of a reason in a list."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run in a list."""

    run_id: str
    anchor: str
    """The id of its HTML element."""
    time_ns: int
    mark: Symbol
    """The sign of its verdict."""
    name: str
    """See `run_name`."""
    request: str
    """The beginning of the request."""
    rows: tuple[RenderedRow, ...]
    reason: str
    agent: str | None
    service: str | None
    component: str | None
    revision: int
    hints: tuple[Hint, ...]
    """Its capture problems."""
    golden_id: str | None
    matched_by: str | None
    """How the golden was found; see `match_description`."""

    @property
    def chips(self) -> list[tuple[RenderedRow, int]]:
        """The rows, each with the number of consecutive repetitions."""
        return [(row, len(list(repetitions))) for row, repetitions in groupby(self.rows)]


def run_entry(run: StoredRun) -> RunEntry:
    """Return the list entry of a run."""
    document = run.current.document
    return RunEntry(
        run_id=run.run_id,
        anchor=f"run-{sha256(run.run_id.encode('utf-8', 'replace')).hexdigest()[:12]}",
        time_ns=run.time_ns,
        mark=OUTCOME_SYMBOLS[document["passed"]],
        name=run_name(document),
        request=shorten_request(document["input"]),
        rows=tuple(comparison_rows(document)),
        reason=truncate(document["reason"], _MAX_REASON_LENGTH),
        agent=short_name(document["agent"]),
        service=short_name(document["service"]),
        component=short_name(document["component"]),
        revision=run.current.revision,
        hints=tuple(stored_capture_hints(document)),
        golden_id=golden_id_of(document),
        matched_by=match_description(document),
    )


def short_name(text: str | None) -> str | None:
    """Return a name, truncated; `None` stays `None`."""
    return None if text is None else truncate(text)


def run_name(document: Mapping[str, Any]) -> str:
    """Return the id of the golden, else the component, the agent, the service or the run id."""
    names = (golden_id_of(document), document["component"], document["agent"], document["service"], document["run_id"])
    return truncate(next(filter(None, names), "run"))


def golden_id_of(document: Mapping[str, Any]) -> str | None:
    """Return the id of the golden of a run, or `None` if it has no golden or one without an id."""
    golden_id = document["golden_id"]
    return None if golden_id == ANONYMOUS_GOLDEN_ID else golden_id


def match_description(document: Mapping[str, Any]) -> str | None:
    """Return how the golden of a run was found, or `None` without a golden."""
    match = document["golden_match"]
    if match is None:
        return None
    description = _MATCH_DESCRIPTIONS[match["how"]]
    return f"{description} ({match['similarity']:.2f})" if match["how"] == "near" else description


def stored_capture_hints(document: Mapping[str, Any]) -> list[Hint]:
    """Return the capture problems of a stored run, and their remedies."""
    return capture_hints(run_from_document(document))


def comparison_rows(document: Mapping[str, Any]) -> Iterator[RenderedRow]:
    """Yield the rows of the comparison of a stored run."""
    for row in document["rows"]:
        called = None if row["called_at"] is None else document["tool_calls"][row["called_at"]]
        differing = row.get("differing", [])
        mark = symbol_for(row["verdict"], differs=bool(differing), in_order=row.get("in_order"))
        failed = called is not None and called.get("error") is not None
        notes = list(row_notes(mark, in_order=row.get("in_order"), failed=failed, note=row.get("note")))
        differences = row.get("differences", [])
        notes += [
            difference for difference in differences if isinstance(difference, str)
        ]  # written by the first versions
        yield RenderedRow(
            expected=None if row["expected"] is None else truncate(row["expected"]),
            called=None if called is None else truncate(called["name"]),
            mark=mark,
            differing=tuple(differing),
            notes=tuple(notes),
            differences=tuple(
                ValueDifference(**difference) for difference in differences if not isinstance(difference, str)
            ),
        )
