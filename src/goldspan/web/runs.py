"""The view of one run: expected beside called, the calls in time, scores, capture health and revisions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from goldspan.extraction.hints import Hint
from goldspan.model.rendering import MARKS, VERDICTS, Line, Mark, short
from goldspan.store import StoredEvaluation, StoredRun
from goldspan.web.entries import brief, found_by, golden_of, hints_of, lines_of, name_of
from goldspan.web.texts import cut
from goldspan.web.timeline import Timeline, timeline_of

_MOST_ROWS = 150
_MOST_REVISIONS = 50
_LONGEST_VALUE = 4_000
_MOST_VALUES = 60_000
"""Characters of one value, and of all values of a run, that are shown: the API has them whole."""


@dataclass(frozen=True, slots=True)
class Call:
    """What was passed to a tool and came back, as far as that is kept."""

    number: int
    name: str
    raw_name: str | None
    """The name as it was written, where that differs."""
    server: str | None
    arguments: str | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Revision:
    """An evaluation among those of its run."""

    number: int
    stored_ns: int
    mark: Mark
    reason: str
    changed: tuple[str, ...]
    """What is other than in the one before; empty for the first."""
    shown: bool


@dataclass(frozen=True, slots=True)
class Details:
    """Everything there is to see of a run, by one of its evaluations."""

    run: StoredRun
    evaluation: StoredEvaluation
    document: Mapping[str, Any]
    mark: Mark
    name: str
    golden_id: str | None
    how: str | None
    lines: tuple[Line, ...]
    left: int
    """So many more rows are not shown."""
    legend: tuple[Mark, ...]
    timeline: Timeline
    calls: tuple[Call, ...]
    """Those of which values are kept."""
    hints: tuple[Hint, ...]
    revisions: tuple[Revision, ...]

    @property
    def measured(self) -> list[Mapping[str, Any]]:
        """The scores that are known, or whose metric failed."""
        return [score for score in self.document["scores"] if score["value"] is not None or score["error"]]

    @property
    def unmeasured(self) -> list[tuple[str | None, list[str]]]:
        """The metrics that are not known, by why."""
        found: dict[str | None, list[str]] = {}
        for score in self.document["scores"]:
            if score["value"] is None and not score["error"]:
                found.setdefault(score["reason"], []).append(score["metric"])
        return list(found.items())

    @property
    def judged(self) -> list[Mapping[str, Any]]:
        """The scores that a model gave."""
        return [score for score in self.document["scores"] if score.get("judgement")]

    @property
    def values_kept(self) -> bool:
        """Whether arguments and results are stored, and not only names."""
        return bool(self.calls) or "metadata" in self.document

    @property
    def health(self) -> list[tuple[Hint, int]]:
        """What is amiss with its capture, each with the number of runs that it tells of: this one."""
        return [(hint, 1) for hint in self.hints]

    @property
    def is_current(self) -> bool:
        """Whether it is shown as it stands now."""
        return self.evaluation == self.run.current


def details_of(run: StoredRun, history: Sequence[StoredEvaluation], revision: int | None = None) -> Details | None:
    """What there is to see of a run; `None` where it has no such revision."""
    of_it = [each for each in history if revision in (None, each.revision)]
    if not of_it:
        return None
    shown = run.current if revision is None else of_it[-1]
    document = shown.document
    lines = tuple(lines_of(document))
    used = {line.mark for line in lines}
    return Details(
        run=run,
        evaluation=shown,
        document=document,
        mark=VERDICTS[document["passed"]],
        name=name_of(document),
        golden_id=golden_of(document),
        how=found_by(document),
        lines=lines[:_MOST_ROWS],
        left=len(lines[_MOST_ROWS:]),
        legend=tuple(mark for mark in MARKS if mark in used),
        timeline=timeline_of(document),
        calls=tuple(_calls(document)),
        hints=tuple(hints_of(document)),
        revisions=tuple(_revisions(history, shown)),
    )


def _calls(document: Mapping[str, Any]) -> Iterator[Call]:
    room = _MOST_VALUES
    for number, call in enumerate(document["tool_calls"][:_MOST_ROWS], start=1):
        if not any(name in call for name in ("arguments", "raw_arguments", "result")):
            continue
        values = [
            None if value is None else cut(_written(value), min(_LONGEST_VALUE, room))
            for value in (call.get("arguments", call.get("raw_arguments")), call.get("result"), call.get("error"))
        ]
        room = max(0, room - sum(len(value) for value in values if value is not None))
        yield Call(number, short(call["name"]), brief(call.get("raw_name")), brief(call.get("server")), *values)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _revisions(history: Sequence[StoredEvaluation], shown: StoredEvaluation) -> Iterator[Revision]:
    """All of them, the newest first."""
    known: list[Revision] = []
    before: Mapping[str, Any] | None = None
    for each in history:
        document = each.document
        known.append(
            Revision(
                number=each.revision,
                stored_ns=each.stored_ns,
                mark=VERDICTS[document["passed"]],
                reason=document["reason"],
                changed=tuple(_changes(before, document)) if before is not None else (),
                shown=each == shown,
            )
        )
        before = document
    return islice(reversed(known), _MOST_REVISIONS)


_PARTS: Mapping[str, tuple[str, ...]] = {
    "verdict": ("passed",),
    "calls": ("tool_calls",),
    "golden": ("golden_id", "expected_tools", "golden_match"),
    "scores": ("scores",),
    "scoring version": ("scoring_version",),
    "capture health": ("health",),
}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for part, names in _PARTS.items():
        if any(before.get(name) != now.get(name) for name in names):
            yield part
