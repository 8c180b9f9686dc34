"""The rows of a comparison as people see them: names, a sign between them, and what there is to say about the two.

Terminal, Markdown and HTML all show these lines. No value is in them unless it is asked for, and then every value has
gone through the redaction that is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from goldspan.model.findings import NO_GOLDEN, Row, Score, Verdict
from goldspan.model.markup import Block, Cell, Kind, Span, Table
from goldspan.model.values import Redaction, path_to, said

_ROWS = 500
_NAME = 80
_ASKED = 70
"""So many rows of a comparison, characters of a name and characters of a request are shown."""


class Mark(NamedTuple):
    """A sign between what was expected and what was called."""

    sign: str
    plain: str
    """For terminals that cannot show the other."""
    tone: Kind
    meaning: str


AGREES = Mark("=", "=", "good", "expected and called")
DIFFERS = Mark("≠", "#", "odd", "differs")
MISPLACED = Mark("↕", "~", "odd", "out of order")
_MARKS: Mapping[Verdict, Mark] = {
    "paired": AGREES,
    "missing": Mark("✗", "x", "bad", "missing"),
    "unexpected": Mark("+", "+", "odd", "not expected"),
    "superseded": Mark("↻", "r", "quiet", "failed, does not count"),
    "tolerated": Mark("·", ".", "quiet", "does not count"),
    "forbidden": Mark("!", "!", "alarm", "forbidden"),
}
MARKS: Sequence[Mark] = (AGREES, DIFFERS, MISPLACED, *list(_MARKS.values())[1:])
"""Every mark, in the order in which a legend tells them."""
VERDICTS: Mapping[bool | None, Mark] = {
    True: Mark("✓", "+", "good", "passed"),
    False: Mark("✗", "x", "bad", "failed"),
    None: Mark("○", "o", "odd", "not evaluated"),
}
"""The mark of a whole evaluation."""


class Contrast(NamedTuple):
    """One value that differs, as text on both sides."""

    path: str
    """Which argument, or what of the result."""
    expected: str
    called: str
    note: str | None = None
    """Why the two could not be compared; `None`: they were, and differ."""
    hint: str | None = None
    """What would have accepted the called value."""

    def __str__(self) -> str:
        said = self.note or self.hint
        why = f" ({said})" if said else ""
        return f"{self.path}: expected {self.expected}, called with {self.called}{why}"


@dataclass(frozen=True, slots=True)
class Line:
    """One row, ready to be shown."""

    expected: str | None
    called: str | None
    mark: Mark
    differing: tuple[str, ...] = ()
    """Where the call differs: paths of arguments, and `result` with the paths in it."""
    notes: tuple[str, ...] = ()
    """What else there is to say."""
    differences: tuple[Contrast, ...] = ()
    """How it differs there, where values are to be shown."""


def line_of(row: Row, *, values: bool = False, redact: Redaction | None = None) -> Line:
    """What there is to see of one row."""
    differing, differences = differences_of(row, values=values, redact=redact)
    mark = mark_of(row.verdict, differs=bool(differing), in_order=row.in_order)
    failed = row.called is not None and row.called.error is not None
    return Line(
        expected=short(row.expected.name) if row.expected else None,
        called=short(row.called.name) if row.called else None,
        mark=mark,
        differing=tuple(differing),
        notes=tuple(notes_of(mark, in_order=row.in_order, failed=failed, note=row.note)),
        differences=tuple(differences),
    )


def differences_of(
    row: Row, *, values: bool = False, redact: Redaction | None = None
) -> tuple[list[str], list[Contrast]]:
    """Where the call of a row differs from what was expected and, where values are to be shown, how; see `Line`."""
    differing: list[str] = []
    differences: list[Contrast] = []
    for part, agreement in (("", row.agreement), ("result", row.result_agreement)):
        for difference in agreement.differences if agreement else ():
            path = path_to(part, difference.key) or "arguments"
            differing.append(path)
            if values:
                expected, called = said(difference.expected, path, redact), said(difference.called, path, redact)
                differences.append(Contrast(path, expected, called, difference.note, difference.hint))
    return differing, differences


def mark_of(verdict: Verdict, *, differs: bool, in_order: bool | None) -> Mark:
    """The sign between the two sides of a row."""
    if verdict == "paired" and differs:
        return DIFFERS
    return MISPLACED if verdict == "paired" and in_order is False else _MARKS[verdict]


def notes_of(mark: Mark, *, in_order: bool | None, failed: bool, note: str | None) -> Iterator[str]:
    """What there is to say of a row beside its mark."""
    if mark is DIFFERS and in_order is False:
        yield MISPLACED.meaning
    if failed:
        yield "failed"
    if note and note != NO_GOLDEN and mark is not _MARKS["superseded"]:
        yield note


def asked(request: str | None) -> str:
    """The beginning of what was asked, in one line."""
    return short(" ".join((request or "").split()), _ASKED)


def short(text: str, length: int = _NAME) -> str:
    """The beginning of a text that is longer than that."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


