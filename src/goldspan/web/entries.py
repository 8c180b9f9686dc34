"""Stored runs as they are shown: the verdict, what was asked, and the rows of the comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any

from goldspan.extraction.hints import Hint, advise
from goldspan.goldens.statements import ANONYMOUS
from goldspan.model.rendering import VERDICTS, Contrast, Line, Mark, asked, mark_of, notes_of, short
from goldspan.store import StoredRun
from goldspan.store.documents import run_of

_WAYS: Mapping[str, str] = {
    "given": "what the run itself expects",
    "id": "its id",
    "when": "a rule",
    "input": "the same text",
    "near": "near text",
    "policy": "a policy for everything else",
}
"""How a golden is found, in words."""


_REASON = 400
"""Characters of a reason in a list."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in a list."""

    run_id: str
    anchor: str
    """By which a page, and who changes it in place, knows the run."""
    time_ns: int
    mark: Mark
    """How it came out."""
    name: str
    """The golden, or what the run is."""
    asked: str
    """The beginning of what was asked."""
    lines: tuple[Line, ...]
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
    def chips(self) -> list[tuple[Line, int]]:
        """The rows, each with how often it stands there in a row."""
        return [(line, len(list(alike))) for line, alike in groupby(self.lines)]


def entry_of(run: StoredRun) -> Entry:
    """What a list shows of a run."""
    document = run.current.document
    return Entry(
        run_id=run.run_id,
        anchor=f"run-{sha256(run.run_id.encode('utf-8', 'replace')).hexdigest()[:12]}",
        time_ns=run.time_ns,
        mark=VERDICTS[document["passed"]],
        name=name_of(document),
        asked=asked(document["input"]),
        lines=tuple(lines_of(document)),
        reason=short(document["reason"], _REASON),
        agent=brief(document["agent"]),
        service=brief(document["service"]),
        component=brief(document["component"]),
        revision=run.current.revision,
        hints=tuple(hints_of(document)),
        golden_id=golden_of(document),
        how=found_by(document),
    )


def brief(text: str | None) -> str | None:
    """The beginning of a name that nobody would read to its end; `None`: there is none."""
    return None if text is None else short(text)


def name_of(document: Mapping[str, Any]) -> str:
    """By what people know a run: its golden, or what it says of itself."""
    told = (golden_of(document), document["component"], document["agent"], document["service"], document["run_id"])
    return short(next(filter(None, told), "run"))


def golden_of(document: Mapping[str, Any]) -> str | None:
    """The golden by which a run was judged, if it has a name."""
    golden = document["golden_id"]
    return None if golden == ANONYMOUS else golden


def found_by(document: Mapping[str, Any]) -> str | None:
    """How the golden of a run was found; `None`: it has none."""
    match = document["golden_match"]
    if match is None:
        return None
    way = _WAYS[match["how"]]
    return f"{way} ({match['similarity']:.2f})" if match["how"] == "near" else way


def hints_of(document: Mapping[str, Any]) -> list[Hint]:
    """What is amiss with the capture of a run, and what to do about it."""
    return advise(run_of(document))


def lines_of(document: Mapping[str, Any]) -> Iterator[Line]:
    """The rows of the comparison."""
    for row in document["rows"]:
        called = None if row["called_at"] is None else document["tool_calls"][row["called_at"]]
        differing = row.get("differing", [])
        mark = mark_of(row["verdict"], differs=bool(differing), in_order=row.get("in_order"))
        failed = called is not None and called.get("error") is not None
        notes = list(notes_of(mark, in_order=row.get("in_order"), failed=failed, note=row.get("note")))
        differences = row.get("differences", [])
        notes += [each for each in differences if isinstance(each, str)]  # as the first stores have them
        yield Line(
            expected=None if row["expected"] is None else short(row["expected"]),
            called=None if called is None else short(called["name"]),
            mark=mark,
            differing=tuple(differing),
            notes=tuple(notes),
            differences=tuple(Contrast(**each) for each in differences if not isinstance(each, str)),
        )