# --- blocks for Markdown and HTML -------------------------------------------------------------------------------------

_NOTHING = (Span("—", "quiet"),)


def heading(mark: Mark, name: str, request: str | None, redact: Redaction | None = None) -> tuple[Span, ...]:
    """What a page is about: how it ended, by what name it is known, and what was asked."""
    if redact is not None and request is not None:
        request = str(redact("input", request))
    title = (Span(mark.sign, mark.tone), Span(" "), Span(short(name), "name"))
    return (*title, Span(" "), Span(asked(request), "quiet")) if request else title


def comparison(
    rows: Sequence[Row],
    *,
    of_golden: bool = True,
    approximate: str | None = None,
    values: bool = False,
    redact: Redaction | None = None,
) -> Iterator[Block]:
    """Expected and called side by side; `of_golden`: whether anybody has said what was expected."""
    lines = [line_of(row, values=values, redact=redact) for row in rows[:_ROWS]]
    yield from table_of(lines, len(rows) - len(lines), of_golden=of_golden)
    if approximate:
        yield (Span(f"There may be a better pairing, with {approximate}.", "quiet"),)


def table_of(lines: Sequence[Line], left: int = 0, *, of_golden: bool = True) -> Iterator[Block]:
    """The lines of a comparison side by side, and how many more there are."""
    if lines:
        yield Table(("expected", "", "called", ""), tuple(map(_cells, lines)))
    else:
        yield (Span(f"Nothing was {'expected and nothing was ' if of_golden else ''}called.", "quiet"),)
    if left:
        yield (Span(f"{left} more rows", "quiet"),)


def scores(measured: Iterable[Score]) -> Iterator[Block]:
    """Each metric with its number, what it had to reach and whether it did, and below why others have no number."""
    rows = []
    unknown: dict[str, list[str]] = {}
    for score in measured:
        if score.value is None and score.error is None:
            unknown.setdefault(score.reason or "", []).append(score.metric)
        else:
            rows.append(_score_cells(score))
    if rows:
        yield Table(("metric", "value", "at least", ""), tuple(rows))
    if unknown:
        groups = (
            [*_joined([[Span(name, "name")] for name in names], ", "), Span(f" ({reason})" if reason else "", "quiet")]
            for reason, names in unknown.items()
        )
        yield Span("Not measured: ", "quiet"), *_joined(groups, "; ")


def _cells(line: Line) -> tuple[Cell, ...]:
    return (
        (Span(line.expected, "name"),) if line.expected is not None else _NOTHING,
        (Span(line.mark.sign, line.mark.tone),),
        (Span(line.called, "name"),) if line.called is not None else _NOTHING,
        tuple(_remarks(line)),
    )


def _remarks(line: Line) -> Iterator[Span]:
    """What is odd about a line, in words: the sign alone says little to who sees it for the first time."""
    told: list[list[Span]] = []
    if line.differing:
        paths = [[Span(path, "name")] for path in line.differing]
        told.append([Span("differs in "), *_joined(paths, ", ")] if not line.differences else [Span(line.mark.meaning)])
    elif line.mark is not AGREES and not (line.notes and line.mark.tone == "quiet"):
        told.append([Span(line.mark.meaning)])
    told += [[Span(note)] for note in line.notes]
    told += [[Span(str(difference))] for difference in line.differences]
    return iter(_joined(told, "; "))


def _joined(pieces: Iterable[Sequence[Span]], separator: str) -> list[Span]:
    spans: list[Span] = []
    for piece in pieces:
        spans += [Span(separator), *piece] if spans else piece
    return spans


def _score_cells(score: Score) -> tuple[Cell, ...]:
    mark = VERDICTS[score.passed]
    ended = [Span(mark.meaning, mark.tone)] if score.passed is not None else []
    return (
        (Span(score.metric, "name"),),
        (Span(f"{score.value:.4f}"),) if score.value is not None else _NOTHING,
        (Span(f"{score.threshold:g}"),) if score.threshold is not None else (),
        ended if score.error is None else (Span(f"error: {score.error}", "bad"),),
    )
